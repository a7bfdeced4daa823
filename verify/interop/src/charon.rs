//! strongSwan's IKE daemon with its user-space ESP (kernel-libipsec), for benchmarks with no log and no limit
//! of half-open SAs, and for test scenarios with a configuration of their own; listings of its SAs. The
//! strongSwan matrix needs kernels, and has an implementation of its own.

use crate::{Background, Error, Netns, Output, Result, run};
use std::collections::BTreeMap;
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
    /// Path of the daemon, in the root directory that its wrapper chooses.
    daemon: PathBuf,
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
        Ok(Self { daemon: directory.join("charon-systemd"), programs: directory })
    }

    /// Starts another daemon: the path is that in the root directory which the wrapper of
    /// [`Charon::launch`] chooses.
    #[must_use]
    pub fn with_daemon(self, daemon: PathBuf) -> Self {
        Self { daemon, ..self }
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
        let program = &self.daemon;
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

/// Section of what swanctl lists, as `swanctl --list-sas --pretty` prints it: values, lists and sections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    values: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
    /// Subsections with their names, in order.
    pub sections: Vec<(String, Listing)>,
}

impl Listing {
    /// Parses the output. Lines of other kinds are ignored.
    pub fn parse(text: &str) -> Self {
        Self::read(&mut text.lines())
    }

    fn read<'t>(lines: &mut impl Iterator<Item = &'t str>) -> Self {
        let mut section = Self::default();
        while let Some(line) = lines.next().map(str::trim) {
            if line == "}" {
                break;
            }
            if let Some(name) = line.strip_suffix(" {") {
                section.sections.push((name.into(), Self::read(lines)));
            } else if let Some(name) = line.strip_suffix(" = [") {
                let items = lines.map(str::trim).take_while(|&line| line != "]").map(Into::into).collect();
                section.lists.insert(name.into(), items);
            } else if let Some((name, value)) = line.split_once(" = ") {
                section.values.insert(name.into(), value.into());
            }
        }
        section
    }

    /// Returns a value, or an empty string.
    pub fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns a list, or an empty list.
    pub fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the subsection of this name.
    pub fn section(&self, name: &str) -> Option<&Listing> {
        self.sections.iter().find(|(own, _)| own == name).map(|(_, section)| section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sections_values_and_lists() {
        let text = "list-sa event {\n  t {\n    remote-id = C=CH, CN=x = y\n    child-sas {\n      c-1 \
                    {\n        name = c\n\
                    local-ts = [\n          10.99.1.0/24\n          fd99::/64\n        ]\n        mode = \
                    TUNNEL\n      }\n    }\n\
                      }\n}\nlist-sas reply {\n}\n";
        let listing = Listing::parse(text);
        assert_eq!(listing.sections.len(), 2);
        let sa = listing.section("list-sa event").and_then(|event| event.section("t")).unwrap();
        assert_eq!(sa.value("remote-id"), "C=CH, CN=x = y");
        let child = sa.section("child-sas").and_then(|children| children.section("c-1")).unwrap();
        assert_eq!(child.list("local-ts"), ["10.99.1.0/24", "fd99::/64"]);
        assert_eq!((child.value("mode"), child.value("nothing")), ("TUNNEL", ""));
    }
}
