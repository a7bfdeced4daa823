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
    Comparison, Completion, Entry, Outcome, Request, RequestId, Revision, Store, StoreError, Transaction,
    WatchEvent, WatchId, Write,
};
use core::time::Duration;

/// Time for which a former owner may still move packets when this one is ready.
const PATIENCE: Duration = Duration::from_secs(1);
/// The watch for the end of the former owner's entry.
const WATCH: WatchId = WatchId(3);

/// The beginning of an owner.
pub(crate) struct Beginning {
    keys: FormerKeys,
    /// Whether a former owner hands over.
    hands_over: bool,
    step: Step,
    request: Option<RequestId>,
}

enum Step {
    /// Watches the entry of the former owner, from this revision on.
    Watch(Revision),
    /// Says that this owner is ready.
    Announce,
    /// Waits for the end of that entry, since this time.
    Wait(Instant),
    /// Deletes it: the former owner can write nothing any more from then on.
    Void,
    /// Reads the last numbers.
    Read,
    /// Has read them, and makes sure that it was the owner then.
    Confirm(FormerNumbers),
    /// The last numbers are known.
    Known(FormerNumbers),
}

impl Beginning {
    /// Of an owner that has read these entries of its slot, which are none of records.
    pub(crate) fn new<S: Store>(keys: FormerKeys, entries: Vec<Entry>, keeper: &mut Keeper<S>) -> Self {
        let handover = keeper.keys.handover();
        let hands_over = entries.iter().any(|entry| entry.key == handover);
        let step = match &keeper.state {
            State::Owner(ownership) if hands_over => Step::Watch(ownership.epoch),
            _ => keeper.read_numbers(entries, &keys),
        };
        Self { keys, hands_over, step, request: None }
    }
}

impl<S: Store> Keeper<S> {
    /// Lets the restored SAs go on. To be called when the endpoint has restored the records of
    /// [`start`](Self::start), and again when the store has completions, until it returns `true`: a former
    /// owner that hands over still moves packets. Until then the endpoint must handle no timer, message or
    /// packet. Returns `false` for ever if the slot is lost ([`status`](Self::status)).
    pub fn begin(&mut self, endpoint: &mut Endpoint, context: &mut Context<'_>) -> bool {
        if self.beginning.is_none() {
            // The completions are those of writes.
            return self.is_owner();
        }
        let now = context.now;
        // A store may have answered when the request of a step is submitted.
        for _ in 0..2 {
            self.take_answers_before_begin(now);
            self.continue_beginning(now);
        }
        if let State::Owner(ownership) = &mut self.state {
            ownership.lease.renew(now, &mut self.requests);
        }
        let State::Owner(ownership) = &self.state else { return false };
        let owner = ownership.owner;
        match self.beginning.take() {
            Some(Beginning { step: Step::Known(used), hands_over, .. }) => {
                if hands_over {
                    self.requests.submit(Request::Unwatch(WATCH));
                }
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
            self.watched_before_begin(&event);
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
            (Step::Watch(_), Ok(Outcome::Watching)) => beginning.step = Step::Announce,
            (Step::Announce, Ok(Outcome::Committed(_))) => beginning.step = Step::Wait(now),
            (Step::Void, Ok(Outcome::Committed(_))) => beginning.step = Step::Read,
            (Step::Confirm(used), Ok(Outcome::Committed(_))) => {
                beginning.step = Step::Known(core::mem::take(used));
            }
            (Step::Read, Ok(Outcome::Entries { entries, .. })) => {
                let entries = entries.clone();
                self.numbers_read(entries);
            }
            // The request is submitted again. It was one of another step if the entry has ended meanwhile.
            (_, Err(StoreError::Unavailable | StoreError::Refused)) | (Step::Read, Ok(_)) => {}
            (_, Ok(_) | Err(StoreError::Damaged)) => self.state = State::Lost,
        }
    }

    /// Notices the end of the former owner's entry, or that it may have been missed.
    fn watched_before_begin(&mut self, event: &WatchEvent) {
        let has_ended = match event {
            WatchEvent::Deleted(WATCH, key, _) => *key == self.keys.handover(),
            WatchEvent::Gap(WATCH) => true,
            _ => false,
        };
        let waits = |beginning: &&mut Beginning| {
            matches!(beginning.step, Step::Watch(_) | Step::Announce | Step::Wait(_) | Step::Void)
        };
        if let Some(beginning) = self.beginning.as_mut().filter(waits).filter(|_| has_ended) {
            beginning.step = Step::Read;
        }
    }

    /// Takes the entries behind the records.
    fn numbers_read(&mut self, entries: Vec<Entry>) {
        let Some(Beginning { keys, hands_over, .. }) = self.beginning.take() else { return };
        let handover = self.keys.handover();
        let is_final = !entries.iter().any(|entry| entry.key == handover);
        let step = if is_final { self.read_numbers(entries, &keys) } else { Step::Void };
        self.beginning = Some(Beginning { keys, hands_over, step, request: None });
    }

    /// Submits the request of the step.
    fn continue_beginning(&mut self, now: Instant) {
        let State::Owner(ownership) = &self.state else { return };
        let Some(beginning) = self.beginning.as_mut().filter(|beginning| beginning.request.is_none()) else {
            return;
        };
        if matches!(beginning.step, Step::Wait(since) if now.since(since) >= PATIENCE) {
            beginning.step = Step::Void;
        }
        let is_owner = Comparison::Changed(self.keys.owner(), ownership.epoch);
        let commit = |write: Option<Write>| {
            let writes = write.into_iter().collect();
            Request::Commit(Transaction { comparisons: [is_owner].into(), writes })
        };
        let request = match beginning.step {
            Step::Watch(epoch) => {
                let from = Revision(epoch.0.saturating_add(1));
                Request::Watch { watch: WATCH, prefix: self.keys.handover(), from }
            }
            Step::Announce => commit(Some(Write::Put {
                key: self.keys.ready(),
                value: self.node.clone(),
                lease: Some(ownership.lease.lease()),
            })),
            Step::Void => commit(Some(Write::Delete(self.keys.handover()))),
            Step::Read => Request::Read(self.keys.behind_records()),
            Step::Confirm(_) => commit(None),
            Step::Wait(_) | Step::Known(_) => return,
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
