//! Hosts that have one address in transport mode: those behind a NAT, and the NAT itself (RFC 3948 section
//! 5.2).

use super::{Children, start_of, with_peer};
use casemate_ike::{ChildId, Traffic};
use casemate_sa::{Mode, SaParams};
use core::net::IpAddr;

/// Which of the hosts at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportHost {
    /// The host that has the address: ESP is not encapsulated.
    Itself,
    /// The host with this UDP port, which tells hosts behind a NAT apart.
    Encapsulated(u16),
}

impl From<Option<u16>> for TransportHost {
    fn from(encap_port: Option<u16>) -> Self {
        encap_port.map_or(Self::Itself, Self::Encapsulated)
    }
}

impl TransportHost {
    /// The host that this outbound SA leads to; `None` in tunnel mode.
    pub(super) fn of(outbound: &SaParams) -> Option<Self> {
        let encap_port = outbound.encap.map(|encap| encap.dst_port);
        (outbound.mode == Mode::Transport).then(|| encap_port.into())
    }

    /// The same host when its NAT gives it another port.
    pub(super) const fn follow(self, port: u16) -> Self {
        match self {
            Self::Itself => Self::Itself,
            Self::Encapsulated(_) => Self::Encapsulated(port),
        }
    }
}

impl Children {
    /// Whether a Child SA in transport mode carries some of this traffic for another host with the address of
    /// the peer. Packets to one would go to the other. Child SAs for which `is_ignored` returns `true` do not
    /// count.
    pub(crate) fn is_carried_for_another(
        &self,
        (peer, host): (IpAddr, TransportHost),
        (local, remote): (&[Traffic], &[Traffic]),
        is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        let is_of = |id: ChildId, lineage| self.known.get(id).is_some_and(|child| child.lineage == lineage);
        // Seldom asked: only if another host has the same traffic.
        let counts = |lineage| self.by_sa.values().any(|id| is_of(*id, lineage) && !is_ignored(*id));
        let meet = |ours: &[Traffic], theirs: &[Traffic]| {
            ours.iter().any(|one| theirs.iter().any(|other| one.intersection(other).is_some()))
        };
        self.found(&self.by_peer, &with_peer(start_of(remote), peer)).any(|(id, lineage)| {
            lineage.host.is_some_and(|known| known != host)
                && meet(&lineage.local, local)
                && meet(&lineage.remote, remote)
                && counts(id)
        })
    }
}
