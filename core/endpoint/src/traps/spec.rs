//! The traffic of a trap.

use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{AddrPattern, ChildConfig, Connection};
use casemate_ike::{HostAddrs, Lookup, Routes, TrafficSelector, TrafficSelectorTemplate};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses, for `dynamic` selectors while the address is unknown.
const ANY_ADDRS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// The traffic of a trap, and the Child SA that it requests.
#[derive(Debug, Clone)]
pub(crate) struct TrapSpec {
    pub(crate) connection: Arc<Connection>,
    pub(crate) child: Arc<ChildConfig>,
    /// Traffic selectors of the local side.
    pub(super) local: Vec<TrafficSelector>,
    /// Traffic selectors of the peer.
    pub(super) remote: Vec<TrafficSelector>,
    /// Addresses for `dynamic` selectors of the peer.
    dynamic_addrs: Vec<IpAddr>,
    /// Whether these are the addresses of a host name, which may change.
    follows_host: bool,
}

impl TrapSpec {
    /// The traffic of a child that waits for its first packet.
    pub(crate) fn from_config(
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        routes: &dyn Routes,
    ) -> Self {
        let is_host = |pattern: &AddrPattern| matches!(pattern, AddrPattern::Host(_));
        let peer = connection.remote_addrs.iter().find(|pattern| pattern.is_single());
        let dynamic_addrs = match peer {
            Some(peer) => first_addrs(peer, routes),
            // Without an address of the peer there can be no SA, but its possible traffic must not pass.
            None => ANY_ADDRS.into(),
        };
        let follows_host = peer.is_some_and(is_host) && child.remote_ts.iter().any(|ts| ts.addrs.is_none());
        Self { follows_host, ..Self::new(connection, child, dynamic_addrs, routes) }
    }

    /// The traffic of a child after the end of a Child SA with the `remote` traffic selectors: their single
    /// addresses replace `dynamic`.
    pub(crate) fn for_ended_child(
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        remote: &[TrafficSelector],
        routes: &dyn Routes,
    ) -> Self {
        let mut dynamic_addrs: Vec<IpAddr> = Vec::new();
        for traffic in remote.iter().filter(|traffic| traffic.is_single()) {
            if !dynamic_addrs.contains(&traffic.addrs.first()) {
                dynamic_addrs.push(traffic.addrs.first());
            }
        }
        Self::new(connection, child, dynamic_addrs, routes)
    }

    /// The traffic after a reload, with the current selectors of the child.
    pub(crate) fn reconfigured(
        self,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        routes: &dyn Routes,
    ) -> Self {
        if connection.differs_in_children_only(&self.connection) {
            Self::new(connection, child, self.dynamic_addrs, routes)
        } else {
            Self::from_config(connection, child, routes)
        }
    }

    fn new(
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        dynamic_addrs: Vec<IpAddr>,
        routes: &dyn Routes,
    ) -> Self {
        let (local, remote) =
            (local_traffic(connection, child, routes), fill_templates(&child.remote_ts, &dynamic_addrs));
        let (connection, child) = (connection.clone(), child.clone());
        Self { connection, child, local, remote, dynamic_addrs, follows_host: false }
    }

    /// The traffic with the current addresses of the peer's name and the current source address towards the
    /// peer; `None` if they have not changed. A name without an address keeps its former ones, so that
    /// traffic that was blocked stays blocked.
    pub(super) fn moved(&self, routes: &dyn Routes) -> Option<Self> {
        let now = match self.follows_host {
            true => Self::from_config(&self.connection, &self.child, routes),
            false => Self::new(&self.connection, &self.child, self.dynamic_addrs.clone(), routes),
        };
        let is_lost = now.waits_for_addrs();
        (!is_lost && (&now.local, &now.remote) != (&self.local, &self.remote))
            .then_some(Self { follows_host: self.follows_host, ..now })
    }

    /// Whether the selectors depend on the source address towards the peer, or on the addresses of its name.
    pub(super) fn has_dynamic_addrs(&self) -> bool {
        let is_dynamic = self.child.local_ts.iter().any(|ts| ts.addrs.is_none());
        let needs_route = || self.connection.path(Lookup::Cached, &NoRoutes).is_err();
        self.follows_host || is_dynamic && self.connection.vips.is_empty() && needs_route()
    }

    /// Whether the trap blocks nothing because the addresses of the peer's name are not known: blocking
    /// all packets would block the look-up, too.
    pub(crate) fn waits_for_addrs(&self) -> bool {
        self.follows_host && self.dynamic_addrs.is_empty()
    }

    /// Whether the destination of a packet is the peer. Such a trap requests one Child SA for each peer, and
    /// IKE knows which are requested.
    pub(super) fn has_any_peer(&self) -> bool {
        #[cfg(feature = "any-peer")]
        let has_any_peer = self.connection.takes_peer_of_packet(&self.child);
        #[cfg(not(feature = "any-peer"))]
        let has_any_peer = false;
        has_any_peer
    }

    /// Whether the trap exists because a Child SA ended, and not because of `start_action`.
    pub(crate) fn is_from_ended_child(&self) -> bool {
        !self.child.start_action.on_traffic
    }
}

/// Traffic selectors of the local side: `dynamic` is the source address for IKE. A host with virtual
/// addresses, or without a route to the peer, does not know this address; then the trap matches every
/// address. The address has the peer's IP version, so traffic of the other version also matches every
/// address.
fn local_traffic(connection: &Connection, child: &ChildConfig, routes: &dyn Routes) -> Vec<TrafficSelector> {
    let path = connection.path(Lookup::Cached, routes).ok();
    let own = path.map(|path| path.local.ip());
    // Without an address of the peer there is no route to look up.
    #[cfg(feature = "any-peer")]
    let own = own.or_else(|| only_address(connection).filter(|_| connection.takes_peer_of_packet(child)));
    let own = own.filter(|_| connection.vips.is_empty());
    let known_or_any = |any: IpAddr| own.filter(|own| own.is_ipv4() == any.is_ipv4()).unwrap_or(any);
    fill_templates(&child.local_ts, &ANY_ADDRS.map(known_or_any))
}

/// The address of this host, if the connection names just one.
#[cfg(feature = "any-peer")]
fn only_address(connection: &Connection) -> Option<IpAddr> {
    match connection.local_addrs.as_slice() {
        [AddrPattern::Range(range)] if range.first() == range.last() => Some(range.first()),
        _ => None,
    }
}

/// A host without routes and names.
struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// The first known address of a single address or host.
fn first_addrs(peer: &AddrPattern, routes: &dyn Routes) -> Vec<IpAddr> {
    match peer.single_addrs(Lookup::Cached, routes) {
        HostAddrs::Known(addrs) => addrs.into_iter().take(1).collect(),
        HostAddrs::Pending | HostAddrs::Unknown => Vec::new(),
    }
}

fn fill_templates(templates: &[TrafficSelectorTemplate], dynamic_addrs: &[IpAddr]) -> Vec<TrafficSelector> {
    templates.iter().flat_map(|ts| ts.fill(dynamic_addrs)).collect()
}
