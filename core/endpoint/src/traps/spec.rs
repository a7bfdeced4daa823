//! The traffic of a trap.

use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{Routes, TrafficSelector, TrafficSelectorTemplate};
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
}

impl TrapSpec {
    /// The traffic of a child that waits for its first packet.
    pub(crate) fn from_config(
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        routes: &dyn Routes,
    ) -> Self {
        let peer = connection.remote_addrs.iter().find_map(|pattern| pattern.single());
        // Without an address of the peer there can be no SA, but its possible traffic must not pass.
        let dynamic_addrs = peer.map_or_else(|| ANY_ADDRS.into(), |peer| [peer].into());
        Self::new(connection, child, dynamic_addrs, routes)
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
        Self { connection: connection.clone(), child: child.clone(), local, remote, dynamic_addrs }
    }

    /// The traffic with the current source address towards the peer; `None` if the address has not changed.
    pub(super) fn moved(&self, routes: &dyn Routes) -> Option<Self> {
        let local = local_traffic(&self.connection, &self.child, routes);
        (local != self.local).then(|| Self { local, ..self.clone() })
    }

    /// Whether the selectors depend on the source address towards the peer.
    pub(super) fn has_dynamic_addrs(&self) -> bool {
        let is_dynamic = self.child.local_ts.iter().any(|ts| ts.addrs.is_none());
        is_dynamic && self.connection.vips.is_empty() && self.connection.path(|_| None).is_err()
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
    let path = connection.path(|remote| routes.source_for(remote)).ok();
    let own = path.filter(|_| connection.vips.is_empty()).map(|path| path.local.ip());
    let known_or_any = |any: IpAddr| own.filter(|own| own.is_ipv4() == any.is_ipv4()).unwrap_or(any);
    fill_templates(&child.local_ts, &ANY_ADDRS.map(known_or_any))
}

fn fill_templates(templates: &[TrafficSelectorTemplate], dynamic_addrs: &[IpAddr]) -> Vec<TrafficSelector> {
    templates.iter().flat_map(|ts| ts.fill(dynamic_addrs)).collect()
}
