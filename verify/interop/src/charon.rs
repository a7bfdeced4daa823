//! strongSwan's IKE daemon with its ESP in user space (kernel-libipsec), as benchmarks start it: no log, and no limit for
//! half-open SAs. The strongSwan matrix, which wants logs and kernels, has its own.

use crate::{Background, Error, Netns, Result, run};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(10);

/// What charon shall load. The first plugin that has a cipher gives it.
const PLUGINS: &str = "aesni random nonce kdf aes sha1 sha2 hmac mgf1 pem pkcs1 pkcs8 x509 pubkey constraints curve25519 gcm ccm \
     cmac xcbc ctr gmp openssl chapoly kernel-libipsec kernel-netlink socket-default vici updown resolve revocation";

/// Folders that swanctl wants to see.
const FOLDERS: &str =
    "x509 x509ca x509ocsp x509aa x509ac x509crl pubkey private rsa ecdsa bliss pkcs8 pkcs12";

/// Copies of strongSwan's programs in a directory. Debian confines the originals by AppArmor, by their paths, to the files
/// of the system's own daemon.
#[derive(Debug, Clone)]
pub struct Charon {
    programs: PathBuf,
}

impl Charon {
    /// Copies the programs to `directory`; an error where they are not installed.
    pub fn copy_to(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        for program in ["charon-systemd", "swanctl"] {
            let from = Path::new("/usr/sbin").join(program);
            fs::copy(&from, directory.join(program)).map_err(Error::in_front(format!(
                "{} (Debian packages charon-systemd and strongswan-swanctl)",
                from.display()
            )))?;
        }
        Ok(Self { programs: directory })
    }

    /// Starts it in `netns`, by `wrapper` if that is not empty, and loads `swanctl.conf` of `directory`. All its files are
    /// in there.
    pub fn start(&self, netns: &Netns, wrapper: &[&str], directory: &Path) -> Result<Background> {
        let (socket, conf) = (socket(directory), directory.join("strongswan.conf"));
        fs::write(&conf, configuration(&uri(directory))).map_err(Error::in_front(conf.display()))?;
        for folder in FOLDERS.split(' ') {
            fs::create_dir_all(directory.join(folder)).map_err(Error::in_front(folder))?;
        }
        let program = self.programs.join("charon-systemd");
        let mut command = match wrapper {
            [] => netns.command(program),
            [first, rest @ ..] => {
                let mut command = netns.command(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.env("STRONGSWAN_CONF", &conf);
        let mut daemon = Background::start("charon", command, &directory.join("output"))?;
        daemon.wait_until(START_LIMIT, |_| UnixStream::connect(&socket).is_ok())?;
        self.swanctl(netns, directory, &["--load-all", "--noprompt"])?;
        Ok(daemon)
    }

    /// Runs `swanctl` with these arguments for the daemon whose files are in `directory`.
    pub fn swanctl(&self, netns: &Netns, directory: &Path, arguments: &[&str]) -> Result<()> {
        let shown = directory.display();
        let environment =
            [format!("SWANCTL_DIR={shown}"), format!("STRONGSWAN_CONF={shown}/strongswan.conf")];
        let (program, uri) = (self.programs.join("swanctl").display().to_string(), uri(directory));
        let mut words: Vec<&str> = environment.iter().map(String::as_str).collect();
        words.push(&program);
        words.extend(arguments);
        words.extend(["--uri", &uri]);
        let output = run(netns, START_LIMIT, "env", &words)?;
        if output.status != 0 || output.stdout.contains("failed") {
            return Err(Error::new(format!("swanctl {}: {}", arguments.join(" "), output.stdout)));
        }
        Ok(())
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("charon.vici")
}

fn uri(directory: &Path) -> String {
    format!("unix://{}", socket(directory).display())
}

/// No log, no cookies, and no limit for half-open SAs of one address. To charon, zero is a low threshold.
fn configuration(uri: &str) -> String {
    format!(
        "charon-systemd {{\n load = {PLUGINS}\n cookie_threshold = 100000\n cookie_threshold_ip = 100000\n block_threshold = 100000\n \
         half_open_timeout = 300\n plugins {{\n vici {{\n socket = {uri}\n }}\n \
         kernel-libipsec {{\n allow_peer_ts = yes\n }}\n }}\n \
         journal {{\n default = -1\n }}\n syslog {{\n daemon {{\n default = -1\n }}\n }}\n}}\n\
         swanctl {{\n load = random pem pkcs1 pkcs8 x509 pubkey openssl curve25519\n}}\n"
    )
}
