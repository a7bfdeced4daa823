//! The order of requests: transactions, reads and ends of leases one after the other, in the order in which
//! they were submitted. New leases and renewals do not wait for them, except for the end of the same lease.
//! A lease whose user is busy is renewed without a request for a while.
//!
//! Consecutive transactions that concern different entries form a batch, which etcd executes as one
//! transaction with a nested one for each. etcd compares for all of them before it writes for the first one,
//! so a batch has no transaction that concerns an entry that another one of the batch writes.

use casemate_store::{Comparison, Lease, Outcome, Request, RequestId, StoreError, Transaction, Write};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of transactions of a batch. etcd's limit of 128 operations includes those of the outer
/// transaction.
const MAX_BATCH: usize = 128 - casemate_store::MAX_WRITES;
/// Bytes of keys and values after which a batch has no further transaction. etcd's default limit is 1.5 MiB.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Time after the last renewal of its user in which the store keeps a lease: the user may restore many SAs. A
/// user that does nothing for longer loses the lease.
const MOST_BUSY: Duration = Duration::from_secs(6);
/// Renewals of the store in the time of a lease.
const RENEWALS: u32 = 4;

/// Which thread executes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Transactions, reads and ends of leases.
    Data,
    /// New leases and renewals.
    Leases,
}

impl Lane {
    /// The lane of a request.
    pub(crate) const fn of(request: &Request) -> Self {
        match request {
            Request::NewLease(_) | Request::Renew(_) => Self::Leases,
            _ => Self::Data,
        }
    }
}

/// A request that waits or is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Position in the order of submission.
    number: u64,
    /// The request of the user; `None` for a renewal that the store makes by itself.
    pub(crate) id: Option<RequestId>,
    pub(crate) request: Request,
    /// When the user gets a completion at the latest.
    pub(crate) deadline: Instant,
}

/// Requests that wait, and leases of those that are executed.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    next: u64,
    data: VecDeque<Job>,
    leases: VecDeque<Job>,
    /// Submitted requests that have not ended: renewals, and ends of leases.
    renewals: BTreeSet<(Lease, u64)>,
    revokes: BTreeSet<(Lease, u64)>,
    kept: Option<KeptLease>,
}

impl Schedule {
    /// Adds a request.
    pub(crate) fn submit(&mut self, id: RequestId, request: Request, deadline: Instant) {
        match &request {
            Request::Renew(lease) => {
                let kept = self.kept.as_mut().filter(|kept| kept.lease == *lease);
                kept.into_iter().for_each(KeptLease::renewed_by_user);
            }
            Request::Revoke(lease) => self.kept = self.kept.take().filter(|kept| kept.lease != *lease),
            _ => {}
        }
        self.add(Some(id), request, deadline);
    }

    fn add(&mut self, id: Option<RequestId>, request: Request, deadline: Instant) {
        let number = self.next;
        self.next = number.saturating_add(1);
        match &request {
            Request::Renew(lease) => self.renewals.insert((*lease, number)),
            Request::Revoke(lease) => self.revokes.insert((*lease, number)),
            _ => false,
        };
        let lane = match Lane::of(&request) {
            Lane::Data => &mut self.data,
            Lane::Leases => &mut self.leases,
        };
        lane.push_back(Job { number, id, request, deadline });
    }

    /// When the store renews a lease by itself, unless its user does so before.
    pub(crate) fn renews_at(&self) -> Option<Instant> {
        let kept = self.kept.as_ref()?;
        (kept.repeat_at <= kept.until).then_some(kept.repeat_at)
    }

    /// Adds the renewal that the store makes by itself, if it is due.
    pub(crate) fn renew_kept(&mut self, now: Instant, time: Duration) {
        if self.renews_at().is_some_and(|at| at <= now)
            && let Some(kept) = &mut self.kept
        {
            kept.repeat_at = now + kept.interval();
            let lease = kept.lease;
            self.add(None, Request::Renew(lease), now + time);
        }
    }

    /// Takes the requests that a thread of this lane executes next: one, or a batch of transactions.
    pub(crate) fn take(&mut self, lane: Lane) -> Vec<Job> {
        match lane {
            Lane::Data => self.take_data(),
            Lane::Leases => {
                let is_free = |job: &Job| match job.request {
                    Request::Renew(lease) => !has_earlier(&self.revokes, lease, job.number),
                    _ => true,
                };
                let free = self.leases.iter().position(is_free);
                free.and_then(|index| self.leases.remove(index)).into_iter().collect()
            }
        }
    }

    fn take_data(&mut self) -> Vec<Job> {
        let mut batch = Batch::default();
        while let Some(job) = self.data.front() {
            let is_next = match &job.request {
                Request::Commit(transaction) => batch.accept(transaction, job.request.bytes()),
                Request::Revoke(lease) => {
                    batch.jobs.is_empty() && !has_earlier(&self.renewals, *lease, job.number)
                }
                _ => batch.jobs.is_empty(),
            };
            let is_last = !matches!(job.request, Request::Commit(_));
            if is_next {
                batch.jobs.extend(self.data.pop_front());
            }
            if !is_next || is_last {
                break;
            }
        }
        batch.jobs
    }

    /// Notes the end of a request. Returns whether it may let a request of the other lane begin.
    pub(crate) fn finish(&mut self, job: &Job, outcome: &Result<Outcome, StoreError>) -> bool {
        match (&job.request, outcome) {
            (Request::NewLease(time), Ok(Outcome::LeaseGranted(lease))) => {
                self.kept = Some(KeptLease::new(*lease, *time));
            }
            (Request::Renew(lease), Ok(Outcome::Ended)) => {
                self.kept = self.kept.take().filter(|kept| kept.lease != *lease);
            }
            _ => {}
        }
        match job.request {
            Request::Renew(lease) => self.renewals.remove(&(lease, job.number)),
            Request::Revoke(lease) => self.revokes.remove(&(lease, job.number)),
            _ => false,
        }
    }
}

/// The lease that was granted last. The store renews it by itself for a while if its user is too busy to.
#[derive(Debug)]
struct KeptLease {
    lease: Lease,
    time: Duration,
    /// When the store stops.
    until: Instant,
    /// When the store renews it.
    repeat_at: Instant,
}

impl KeptLease {
    fn new(lease: Lease, time: Duration) -> Self {
        let now = Instant::now();
        let mut kept = Self { lease, time, until: now, repeat_at: now };
        kept.renewed_by_user();
        kept
    }

    fn renewed_by_user(&mut self) {
        let now = Instant::now();
        (self.until, self.repeat_at) = (now + MOST_BUSY, now + self.interval());
    }

    fn interval(&self) -> Duration {
        self.time / RENEWALS
    }
}

/// Whether a request for this lease was submitted before the one with this number.
fn has_earlier(requests: &BTreeSet<(Lease, u64)>, lease: Lease, number: u64) -> bool {
    requests.range((lease, 0)..(lease, number)).next().is_some()
}

/// Transactions that are executed together.
#[derive(Default)]
struct Batch {
    jobs: Vec<Job>,
    bytes: usize,
    compared: BTreeSet<Vec<u8>>,
    written: BTreeSet<Vec<u8>>,
}

impl Batch {
    /// Notes a transaction with this number of bytes, unless it does not fit.
    fn accept(&mut self, transaction: &Transaction, size: usize) -> bool {
        let compared = || transaction.comparisons.iter().map(Comparison::key);
        let written = || transaction.writes.iter().map(Write::key);
        let is_full = self.jobs.len() >= MAX_BATCH || self.bytes.saturating_add(size) > MAX_BATCH_BYTES;
        let is_independent = !compared().chain(written()).any(|key| self.written.contains(key))
            && !written().any(|key| self.compared.contains(key));
        if !self.jobs.is_empty() && (is_full || !is_independent) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(size);
        self.compared.extend(compared().cloned());
        self.written.extend(written().cloned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_store::{Range, Revision};

    fn commit(compared: &[u8], written: &[u8]) -> Request {
        Request::Commit(Transaction {
            comparisons: compared.iter().map(|&k| Comparison::Changed(vec![k], Revision(1))).collect(),
            writes: written.iter().map(|&k| Write::Delete(vec![k])).collect(),
        })
    }

    fn put(key: &[u8], size: usize) -> Request {
        let write = Write::Put { key: key.into(), value: vec![0; size], lease: None };
        Request::Commit(Transaction { comparisons: vec![], writes: vec![write] })
    }

    fn read() -> Request {
        Request::Read(Range { prefix: vec![], after: None, limit: 1 })
    }

    fn schedule(requests: impl IntoIterator<Item = Request>) -> Schedule {
        let mut schedule = Schedule::default();
        for (id, request) in requests.into_iter().enumerate() {
            schedule.submit(RequestId(id as u64), request, Instant::now());
        }
        schedule
    }

    /// Numbers of the requests of each batch.
    fn batches(requests: impl IntoIterator<Item = Request>) -> Vec<Vec<u64>> {
        let mut schedule = schedule(requests);
        let numbers = |jobs: Vec<Job>| jobs.iter().map(|job| job.id.unwrap().0).collect::<Vec<_>>();
        let batches = std::iter::from_fn(|| Some(numbers(schedule.take(Lane::Data))));
        batches.take_while(|batch| !batch.is_empty()).collect()
    }

    #[test]
    fn transactions_for_different_entries_form_a_batch() {
        let requests = [commit(b"o", b"a"), commit(b"o", b"b"), commit(b"op", b"")];
        assert_eq!(batches(requests), [[0, 1, 2]]);
    }

    #[test]
    fn a_transaction_that_concerns_a_written_entry_begins_another_batch() {
        assert_eq!(batches([commit(b"", b"a"), commit(b"", b"a")]), [[0], [1]]);
        assert_eq!(
            batches([commit(b"", b"a"), commit(b"a", b"b"), commit(b"", b"c")]),
            [vec![0], vec![1, 2]]
        );
        assert_eq!(batches([commit(b"a", b"b"), commit(b"", b"a")]), [[0], [1]]);
        // One transaction may compare and write the same entry.
        assert_eq!(batches([commit(b"a", b"a"), commit(b"b", b"b")]), [[0, 1]]);
    }

    #[test]
    fn reads_and_ends_of_leases_are_executed_alone_and_in_order() {
        let requests =
            [put(b"a", 1), read(), put(b"b", 1), Request::Revoke(Lease(1)), put(b"c", 1), read(), read()];
        assert_eq!(batches(requests), [[0], [1], [2], [3], [4], [5], [6]]);
    }

    #[test]
    fn batches_are_limited() {
        let many = (0..40).map(|key| put(&[key], 1));
        assert_eq!(batches(many).iter().map(Vec::len).collect::<Vec<_>>(), [32, 8]);
        let large = (0..4).map(|key| put(&[key], 100 << 10));
        assert_eq!(batches(large), [[0, 1], [2, 3]]);
        let largest = (0..2).map(|key| put(&[key], 1 << 20));
        assert_eq!(batches(largest), [[0], [1]], "a transaction of any size is executed");
    }

    #[test]
    fn renewals_wait_for_the_end_of_their_lease_only() {
        let (lease, other) = (Lease(1), Lease(2));
        let requests = [
            put(b"a", 1),
            Request::Renew(lease),
            Request::Revoke(lease),
            Request::Renew(lease),
            Request::Renew(other),
            Request::NewLease(Duration::from_secs(2)),
        ];
        let mut schedule = schedule(requests);
        let take = |schedule: &mut Schedule, lane| {
            let jobs = schedule.take(lane);
            assert!(jobs.len() <= 1);
            jobs.into_iter().next()
        };
        let renewal = take(&mut schedule, Lane::Leases).unwrap();
        assert_eq!(renewal.id.unwrap().0, 1);
        assert_eq!(take(&mut schedule, Lane::Data).unwrap().id.unwrap().0, 0);
        assert_eq!(take(&mut schedule, Lane::Data), None, "the renewal has not ended");
        assert_eq!(take(&mut schedule, Lane::Leases).unwrap().id.unwrap().0, 4);
        assert_eq!(take(&mut schedule, Lane::Leases).unwrap().id.unwrap().0, 5);
        assert!(schedule.finish(&renewal, &Ok(Outcome::Renewed)));
        let revoke = take(&mut schedule, Lane::Data).unwrap();
        assert_eq!(revoke.id.unwrap().0, 2);
        assert_eq!(take(&mut schedule, Lane::Leases), None, "the lease has not ended");
        assert!(schedule.finish(&revoke, &Ok(Outcome::Ended)));
        assert_eq!(take(&mut schedule, Lane::Leases).unwrap().id.unwrap().0, 3);
    }

    #[test]
    fn a_lease_whose_user_is_busy_is_renewed_for_a_while() {
        let (time, lease) = (Duration::from_secs(8), Lease(7));
        let mut schedule = schedule([Request::NewLease(time)]);
        let own = |schedule: &mut Schedule, after: Duration| {
            schedule.renew_kept(Instant::now() + after, Duration::from_secs(1));
            schedule.take(Lane::Leases).pop()
        };
        let granted = schedule.take(Lane::Leases).pop().unwrap();
        schedule.finish(&granted, &Ok(Outcome::LeaseGranted(lease)));
        let second = Duration::from_secs(1);
        assert_eq!(own(&mut schedule, second), None, "not due");
        for (after, is_kept) in [(3, true), (4, false), (5, true), (7, false), (9, false)] {
            let job = own(&mut schedule, after * second);
            assert_eq!(job.is_some(), is_kept, "after {after} s");
            let Some(job) = job else { continue };
            assert_eq!((job.id, &job.request), (None, &Request::Renew(lease)));
            schedule.finish(&job, &Ok(Outcome::Renewed));
        }
        // The user is back.
        schedule.submit(RequestId(1), Request::Renew(lease), Instant::now());
        let job = schedule.take(Lane::Leases).pop().unwrap();
        assert_eq!(job.id, Some(RequestId(1)));
        schedule.finish(&job, &Ok(Outcome::Renewed));
        let job = own(&mut schedule, 3 * second).unwrap();
        schedule.finish(&job, &Ok(Outcome::Ended));
        assert_eq!(schedule.renews_at(), None, "the lease has ended");
    }

    #[test]
    fn the_end_of_a_lease_ends_its_renewals() {
        let lease = Lease(7);
        let mut schedule = schedule([Request::NewLease(Duration::from_secs(2))]);
        let granted = schedule.take(Lane::Leases).pop().unwrap();
        schedule.finish(&granted, &Ok(Outcome::LeaseGranted(lease)));
        assert!(schedule.renews_at().is_some());
        schedule.submit(RequestId(1), Request::Revoke(lease), Instant::now());
        assert_eq!(schedule.renews_at(), None);
    }
}
