//! strongSwan's IKE daemon with its user-space ESP (kernel-libipsec) for benchmarks: no log, and no limit
//! of half-open SAs. The strongSwan matrix needs logs and kernels, and has an implementation of its own.

use crate::{Background, Error, Netns, Output, Result, run};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(10);
/// An SA may take several seconds.
const SWANCTL_LIMIT: Duration = Duration::from_secs(15);

/// Plugins to load. The first plugin that offers a cipher provides it.
const PLUGINS: &str = "aesni random nonce kdf aes sha1 sha2 hmac mgf1 pem pkcs1 pkcs8 x509 pubkey constraints curve25519 gcm ccm \
     cmac xcbc ctr gmp openssl chapoly kernel-libipsec kernel-netlink socket-default vici updown resolve revocation";

/// Directories that swanctl expects.
const FOLDERS: &str =
    "x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa bliss pkcs8 pkcs12";

/// Copies of strongSwan's programs. Debian's AppArmor profiles restrict the originals, by their paths, to
/// the files of the system daemon.
#[derive(Debug, Clone)]
pub struct Charon {
    programs: PathBuf,
}

impl Charon {
    /// Copies the programs to `directory`. Fails if they are not installed.
    pub fn copy_to(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        for program in ["charon-systemd", "swanctl"] {
            let from = Path::new("/usr/sbin").join(program);
            fs::copy(&from, directory.join(program)).map_err(Error::context(format!(
                "{} (Debian packages charon-systemd and strongswan-swanctl)",
                from.display()
            )))?;
        }
        Ok(Self { programs: directory })
    }

    /// Starts the daemon in `netns`, with the command `wrapper` in front unless it is empty, and loads
    /// `swanctl.conf` of `directory`. The directory contains all files of the daemon.
    pub fn start(&self, netns: &Netns, wrapper: &[&str], directory: &Path) -> Result<Background> {
        let conf = directory.join("strongswan.conf");
        fs::write(&conf, configuration(&uri(directory))).map_err(Error::context(conf.display()))?;
        let daemon = self.launch(netns, wrapper, directory)?;
        self.load(netns, directory)?;
        Ok(daemon)
    }

    /// Starts the daemon with `strongswan.conf` of `directory`, whose vici socket must be `charon.vici` of
    /// the directory. Nothing is loaded.
    pub fn launch(&self, netns: &Netns, wrapper: &[&str], directory: &Path) -> Result<Background> {
        create_folders(directory)?;
        let program = self.programs.join("charon-systemd");
        let mut command = match wrapper {
            [] => netns.command(program),
            [first, rest @ ..] => {
                let mut command = netns.command(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.env("STRONGSWAN_CONF", directory.join("strongswan.conf"));
        let mut daemon = Background::start("charon", command, &directory.join("output"))?;
        let socket = socket(directory);
        daemon.wait_until(START_LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
        Ok(daemon)
    }

    /// Loads `swanctl.conf` of `directory` and all its credentials.
    fn load(&self, netns: &Netns, directory: &Path) -> Result<()> {
        let arguments = ["--load-all", "--noprompt"];
        let output = self.swanctl(netns, directory, &arguments)?;
        // swanctl succeeds even if it could not load a private key.
        if output.status != 0 || output.stdout.contains("failed") {
            return Err(Error::new(format!("swanctl {}: {}", arguments.join(" "), output.stdout)));
        }
        Ok(())
    }

    /// Runs `swanctl` with these arguments for a program that serves vici on `charon.vici` of `directory`.
    /// The directory also contains `strongswan.conf` and the files to load.
    pub fn swanctl(&self, netns: &Netns, directory: &Path, arguments: &[&str]) -> Result<Output> {
        let shown = directory.display();
        let environment =
            [format!("SWANCTL_DIR={shown}"), format!("STRONGSWAN_CONF={shown}/strongswan.conf")];
        let (program, uri) = (self.programs.join("swanctl").display().to_string(), uri(directory));
        let mut words: Vec<&str> = environment.iter().map(String::as_str).collect();
        words.push(&program);
        words.extend(arguments);
        words.extend(["--uri", &uri]);
        run(netns, SWANCTL_LIMIT, "env", &words)
    }
}

/// Creates the folders of credentials in `directory`, unless they exist. swanctl reports each missing one.
fn create_folders(directory: &Path) -> Result<()> {
    FOLDERS
        .split(' ')
        .try_for_each(|folder| fs::create_dir_all(directory.join(folder)).map_err(Error::context(folder)))
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("charon.vici")
}

fn uri(directory: &Path) -> String {
    format!("unix://{}", socket(directory).display())
}

/// No log, no cookies, and no limit of half-open SAs of one address. For charon, zero is a low threshold.
fn configuration(uri: &str) -> String {
    format!(
        "charon-systemd {{\n load = {PLUGINS}\n cookie_threshold = 100000\n cookie_threshold_ip = 100000\n block_threshold = 100000\n \
         half_open_timeout = 300\n plugins {{\n vici {{\n socket = {uri}\n }}\n \
         kernel-libipsec {{\n allow_peer_ts = yes\n }}\n }}\n \
         journal {{\n default = -1\n }}\n syslog {{\n daemon {{\n default = -1\n }}\n }}\n}}\n\
         swanctl {{\n load = random pem pkcs1 pkcs8 x509 pubkey openssl curve25519\n}}\n"
    )
}
