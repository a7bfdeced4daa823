//! Which traffic a trap holds.

use crate::host::Routes;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{Child, Connection};
use casemate_ike::{Traffic, TrafficTemplate};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of both IP versions that stand for every address: `dynamic`, as long as the address is not known.
const ANYWHERE: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// Which traffic is held, and what a packet of it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) connection: Arc<Connection>,
    pub(crate) child: Arc<Child>,
    /// Traffic of our side.
    pub(super) local: Vec<Traffic>,
    /// Traffic of the peer's side.
    pub(super) remote: Vec<Traffic>,
    /// What `dynamic` means on the peer's side.
    ends: Vec<IpAddr>,
}

impl Held {
    /// The traffic of a child that waits for its first packet.
    pub(crate) fn configured(connection: &Arc<Connection>, child: &Arc<Child>, routes: &dyn Routes) -> Self {
        let peer = connection.remote_addrs.iter().find_map(|pattern| pattern.single());
        // Without an address of the peer there can be no SA. What it might be for is held all the same.
        let ends = peer.map_or_else(|| ANYWHERE.into(), |peer| [peer].into());
        Self::new((connection, child), ends, routes)
    }

    /// The traffic of a child whose Child SA carried `remote` of the peer's side: `dynamic` selectors of that side have its single
    /// addresses.
    pub(crate) fn after(
        (connection, child): (&Arc<Connection>, &Arc<Child>),
        remote: &[Traffic],
        routes: &dyn Routes,
    ) -> Self {
        let mut ends: Vec<IpAddr> = Vec::new();
        for traffic in remote.iter().filter(|traffic| traffic.is_single()) {
            if !ends.contains(&traffic.addrs.first()) {
                ends.push(traffic.addrs.first());
            }
        }
        Self::new((connection, child), ends, routes)
    }

    /// The traffic after a reload, with the selectors that the child has now.
    pub(crate) fn reconfigured(
        self,
        (connection, child): (&Arc<Connection>, &Arc<Child>),
        routes: &dyn Routes,
    ) -> Self {
        if connection.differs_in_children_only(&self.connection) {
            Self::new((connection, child), self.ends, routes)
        } else {
            Self::configured(connection, child, routes)
        }
    }

    fn new(
        (connection, child): (&Arc<Connection>, &Arc<Child>),
        ends: Vec<IpAddr>,
        routes: &dyn Routes,
    ) -> Self {
        let (local, remote) = (local(connection, child, routes), fill(&child.remote_ts, &ends));
        Self { connection: connection.clone(), child: child.clone(), local, remote, ends }
    }

    /// The same with the address that the host has now on the way to the peer; `None` if that has not changed.
    pub(super) fn moved(&self, routes: &dyn Routes) -> Option<Self> {
        let local = local(&self.connection, &self.child, routes);
        (local != self.local).then(|| Self { local, ..self.clone() })
    }

    /// Whether its selectors follow the address that the host has on the way to the peer.
    pub(super) fn follows_routes(&self) -> bool {
        let is_dynamic = self.child.local_ts.iter().any(|ts| ts.addrs.is_none());
        is_dynamic && self.connection.vips.is_empty() && self.connection.path(|_| None).is_err()
    }

    /// Whether it is held because a Child SA has ended, and not by `start_action`.
    pub(crate) fn is_after_end(&self) -> bool {
        !self.child.start.on_traffic
    }
}

/// Traffic of our side: `dynamic` is the address from which IKE would begin. A host that asks for virtual addresses, or has no
/// route to the peer, does not know its address: then packets from every address are held. The address is of
/// the peer's IP version, so for traffic of the other version every address is held, too.
fn local(connection: &Connection, child: &Child, routes: &dyn Routes) -> Vec<Traffic> {
    let path = connection.path(|remote| routes.source_for(remote)).ok();
    let own = path.filter(|_| connection.vips.is_empty()).map(|path| path.local.ip());
    let known_or_any = |any: IpAddr| own.filter(|own| own.is_ipv4() == any.is_ipv4()).unwrap_or(any);
    fill(&child.local_ts, &ANYWHERE.map(known_or_any))
}

fn fill(templates: &[TrafficTemplate], ends: &[IpAddr]) -> Vec<Traffic> {
    templates.iter().flat_map(|ts| ts.fill(ends)).collect()
}
