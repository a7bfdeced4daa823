//! The keeper of an endpoint's state: claims it at a start, and writes what changes.

use crate::StoreKeys;
use crate::begin::Beginning;
use crate::claim::SlotClaim;
use crate::data_keys::DataKeys;
use crate::ending::Ending;
use crate::lease::{NodeLease, Renewal};
use crate::members::Members;
use crate::outbox::Outbox;
use crate::records::KeptRecords;
use crate::reentry::Reentry;
use crate::registration::ForwardAddress;
use crate::start::Tenure;
use crate::wrapping::WrappingKeys;
use crate::writes::CurrentWrite;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate::{Context, Endpoint};
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use casemate_store::{
    Completion, Key, Lease, Outcome, Request, RequestId, Revision, Store, StoreError, WatchEvent,
};
use core::time::Duration;

/// Interval in which reserves are compared with their use.
const CHECK: Duration = Duration::from_millis(250);

/// A store, and the number of the last request.
pub(crate) struct Requests<S> {
    pub(crate) store: S,
    last: u64,
}

impl<S: Store> Requests<S> {
    pub(crate) const fn new(store: S) -> Self {
        Self { store, last: 0 }
    }

    /// Submits a request. `None` if the store does not take it: it will never be executed.
    pub(crate) fn submit(&mut self, request: Request) -> Option<RequestId> {
        self.last = self.last.saturating_add(1);
        let id = RequestId(self.last);
        self.store.submit(id, request).ok().map(|()| id)
    }
}

/// Keeps the state of an endpoint in a store.
pub struct Keeper<S> {
    pub(crate) requests: Requests<S>,
    pub(crate) keys: StoreKeys,
    pub(crate) data_keys: DataKeys,
    /// Name of this node.
    pub(crate) node: Vec<u8>,
    pub(crate) state: State,
    /// The nodes of the cell.
    pub(crate) members: Members,
    pub(crate) is_node: bool,
    pub(crate) records: KeptRecords,
    pub(crate) outbox: Outbox,
    /// The write in progress. There is one at a time: otherwise a later record of an IKE SA could be followed
    /// by an earlier one.
    pub(crate) current: Option<CurrentWrite>,
    /// What has to precede the next write.
    pub(crate) reentry: Reentry,
    /// Restored SAs do not go on yet.
    pub(crate) beginning: Option<Beginning>,
    pub(crate) checked_at: Instant,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) problem: Option<StoreError>,
    pub(crate) writes_done: u64,
    pub(crate) ending: Ending,
    /// Entries with the numbers that the former owner has used. They are deleted with the next writes.
    pub(crate) former_numbers: Vec<Key>,
    /// The end of the lease, until the store has confirmed it.
    pub(crate) revocation: Option<RequestId>,
}

pub(crate) enum State {
    Claiming(Box<SlotClaim>),
    Owner(Box<Ownership>),
    /// Another owner has the slot, or the store is damaged.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) lease: NodeLease,
    /// Revision at which the slot was last changed, by this owner. Writes compare it.
    pub(crate) epoch: Revision,
    /// Takeover count.
    pub(crate) owner: u64,
}

impl<S: Store> Keeper<S> {
    /// A keeper that owns nothing yet. `node` names this process for readers of the store; in a cell, each
    /// node has a name of its own.
    pub fn new(store: S, keys: StoreKeys, wrapping: WrappingKeys, node: &[u8], tenure: Tenure) -> Self {
        Self {
            requests: Requests::new(store),
            state: State::Claiming(Box::new(SlotClaim::new(keys.clone(), node.into(), tenure))),
            data_keys: DataKeys::new(keys.clone(), wrapping),
            keys,
            node: node.into(),
            members: Members::default(),
            is_node: tenure != Tenure::SingleMachine,
            records: KeptRecords::default(),
            outbox: Outbox::default(),
            current: None,
            reentry: Reentry::NotNeeded,
            beginning: None,
            checked_at: Instant::ZERO,
            retry_at: None,
            problem: None,
            writes_done: 0,
            ending: Ending::No,
            former_numbers: Vec::new(),
            revocation: None,
        }
    }

    /// Lets other nodes of the cell know where this one receives packets that they forward. To be called
    /// before the first [`start`](Self::start).
    pub fn register_forward(&mut self, forward: &ForwardAddress) {
        if let State::Claiming(claim) = &mut self.state {
            claim.register_forward(forward);
        }
    }

    /// Makes a new data key after this time, instead of an hour. To be called before the first
    /// [`start`](Self::start).
    pub const fn replace_data_keys_after(&mut self, time: Duration) {
        self.data_keys.replace_after(time);
    }

    /// Writes what has changed in the endpoint, and holds the messages that depend on it. Returns the others;
    /// none before [`begin`](Self::begin) has returned `true`.
    pub fn collect(
        &mut self,
        endpoint: &mut Endpoint,
        mut transmits: Vec<Transmit>,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        if self.beginning.is_some() {
            return Vec::new();
        }
        self.note_changes(endpoint, context.now);
        let mut free = self.begin_write(endpoint, unix_time, context);
        free.append(&mut transmits);
        let free: Vec<Transmit> =
            free.into_iter().filter_map(|transmit| self.outbox.hold(transmit)).collect();
        self.unless_fenced(free, context.now)
    }

    /// Drops messages unless this node is the owner, and sure of it. Their peers or this host repeat them.
    fn unless_fenced(&mut self, messages: Vec<Transmit>, now: Instant) -> Vec<Transmit> {
        match &self.state {
            State::Owner(ownership) if !ownership.lease.is_fenced(now) => messages,
            _ => {
                self.outbox.note_dropped(messages.len());
                Vec::new()
            }
        }
    }

    /// Notes what has changed in the endpoint. If the record of one IKE SA is to be written, those that have
    /// changed together with it are, too.
    pub(crate) fn note_changes(&mut self, endpoint: &mut Endpoint, now: Instant) {
        for step in endpoint.take_changes() {
            let mut must_write = false;
            let mut spis = Vec::new();
            for ike in step {
                if let Some((spi, is_changed)) = self.note_change(ike, endpoint, now) {
                    spis.push(spi);
                    must_write |= is_changed;
                }
            }
            if must_write {
                self.outbox.add(spis);
            }
        }
        self.records.forget_ended(endpoint);
    }

    /// Notes the state of an IKE SA. Returns our SPI of it, and whether its entry is to be written.
    fn note_change(&mut self, ike: IkeSaId, endpoint: &mut Endpoint, now: Instant) -> Option<(u64, bool)> {
        let State::Owner(ownership) = &self.state else { return None };
        let owner = ownership.owner;
        let Some(mut record) = endpoint.record(ike, now) else {
            return self.records.end(ike).map(|spi| (spi, true));
        };
        let is_changed = self.records.note(ike, &mut record, owner, endpoint, now);
        Some((record.own_spi(), is_changed))
    }

    /// Handles the completions of the store, extends reserves, and repeats what has failed. Returns the
    /// messages whose records are written now. `is_urgent` compares the reserves with their use at once.
    pub fn poll(
        &mut self,
        endpoint: &mut Endpoint,
        is_urgent: bool,
        unix_time: u64,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        if self.beginning.is_some() {
            // The completions are those of `begin`.
            return Vec::new();
        }
        let now = context.now;
        let mut released = Vec::new();
        while let Some(event) = self.requests.store.next_event() {
            self.watched(&event);
            self.watched_after_release(&event);
        }
        while let Some(completion) = self.requests.store.next_completion() {
            let completion = self.members.completed(&self.keys, completion);
            let Some(Completion { id, outcome }) = completion else { continue };
            if let Some(current) = self.current.take_if(|current| current.request == id) {
                released.extend(self.write_completed(current, outcome, endpoint, now));
            } else if !self.release_completed(id, &outcome) && !self.reentry_completed(id, &outcome, now) {
                self.other_completed(id, &outcome, now);
            }
        }
        if let State::Owner(ownership) = &mut self.state {
            ownership.lease.renew(now, &mut self.requests);
            if self.is_node {
                self.members.poll(&self.keys, now, &mut self.requests);
            }
        }
        self.reenter(now);
        let elapsed = context.now.since(self.checked_at);
        if is_urgent || elapsed >= CHECK {
            self.checked_at = context.now;
            let unrecorded = self.records.take_unrecorded(self.outbox.has_waiting(), now);
            let due = self.records.grow(endpoint, elapsed).into_iter().chain(unrecorded);
            due.for_each(|spi| self.outbox.add([spi]));
        }
        self.note_changes(endpoint, now);
        released.extend(self.begin_write(endpoint, unix_time, context));
        self.unless_fenced(released, now)
    }

    fn write_completed(
        &mut self,
        current: CurrentWrite,
        outcome: Result<Outcome, StoreError>,
        endpoint: &mut Endpoint,
        now: Instant,
    ) -> Vec<Transmit> {
        match outcome {
            Ok(Outcome::Committed(_)) => return self.written(current, endpoint, now),
            // The next owner has stopped waiting for the last numbers of this one.
            Ok(_) if matches!(self.ending, Ending::LastNumbers(_)) => self.revoke(),
            Ok(_) => self.state = State::Lost,
            Err(StoreError::Damaged) => {
                self.problem = Some(StoreError::Damaged);
                self.state = State::Lost;
            }
            Err(StoreError::Unavailable) => {
                self.reentry = Reentry::Needed;
                self.write_failed(current.changes, StoreError::Unavailable, now);
            }
            Err(StoreError::Refused) => self.write_failed(current.changes, StoreError::Refused, now),
        }
        Vec::new()
    }

    /// Takes the end of a renewal, or of the revocation.
    pub(crate) fn other_completed(
        &mut self,
        id: RequestId,
        outcome: &Result<Outcome, StoreError>,
        now: Instant,
    ) {
        self.revocation.take_if(|revocation| *revocation == id);
        let State::Owner(ownership) = &mut self.state else { return };
        match ownership.lease.completed(id, outcome, now) {
            Some(Renewal::Ended) if self.ending == Ending::No => self.state = State::Lost,
            Some(Renewal::Failed(StoreError::Damaged)) => {
                self.problem = Some(StoreError::Damaged);
                self.state = State::Lost;
            }
            Some(Renewal::Failed(error)) => self.problem = Some(error),
            Some(Renewal::Succeeded) if self.current.is_none() && self.reentry == Reentry::NotNeeded => {
                self.problem = self.problem.filter(|_| self.retry_at.is_some());
            }
            _ => {}
        }
    }

    /// Notices that the slot has another owner, or none.
    pub(crate) fn watched(&mut self, event: &WatchEvent) {
        let State::Owner(ownership) = &self.state else { return };
        let Ownership { lease, epoch, .. } = &**ownership;
        let slot = self.keys.owner();
        let is_lost = match event {
            WatchEvent::Put(_, entry) => {
                entry.key == slot && entry.changed > *epoch && entry.lease != Some(lease.lease())
            }
            WatchEvent::Deleted(_, key, revision) => *key == slot && revision > epoch,
            WatchEvent::Gap(_) => false,
        };
        if is_lost && self.ending == Ending::No {
            self.state = State::Lost;
        }
    }

    /// Whether this node may become the owner, as far as its host is concerned. At first it may.
    pub fn allow_takeover(&mut self, is_able: bool, now: Instant) {
        if let State::Claiming(claim) = &mut self.state {
            claim.set_able(is_able, now);
        }
    }

    /// Whether another node of the cell runs and is not drained, as far as this one knows.
    pub fn has_standby(&self) -> bool {
        let others = self.members.all().into_iter().filter(|member| member.name != self.node);
        others.into_iter().any(|member| member.is_running && !member.is_drained)
    }

    /// Drains this node of a cell, or lets it become the owner again. Returns whether the store takes the
    /// request; [`take_drained`](Self::take_drained) has its end.
    pub fn drain(&mut self, is_drained: bool) -> bool {
        self.members.drain(&self.keys, &self.node, is_drained, &mut self.requests)
    }

    /// The end of the last request of [`drain`](Self::drain): whether the node is drained now. The caller
    /// ends an owner that is ([`begin_handover`](Self::begin_handover)).
    pub fn take_drained(&mut self, now: Instant) -> Option<Result<bool, StoreError>> {
        let drained = self.members.take_changed()?;
        if let State::Claiming(claim) = &mut self.state {
            claim.look_again(now);
        }
        Some(drained)
    }

    /// The store.
    pub const fn store(&mut self) -> &mut S {
        &mut self.requests.store
    }

    /// Whether the next owner can continue an IKE SA: it has a record, or will have one.
    pub fn has_record(&self, ike: IkeSaId) -> bool {
        self.records.has(ike)
    }

    /// Whether this process owns the state.
    pub const fn is_owner(&self) -> bool {
        matches!(self.state, State::Owner(_))
    }

    /// Whether the state is not claimed yet.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Claiming(_))
    }

    /// Whether all transactions are completed, and at an end also that of the lease.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.revocation.is_none()
    }

    /// The lease of this process, if it has one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match &self.state {
            State::Claiming(claim) => claim.lease(),
            State::Owner(ownership) => Some(ownership.lease.lease()),
            State::Lost => None,
        }
    }
}
