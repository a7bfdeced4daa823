//! Configuration payloads: virtual addresses, name servers, their domains, and subnets (RFC 7296 sections
//! 2.19 and 3.15, RFC 8598).

use crate::address_pool::LeaseRequest;
use crate::config::{Connection, is_host};
#[cfg(feature = "split-dns")]
use crate::config::{DomainName, DomainPolicy};
use crate::context::Step;
use crate::{AssignedConfig, Path, Routes, StateFault};
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use casemate_sa::table::OrderedMap;
use casemate_wire::ike::{CfgAttribute, CfgType, Cp, CpAttribute, WriteError, Writer};
use core::net::{IpAddr, Ipv4Addr};

/// Prefix length of a single IPv6 address.
const PREFIX_OF_ONE: u8 = 128;

/// Maximum number of values of one kind that are read.
const MAX_VALUES: usize = 16;

/// Addresses to request: those of the IKE SA that is being reauthenticated, or the configured ones.
pub(super) fn addrs_to_request(vips: &[IpAddr], known: &[IpAddr]) -> Vec<IpAddr> {
    let of_version = |v4| known.iter().filter(move |addr| addr.is_ipv4() == v4).copied();
    let (mut v4, mut v6) = (of_version(true), of_version(false));
    let next = |vip: &IpAddr| {
        let known = if vip.is_ipv4() { v4.next() } else { v6.next() };
        known.unwrap_or(*vip)
    };
    vips.iter().map(next).collect()
}

/// Writes the initiator's request if it wants an address.
pub(super) fn write_request(vips: &[IpAddr], out: &mut Writer<'_>) -> Result<(), WriteError> {
    if vips.is_empty() {
        return Ok(());
    }
    let mut attributes: Vec<OwnedAttribute> = Vec::new();
    for vip in vips {
        let (addr, dns) = match vip {
            IpAddr::V4(_) => (CfgAttribute::INTERNAL_IP4_ADDRESS, CfgAttribute::INTERNAL_IP4_DNS),
            IpAddr::V6(_) => (CfgAttribute::INTERNAL_IP6_ADDRESS, CfgAttribute::INTERNAL_IP6_DNS),
        };
        // An empty value requests any address (RFC 7296 section 3.15.1).
        let value = if vip.is_unspecified() { Vec::new() } else { addr_value(*vip) };
        attributes.push(OwnedAttribute { kind: addr, value });
        if !attributes.iter().any(|attribute| attribute.kind == dns) {
            attributes.push(OwnedAttribute { kind: dns, value: Vec::new() });
        }
    }
    // RFC 8598 section 3.1: an empty value says that this host supports split DNS. Trust anchors for DNSSEC
    // are not requested: no resolver of this host would get them.
    #[cfg(feature = "split-dns")]
    attributes.push(OwnedAttribute { kind: CfgAttribute::INTERNAL_DNS_DOMAIN, value: Vec::new() });
    write(CfgType::REQUEST, &attributes, out)
}

/// Reads the contents of a reply.
pub(super) fn read_reply(cp: &Cp<'_>) -> AssignedConfig {
    let mut assigned = AssignedConfig::default();
    if cp.kind != CfgType::REPLY {
        return assigned;
    }
    for attribute in cp.attributes() {
        match attribute.kind {
            CfgAttribute::INTERNAL_IP4_ADDRESS => {
                push(&mut assigned.addrs, attribute.v4().map(IpAddr::V4));
            }
            CfgAttribute::INTERNAL_IP6_ADDRESS => {
                push(&mut assigned.addrs, attribute.v6_prefix().map(|(addr, _)| IpAddr::V6(addr)));
            }
            CfgAttribute::INTERNAL_IP4_DNS => add_server(&mut assigned, attribute.v4().map(IpAddr::V4)),
            CfgAttribute::INTERNAL_IP6_DNS => add_server(&mut assigned, attribute.v6().map(IpAddr::V6)),
            CfgAttribute::INTERNAL_IP4_SUBNET => push(&mut assigned.subnets, parse_v4_subnet(&attribute)),
            CfgAttribute::INTERNAL_IP6_SUBNET => {
                let prefix = attribute.v6_prefix();
                let range = prefix.and_then(|(addr, len)| AddrRange::prefix(addr.into(), len).ok());
                push(&mut assigned.subnets, range);
            }
            _ => {}
        }
    }
    assigned
}

/// Moves the addresses that this host does not take to the refused ones. It already has those of its other
/// IKE SAs. Without an address, the name servers cannot be reached.
pub(super) fn refuse_addrs(
    assigned: &mut AssignedConfig,
    path: Path,
    held: &AssignedAddrs,
    routes: &dyn Routes,
) {
    let (local, peer) = (path.local.ip(), path.remote.ip());
    let is_taken = |addr: &IpAddr| {
        is_host(*addr)
            && ![local, peer].contains(addr)
            && (held.contains(*addr) || routes.can_be_virtual(*addr, peer))
    };
    (assigned.addrs, assigned.refused_addrs) =
        core::mem::take(&mut assigned.addrs).into_iter().partition(is_taken);
    if assigned.addrs.is_empty() {
        assigned.dns.clear();
    }
}

/// Adds a name server once, if it can be one.
fn add_server(assigned: &mut AssignedConfig, server: Option<IpAddr>) {
    let Some(server) = server else { return };
    if assigned.dns.contains(&server) {
        return;
    }
    if is_host(server) && assigned.dns.len() < MAX_VALUES {
        assigned.dns.push(server);
    } else {
        assigned.refused = assigned.refused.saturating_add(1);
    }
}

/// Adds the domains of a reply that the policy accepts. If the peer names none, those of the policy are meant
/// (RFC 8598 section 3.2). If none of its domains is acceptable, its servers are not used: they are not meant
/// for other names.
#[cfg(feature = "split-dns")]
pub(super) fn add_domains(assigned: &mut AssignedConfig, cp: &Cp<'_>, policy: &DomainPolicy) {
    if cp.kind != CfgType::REPLY || assigned.dns.is_empty() {
        return;
    }
    let mut names_domains = false;
    for attribute in cp.attributes() {
        if attribute.kind != CfgAttribute::INTERNAL_DNS_DOMAIN || attribute.value.is_empty() {
            continue;
        }
        names_domains = true;
        let domain = DomainName::parse(attribute.value).filter(|domain| policy.accepts(domain));
        match domain {
            Some(domain) if assigned.domains.contains(&domain) => {}
            Some(domain) if assigned.domains.len() < MAX_VALUES => assigned.domains.push(domain),
            _ => assigned.refused = assigned.refused.saturating_add(1),
        }
    }
    if assigned.domains.is_empty() {
        assigned.domains.clone_from(&policy.accepted);
        if names_domains && assigned.domains.is_empty() {
            assigned.refused = assigned.refused.saturating_add(assigned.dns.len());
            assigned.dns.clear();
        }
    }
}

fn push<T>(values: &mut Vec<T>, value: Option<T>) {
    if values.len() < MAX_VALUES {
        values.extend(value);
    }
}

fn parse_v4_subnet(attribute: &CpAttribute<'_>) -> Option<AddrRange> {
    let (addr, mask) = attribute.v4_subnet()?;
    let len = mask.to_bits().leading_ones();
    let is_mask = mask.to_bits().checked_shl(len).unwrap_or(0) == 0;
    AddrRange::prefix(addr.into(), u8::try_from(len).ok().filter(|_| is_mask)?).ok()
}

/// What this host assigns to a peer.
#[derive(Debug, Default)]
pub(super) struct LeasedConfig {
    pub(super) addrs: Vec<IpAddr>,
    /// Addresses that an AAA server has assigned to the peer.
    #[cfg(feature = "eap")]
    assigned: Vec<IpAddr>,
    attributes: Vec<OwnedAttribute>,
}

/// An attribute of a configuration payload to send.
#[derive(Debug, Clone, PartialEq)]
struct OwnedAttribute {
    kind: CfgAttribute,
    value: Vec<u8>,
}

impl LeasedConfig {
    /// Leases an address of each requested IP version, or those that an AAA server has assigned. Does nothing
    /// if the connection has no pools.
    pub(super) fn lease(
        &mut self,
        cp: &Cp<'_>,
        connection: &Connection,
        to: LeaseRequest<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        if cp.kind != CfgType::REQUEST || connection.pools.is_empty() {
            return Ok(());
        }
        let mut failed = false;
        for attribute in cp.attributes().take(MAX_VALUES) {
            let wanted = match attribute.kind {
                CfgAttribute::INTERNAL_IP4_ADDRESS => attribute.v4().map(IpAddr::V4),
                CfgAttribute::INTERNAL_IP6_ADDRESS => attribute.v6_prefix().map(|(addr, _)| IpAddr::V6(addr)),
                _ => continue,
            };
            let v4 = attribute.kind == CfgAttribute::INTERNAL_IP4_ADDRESS;
            let to = LeaseRequest { held: &self.addrs, ..to };
            let pools = &mut step.shared.pools;
            #[cfg(feature = "eap")]
            if let Some(addr) = self.next_assigned(connection, v4) {
                match pools.lease_assigned(addr, to) {
                    Some(addr) => self.add(attribute.kind, addr),
                    None => failed = true,
                }
                continue;
            }
            // One peer must not take a whole pool with one IKE SA.
            if self.addrs.iter().any(|addr| addr.is_ipv4() == v4) {
                continue;
            }
            match pools.lease(&connection.pools, v4, wanted, to) {
                Some(addr) => self.add(attribute.kind, addr),
                None => failed = true,
            }
        }
        // RFC 7296 section 3.15.4: a failure is reported only if there is no address at all.
        if failed && self.addrs.is_empty() {
            return Err(StateFault::NoAddress);
        }
        for pool in step.shared.pools.by_name(&connection.pools) {
            let used = self.addrs.iter().any(|addr| pool.addrs.contains(*addr));
            let (dns, subnets) = if used { (&*pool.dns, &*pool.subnets) } else { (&[][..], &[][..]) };
            self.attributes.extend(dns.iter().map(|dns| dns_attribute(*dns)));
            #[cfg(feature = "split-dns")]
            if !dns.is_empty() && supports_domains(cp) {
                self.attributes.extend(pool.dns_domains.iter().map(domain_attribute));
            }
            self.attributes.extend(subnets.iter().filter_map(subnet_attribute));
        }
        Ok(())
    }

    /// Sets the addresses that an AAA server has assigned to the peer.
    #[cfg(feature = "eap")]
    pub(super) fn set_assigned(&mut self, addrs: &[IpAddr]) {
        self.assigned = addrs.into();
    }

    /// The next address that a server has assigned, if the connection takes addresses from servers.
    #[cfg(feature = "eap")]
    fn next_assigned(&self, connection: &Connection, v4: bool) -> Option<IpAddr> {
        let takes_assigned = connection.pools.iter().any(|pool| pool == crate::config::SERVER_POOL);
        let is_next = |addr: &&IpAddr| addr.is_ipv4() == v4 && !self.addrs.contains(addr);
        self.assigned.iter().find(is_next).copied().filter(|_| takes_assigned)
    }

    fn add(&mut self, kind: CfgAttribute, addr: IpAddr) {
        self.addrs.push(addr);
        self.attributes.push(OwnedAttribute { kind, value: addr_value(addr) });
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.addrs.is_empty() { Ok(()) } else { write(CfgType::REPLY, &self.attributes, out) }
    }
}

fn write(kind: CfgType, attributes: &[OwnedAttribute], out: &mut Writer<'_>) -> Result<(), WriteError> {
    let attributes: Vec<CpAttribute<'_>> =
        attributes.iter().map(|OwnedAttribute { kind, value }| CpAttribute { kind: *kind, value }).collect();
    out.cp(kind, &attributes)
}

/// Value of an address attribute. IPv6 includes a prefix length (RFC 7296 section 3.15.1).
fn addr_value(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().into(),
        IpAddr::V6(addr) => [&addr.octets()[..], &[PREFIX_OF_ONE]].concat(),
    }
}

fn dns_attribute(addr: IpAddr) -> OwnedAttribute {
    match addr {
        IpAddr::V4(addr) => {
            OwnedAttribute { kind: CfgAttribute::INTERNAL_IP4_DNS, value: addr.octets().into() }
        }
        IpAddr::V6(addr) => {
            OwnedAttribute { kind: CfgAttribute::INTERNAL_IP6_DNS, value: addr.octets().into() }
        }
    }
}

/// Whether the peer supports split DNS (RFC 8598 section 3.1).
#[cfg(feature = "split-dns")]
fn supports_domains(cp: &Cp<'_>) -> bool {
    cp.attributes().any(|attribute| attribute.kind == CfgAttribute::INTERNAL_DNS_DOMAIN)
}

#[cfg(feature = "split-dns")]
fn domain_attribute(domain: &DomainName) -> OwnedAttribute {
    OwnedAttribute { kind: CfgAttribute::INTERNAL_DNS_DOMAIN, value: domain.as_str().into() }
}

fn subnet_attribute(range: &AddrRange) -> Option<OwnedAttribute> {
    let len = range.prefix_len()?;
    Some(match range.first() {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(len.into())).unwrap_or(0);
            let mask = Ipv4Addr::from_bits(mask);
            let value = [addr.octets(), mask.octets()].concat();
            OwnedAttribute { kind: CfgAttribute::INTERNAL_IP4_SUBNET, value }
        }
        IpAddr::V6(addr) => {
            let value = [&addr.octets()[..], &[len]].concat();
            OwnedAttribute { kind: CfgAttribute::INTERNAL_IP6_SUBNET, value }
        }
    })
}

/// Number of IKE SAs that have each address assigned to this host, by [`bits`]. Several IKE SAs have the same
/// address during reauthentication (RFC 7296 section 2.8.3).
#[derive(Debug, Default)]
pub(crate) struct AssignedAddrs(OrderedMap<u128, usize>);

impl AssignedAddrs {
    /// Whether an IKE SA has this address.
    fn contains(&self, addr: IpAddr) -> bool {
        self.0.contains(bits(addr))
    }

    /// Adds the addresses of an IKE SA. Returns those that no other IKE SA had.
    pub(crate) fn add(&mut self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let is_fresh = |addr: &&IpAddr| {
            let holders = self.0.get(bits(**addr)).copied().unwrap_or(0);
            self.0.insert(bits(**addr), holders.saturating_add(1));
            holders == 0
        };
        addrs.iter().filter(is_fresh).copied().collect()
    }

    /// Removes the addresses of an IKE SA. Returns those that no other IKE SA has.
    pub(crate) fn remove(&mut self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let is_gone = |addr: &&IpAddr| match self.0.remove(bits(**addr)) {
            Some(holders @ 2..) => {
                self.0.insert(bits(**addr), holders.saturating_sub(1));
                false
            }
            held => held.is_some(),
        };
        addrs.iter().filter(is_gone).copied().collect()
    }
}

/// Bits of an IPv6 address, or of an IPv4-mapped one.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Content, MessageKind, header, write_plain};
    use crate::{IkeSpis, Role};
    #[cfg(feature = "split-dns")]
    use alloc::format;
    #[cfg(feature = "split-dns")]
    use alloc::string::{String, ToString};
    use alloc::vec;
    use casemate_wire::ike::{ExchangeType, IkeSpi, Message};

    /// Passes the payload that `build` wrote to `read`; `None` if it wrote none.
    fn on_wire<T>(
        build: impl Fn(&mut Writer<'_>) -> Result<(), WriteError>,
        read: impl FnOnce(Option<&Cp<'_>>) -> T,
    ) -> T {
        let kind = MessageKind { exchange: ExchangeType::IKE_AUTH, message_id: 1, response: false };
        let header = header(IkeSpis { initiator: IkeSpi(1), responder: IkeSpi(2) }, Role::Initiator, kind);
        let bytes = write_plain(&header, &mut [0; 2_000], &build).unwrap();
        let message = Message::parse(&bytes).unwrap();
        read(Content::parse(message.payloads()).unwrap().cp.as_ref())
    }

    fn addrs(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    type Values = Vec<(u16, Vec<u8>)>;

    /// Type of the payload, and type and value of the requested attributes.
    fn request(vips: &[&str]) -> Option<(u8, Values)> {
        on_wire(
            |out| write_request(&addrs(vips), out),
            |cp| {
                let cp = cp?;
                Some((cp.kind.0, cp.attributes().map(|a| (a.kind.0, a.value.to_vec())).collect()))
            },
        )
    }

    #[test]
    fn reauthentication_requests_the_current_addresses() {
        let ask = |vips: &[&str], known: &[&str]| addrs_to_request(&addrs(vips), &addrs(known));
        assert_eq!(ask(&["0.0.0.0", "::"], &["fd00::7", "10.0.0.7"]), addrs(&["10.0.0.7", "fd00::7"]));
        assert_eq!(ask(&["10.0.0.5", "0.0.0.0"], &["10.0.0.7"]), addrs(&["10.0.0.7", "0.0.0.0"]));
        assert_eq!(ask(&["0.0.0.0"], &[]), addrs(&["0.0.0.0"]));
        assert_eq!(ask(&[], &["10.0.0.7"]), addrs(&[]));
    }

    /// Numbers of RFC 7296 section 3.15.1: addresses are 1 and 8, name servers 3 and 10; CFG_REQUEST is 1.
    #[test]
    fn address_requests_include_name_servers() {
        assert_eq!(request(&[]), None);
        // RFC 8598 section 7: INTERNAL_DNS_DOMAIN is 25.
        let domains = if cfg!(feature = "split-dns") { vec![(25, vec![])] } else { vec![] };
        let with_domains = |values: &[(u16, Vec<u8>)]| [values, &domains].concat();
        assert_eq!(request(&["0.0.0.0"]), Some((1, with_domains(&[(1, vec![]), (3, vec![])]))));
        let (kind, values) = request(&["10.0.0.5", "::", "10.0.0.6"]).unwrap();
        let expected =
            [(1, vec![10, 0, 0, 5]), (3, vec![]), (8, vec![]), (10, vec![]), (1, vec![10, 0, 0, 6])];
        assert_eq!((kind, values), (1, with_domains(&expected)));
        let (_, values) = request(&["2001:db8::1"]).unwrap();
        assert_eq!(values[0].1.len(), 17, "with a prefix length");
        assert_eq!(values[0].1[16], 128);
    }

    /// What a host with this policy reads from a reply with these name servers and domains.
    #[cfg(feature = "split-dns")]
    fn read_domains(accepted: &[&str], servers: &[&str], domains: &[&[u8]]) -> AssignedConfig {
        let accepted = accepted.iter().map(|name| DomainName::parse(name.as_bytes()).unwrap()).collect();
        let domain =
            |name: &&[u8]| OwnedAttribute { kind: CfgAttribute::INTERNAL_DNS_DOMAIN, value: name.to_vec() };
        let mut attributes: Vec<_> = addrs(servers).into_iter().map(dns_attribute).collect();
        attributes.extend(domains.iter().map(domain));
        on_wire(
            |out| write(CfgType::REPLY, &attributes, out),
            |cp| {
                let mut assigned = read_reply(cp.unwrap());
                add_domains(&mut assigned, cp.unwrap(), &DomainPolicy { accepted });
                assigned
            },
        )
    }

    #[test]
    #[cfg(feature = "split-dns")]
    fn the_policy_decides_which_domains_a_peer_may_claim() {
        let texts = |assigned: &AssignedConfig| {
            let domains: Vec<String> = assigned.domains.iter().map(ToString::to_string).collect();
            (assigned.dns.len(), domains.join(" "), assigned.refused)
        };
        let read = |accepted: &[&str], domains: &[&[u8]]| {
            texts(&read_domains(accepted, &["10.1.0.53", "127.0.0.1", "10.1.0.53"], domains))
        };
        assert_eq!(read(&[], &[]), (1, "".into(), 1), "for all names");
        assert_eq!(read(&[], &[b"", b"Corp.Example.", b"corp.example"]), (1, "corp.example".into(), 1));
        assert_eq!(read(&[], &[b"com", b"a.example"]), (1, "a.example".into(), 2));
        assert_eq!(
            read(
                &[],
                &[
                    b"com",
                    b"x
.example"
                ]
            ),
            (0, "".into(), 4),
            "not for all names instead"
        );
        assert_eq!(read(&["corp.example"], &[b"bank.example"]), (1, "corp.example".into(), 2));
        assert_eq!(read(&["corp.example"], &[]), (1, "corp.example".into(), 1));
        let many: Vec<Vec<u8>> = (0..40).map(|n| format!("d{n}.example").into_bytes()).collect();
        let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
        assert_eq!(read_domains(&[], &["10.1.0.53"], &many).domains.len(), MAX_VALUES);
        assert_eq!(read_domains(&["corp.example"], &[], &[b"corp.example"]), AssignedConfig::default());
    }

    fn reply(kind: CfgType, attributes: &[OwnedAttribute]) -> AssignedConfig {
        on_wire(|out| write(kind, attributes, out), |cp| read_reply(cp.unwrap()))
    }

    #[test]
    fn the_peer_reads_what_was_leased() {
        let pool = AddrRange::prefix("10.1.2.0".parse().unwrap(), 20).unwrap();
        let pool_v6 = AddrRange::prefix("2001:db8::".parse().unwrap(), 33).unwrap();
        let mut leased = LeasedConfig::default();
        leased.add(CfgAttribute::INTERNAL_IP4_ADDRESS, "10.1.2.3".parse().unwrap());
        leased.add(CfgAttribute::INTERNAL_IP6_ADDRESS, "2001:db8::3".parse().unwrap());
        leased.attributes.extend(addrs(&["192.0.2.53", "2001:db8::53"]).into_iter().map(dns_attribute));
        leased.attributes.extend([&pool, &pool_v6].into_iter().filter_map(subnet_attribute));
        let assigned = on_wire(|out| leased.write(out), |cp| read_reply(cp.unwrap()));
        assert_eq!(assigned.addrs, addrs(&["10.1.2.3", "2001:db8::3"]));
        assert_eq!(assigned.dns, addrs(&["192.0.2.53", "2001:db8::53"]));
        assert_eq!(assigned.subnets, [pool, pool_v6]);
        assert!(
            on_wire(|out| LeasedConfig::default().write(out), |cp| cp.is_none()),
            "without a lease there is no payload"
        );
    }

    #[test]
    fn addresses_that_this_host_cannot_take_are_refused() {
        struct Own;
        impl Routes for Own {
            fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
                None
            }
            fn can_be_virtual(&self, addr: IpAddr, _: IpAddr) -> bool {
                // Its own, the router, and one that another IKE SA has brought.
                !addrs(&["192.0.2.22", "192.0.2.254", "10.9.0.7"]).contains(&addr)
            }
        }
        let path =
            Path { local: "192.0.2.2:4500".parse().unwrap(), remote: "192.0.2.1:4500".parse().unwrap() };
        let bad = addrs(&[
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.1.1",
            "::1",
            "ff02::1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.22",
            "192.0.2.254",
        ]);
        let good = addrs(&["10.9.0.1", "fd00::9", "10.9.0.7"]);
        let mut held = AssignedAddrs::default();
        held.add(&addrs(&["10.9.0.7"]));
        let dns = addrs(&["10.1.0.53"]);
        let mut assigned =
            AssignedConfig { addrs: [&*bad, &*good].concat(), dns: dns.clone(), ..AssignedConfig::default() };
        refuse_addrs(&mut assigned, path, &held, &Own);
        assert_eq!((&assigned.addrs, &assigned.refused_addrs, &assigned.dns), (&good, &bad, &dns));
        let mut assigned = AssignedConfig { addrs: bad.clone(), dns, ..AssignedConfig::default() };
        refuse_addrs(&mut assigned, path, &held, &Own);
        assert_eq!((assigned.addrs, assigned.refused_addrs, assigned.dns), (vec![], bad, vec![]));
    }

    #[test]
    fn the_widest_and_the_narrowest_subnet() {
        for (addr, len) in [("0.0.0.0", 0), ("10.1.2.3", 32), ("::", 0), ("2001:db8::1", 128)] {
            let range = AddrRange::prefix(addr.parse().unwrap(), len).unwrap();
            let assigned = reply(CfgType::REPLY, &[subnet_attribute(&range).unwrap()]);
            assert_eq!(assigned.subnets, [range], "{addr}/{len}");
        }
        let odd = AddrRange::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()).unwrap();
        assert_eq!(subnet_attribute(&odd), None, "a range that is not a prefix has no attribute");
    }

    #[test]
    fn malformed_attributes_are_ignored() {
        let attribute = |kind, value: &[u8]| OwnedAttribute { kind, value: value.into() };
        let addr = attribute(CfgAttribute::INTERNAL_IP4_ADDRESS, &[10, 0, 0, 1]);
        let many = vec![addr.clone(); 40];
        assert_eq!(reply(CfgType::REQUEST, &[addr]), AssignedConfig::default(), "no reply");
        let empty = attribute(CfgAttribute::INTERNAL_IP4_ADDRESS, &[]);
        assert_eq!(reply(CfgType::REPLY, &[empty]), AssignedConfig::default());
        let holes = attribute(CfgAttribute::INTERNAL_IP4_SUBNET, &[10, 0, 0, 0, 255, 0, 255, 0]);
        let assigned = reply(CfgType::REPLY, &[holes]);
        assert_eq!(assigned, AssignedConfig::default(), "a mask that is not a prefix");
        assert_eq!(reply(CfgType::REPLY, &many).addrs.len(), MAX_VALUES);
    }

    #[test]
    fn an_address_is_reported_with_its_first_and_last_ike_sa() {
        let [a, b] = ["10.0.0.1", "fd00::1"].map(|addr| addr.parse::<IpAddr>().unwrap());
        let mut known = AssignedAddrs::default();
        assert_eq!(known.add(&[a]), [a]);
        assert_eq!(known.add(&[a, b, b]), [b]);
        assert!(known.remove(&[a]).is_empty());
        assert_eq!(known.remove(&[a, b, b]), [a, b]);
        assert_eq!((known.remove(&[a]), known.0.len()), (Vec::new(), 0), "the address was not added");
    }
}
