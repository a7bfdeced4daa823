//! Notifications of MOBIKE (RFC 4555 section 4), and what an IKE SA that uses it knows.
//!
//! The initiator of the first IKE SA decides which addresses the SAs use, and tells the responder with
//! UPDATE_SA_ADDRESSES. [`crate::state`] contains both roles.

use crate::config::{AddrPattern, Connection, Encapsulation, HostAddrs, Lookup};
use crate::nat::NatStatus;
use crate::state::{InitExchange, SaCommon};
use crate::transport::Content;
use crate::{Path, Role, Routes, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{Notify, NotifyType, WriteError, Writer};
use core::net::{IpAddr, SocketAddr};

/// Maximum number of additional addresses of each host that are sent, stored and tried.
pub(crate) const MAX_ADDRS: usize = 8;
/// Lengths in bytes of a COOKIE2 (RFC 4555 section 4.2.5).
const COOKIE2_LEN: core::ops::RangeInclusive<usize> = 8..=64;

/// What an IKE SA that uses MOBIKE knows.
#[derive(Debug, Clone)]
pub(crate) struct Mobike {
    /// Whether this host initiated the first IKE SA, and so decides which addresses are used.
    pub(crate) decides: bool,
    /// Addresses of the peer besides that of the path.
    pub(crate) peer_addrs: Vec<IpAddr>,
    /// Addresses of this host that the peer knows, in ascending order; empty if that is not certain.
    pub(crate) announced: Vec<IpAddr>,
    /// Whether the peer detects NATs. If it does not, NATs are prohibited (RFC 4555 section 3.9).
    pub(crate) has_nat_traversal: bool,
    /// Whether this host acts as if it were behind a NAT.
    pub(crate) forces_encap: bool,
    /// Whether the Child SAs keep the former path until the peer has proved that it receives at the new one.
    pub(crate) is_unverified: bool,
    /// Path of the Child SAs and whether they are encapsulated in UDP, while `is_unverified`.
    pub(crate) former: Option<(Path, bool)>,
    /// Other paths on which the outstanding request was sent, because the peer did not respond.
    pub(crate) tried: Vec<Path>,
    /// Paths that the peer has refused since the last change of the addresses.
    pub(crate) refused: Vec<Path>,
    /// Number of consecutive updates in which the peer has detected a prohibited NAT.
    pub(crate) nat_refusals: u8,
}

impl Mobike {
    /// State after IKE_AUTH; `None` unless both sides support MOBIKE. `content` is the peer's message with
    /// the SA payload.
    pub(crate) fn negotiated(
        common: &SaCommon,
        content: &Content<'_>,
        nat: NatStatus,
        has_nat_traversal: bool,
        role: Role,
        routes: &dyn Routes,
    ) -> Option<Box<Self>> {
        let connection = &common.connection;
        let is_supported = connection.mobike && content.has_notify(NotifyType::MOBIKE_SUPPORTED);
        let demands_encap = connection.encapsulation == Encapsulation::Always || nat.forced;
        is_supported.then(|| {
            Box::new(Self {
                decides: role == Role::Initiator,
                peer_addrs: announced_addrs(content).unwrap_or_default(),
                announced: own_set(common, routes),
                has_nat_traversal,
                forces_encap: has_nat_traversal && demands_encap,
                is_unverified: false,
                former: None,
                tried: Vec::new(),
                refused: Vec::new(),
                nat_refusals: 0,
            })
        })
    }

    /// Awaits the check of the peer's address. The Child SAs stay at the last path that was checked.
    pub(crate) const fn await_check(&mut self, before: Path, nat: NatStatus) {
        if !self.is_unverified {
            (self.is_unverified, self.former) = (true, Some((before, nat.any())));
        }
    }

    /// Notes that the peer has proved that it receives at the address of the path. Returns the former path of
    /// the Child SAs, if they were at another one until now.
    pub(crate) fn checked(&mut self) -> Option<Path> {
        self.is_unverified = false;
        self.former.take().map(|(path, _)| path)
    }

    /// Whether this host acts as if it were behind a NAT.
    pub(crate) const fn forces_encap(&self) -> bool {
        self.forces_encap
    }
}

/// Evaluates the last IKE_AUTH request, which arrived on `path`, while IKE_SA_INIT came from the address
/// `proved`. Fails if the request has passed a prohibited NAT.
pub(crate) fn accept(
    common: &SaCommon,
    request: &Content<'_>,
    (path, proved): (Path, IpAddr),
    init: &InitExchange,
    routes: &dyn Routes,
) -> Result<Option<Box<Mobike>>, StateFault> {
    if common.connection.mobike && has_passed_prohibited_nat(request, path) {
        return Err(StateFault::UnexpectedNat);
    }
    let has_nat_traversal = init.peer.nat_traversal;
    let mut all = Mobike::negotiated(common, request, init.nat, has_nat_traversal, Role::Responder, routes);
    if let Some(mobike) = all.as_mut().filter(|_| proved != path.remote.ip()) {
        let remote = SocketAddr::new(proved, path.remote.port());
        mobike.await_check(Path { remote, ..path }, init.nat);
    }
    Ok(all)
}

/// Writes what IKE_AUTH says of MOBIKE (RFC 4555 sections 3.2 and 3.4).
pub(crate) fn write_support(
    connection: &Connection,
    path: Path,
    has_nat_traversal: bool,
    routes: &dyn Routes,
    out: &mut Writer<'_>,
) -> Result<(), WriteError> {
    if !connection.mobike {
        return Ok(());
    }
    out.notify(&Notify::new(NotifyType::MOBIKE_SUPPORTED, &[]))?;
    write_addrs(&own_addrs(connection, path, routes), out)?;
    if has_nat_traversal { Ok(()) } else { write_no_nats(path, out) }
}

/// The addresses of `local_addrs` that this host has, besides that of the path. Addresses that are not
/// configured are not announced: they would reveal to the peer how this network is built.
pub(crate) fn own_addrs(connection: &Connection, path: Path, routes: &dyn Routes) -> Vec<IpAddr> {
    let all = configured_addrs(&connection.local_addrs, routes);
    let is_additional = |addr: &IpAddr| *addr != path.local.ip() && routes.has_addr(*addr);
    all.filter(is_additional).take(MAX_ADDRS).collect()
}

/// The addresses of this host that the peer should know, in ascending order: that of the path, and the
/// additional ones.
pub(crate) fn own_set(common: &SaCommon, routes: &dyn Routes) -> Vec<IpAddr> {
    let mut addrs = own_addrs(&common.connection, common.path, routes);
    addrs.push(common.path.local.ip());
    addrs.sort_unstable();
    addrs
}

/// The single addresses among these patterns.
pub(crate) fn configured_addrs(
    patterns: &[AddrPattern],
    routes: &dyn Routes,
) -> impl Iterator<Item = IpAddr> {
    patterns.iter().flat_map(|pattern| match pattern.single_addrs(Lookup::Cached, routes) {
        HostAddrs::Known(addrs) => addrs,
        HostAddrs::Pending | HostAddrs::Unknown => Vec::new(),
    })
}

/// Writes the additional addresses of this host.
pub(crate) fn write_addrs(addrs: &[IpAddr], out: &mut Writer<'_>) -> Result<(), WriteError> {
    addrs.iter().try_for_each(|addr| match addr {
        IpAddr::V4(addr) => out.notify(&Notify::new(NotifyType::ADDITIONAL_IP4_ADDRESS, &addr.octets())),
        IpAddr::V6(addr) => out.notify(&Notify::new(NotifyType::ADDITIONAL_IP6_ADDRESS, &addr.octets())),
    })
}

/// Writes the complete list of the additional addresses, which may be empty.
pub(crate) fn write_list(addrs: &[IpAddr], out: &mut Writer<'_>) -> Result<(), WriteError> {
    match addrs {
        [] => out.notify(&Notify::new(NotifyType::NO_ADDITIONAL_ADDRESSES, &[])),
        addrs => write_addrs(addrs, out),
    }
}

/// The complete list of the peer's additional addresses, if the message contains one.
pub(crate) fn announced_addrs(content: &Content<'_>) -> Option<Vec<IpAddr>> {
    let of_notify = |notify: &Notify<'_>| match notify.kind {
        NotifyType::ADDITIONAL_IP4_ADDRESS => notify.data.as_array::<4>().map(|addr| IpAddr::from(*addr)),
        NotifyType::ADDITIONAL_IP6_ADDRESS => notify.data.as_array::<16>().map(|addr| IpAddr::from(*addr)),
        _ => None,
    };
    let is_usable = |addr: &IpAddr| !addr.is_unspecified() && !addr.is_multicast() && !addr.is_loopback();
    let addrs: Vec<IpAddr> =
        content.notifies.iter().filter_map(of_notify).filter(is_usable).take(MAX_ADDRS).collect();
    let is_announced = !addrs.is_empty() || content.has_notify(NotifyType::NO_ADDITIONAL_ADDRESSES);
    is_announced.then_some(addrs)
}

/// Addresses and ports as NO_NATS_ALLOWED contains them (RFC 4555 section 4.2.6).
fn no_nats(source: core::net::SocketAddr, destination: core::net::SocketAddr) -> Vec<u8> {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    [
        octets(source.ip()),
        octets(destination.ip()),
        source.port().to_be_bytes().into(),
        destination.port().to_be_bytes().into(),
    ]
    .concat()
}

/// Writes the prohibition of NATs for a message on this path.
pub(crate) fn write_no_nats(path: Path, out: &mut Writer<'_>) -> Result<(), WriteError> {
    out.notify(&Notify::new(NotifyType::NO_NATS_ALLOWED, &no_nats(path.local, path.remote)))
}

/// Whether the message prohibits NATs and has passed one. `path` is where it arrived.
pub(crate) fn has_passed_prohibited_nat(content: &Content<'_>, path: Path) -> bool {
    let prohibition = content.notify(NotifyType::NO_NATS_ALLOWED);
    prohibition.is_some_and(|notify| notify.data != no_nats(path.remote, path.local))
}

/// The COOKIE2 of a message, if its length is permitted.
pub(crate) fn cookie2<'m>(content: &Content<'m>) -> Option<&'m [u8]> {
    content
        .notify(NotifyType::COOKIE2)
        .map(|notify| notify.data)
        .filter(|data| COOKIE2_LEN.contains(&data.len()))
}

/// A COOKIE2 of this host: random bytes that a peer can only repeat if it has received them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie2(pub(crate) [u8; 16]);

impl Cookie2 {
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.notify(&Notify::new(NotifyType::COOKIE2, &self.0))
    }

    /// Whether the response repeats the cookie.
    pub(crate) fn is_repeated_by(&self, response: &Content<'_>) -> bool {
        response.notify(NotifyType::COOKIE2).is_some_and(|notify| notify.data == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(local: &str, remote: &str) -> Path {
        Path { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn content<'a>(notifies: &[Notify<'a>]) -> Content<'a> {
        Content { notifies: notifies.to_vec(), ..Content::default() }
    }

    #[test]
    fn a_list_of_addresses_is_complete_or_absent() {
        let v4 = Notify::new(NotifyType::ADDITIONAL_IP4_ADDRESS, &[192, 0, 2, 7]);
        let short = Notify::new(NotifyType::ADDITIONAL_IP4_ADDRESS, &[192, 0, 2]);
        let nowhere = Notify::new(NotifyType::ADDITIONAL_IP4_ADDRESS, &[0; 4]);
        let none = Notify::new(NotifyType::NO_ADDITIONAL_ADDRESSES, &[]);
        assert_eq!(announced_addrs(&content(&[])), None);
        assert_eq!(announced_addrs(&content(&[short, nowhere])), None);
        assert_eq!(announced_addrs(&content(&[none])), Some(Vec::new()));
        assert_eq!(announced_addrs(&content(&[short, v4])), Some([[192, 0, 2, 7].into()].into()));
        assert_eq!(announced_addrs(&content(&[v4; 30])).map(|addrs| addrs.len()), Some(MAX_ADDRS));
    }

    #[test]
    fn a_changed_address_or_port_is_a_prohibited_nat() {
        let sender = path("192.0.2.1:500", "192.0.2.2:4500");
        let data = no_nats(sender.local, sender.remote);
        assert_eq!(data, [192, 0, 2, 1, 192, 0, 2, 2, 1, 0xf4, 0x11, 0x94]);
        let message = content(&[Notify::new(NotifyType::NO_NATS_ALLOWED, &data)]);
        for (seen, is_nat) in [
            (path("192.0.2.2:4500", "192.0.2.1:500"), false),
            (path("192.0.2.2:4500", "192.0.2.1:501"), true),
            (path("192.0.2.2:4500", "192.0.2.3:500"), true),
            (path("[2001:db8::2]:4500", "192.0.2.1:500"), true),
        ] {
            assert_eq!(has_passed_prohibited_nat(&message, seen), is_nat, "{seen:?}");
        }
        assert!(!has_passed_prohibited_nat(&content(&[]), sender));
    }
}
