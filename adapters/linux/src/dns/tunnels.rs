//! The name servers that peers have assigned, by IKE SA, and the settings that follow from them.
//!
//! A server is used if a Child SA of its IKE SA leads to it: queries to another one would leave in clear. If
//! a Child SA leads everywhere, the servers are meant for all names, whatever domains the peer names (RFC
//! 8598 section 8).

use super::DnsSettings;
use casemate_ike::config::DomainName;
use casemate_ike::{Event, IkeSaId, TrafficSelector};
use casemate_sa::AddrRange;
use std::net::IpAddr;

/// Protocol number of UDP.
const UDP: u8 = 17;
/// Port of name servers.
const DNS_PORT: u16 = 53;

/// The IKE SAs on which this host has requested addresses, the newest last.
#[derive(Debug, Default)]
pub(super) struct Tunnels(Vec<(IkeSaId, Tunnel)>);

/// The name servers of an IKE SA.
#[derive(Debug, Default)]
struct Tunnel {
    /// Name of the connection.
    name: String,
    servers: Vec<IpAddr>,
    domains: Vec<DomainName>,
    /// Remote addresses of its Child SAs so far.
    reached: Vec<AddrRange>,
}

impl Tunnels {
    /// None.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes an event into account.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::ConfigAssigned { ike, config, .. } => {
                let tunnel = self.tunnel(*ike);
                tunnel.servers.clone_from(&config.dns);
                tunnel.domains.clone_from(&config.domains);
            }
            Event::ChildUp(up) if !up.connection.vips.is_empty() => {
                let tunnel = self.tunnel(up.ike);
                tunnel.name.clone_from(&up.connection.name);
                tunnel.reach(&up.remote);
            }
            Event::IkeRekeyed { old, new } => {
                self.0.iter_mut().filter(|(ike, _)| ike == old).for_each(|(ike, _)| *ike = *new);
            }
            Event::IkeDown { ike: ended, .. } => self.0.retain(|(ike, _)| ike != ended),
            _ => {}
        }
    }

    fn tunnel(&mut self, ike: IkeSaId) -> &mut Tunnel {
        let at = self.0.iter().position(|(known, _)| *known == ike).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push((ike, Tunnel::default()));
        }
        #[allow(clippy::indexing_slicing, reason = "the position of an entry")]
        &mut self.0[at].1
    }

    /// The settings for all tunnels, without servers if there are none. The second part says which servers
    /// are not used, and why.
    pub(super) fn settings(&self) -> (DnsSettings, Vec<String>) {
        join(self.0.iter().rev().map(|(_, tunnel)| tunnel))
    }
}

/// Joins the servers of tunnels, the first one first.
fn join<'t>(tunnels: impl Iterator<Item = &'t Tunnel>) -> (DnsSettings, Vec<String>) {
    let (mut settings, mut unused) = (DnsSettings::default(), Vec::new());
    for tunnel in tunnels.filter(|tunnel| !tunnel.servers.is_empty()) {
        let reaches = |server: &&IpAddr| tunnel.reached.iter().any(|range| range.contains(**server));
        let (reached, others): (Vec<&IpAddr>, Vec<&IpAddr>) = tunnel.servers.iter().partition(reaches);
        unused.extend(others.iter().map(|server| {
            format!("{}: no Child SA leads to the name server {server}, so it is not used", tunnel.name)
        }));
        if reached.is_empty() {
            continue;
        }
        extend(&mut settings.servers, reached);
        if tunnel.leads_everywhere() || tunnel.domains.is_empty() {
            settings.all_names = true;
        } else {
            extend(&mut settings.domains, &tunnel.domains);
        }
    }
    (settings, unused)
}

impl Tunnel {
    /// Adds the remote addresses of a Child SA.
    fn reach(&mut self, remote: &[TrafficSelector]) {
        let ranges =
            remote.iter().filter(|selector| admits_queries(selector)).map(|selector| &selector.addrs);
        extend(&mut self.reached, ranges);
    }

    fn leads_everywhere(&self) -> bool {
        self.reached.iter().any(|range| [AddrRange::ANY_V4, AddrRange::ANY_V6].contains(range))
    }
}

/// Adds the values that the list does not have.
fn extend<'v, T: Clone + PartialEq + 'v>(list: &mut Vec<T>, values: impl IntoIterator<Item = &'v T>) {
    for value in values {
        if !list.contains(value) {
            list.push(value.clone());
        }
    }
}

/// Whether queries to name servers are among the packets.
fn admits_queries(selector: &TrafficSelector) -> bool {
    selector.proto.is_none_or(|proto| proto == UDP) && selector.ports.contains(DNS_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::PortRange;

    fn tunnel(name: &str, servers: &[&str], domains: &[&str], reached: &[(&str, u8)]) -> Tunnel {
        let range = |(addr, len): &(&str, u8)| AddrRange::prefix(addr.parse().unwrap(), *len).unwrap();
        Tunnel {
            name: name.into(),
            servers: servers.iter().map(|addr| addr.parse().unwrap()).collect(),
            domains: domains.iter().map(|name| DomainName::parse(name.as_bytes()).unwrap()).collect(),
            reached: reached.iter().map(range).collect(),
        }
    }

    fn shown(tunnels: &[Tunnel]) -> String {
        let (settings, unused) = join(tunnels.iter());
        assert!(unused.is_empty(), "{unused:?}");
        settings.to_string()
    }

    #[test]
    fn servers_are_for_their_domains_unless_the_tunnel_leads_everywhere() {
        let net = ("10.1.0.0", 16);
        let split = || tunnel("a", &["10.1.0.53"], &["corp.example"], &[net]);
        assert_eq!(shown(&[split()]), "10.1.0.53 for corp.example");
        assert_eq!(shown(&[tunnel("a", &["10.1.0.53"], &[], &[net])]), "10.1.0.53 for all names");
        let full = tunnel("a", &["10.1.0.53"], &["corp.example"], &[("0.0.0.0", 0)]);
        assert_eq!(shown(&[full]), "10.1.0.53 for all names");
        let full_v6 = tunnel("a", &["fd00::53"], &["corp.example"], &[("::", 0)]);
        assert_eq!(shown(&[full_v6]), "fd00::53 for all names");
        let other = tunnel("b", &["10.1.0.53", "10.1.0.54"], &["lab.example", "corp.example"], &[net]);
        assert_eq!(shown(&[split(), other]), "10.1.0.53 10.1.0.54 for corp.example lab.example");
    }

    #[test]
    fn servers_outside_of_the_tunnel_are_not_used() {
        let tunnel = tunnel("office", &["8.8.8.8", "10.1.0.53"], &[], &[("10.1.0.0", 16)]);
        let (settings, unused) = join([&tunnel].into_iter());
        assert_eq!(settings.to_string(), "10.1.0.53 for all names");
        assert_eq!(unused, ["office: no Child SA leads to the name server 8.8.8.8, so it is not used"]);
        let (settings, _) = join([&self::tunnel("office", &["8.8.8.8"], &[], &[])].into_iter());
        assert_eq!(settings, DnsSettings::default());
    }

    #[test]
    fn only_selectors_that_admit_queries_count() {
        let selector = |proto, ports| TrafficSelector { addrs: AddrRange::ANY_V4, proto, ports };
        let web = PortRange::single(443);
        let mut tunnel = tunnel("a", &["10.1.0.53"], &[], &[]);
        tunnel.reach(&[selector(Some(6), PortRange::ANY), selector(None, web)]);
        assert!(tunnel.reached.is_empty());
        tunnel.reach(&[selector(Some(17), PortRange::single(53)), selector(None, PortRange::ANY)]);
        assert_eq!(tunnel.reached, [AddrRange::ANY_V4]);
    }
}
