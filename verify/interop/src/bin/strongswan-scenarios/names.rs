//! Names that hosts look up: a file in place of `/etc/hosts` for each host, and no name servers.

use casemate_interop::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that hosts look up, below strongswan.org.
const NAMES: [(&str, &str); 21] = [
    ("192.168.0.1", "moon"),
    ("10.1.0.1", "moon1"),
    ("192.168.0.2", "sun"),
    ("10.2.0.1", "sun1"),
    ("192.168.0.100", "carol"),
    ("192.168.0.200", "dave"),
    ("192.168.0.150", "winnetou"),
    ("192.168.0.150", "crl"),
    ("192.168.0.150", "ocsp"),
    ("192.168.0.150", "ldap"),
    ("10.1.0.10", "alice"),
    ("192.168.0.50", "alice1"),
    ("10.1.0.20", "venus"),
    ("10.2.0.10", "bob"),
    ("fec0::1", "ip6-moon"),
    ("fec0::2", "ip6-sun"),
    ("fec0::10", "ip6-carol"),
    ("fec0::15", "ip6-winnetou"),
    ("fec0::20", "ip6-dave"),
    ("fec1::10", "ip6-alice"),
    ("fec2::10", "ip6-bob"),
];

/// The files of all hosts.
pub(crate) struct Names {
    directory: PathBuf,
}

impl Names {
    /// Writes a file for each host, in a directory of its own below `directory`.
    pub(crate) fn write<'h>(directory: &Path, hosts: impl Iterator<Item = &'h &'static str>) -> Result<Self> {
        let names = Self { directory: directory.join("names") };
        fs::create_dir_all(&names.directory).map_err(Error::context(names.directory.display()))?;
        for host in hosts {
            let file = names.file(host);
            fs::write(&file, text()).map_err(Error::context(file.display()))?;
        }
        Ok(names)
    }

    fn file(&self, host: &str) -> PathBuf {
        self.directory.join(host)
    }

    /// Gives a name another address on a host. The file stays the same, because a running daemon has it in
    /// its own namespace of mounts.
    pub(crate) fn change(&self, host: &str, name: &str, address: &str) -> Result<()> {
        let file = self.file(host);
        let text = fs::read_to_string(&file).map_err(Error::context(file.display()))?;
        let text = with_address(&text, name, address)
            .ok_or_else(|| Error::new(format!("no host has the name `{name}`")))?;
        fs::write(&file, text).map_err(Error::context(file.display()))
    }

    /// Returns the words of a command that gives the program after them the names of the host, no name
    /// servers and, if it is named, its own root directory with the devices, processes and temporary files of
    /// this machine.
    pub(crate) fn wrapper(&self, host: &str, root: Option<&Path>) -> Vec<String> {
        let script = match root {
            None => {
                "mount --bind \"$1\" /etc/hosts; mount --bind /dev/null /etc/resolv.conf; shift 2; exec \
                 \"$@\""
            }
            Some(_) => {
                "mount --bind \"$1\" \"$2/etc/hosts\"; : >\"$2/etc/resolv.conf\"; for i in dev proc tmp; do \
                 mount --rbind /$i \"$2/$i\"; done; \
                 root=$2; shift 2; exec chroot \"$root\" \"$@\""
            }
        };
        let mut words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
            .map(String::from)
            .to_vec();
        words.push(self.file(host).display().to_string());
        words.push(root.map(|root| root.display().to_string()).unwrap_or_default());
        words
    }
}

fn text() -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (address, name) in NAMES {
        text.push_str(&format!("{address} {name}.strongswan.org {name}\n"));
    }
    text
}

/// Returns the text with another address of a name; `None` if it does not contain the name.
fn with_address(text: &str, name: &str, address: &str) -> Option<String> {
    let has_name = |line: &&str| line.split_whitespace().skip(1).any(|word| word == name);
    let old = text.lines().find(has_name)?;
    let (_, names) = old.split_once(' ')?;
    let lines = text
        .lines()
        .map(|line| if line == old { format!("{address} {names}\n") } else { format!("{line}\n") });
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_another_address() {
        let changed = with_address(&text(), "carol", "192.168.0.7").unwrap();
        assert!(changed.contains("\n192.168.0.7 carol.strongswan.org carol\n"), "{changed}");
        assert!(!changed.contains("192.168.0.100") && changed.contains("192.168.0.200 dave"), "{changed}");
        assert_eq!(with_address(&text(), "nobody", "192.168.0.7"), None);
    }
}
