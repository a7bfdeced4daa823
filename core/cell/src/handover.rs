//! The handover of a slot to another node, before an orderly end.
//!
//! The owner writes what has changed, gives up the slot, and enters that it still moves packets. IKE stands
//! still from the beginning, so that the records do not change any more. The next owner claims the slot, and
//! restores the SAs while packets still move here: both have sequence numbers of their own. When it says that
//! it is ready, this node stops, and writes the numbers that it has used ([`begin`](crate::begin) has the
//! other side). So no packet waits for the claim and for the restoration of all SAs.

use crate::ending::Ending;
use crate::keeper::{Keeper, State};
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_ike::Transmit;
use casemate_store::{
    Comparison, Outcome, Request, RequestId, Revision, Store, StoreError, Transaction, WatchEvent, WatchId,
    Write,
};

/// The watch for the next owner.
const WATCH: WatchId = WatchId(2);

/// Progress of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Packets move here. The endpoint must handle no timer and no message.
    InProgress,
    /// The next owner is ready: [`Keeper::finish`] is to be called at once.
    Ready,
    /// There is no handover: [`Keeper::finish`] ends the ownership.
    None,
}

/// What the owner has done for its handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandoverStep {
    /// It writes what has changed.
    Writing,
    /// It gives up the slot.
    Releasing(RequestId),
    /// It has given up the slot. Its entry was created at this revision.
    Released(Revision),
    /// The next owner is ready.
    Ready(Revision),
    /// A request has failed. The slot may be given up or not.
    Failed,
}

impl<S: Store> Keeper<S> {
    /// Begins to hand over the slot. The caller calls [`poll`](Self::poll) and moves packets, but handles no
    /// timer and no message, while [`handover`](Self::handover) is in progress, for a few seconds at most;
    /// then [`finish`](Self::finish). Returns messages that do not wait any more.
    pub fn begin_handover(
        &mut self,
        endpoint: &mut Endpoint,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        if self.ending != Ending::No || !matches!(self.state, State::Owner(_)) {
            return Vec::new();
        }
        self.note_changes(endpoint, context.now);
        self.ending = Ending::HandingOver(HandoverStep::Writing);
        self.begin_write(endpoint, unix_time, context)
    }

    /// Progress of the handover.
    pub const fn handover(&self) -> Handover {
        match (&self.state, self.ending) {
            (State::Owner(_), Ending::HandingOver(HandoverStep::Ready(_))) => Handover::Ready,
            (State::Owner(_), Ending::HandingOver(HandoverStep::Failed)) => Handover::None,
            (State::Owner(_), Ending::HandingOver(_)) => Handover::InProgress,
            _ => Handover::None,
        }
    }

    /// Gives up the slot: everything is written.
    pub(crate) fn release(&mut self) {
        let State::Owner(ownership) = &self.state else { return };
        let entry = Write::Put { key: self.keys.handover(), value: self.node.clone(), lease: self.lease() };
        let slot = self.keys.owner();
        let transaction = Transaction {
            comparisons: [Comparison::Changed(slot.clone(), ownership.epoch)].into(),
            writes: [Write::Delete(slot), Write::Delete(self.keys.ready()), entry].into(),
        };
        let request = self.requests.submit(Request::Commit(transaction));
        let step = request.map_or(HandoverStep::Failed, HandoverStep::Releasing);
        self.ending = Ending::HandingOver(step);
    }

    /// Takes the end of a request. Returns whether it was to give up the slot.
    pub(crate) fn release_completed(&mut self, id: RequestId, outcome: &Result<Outcome, StoreError>) -> bool {
        if self.ending != Ending::HandingOver(HandoverStep::Releasing(id)) {
            return false;
        }
        let step = match outcome {
            Ok(Outcome::Committed(revision)) => {
                let from = Revision(revision.0.saturating_add(1));
                let watch = Request::Watch { watch: WATCH, prefix: self.keys.ready(), from };
                // Without the watch, the next owner stops waiting for this one.
                let _ = self.requests.submit(watch);
                HandoverStep::Released(*revision)
            }
            Ok(_) => {
                self.state = State::Lost;
                HandoverStep::Failed
            }
            Err(error) => {
                self.problem = Some(*error);
                HandoverStep::Failed
            }
        };
        self.ending = Ending::HandingOver(step);
        true
    }

    /// Notices that the next owner is ready, or that this may have been missed.
    pub(crate) fn watched_after_release(&mut self, event: &WatchEvent) {
        let Ending::HandingOver(HandoverStep::Released(revision)) = self.ending else { return };
        if matches!(event, WatchEvent::Put(WATCH, _) | WatchEvent::Gap(WATCH)) {
            self.ending = Ending::HandingOver(HandoverStep::Ready(revision));
        }
    }

    /// Writes the last numbers of an owner that has given up its slot at this revision.
    pub(crate) fn finish_handover(
        &mut self,
        released: Revision,
        endpoint: &Endpoint,
        context: &mut Context<'_>,
    ) {
        self.ending = Ending::LastNumbers(released);
        let numbers = self.prepare_numbers(endpoint, context);
        self.submit(numbers, Vec::new(), context.now);
    }
}
