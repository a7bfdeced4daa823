//! The claim of a slot: a lease, one transaction, and the records of the former owner.
//!
//! On a single machine, a slot with an owner is an error. A node of a cell waits until the slot is free: a
//! watch tells when. After any failure it looks at the slot again. A claim or a registration whose outcome
//! is unknown is given up together with its lease: if it is executed late, it ends with that lease.

mod requests;

use crate::StoreKeys;
use crate::data_keys;
use crate::keeper::Requests;
use crate::lease::{NodeLease, Renewal};
use crate::registration::{self, ForwardAddress};
use crate::start::{ClaimContext, Claimed, SlotContents, StartError, Tenure};
use crate::status::KeeperRole;
use crate::wrapping::NeededKeys;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_store::{
    Completion, Entry, Lease, Outcome, RequestId, Revision, Store, StoreError, WatchEvent, WatchId,
};
use core::time::Duration;

/// Pause after a failure, and after a slot was found without an owner that another node then claimed.
const RETRY: Duration = Duration::from_millis(500);
/// Pause after a claim during which the lease has become doubtful.
const CONFIRM: Duration = Duration::from_millis(50);
/// A node that waits looks at the slot after this time, in case its watch has missed the end of the owner.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The watch of the slot.
const WATCH: WatchId = WatchId(1);

/// A claim in progress.
#[derive(Debug)]
pub(crate) struct SlotClaim {
    keys: StoreKeys,
    node: Vec<u8>,
    /// Value of the node's entry among those of the cell.
    registration: Vec<u8>,
    tenure: Tenure,
    lease: Option<NodeLease>,
    step: Step,
    /// The request of the step and when it was submitted; `None` if the step is still to begin.
    request: Option<(RequestId, Instant)>,
    /// When a step that is to begin may begin.
    begin_at: Instant,
    is_watching: bool,
    /// The proofs of the wrapping key, in a cell.
    proofs: Option<SeenProofs>,
    /// Whether the node is entered among those of the cell, with the present lease.
    is_registered: bool,
    /// Whether another process has the name of this node.
    has_name_taken: bool,
    /// Whether an administrator has drained this node.
    is_drained: bool,
    /// Whether the host of this node can move packets.
    is_able: bool,
    /// Node that owns the slot.
    seen_owner: Option<Vec<u8>>,
    /// Whether any node owned the slot since the start of this process.
    has_seen_owner: bool,
    problem: Option<StoreError>,
}

/// The proofs of the wrapping key, for which this node has all keys.
#[derive(Debug, Clone, Copy)]
struct SeenProofs {
    needed: NeededKeys,
    /// Revision at which they were last changed.
    changed: Revision,
}

#[derive(Debug)]
enum Step {
    Lease,
    /// Reads the entry that proves the wrapping key. It may change while the node waits.
    Key,
    /// Creates that entry.
    NewKey(Vec<u8>),
    /// Enters the node among those of the cell.
    Register,
    /// Reads whether the node was drained.
    Drained,
    /// Looks at the slot.
    Slot,
    /// Begins to watch it, after this revision.
    Watch(Revision),
    /// Waits for the end of the owner, until it is time to look again.
    Standby,
    /// Reads the data keys of a single machine, these so far. It has no proofs: with another wrapping key it
    /// must not claim anything, because each claim uses up sequence numbers.
    Readable(Vec<Entry>),
    /// Reads the number of owners so far.
    Count,
    Commit {
        owner: u64,
        counted: Revision,
    },
    /// Reads the data keys, and then the records.
    DataKeys(SlotContents),
    Records(SlotContents),
}

impl SlotClaim {
    /// `node` names the owner.
    pub(crate) fn new(keys: StoreKeys, node: Vec<u8>, tenure: Tenure) -> Self {
        Self {
            keys,
            registration: registration::value(&node, None),
            node,
            tenure,
            lease: None,
            step: Step::Lease,
            request: None,
            begin_at: Instant::ZERO,
            is_watching: false,
            proofs: None,
            is_registered: false,
            has_name_taken: false,
            is_drained: false,
            is_able: true,
            seen_owner: None,
            has_seen_owner: false,
            problem: None,
        }
    }

    /// Enters where this node receives forwarded packets, when it registers.
    pub(crate) fn register_forward(&mut self, forward: &ForwardAddress) {
        self.registration = registration::value(&self.node, Some(forward));
    }

    const fn is_standby(&self) -> bool {
        matches!(self.step, Step::Standby)
    }

    /// What the node does. One that looks at the slot again still stands by.
    pub(crate) const fn role(&self) -> KeeperRole {
        match self.step {
            Step::Register if self.has_name_taken => KeeperRole::NameTaken,
            _ if self.is_drained => KeeperRole::Drained,
            _ if self.seen_owner.is_some() => KeeperRole::Standby,
            _ => KeeperRole::Starting,
        }
    }

    /// Whether the host of this node can move packets.
    pub(crate) const fn set_able(&mut self, is_able: bool, now: Instant) {
        if is_able && !self.is_able {
            self.look_again(now);
        }
        self.is_able = is_able;
    }

    const fn may_claim(&self) -> bool {
        self.is_able && !self.is_drained
    }

    /// Looks at once whether the node was drained, and at the slot.
    pub(crate) const fn look_again(&mut self, now: Instant) {
        if self.is_standby() {
            self.begin_at = now;
        }
    }

    /// The node that was last seen as the owner.
    pub(crate) fn seen_owner(&self) -> Option<&[u8]> {
        self.seen_owner.as_deref()
    }

    /// Whether the proofs of the cell name the second wrapping key of this node.
    pub(crate) fn needs_second_key(&self) -> bool {
        self.proofs.is_some_and(|proofs| proofs.needed == NeededKeys::Second)
    }

    /// Why the last request failed, if it did.
    pub(crate) const fn problem(&self) -> Option<StoreError> {
        self.problem
    }

    /// The lease, if there is one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.lease.as_ref().map(NodeLease::lease)
    }

    /// Submits what is due: a renewal, and the request of the step.
    pub(crate) fn poll<S: Store>(&mut self, now: Instant, requests: &mut Requests<S>) {
        if let Some(lease) = &mut self.lease {
            lease.renew(now, requests);
        }
        if self.request.is_some() || now < self.begin_at {
            return;
        }
        if matches!(self.step, Step::Standby) {
            self.step = Step::Key;
        }
        match requests.submit(self.request_of_step()) {
            Some(id) => self.request = Some((id, now)),
            None => self.begin_at = now.after(RETRY),
        }
    }

    /// Continues at once if the owner has ended.
    pub(crate) fn watched(&mut self, event: &WatchEvent, now: Instant) {
        let has_ended = match event {
            WatchEvent::Deleted(WATCH, key, _) => *key == self.keys.owner(),
            WatchEvent::Gap(WATCH) => {
                self.is_watching = false;
                true
            }
            _ => false,
        };
        if has_ended && self.is_standby() {
            let may_claim = self.is_watching && self.may_claim();
            (self.step, self.begin_at) = (if may_claim { Step::Count } else { Step::Drained }, now);
        }
    }

    /// Takes the completion of a request, and goes on to the next step. Returns the claimed slot after the
    /// last one.
    pub(crate) fn completed(
        &mut self,
        Completion { id, outcome }: Completion,
        context: &mut ClaimContext<'_>,
    ) -> Result<Option<Claimed>, StartError> {
        let now = context.now;
        if let Some(renewal) = self.lease.as_mut().and_then(|lease| lease.completed(id, &outcome, now)) {
            match renewal {
                Renewal::Ended => self.give_up_lease(now),
                Renewal::Failed(StoreError::Damaged) => {
                    return self.failed(StoreError::Damaged, now).map(|()| None);
                }
                Renewal::Succeeded | Renewal::Failed(_) => {}
            }
            return Ok(None);
        }
        let Some((_, sent_at)) = self.request.take_if(|(own, _)| *own == id) else { return Ok(None) };
        match outcome {
            Ok(outcome) => {
                self.problem = None;
                self.advance(outcome, sent_at, context)
            }
            Err(error) => self.failed(error, now).map(|()| None),
        }
    }

    fn failed(&mut self, error: StoreError, now: Instant) -> Result<(), StartError> {
        if self.tenure == Tenure::SingleMachine || error == StoreError::Damaged {
            return Err(StartError::Store(error));
        }
        self.problem = Some(error);
        match self.step {
            // It may be executed late, but not after its lease.
            Step::Register | Step::Commit { .. } | Step::DataKeys(_) | Step::Records(_) => {
                self.give_up_lease(now);
            }
            Step::Lease | Step::Key | Step::NewKey(_) | Step::Readable(_) => {}
            Step::Drained | Step::Slot | Step::Watch(_) | Step::Standby | Step::Count => {
                self.step = Step::Drained;
            }
        }
        self.begin_at = now.after(RETRY);
        Ok(())
    }

    /// Begins again with another lease; the present one ends without renewals.
    fn give_up_lease(&mut self, now: Instant) {
        (self.lease, self.request, self.step) = (None, None, Step::Lease);
        self.is_registered = false;
        self.begin_at = now.after(RETRY);
    }

    fn advance(
        &mut self,
        outcome: Outcome,
        sent_at: Instant,
        context: &mut ClaimContext<'_>,
    ) -> Result<Option<Claimed>, StartError> {
        let now = context.now;
        let is_cell = self.tenure != Tenure::SingleMachine;
        self.begin_at = now;
        self.step = match (core::mem::replace(&mut self.step, Step::Slot), outcome) {
            (Step::Lease, Outcome::LeaseGranted(lease)) => {
                self.lease = Some(NodeLease::new(lease, self.tenure.lease(), sent_at));
                if is_cell { Step::Key } else { Step::Readable(Vec::new()) }
            }
            (Step::Key, Outcome::Entries { entries, .. }) => self.check_key(&entries, context)?,
            (Step::NewKey(_), _) => Step::Key,
            (Step::Register, Outcome::Committed(_)) => {
                (self.has_name_taken, self.is_registered) = (false, true);
                Step::Drained
            }
            // The former process with this name, or another one with the same name.
            (Step::Register, Outcome::Refused(_)) => {
                (self.has_name_taken, self.begin_at) = (true, now.after(RETRY));
                Step::Register
            }
            (Step::Drained, Outcome::Entries { entries, .. }) => {
                let key = self.keys.drained(&self.node);
                self.is_drained = entries.iter().any(|entry| entry.key == key);
                Step::Slot
            }
            (Step::Slot, Outcome::Entries { entries, revision, .. }) => {
                self.seen_owner = entries.first().map(|entry| entry.value.clone());
                self.has_seen_owner |= !entries.is_empty();
                match (entries.is_empty(), self.is_watching) {
                    (true, _) if self.may_claim() => Step::Count,
                    (true, true) => self.stand_by(now),
                    (true, false) => Step::Watch(revision),
                    (false, false) => Step::Watch(revision),
                    (false, true) => self.stand_by(now),
                }
            }
            (Step::Watch(_), _) => {
                self.is_watching = true;
                self.stand_by(now)
            }
            (Step::Readable(mut known), Outcome::Entries { entries, more, .. }) => {
                known.extend(entries);
                match more {
                    true => Step::Readable(known),
                    false if data_keys::are_readable(&self.keys, context.wrapping, &known) => Step::Count,
                    false => return Err(StartError::WrappingKey),
                }
            }
            (Step::Count, Outcome::Entries { entries, .. }) => {
                let (former, counted) = match entries.first() {
                    Some(entry) => (count(&entry.value)?, entry.changed),
                    None => (0, Revision::ABSENT),
                };
                Step::Commit { owner: former.checked_add(1).ok_or(StartError::Unexpected)?, counted }
            }
            (Step::Commit { owner, .. }, Outcome::Committed(epoch)) => {
                let proved = self.proofs.map(|proofs| proofs.needed);
                Step::DataKeys(SlotContents::new(epoch, owner, proved))
            }
            // Another node was faster, or the wrapping key has changed.
            (Step::Commit { .. }, Outcome::Refused(_)) if is_cell => Step::Key,
            (Step::Commit { .. }, Outcome::Refused(_)) => return Err(StartError::Owned),
            (Step::DataKeys(mut contents), Outcome::Entries { entries, more, .. }) => {
                contents.data_keys.extend(entries);
                if more { Step::DataKeys(contents) } else { Step::Records(contents) }
            }
            (Step::Records(mut contents), Outcome::Entries { entries, more, .. }) => {
                contents.records.extend(entries);
                let is_fenced = |lease: &NodeLease| is_cell && lease.is_fenced(now);
                if !more && !self.lease.as_ref().is_some_and(is_fenced) {
                    let lease = self.lease.take().ok_or(StartError::Unexpected)?;
                    let has_seen_owner = self.has_seen_owner;
                    return Ok(Some(Claimed { lease, contents, has_seen_owner }));
                }
                if !more {
                    // This process was stopped: the answer to a renewal shows whether another one owns the
                    // slot now.
                    contents.records.clear();
                    self.begin_at = now.after(CONFIRM);
                }
                Step::Records(contents)
            }
            _ => return Err(StartError::Unexpected),
        };
        Ok(None)
    }

    fn stand_by(&mut self, now: Instant) -> Step {
        self.begin_at = now.after(LOOK_AGAIN);
        Step::Standby
    }

    /// Compares the wrapping keys with those of the other nodes. The first node of a cell enters the proof.
    fn check_key(&mut self, entries: &[Entry], context: &mut ClaimContext<'_>) -> Result<Step, StartError> {
        let (wrapping, key) = (context.wrapping, self.keys.wrapping_key());
        let Some(entry) = entries.iter().find(|entry| entry.key == key) else {
            let proof = wrapping.first().proof(&key, context.rng);
            return proof.map(Step::NewKey).map_err(|_| StartError::WrappingKey);
        };
        let needed = wrapping.needed(&key, &entry.value).ok_or(StartError::WrappingKey)?;
        self.proofs = Some(SeenProofs { needed, changed: entry.changed });
        Ok(if self.is_registered { Step::Drained } else { Step::Register })
    }
}

fn count(value: &[u8]) -> Result<u64, StartError> {
    value.as_array::<8>().map(|bytes| u64::from_be_bytes(*bytes)).ok_or(StartError::Unexpected)
}
