//! Hand-over of Child SAs to another IKE SA, as in a simultaneous rekeying (RFC 7296 section 2.8.2).

use super::established::Phase;
use super::tasks::Pending;
use crate::context::Step;
use crate::engine::effects::Effect;
use crate::path_mtu::PathSearch;
use crate::state::{Established, SaCommon, SaContents, Task};
use crate::transport::Content;
use crate::{DownReason, IkeSaId, Path};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_wire::ike::{NotifyType, ProtocolId};

impl Established {
    /// Successor that the peer made while our own request is outstanding.
    pub(super) fn peer_successor(&self) -> Option<IkeSaId> {
        match &self.pending {
            Some(Pending::Rekey(pending)) => pending.peer_successor(),
            _ => None,
        }
    }

    /// Hands over to the successor that the peer made: the peer uses it and has thereby chosen it.
    pub(crate) fn concede(&mut self, peer_successor: IkeSaId, common: &SaCommon, step: &mut Step<'_, '_>) {
        if self.peer_successor() == Some(peer_successor) {
            self.hand_over_to(peer_successor, common, step);
        }
    }

    /// Notes that the successor made by the peer is closed: the peer has chosen ours, or closes everything.
    pub(crate) fn peer_successor_closed(&mut self, peer_successor: IkeSaId) {
        if let Some(Pending::Rekey(pending)) = &mut self.pending
            && let Some(known) =
                pending.simultaneous.as_mut().filter(|known| known.ike == Some(peer_successor))
        {
            known.is_closed = true;
        }
    }

    /// The IKE SA that hands its Child SAs over to this one, because the peer sends a request here that does
    /// not close this IKE SA.
    pub(crate) fn predecessor_to_concede(&self, request: &Content<'_>) -> Option<IkeSaId> {
        let ends = request.deletes.iter().any(|delete| delete.protocol() == ProtocolId::IKE);
        let failed = request.has_notify(NotifyType::AUTHENTICATION_FAILED);
        self.provisional.filter(|_| !ends && !failed)
    }

    /// Hands the Child SAs over to the peer's successor.
    pub(super) fn hand_over_to(
        &mut self,
        peer_successor: IkeSaId,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        let contents = self.take_contents();
        step.effect(Effect::AdoptContents(peer_successor, Box::new(contents), common.path));
        self.await_delete(common, step);
    }

    /// Takes over the contents of another IKE SA. That IKE SA received the peer's last message, and the peer
    /// may have moved behind its NAT meanwhile.
    pub(crate) fn adopt_contents(&mut self, common: &mut SaCommon, contents: SaContents, path: Path) {
        common.path = path;
        self.provisional = None;
        // The peer's moves, and whether it has proved where it receives, were noted there.
        self.contents.dynamic_addrs = contents.dynamic_addrs;
        #[cfg(feature = "mobike")]
        {
            (self.contents.mobike, self.contents.nat) = (contents.mobike, contents.nat);
        }
        let SaContents { leased, assigned, children, path_search, tasks, .. } = contents;
        self.contents.leased.extend(leased);
        self.contents.assigned = assigned;
        self.contents.path_search = path_search;
        self.contents.children.extend(children);
        self.tasks.extend(tasks);
    }

    /// Takes the contents and the queued tasks. Tasks for rekeying and liveness of this IKE SA itself stay
    /// behind. What the outstanding request says or checks about addresses is repeated on the other IKE SA:
    /// its response, if it still comes, concerns this one.
    pub(super) fn take_contents(&mut self) -> SaContents {
        let is_own = |task: &Task| {
            matches!(
                task,
                Task::RekeyIke | Task::Liveness | Task::ProbePath | Task::DeleteIke(DownReason::Replaced)
            )
        };
        let mut contents = self.contents.take();
        contents.tasks = core::mem::take(&mut self.tasks);
        contents.tasks.retain(|task| !is_own(task));
        #[cfg(feature = "mobike")]
        if let Some(task) = self.pending.as_ref().and_then(Pending::address_task) {
            let is_delete = |task: &&Task| matches!(task, Task::DeleteIke(_) | Task::DeleteChild(..));
            let deletes = contents.tasks.iter().take_while(is_delete).count();
            contents.tasks.insert(deletes, task);
        }
        contents
    }
}

impl SaContents {
    /// Contents with the same peer and nothing else.
    pub(super) fn empty_like(&self) -> Self {
        Self {
            peer: self.peer.clone(),
            nat: self.nat,
            dynamic_addrs: self.dynamic_addrs.clone(),
            #[cfg(feature = "mobike")]
            mobike: self.mobike.clone(),
            leased: Vec::new(),
            assigned: None,
            children: Vec::new(),
            path_search: PathSearch::OFF,
            tasks: VecDeque::new(),
        }
    }

    /// Takes everything and leaves the peer only.
    fn take(&mut self) -> Self {
        let empty = self.empty_like();
        core::mem::replace(self, empty)
    }
}
