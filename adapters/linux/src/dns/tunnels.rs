//! The name servers that peers have assigned, by IKE SA, and the settings that follow from them.
//!
//! A server is used while a Child SA of its IKE SA leads to it: queries to another one would leave in clear.
//! After the end of that Child SA, it is used while a policy, such as a trap, protects what the Child SA has
//! protected. If a Child SA leads everywhere, the servers are meant for all names, whatever domains the peer
//! names (RFC 8598 section 8).

use super::DnsSettings;
use casemate_ike::config::DomainName;
use casemate_ike::{ByOrigin, ChildId, Event, TrafficSelector};
use casemate_sa::{AddrRange, Selector};
use std::net::IpAddr;

/// Protocol number of UDP.
const UDP: u8 = 17;
/// Port of name servers.
const DNS_PORT: u16 = 53;
/// Ranges of ended Child SAs that are kept, at most, for each IKE SA.
const MAX_FORMER: usize = 64;

/// The IKE SAs on which this host has requested addresses.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    ikes: ByOrigin<Tunnel>,
    /// Destinations to which policies protect queries, those of traps included.
    protected: Vec<AddrRange>,
}

/// The name servers of an IKE SA.
#[derive(Debug, Default)]
struct Tunnel {
    /// Name of the connection.
    name: String,
    servers: Vec<IpAddr>,
    domains: Vec<DomainName>,
    /// Remote addresses of its Child SAs.
    children: Vec<(ChildId, Vec<AddrRange>)>,
    /// Remote addresses of those that have ended.
    former: Vec<AddrRange>,
}

impl Tunnels {
    /// Takes an event into account.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::ConfigAssigned { ike, connection, config, .. } => self.ikes.update(*ike, |tunnel| {
                tunnel.name.clone_from(&connection.name);
                tunnel.servers.clone_from(&config.dns);
                tunnel.domains.clone_from(&config.domains);
            }),
            Event::ChildUp(up) if !up.connection.vips.is_empty() => self.ikes.update(up.ike, |tunnel| {
                tunnel.name.clone_from(&up.connection.name);
                tunnel.children.push((up.id, destinations(&up.remote)));
            }),
            Event::ChildDown { id, origin, .. } => {
                if let Some(tunnel) = self.ikes.get_mut(*origin) {
                    tunnel.child_down(*id);
                }
            }
            Event::IkeRekeyed { old, new } => self.ikes.rekeyed(*old, *new),
            Event::IkeDown { ike, .. } => drop(self.ikes.ended(*ike)),
            _ => {}
        }
    }

    /// Takes the policies into account: the selectors of outbound traffic that does not leave in clear.
    pub(super) fn note_policies(&mut self, protected: impl Iterator<Item = Selector>) {
        self.protected.clear();
        // Policies matter only to a host that has been assigned name servers, and a gateway has many.
        if self.ikes.iter().any(|(_, tunnel)| !tunnel.servers.is_empty() && !tunnel.former.is_empty()) {
            let queries = protected.filter(|selector| {
                selector.proto.is_none_or(|proto| proto == UDP) && selector.dst_port.contains(DNS_PORT)
            });
            self.protected.extend(queries.map(|selector| selector.dst));
        }
    }

    /// The settings for all tunnels, without servers if there are none. The second part says which servers
    /// are not used, and why.
    pub(super) fn settings(&self) -> (DnsSettings, Vec<String>) {
        let mut tunnels: Vec<&Tunnel> = self.ikes.iter().map(|(_, tunnel)| tunnel).collect();
        // The newest one has precedence.
        tunnels.reverse();
        join(tunnels.into_iter(), &self.protected)
    }
}

/// Joins the servers of tunnels, the first one first.
fn join<'t>(
    tunnels: impl Iterator<Item = &'t Tunnel>,
    protected: &[AddrRange],
) -> (DnsSettings, Vec<String>) {
    let (mut settings, mut unused) = (DnsSettings::default(), Vec::new());
    for tunnel in tunnels.filter(|tunnel| !tunnel.servers.is_empty()) {
        let ranges = tunnel.reached(protected);
        let reaches = |server: &&IpAddr| ranges.iter().any(|range| range.contains(**server));
        let (reached, others): (Vec<&IpAddr>, Vec<&IpAddr>) = tunnel.servers.iter().partition(reaches);
        unused.extend(others.iter().map(|server| {
            format!("{}: no Child SA leads to the name server {server}, so it is not used", tunnel.name)
        }));
        if reached.is_empty() {
            continue;
        }
        extend(&mut settings.servers, reached);
        let leads_everywhere =
            ranges.iter().any(|range| [AddrRange::ANY_V4, AddrRange::ANY_V6].contains(range));
        if leads_everywhere || tunnel.domains.is_empty() {
            settings.all_names = true;
        } else {
            extend(&mut settings.domains, &tunnel.domains);
        }
    }
    (settings, unused)
}

impl Tunnel {
    /// The addresses to which queries are protected, by its Child SAs or by policies in place of ended ones.
    fn reached(&self, protected: &[AddrRange]) -> Vec<AddrRange> {
        let is_protected = |range: &&AddrRange| {
            protected.iter().any(|policy| policy.contains(range.first()) && policy.contains(range.last()))
        };
        let present = self.children.iter().flat_map(|(_, ranges)| ranges);
        present.chain(self.former.iter().filter(is_protected)).copied().collect()
    }

    fn child_down(&mut self, id: ChildId) {
        for (_, ranges) in self.children.extract_if(.., |(child, _)| *child == id) {
            extend(&mut self.former, &ranges);
        }
        self.former.truncate(MAX_FORMER);
    }
}

/// The remote addresses of a Child SA to which it carries queries.
fn destinations(remote: &[TrafficSelector]) -> Vec<AddrRange> {
    remote.iter().filter(|selector| admits_queries(selector)).map(|selector| selector.addrs).collect()
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
    use casemate_ike::config::{Connection, Identity};
    use casemate_ike::{AssignedConfig, DownReason, IkeSaId, Path};
    use casemate_sa::PortRange;
    use std::sync::Arc;

    const IKE: IkeSaId = IkeSaId::for_tests(1);
    const OURS: IkeSaId = IkeSaId::for_tests(2);
    const PEERS: IkeSaId = IkeSaId::for_tests(3);
    const CHILD: ChildId = ChildId::for_tests(1);

    fn range((addr, len): (&str, u8)) -> AddrRange {
        AddrRange::prefix(addr.parse().unwrap(), len).unwrap()
    }

    fn tunnel(name: &str, servers: &[&str], domains: &[&str], reached: &[(&str, u8)]) -> Tunnel {
        Tunnel {
            name: name.into(),
            servers: servers.iter().map(|addr| addr.parse().unwrap()).collect(),
            domains: domains.iter().map(|name| DomainName::parse(name.as_bytes()).unwrap()).collect(),
            children: vec![(CHILD, reached.iter().copied().map(range).collect())],
            former: Vec::new(),
        }
    }

    fn shown(tunnels: &[Tunnel]) -> String {
        let (settings, unused) = join(tunnels.iter(), &[]);
        assert!(unused.is_empty(), "{unused:?}");
        settings.to_string()
    }

    /// An office whose name server is reached through a Child SA.
    fn office(reached: (&str, u8)) -> Tunnels {
        let mut tunnels = Tunnels::default();
        tunnels.ikes.insert(IKE, tunnel("office", &["10.1.0.53"], &[], &[reached]));
        tunnels
    }

    fn child_up(tunnels: &mut Tunnels, ike: IkeSaId, id: u64) {
        let child = (ChildId::for_tests(id), vec![range(("10.1.0.0", 24))]);
        tunnels.ikes.update(ike, |tunnel| tunnel.children.push(child));
    }

    fn used(tunnels: &Tunnels) -> Vec<IpAddr> {
        tunnels.settings().0.servers
    }

    fn connection() -> Arc<Connection> {
        let id = |name: &str| Identity::Fqdn(name.into());
        Arc::new(Connection::with_shared_key("office", id("client"), id("gateway")))
    }

    fn ended(ike: IkeSaId) -> Event {
        let [local, remote] = ["192.0.2.1:500", "192.0.2.2:500"].map(|addr| addr.parse().unwrap());
        let (connection, path) = (connection(), Path { local, remote });
        Event::IkeDown { ike, connection, reason: DownReason::Peer, half_open: false, path }
    }

    #[test]
    fn a_server_without_a_child_sa_is_reported_with_the_connection() {
        let mut tunnels = Tunnels::default();
        let config = AssignedConfig { dns: vec!["10.1.0.53".parse().unwrap()], ..AssignedConfig::default() };
        let (connection, new_addrs) = (connection(), Vec::new());
        tunnels.note(&Event::ConfigAssigned { ike: IKE, connection, config, new_addrs });
        let unused = tunnels.settings().1;
        assert_eq!(unused, ["office: no Child SA leads to the name server 10.1.0.53, so it is not used"]);
    }

    #[test]
    fn servers_outlive_a_collision_of_rekeyings() {
        let (made, ours) =
            (Event::IkeRekeyed { old: IKE, new: PEERS }, Event::IkeRekeyed { old: IKE, new: OURS });
        for later in [[&ours, &ended(PEERS), &ended(IKE)], [&ended(PEERS), &ours, &ended(IKE)]] {
            let mut tunnels = office(("10.1.0.0", 16));
            tunnels.note(&made);
            for event in later {
                tunnels.note(event);
                assert_eq!(used(&tunnels).len(), 1, "{event:?}");
            }
            tunnels.note(&ended(OURS));
            assert!(used(&tunnels).is_empty());
        }
    }

    #[test]
    fn a_server_is_not_used_after_the_end_of_the_child_sa_that_leads_to_it() {
        let mut tunnels = office(("10.1.0.0", 16));
        let child_down = |id, reason| Event::ChildDown { id: ChildId::for_tests(id), reason, origin: IKE };
        // A Child SA that replaces it leads to the server as well.
        child_up(&mut tunnels, IKE, 2);
        tunnels.note(&child_down(1, DownReason::Replaced));
        assert_eq!(used(&tunnels).len(), 1);
        tunnels.note(&Event::IkeRekeyed { old: IKE, new: OURS });
        tunnels.note(&ended(IKE));
        tunnels.note(&child_down(2, DownReason::Inactive));
        assert!(used(&tunnels).is_empty());
        let unused = tunnels.settings().1;
        assert_eq!(unused, ["office: no Child SA leads to the name server 10.1.0.53, so it is not used"]);
        child_up(&mut tunnels, OURS, 3);
        assert_eq!(used(&tunnels).len(), 1, "another Child SA leads to it");
    }

    #[test]
    fn a_trap_keeps_the_server_of_an_ended_child_sa() {
        let to = |dst, proto, port: PortRange| Selector {
            proto,
            dst_port: port,
            ..Selector::between(AddrRange::ANY_V4, range(dst))
        };
        let office_net = ("10.1.0.0", 16);
        let mut tunnels = office(office_net);
        tunnels.note(&Event::ChildDown { id: CHILD, reason: DownReason::Inactive, origin: IKE });
        let others = [
            to(("10.1.0.0", 24), None, PortRange::ANY),
            to(office_net, Some(6), PortRange::ANY),
            to(office_net, None, PortRange::single(443)),
        ];
        tunnels.note_policies(others.into_iter());
        assert!(used(&tunnels).is_empty());
        tunnels.note_policies([to(("10.0.0.0", 8), Some(17), PortRange::single(53))].into_iter());
        assert_eq!(used(&tunnels).len(), 1);
        tunnels.note_policies([].into_iter());
        assert!(used(&tunnels).is_empty(), "the trap was removed");
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
        let (settings, unused) = join([&tunnel].into_iter(), &[]);
        assert_eq!(settings.to_string(), "10.1.0.53 for all names");
        assert_eq!(unused, ["office: no Child SA leads to the name server 8.8.8.8, so it is not used"]);
        let (settings, _) = join([&self::tunnel("office", &["8.8.8.8"], &[], &[])].into_iter(), &[]);
        assert_eq!(settings, DnsSettings::default());
    }

    #[test]
    fn only_selectors_that_admit_queries_count() {
        let selector = |proto, ports| TrafficSelector { addrs: AddrRange::ANY_V4, proto, ports };
        let web = PortRange::single(443);
        assert!(destinations(&[selector(Some(6), PortRange::ANY), selector(None, web)]).is_empty());
        let both = [selector(Some(17), PortRange::single(53)), selector(None, PortRange::ANY)];
        assert_eq!(destinations(&both), [AddrRange::ANY_V4; 2]);
    }
}
