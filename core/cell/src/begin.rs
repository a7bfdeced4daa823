//! The beginning of an owner: its restored SAs go on when the last numbers of the former owner are known.
//!
//! A former owner that hands over ([`handover`](crate::handover)) has given up the slot and still moves
//! packets. The next owner has restored its SAs meanwhile, and says that it is ready. Then the former owner
//! stops, and writes its last numbers in the transaction that deletes its entry. These numbers count only if
//! they are read when that entry does not exist any more: nothing can be added to them then. Without them,
//! the next owner begins behind the reserves of the records, as after a crash.
//!
//! An owner that has lost its slot meanwhile might read what a later one has left: without the numbers that
//! the later one has deleted, it would use numbers of that owner. So an owner compares its epoch after it
//! has read, and no clock matters.

use crate::data_keys::FormerKeys;
use crate::keeper::{Keeper, State};
use crate::used_numbers::FormerNumbers;
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_sa::Instant;
use casemate_store::{
    Comparison, Completion, Entry, Outcome, Request, RequestId, Store, StoreError, Transaction, Write,
};
use core::time::Duration;

/// Time for which a former owner may still move packets when this one is ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// The beginning of an owner.
pub(crate) struct Beginning {
    keys: FormerKeys,
    step: Step,
    request: Option<RequestId>,
}

enum Step {
    /// Says that this owner is ready.
    Announce,
    /// Waits for the last numbers, since this time.
    Wait(Instant),
    /// Deletes the entry of the former owner, which can write nothing any more from then on.
    Void,
    /// Has read the last numbers, and makes sure that it was the owner then.
    Confirm(FormerNumbers),
    /// The last numbers are known.
    Known(FormerNumbers),
}

impl Beginning {
    /// Of an owner that has read these entries of its slot, which are none of records.
    pub(crate) fn new<S: Store>(keys: FormerKeys, entries: Vec<Entry>, keeper: &mut Keeper<S>) -> Self {
        let handover = keeper.keys.handover();
        let hands_over = entries.iter().any(|entry| entry.key == handover);
        let step = if hands_over { Step::Announce } else { keeper.read_numbers(entries, &keys) };
        Self { keys, step, request: None }
    }
}

impl<S: Store> Keeper<S> {
    /// Lets the restored SAs go on. To be called when the endpoint has restored the records of
    /// [`start`](Self::start), and again when the store has completions, until it returns `true`: a former
    /// owner that hands over still moves packets. Until then the endpoint must handle no timer, message or
    /// packet. Returns `false` for ever if the slot is lost ([`status`](Self::status)).
    pub fn begin(&mut self, endpoint: &mut Endpoint, context: &mut Context<'_>) -> bool {
        let now = context.now;
        // A store may have answered when the request of a step is submitted.
        for _ in 0..2 {
            self.take_answers_before_begin(now);
            self.continue_beginning();
        }
        if let State::Owner(ownership) = &mut self.state {
            ownership.lease.renew(now, &mut self.requests);
        }
        let State::Owner(ownership) = &self.state else { return false };
        let owner = ownership.owner;
        match self.beginning.take() {
            Some(Beginning { step: Step::Known(used), .. }) => {
                let numbers = self.records.begin_restored(&used, owner);
                let restored = endpoint.begin_restored(&numbers, context);
                let not_restored = self.records.identify(&restored);
                not_restored.into_iter().for_each(|spi| self.outbox.add([spi]));
                self.records.limit_all(endpoint);
            }
            beginning => self.beginning = beginning,
        }
        self.beginning.is_none()
    }

    fn take_answers_before_begin(&mut self, now: Instant) {
        while let Some(event) = self.requests.store.next_event() {
            self.watched(&event);
        }
        while let Some(completion) = self.requests.store.next_completion() {
            if let Some(completion) = self.members.completed(&self.keys, completion) {
                self.completed_before_begin(&completion, now);
            }
        }
    }

    fn completed_before_begin(&mut self, completion: &Completion, now: Instant) {
        let Completion { id, outcome } = completion;
        let beginning = self.beginning.as_mut().filter(|beginning| beginning.request == Some(*id));
        let Some(beginning) = beginning else { return self.other_completed(*id, outcome, now) };
        beginning.request = None;
        match (&mut beginning.step, outcome) {
            (Step::Announce | Step::Void, Ok(Outcome::Committed(_))) => beginning.step = Step::Wait(now),
            (Step::Confirm(used), Ok(Outcome::Committed(_))) => {
                beginning.step = Step::Known(core::mem::take(used));
            }
            (Step::Wait(since), Ok(Outcome::Entries { entries, .. })) => {
                let (since, entries) = (*since, entries.clone());
                self.numbers_read(entries, since, now);
            }
            (_, Err(StoreError::Unavailable | StoreError::Refused)) => {}
            (_, Ok(_) | Err(StoreError::Damaged)) => self.state = State::Lost,
        }
    }

    /// Takes the entries behind the records.
    fn numbers_read(&mut self, entries: Vec<Entry>, since: Instant, now: Instant) {
        let Some(Beginning { keys, .. }) = self.beginning.take() else { return };
        let handover = self.keys.handover();
        let step = if !entries.iter().any(|entry| entry.key == handover) {
            self.read_numbers(entries, &keys)
        } else if now.since(since) >= PATIENCE {
            Step::Void
        } else {
            Step::Wait(since)
        };
        self.beginning = Some(Beginning { keys, step, request: None });
    }

    /// Submits the request of the step.
    fn continue_beginning(&mut self) {
        let State::Owner(ownership) = &self.state else { return };
        let Some(beginning) = self.beginning.as_mut().filter(|beginning| beginning.request.is_none()) else {
            return;
        };
        let is_owner = Comparison::Changed(self.keys.owner(), ownership.epoch);
        let commit = |write: Option<Write>| {
            let writes = write.into_iter().collect();
            Request::Commit(Transaction { comparisons: [is_owner].into(), writes })
        };
        let request = match beginning.step {
            Step::Announce => commit(Some(Write::Put {
                key: self.keys.ready(),
                value: self.node.clone(),
                lease: Some(ownership.lease.lease()),
            })),
            Step::Void => commit(Some(Write::Delete(self.keys.handover()))),
            Step::Confirm(_) => commit(None),
            Step::Wait(_) => Request::Read(self.keys.behind_records()),
            Step::Known(_) => return,
        };
        beginning.request = self.requests.submit(request);
    }

    /// Takes the last numbers of former owners, in the entries behind the records. Returns the next step.
    fn read_numbers(&mut self, entries: Vec<Entry>, keys: &FormerKeys) -> Step {
        let (store, mut used) = (self.requests.store.identity(), FormerNumbers::default());
        for Entry { key, value, .. } in entries {
            if let Some(opened) = keys.open(&key, &value) {
                used.add(opened.owner, &opened.text, store);
            }
            self.former_numbers.push(key);
        }
        // Only one process of a single machine can have its store open.
        if self.is_node { Step::Confirm(used) } else { Step::Known(used) }
    }
}
