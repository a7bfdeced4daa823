//! Hosts that share one address in transport mode: hosts behind a NAT, and the NAT itself (RFC 3948 section
//! 5.2).

use super::Children;
use super::group::{first_addr, peer_key};
use casemate_ike::{ChildId, TrafficSelector};
use casemate_sa::{Mode, SaParams};
use core::net::IpAddr;

/// One of the hosts with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportHost {
    /// The host that has the address itself: ESP is not encapsulated.
    Itself,
    /// The host with this UDP port, which distinguishes hosts behind a NAT.
    Encapsulated(u16),
}

impl From<Option<u16>> for TransportHost {
    fn from(encap_port: Option<u16>) -> Self {
        encap_port.map_or(Self::Itself, Self::Encapsulated)
    }
}

impl TransportHost {
    /// The remote host of this outbound SA; `None` in tunnel mode.
    pub(super) fn of(outbound: &SaParams) -> Option<Self> {
        let encap_port = outbound.encap.map(|encap| encap.dst_port);
        (outbound.mode == Mode::Transport).then(|| encap_port.into())
    }

    /// Returns this host with the new port of its NAT.
    pub(super) const fn with_port(self, port: u16) -> Self {
        match self {
            Self::Itself => Self::Itself,
            Self::Encapsulated(_) => Self::Encapsulated(port),
        }
    }
}

impl Children {
    /// Whether a Child SA in transport mode carries some of this traffic for another host with the peer's
    /// address. Packets for one host would reach the other. Ignores Child SAs for which `is_ignored` returns
    /// `true`.
    pub(crate) fn is_carried_for_another(
        &self,
        peer: IpAddr,
        host: TransportHost,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        let is_of = |id: ChildId, group| self.installed.get(id).is_some_and(|child| child.group == group);
        // Rarely called: only if another host has the same traffic.
        let counts = |group| self.by_sa.values().any(|id| is_of(*id, group) && !is_ignored(*id));
        let intersect = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
            ours.iter().any(|one| theirs.iter().any(|other| one.intersection(other).is_some()))
        };
        self.groups_in(&self.by_peer, &peer_key(first_addr(remote), peer)).any(|(id, group)| {
            group.host.is_some_and(|known| known != host)
                && intersect(&group.local, local)
                && intersect(&group.remote, remote)
                && counts(id)
        })
    }
}
