//! systemd-resolved: name servers and routing domains of the TUN interface, set with resolvectl(1).
//!
//! The settings belong to the interface, so they end with it, also if this program is killed.

use super::DnsSettings;
use crate::Error;
use crate::netlink::Netlink;
use crate::program::{self, TIME_LIMIT, find, searched};

/// The routing domain of all names: only servers of this interface are asked for names that no other interface has
/// a domain for.
const ALL_NAMES: &str = "~.";

/// Sets servers and domains.
pub(super) fn set(tun: &str, settings: &DnsSettings) -> Result<(), Error> {
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
pub(super) fn revert(tun: &str) -> Result<(), Error> {
    match Netlink::open()?.index_of(tun)? {
        Some(_) => resolvectl(&["revert", tun]),
        None => Ok(()),
    }
}

fn resolvectl(arguments: &[&str]) -> Result<(), Error> {
    let missing = || {
        let reason =
            format!("not installed (Debian package systemd-resolved): looked for {}", searched("resolvectl"));
        Error::other("resolvectl", reason)
    };
    program::run(&find("resolvectl").ok_or_else(missing)?, arguments, "", TIME_LIMIT)
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
