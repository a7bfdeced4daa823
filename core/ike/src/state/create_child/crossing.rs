//! Child SAs that both sides create at the same time for the same traffic, because each side restores one
//! (docs/decisions/0056-collisions.md).
//!
//! RFC 7296 section 2.8.1 has a rule for two exchanges that rekey the same Child SA. A host that has lost the
//! keys of a Child SA cannot name it, so the exchange that replaces it is no rekeying for the peer. The same
//! rule applies here: the Child SA of the exchange with the lowest nonce is redundant. A host whose exchange
//! is complete before the request of its peer arrives cannot know that both exchanges were in progress at the
//! same time. So a host that does know closes the redundant Child SA, also if its peer has requested it.

use super::PendingChild;
use crate::child_sa::{AgreedChild, ChildRequest, ChildSa, Stage};
use crate::config::ChildConfig;
use crate::keymat::Nonces;
use crate::state::tasks::Pending;
use crate::state::{Established, Task};
use crate::{ChildId, DownReason};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A Child SA that the peer has created while a request of ours is outstanding.
pub(in crate::state) struct CrossingChild {
    id: ChildId,
    /// The lower of the two nonces of the peer's exchange.
    lowest_nonce: Vec<u8>,
}

/// Two Child SAs for the same traffic, one of each side.
#[derive(Debug, Clone, Copy)]
pub(in crate::state) struct CrossedChildren {
    /// The Child SA that the peer has requested.
    peer_child: ChildId,
    /// Whether ours is redundant, or else that of the peer.
    pub(in crate::state) is_ours_redundant: bool,
}

impl ChildRequest {
    /// Whether a Child SA of the same configuration that the peer requests has the same purpose.
    fn is_met_by_peer(&self) -> bool {
        self.is_for_one() || self.replaces.is_some_and(|old| !old.is_named)
    }
}

impl Established {
    /// Notes a Child SA that the peer has created, if our outstanding request is for the same one.
    pub(super) fn note_crossing(&mut self, id: ChildId, config: &Arc<ChildConfig>, nonces: Nonces<'_>) {
        let Some(Pending::Child(pending)) = &mut self.pending else { return };
        let request = &pending.negotiation.request;
        if request.is_met_by_peer() && Arc::ptr_eq(&request.config, config) {
            let lowest_nonce = nonces.initiator.min(nonces.responder).into();
            pending.crossing = Some(CrossingChild { id, lowest_nonce });
        }
    }

    /// Whether the peer has created a Child SA for the same traffic as the one that our exchange creates.
    pub(in crate::state) fn crossed(
        &self,
        pending: &PendingChild,
        ours: &AgreedChild,
        nonce_r: &[u8],
    ) -> Option<CrossedChildren> {
        let CrossingChild { id, lowest_nonce } = pending.crossing.as_ref()?;
        let is_same = |child: &&ChildSa| {
            let AgreedChild { mode, local, remote, .. } = &child.agreed;
            child.id == *id
                && child.is_installed()
                && (mode, local, remote) == (&ours.mode, &ours.local, &ours.remote)
        };
        self.children().iter().find(is_same)?;
        let lowest_of_ours = pending.nonce.as_slice().min(nonce_r);
        Some(CrossedChildren { peer_child: *id, is_ours_redundant: lowest_of_ours < lowest_nonce.as_slice() })
    }

    /// Closes the redundant one of two Child SAs, and the one that they replace. If ours is redundant, it is
    /// being closed already.
    pub(in crate::state) fn end_redundant(&mut self, pending: &PendingChild, crossed: CrossedChildren) {
        let replaced = pending.negotiation.request.replaces.map(|old| old.id);
        let (closed, stays) = match crossed.is_ours_redundant {
            true => (replaced, Some(crossed.peer_child)),
            false => (Some(crossed.peer_child), None),
        };
        let Some(closed) = closed.and_then(|id| self.child(id)) else { return };
        closed.stage = Stage::Closing;
        let id = closed.id;
        stays.into_iter().for_each(|stays| self.inherit_delete(id, stays));
        self.tasks.push_back(Task::DeleteChild(id, DownReason::Replaced));
    }
}
