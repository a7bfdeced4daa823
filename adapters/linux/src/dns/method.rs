//! Ways to change the name servers of this host, and the choice of one.

use crate::program;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// How the name servers of peers are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DnsMode {
    /// As this host manages its name servers.
    #[default]
    Auto,
    /// In this way.
    Only(DnsMethod),
    /// Not at all.
    Off,
}

/// A way to set name servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsMethod {
    /// systemd-resolved: servers and domains of the TUN interface (resolvectl(1)).
    SystemdResolved,
    /// The program resolvconf, of openresolv or Debian's resolvconf.
    Resolvconf,
    /// The file /etc/resolv.conf.
    File,
}

impl fmt::Display for DnsMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SystemdResolved => "systemd-resolved",
            Self::Resolvconf => "resolvconf",
            Self::File => "file",
        })
    }
}

impl DnsMethod {
    /// Whether servers are asked for names in their domains only. Otherwise they are asked for all names.
    pub const fn limits_domains(self) -> bool {
        matches!(self, Self::SystemdResolved)
    }
}

impl FromStr for DnsMethod {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::SystemdResolved, Self::Resolvconf, Self::File];
        all.into_iter().find(|method| method.to_string() == text).ok_or(())
    }
}

impl DnsMode {
    /// The way that is used now; `None` if none is.
    pub(super) fn method(self) -> Option<DnsMethod> {
        match self {
            Self::Off => None,
            Self::Only(method) => Some(method),
            Self::Auto => Some(detect(super::etc(), &|name| program::find(name).is_some())),
        }
    }
}

/// systemd-resolved, if /etc/resolv.conf leads to it; resolvconf, if it is installed; otherwise the file.
fn detect(etc: &Path, is_installed: &dyn Fn(&str) -> bool) -> DnsMethod {
    let path = etc.join("resolv.conf");
    let leads_to_resolved = match fs::read_link(&path) {
        // The links in the manual of systemd-resolved: its stub, its list of servers, and a static file.
        Ok(target) => {
            let target = target.to_string_lossy().into_owned();
            target.contains("/systemd/resolve/") || target.ends_with("/systemd/resolv.conf")
        }
        Err(_) => names_stub(&fs::read_to_string(&path).unwrap_or_default()),
    };
    if leads_to_resolved && is_installed("resolvectl") {
        return DnsMethod::SystemdResolved;
    }
    // systemd installs resolvectl under this name, too.
    if is_installed("resolvconf") && !is_installed("resolvectl") {
        return DnsMethod::Resolvconf;
    }
    DnsMethod::File
}

/// Whether the only name servers are the stub of systemd-resolved.
fn names_stub(resolv_conf: &str) -> bool {
    let servers = || resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers().next().is_some() && servers().all(|addr| matches!(addr.trim(), "127.0.0.53" | "127.0.0.54"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_owner_of_resolv_conf_is_detected() {
        let etc = TempDir::new("detect").unwrap();
        let path = etc.path().join("resolv.conf");
        let found = |installed: &[&str]| detect(etc.path(), &|name| installed.contains(&name));
        assert_eq!(found(&["resolvectl"]), DnsMethod::File, "there is no file");
        for target in ["../run/systemd/resolve/stub-resolv.conf", "/usr/lib/systemd/resolv.conf"] {
            symlink(target, &path).unwrap();
            assert_eq!(found(&["resolvectl", "resolvconf"]), DnsMethod::SystemdResolved, "{target}");
            assert_eq!(found(&[]), DnsMethod::File);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, "# stub\nnameserver 127.0.0.53\noptions edns0\n").unwrap();
        assert_eq!(found(&["resolvectl"]), DnsMethod::SystemdResolved);
        fs::write(&path, "nameserver 127.0.0.53\nnameserver 192.0.2.1\n").unwrap();
        assert_eq!(found(&["resolvectl", "resolvconf"]), DnsMethod::File);
        assert_eq!(found(&["resolvconf"]), DnsMethod::Resolvconf);
    }

    #[test]
    fn methods_are_read_as_written() {
        for method in [DnsMethod::SystemdResolved, DnsMethod::Resolvconf, DnsMethod::File] {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert!("dnsmasq".parse::<DnsMethod>().is_err());
        assert_eq!(DnsMode::Off.method(), None);
    }
}
