//! The programs that manage name servers: `resolvectl` of systemd-resolved, and `resolvconf` of openresolv or
//! of Debian's package of that name.
//!
//! The settings of systemd-resolved belong to the TUN interface, so they end with it, also if this program is
//! killed. The records of resolvconf are below /run, so they end with a reboot.

use super::DnsSettings;
use super::resolv_conf;
use crate::Error;
use crate::netlink::Netlink;
use crate::program::{self, TIME_LIMIT, find, searched};

/// The routing domain of all names: only servers of this interface are asked for names that no other
/// interface has a domain for.
const ALL_NAMES: &str = "~.";

/// Gives servers and domains to the interface, with systemd-resolved.
pub(super) fn set_link(tun: &str, settings: &DnsSettings) -> Result<(), Error> {
    let default_route = if settings.all_names { "yes" } else { "no" };
    // The tunnel carries no multicast, in which names of the local network are looked up.
    for protocol in ["llmnr", "mdns"] {
        resolvectl(&[protocol, tun, "no"])?;
    }
    // Before the servers, so that they get no queries for other names.
    resolvectl(&["default-route", tun, default_route])?;
    resolvectl(&domain_arguments(tun, settings).iter().map(String::as_str).collect::<Vec<_>>())?;
    let servers = settings.servers.iter().map(ToString::to_string);
    let arguments: Vec<String> = ["dns".into(), tun.into()].into_iter().chain(servers).collect();
    resolvectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn domain_arguments(tun: &str, settings: &DnsSettings) -> Vec<String> {
    let mut arguments = vec!["domain".to_owned(), tun.to_owned()];
    arguments.extend(settings.domains.iter().map(|domain| format!("~{domain}")));
    arguments.extend(settings.all_names.then(|| ALL_NAMES.to_owned()));
    arguments
}

/// Removes the settings of the interface, if it exists.
pub(super) fn revert_link(tun: &str) -> Result<(), Error> {
    match Netlink::open()?.index_of(tun)? {
        Some(_) => resolvectl(&["revert", tun]),
        None => Ok(()),
    }
}

/// Adds or replaces the record of this host's tunnels, with resolvconf. The metric puts its servers in front
/// of all others; with
/// `-x` openresolv uses no others.
pub(super) fn add_record(tun: &str, settings: &DnsSettings) -> Result<(), Error> {
    let record = resolv_conf::lines(settings);
    resolvconf(&["-a", &record_name(tun), "-m", "0", "-x"], &record)
}

/// Removes the record from resolvconf.
pub(super) fn remove_record(tun: &str) -> Result<(), Error> {
    resolvconf(&["-d", &record_name(tun), "-f"], "")
}

/// Name of the record. Debian's resolvconf sorts records that begin with `tun` in front of those of links.
fn record_name(tun: &str) -> String {
    format!("tun.{tun}")
}

fn resolvectl(arguments: &[&str]) -> Result<(), Error> {
    run("resolvectl", "systemd-resolved", arguments, "")
}

fn resolvconf(arguments: &[&str], input: &str) -> Result<(), Error> {
    run("resolvconf", "openresolv", arguments, input)
}

/// Runs a program of this Debian package.
fn run(name: &str, package: &str, arguments: &[&str], input: &str) -> Result<(), Error> {
    let missing = || {
        let reason = format!("not installed (Debian package {package}): looked for {}", searched(name));
        Error::other(name, reason)
    };
    program::run(&find(name).ok_or_else(missing)?, arguments, input, TIME_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::config::DomainName;

    #[test]
    fn domains_are_for_routing_only() {
        let domains = ["corp.example", "lab.example"].map(|name| DomainName::parse(name.as_bytes()).unwrap());
        let split = DnsSettings { servers: Vec::new(), domains: domains.into(), all_names: false };
        assert_eq!(domain_arguments("tun5", &split), ["domain", "tun5", "~corp.example", "~lab.example"]);
        let all = DnsSettings { all_names: true, ..DnsSettings::default() };
        assert_eq!(domain_arguments("tun5", &all), ["domain", "tun5", "~."]);
    }
}
