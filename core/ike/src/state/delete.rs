//! Deletion of Child SAs and IKE SAs.

use super::established::{Phase, SaContents};
use super::retry::{EndCause, attempts_after};
use super::tasks::Pending;
use super::timers::Timer;
use crate::child_sa::{ChildSa, Stage};
use crate::context::Step;
use crate::engine::effects::Effect;
use crate::engine::retries::Retry;
use crate::state::{Established, SaCommon, State, Task};
use crate::transport::SecureChannel;
use crate::{ChildId, DownReason, Event, IkeSaId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType};
use core::time::Duration;

/// Time for which a replaced SA waits for the peer to close it. The response that replaced it may be lost, so
/// the time is longer than a peer retransmits a request: 123 s here, 165 s with strongSwan.
pub(super) const REPLACED_LIFETIME: Duration = Duration::from_secs(180);

impl Established {
    /// Removes a Child SA. The Child SA that replaces it becomes active.
    pub(super) fn remove_child(&mut self, id: ChildId, end: EndCause, step: &mut Step<'_, '_>) {
        self.stop_child(id, end.reason, step);
        let children = &mut self.contents.children;
        let Some(at) = children.iter().position(|child| child.id == id) else { return };
        let removed = children.swap_remove(at);
        self.restart_child(&removed, end, step);
    }

    /// Ends a Child SA for this host. The Child SA that replaces it becomes active.
    pub(super) fn stop_child(&mut self, id: ChildId, reason: DownReason, step: &mut Step<'_, '_>) {
        let children = &mut self.contents.children;
        let successors = children.iter_mut().filter(|child| child.replaces == Some(id));
        let is_waiting =
            |child: &&mut ChildSa| child.stage != Stage::Closing && !child.active && !child.is_stopped;
        for child in successors.filter(is_waiting) {
            child.active = true;
            step.event(Event::ChildActive(child.id));
        }
        if let Some(child) = children.iter_mut().find(|child| child.id == id) {
            child.stop(reason, self.origin, step);
        }
    }

    /// Ends the Child SAs for this host when it has decided to close the IKE SA. The Delete exchange may wait
    /// for another one, and the peer may leave both unanswered.
    pub(super) fn stop_children_if_closing(&mut self, step: &mut Step<'_, '_>) {
        let Some(reason) = self.closing_reason().filter(|reason| ends_traffic(*reason)) else { return };
        // The successor has taken over the Child SAs, and the decision to close.
        if self.phase == Phase::Replaced {
            return;
        }
        self.stop_children(reason, step);
    }

    /// Ends all Child SAs for this host.
    pub(super) fn stop_children(&mut self, reason: DownReason, step: &mut Step<'_, '_>) {
        let origin = self.origin;
        self.contents.children.iter_mut().for_each(|child| child.stop(reason, origin, step));
    }

    /// Ends the Child SAs for this host that it has decided to close, as above.
    pub(super) fn stop_children_to_delete(&mut self, step: &mut Step<'_, '_>) {
        let ends = |task: &Task| match task {
            Task::DeleteChild(id, reason) if ends_traffic(*reason) => Some((*id, *reason)),
            _ => None,
        };
        let ended: Vec<_> = self.tasks.iter().filter_map(ends).collect();
        ended.into_iter().for_each(|(id, reason)| self.stop_child(id, reason, step));
    }

    /// Closes the Child SA `made`, which replaces `old`, if a command has closed `old` meanwhile.
    pub(super) fn inherit_delete(&mut self, old: ChildId, made: ChildId) {
        let by_command = |task: &Task| matches!(task, Task::DeleteChild(id, DownReason::Local) if *id == old);
        if self.tasks.iter().any(by_command) {
            self.tasks.push_back(Task::DeleteChild(made, DownReason::Local));
        }
    }

    /// The Child SAs in the data path.
    pub(super) fn children_in_use(&self) -> Vec<ChildId> {
        self.children().iter().filter(|child| !child.is_stopped).map(|child| child.id).collect()
    }

    /// Waits for the peer to close this IKE SA, which has been replaced.
    pub(crate) fn await_delete(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        self.mark_replaced(common, step);
        self.provisional = None;
        self.tasks.clear();
        self.timers.set(Timer::Expire, Some(step.context.now.after(REPLACED_LIFETIME)));
    }

    /// Marks this IKE SA as replaced. A peer that accepts only one IKE SA may start a new one while this one
    /// is being closed.
    pub(super) fn mark_replaced(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        self.phase = Phase::Replaced;
        #[cfg(feature = "resumption")]
        self.end_session_if_closing(common, step);
        step.shared.peers.remove(&self.contents.peer, self.authenticated_at, common.id, self.origin_role);
    }

    /// Closes the IKE SA. If the peer has made a successor meanwhile, the successor takes over the Child SAs.
    pub(super) fn close_or_hand_over(
        mut self: Box<Self>,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> State {
        if let Some(peer_successor) = self.peer_successor() {
            self.hand_over_to(peer_successor, common, step);
        }
        let reason = if self.phase == Phase::Replaced { DownReason::Replaced } else { reason };
        self.close(common, reason, step)
    }

    /// Whether the IKE SA is set up again after it has ended for this reason, whatever Child SAs it has.
    pub(super) const fn is_set_up_again(&self, reason: DownReason) -> bool {
        #[cfg(feature = "records")]
        if self.again.is_some() {
            return true;
        }
        reason.is_reauthentication()
    }

    /// Closes the IKE SA and its Child SAs.
    pub(crate) fn close(
        self: Box<Self>,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.close_with(common, EndCause::local(reason), step)
    }

    pub(super) fn close_with(
        self: Box<Self>,
        common: &SaCommon,
        end: EndCause,
        step: &mut Step<'_, '_>,
    ) -> State {
        let reason = end.reason;
        #[cfg(feature = "resumption")]
        self.end_session(common, reason, step);
        let children = self.children_to_restart(reason);
        if self.phase != Phase::Replaced && (!children.is_empty() || self.is_set_up_again(reason)) {
            let attempts = attempts_after(step.context.now.since(self.authenticated_at), common.attempts);
            let at = end.restart_at(attempts, common.role, step);
            let connection = common.connection.clone();
            let retry = Retry { connection, children, at, attempts, waits_for_addrs: false, restores: true };
            step.effect(Effect::Retry(retry));
        }
        if let Some(old) = self.provisional {
            step.effect(Effect::PeerSuccessorClosed(old, common.id));
        }
        if let Some(peer_successor) = self.peer_successor().filter(|_| self.phase != Phase::Replaced) {
            step.effect(Effect::AwaitDelete(peer_successor));
        }
        #[cfg(feature = "multiple-kex")]
        self.series.iter().for_each(|series| series.release(step));
        let Self { contents, pending, authenticated_at: peer_since, origin, origin_role, .. } = *self;
        if let Some(Pending::Child(pending)) = pending {
            step.host.release_spi(pending.negotiation.spi);
        }
        step.shared.peers.remove(&contents.peer, peer_since, common.id, origin_role);
        contents.release(common.id, origin, reason, step);
        State::Closed(reason)
    }
}

/// Whether an IKE SA that this host closes for this reason carries no more traffic. Otherwise another one
/// replaces it and its Child SAs.
const fn ends_traffic(reason: DownReason) -> bool {
    match reason {
        DownReason::Local
        | DownReason::Expired
        | DownReason::Refused(_)
        | DownReason::Fault(_)
        | DownReason::Unconfigured => true,
        DownReason::Inactive
        | DownReason::Peer
        | DownReason::Replaced
        | DownReason::DeadPeer
        | DownReason::InitialContact
        | DownReason::NotUnique
        | DownReason::Reauth
        | DownReason::Forgotten { .. } => false,
    }
}

impl SaContents {
    /// Releases Child SAs, leases and assigned addresses of the IKE SA `ike`, which has ended.
    pub(crate) fn release(
        mut self,
        ike: IkeSaId,
        origin: IkeSaId,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) {
        self.children.iter_mut().for_each(|child| child.stop(reason, origin, step));
        self.leased.iter().for_each(|addr| step.shared.pools.release(*addr));
        let addrs = self
            .assigned
            .map(|assigned| step.shared.assigned_addrs.remove(&assigned.addrs))
            .unwrap_or_default();
        if !addrs.is_empty() {
            step.event(Event::AddrsReleased { ike, addrs });
        }
    }
}

/// Sends a notification in an INFORMATIONAL request to a peer that believes in an IKE SA that does not exist
/// here. The request is sent once, and no response is awaited.
pub(super) fn send_final_notify(
    common: &SaCommon,
    channel: &mut SecureChannel,
    kind: NotifyType,
    step: &mut Step<'_, '_>,
) {
    let notify = Notify::new(kind, &[]);
    let _ = channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| out.notify(&notify));
}
