//! The lease of a node: its renewals, and the fence at its end.
//!
//! A node counts the time of its lease from the moment before it sent the last successful renewal. The store
//! counts from a later one, so that the fence of the node always comes first. Only the speeds of the two
//! clocks matter; the margin covers them.

use crate::keeper::Requests;
use casemate_sa::Instant;
use casemate_store::{Lease, Outcome, Request, RequestId, Store, StoreError};
use core::time::Duration;

/// Renewals in the time of a lease.
const RENEWALS: u32 = 12;
/// A failed renewal is repeated after this part of a lease: a store may fail at once, again and again.
const RETRIES: u32 = 60;
/// Part of a lease between the fence and the end.
const MARGIN: u32 = 6;
/// Renewals without an answer, at most. One that is sent to a server that hangs does not delay the others.
const MOST_IN_PROGRESS: usize = 8;

/// A lease that its node renews.
#[derive(Debug)]
pub(crate) struct NodeLease {
    lease: Lease,
    /// Time from a renewal to the end.
    time: Duration,
    renewed_at: Instant,
    /// Renewals without an answer, and when they were sent.
    in_progress: [Option<(RequestId, Instant)>; MOST_IN_PROGRESS],
    next_at: Instant,
}

/// What the end of a request means for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    Succeeded,
    Failed(StoreError),
    /// The lease does not exist any more.
    Ended,
}

impl NodeLease {
    /// A lease that was requested at this time.
    pub(crate) fn new(lease: Lease, time: Duration, requested_at: Instant) -> Self {
        let next_at = requested_at.after(part(time, RENEWALS));
        Self { lease, time, renewed_at: requested_at, in_progress: [None; MOST_IN_PROGRESS], next_at }
    }

    pub(crate) const fn lease(&self) -> Lease {
        self.lease
    }

    /// Whether the node must act as if the lease had ended.
    pub(crate) fn is_fenced(&self, now: Instant) -> bool {
        now.since(self.renewed_at) >= self.time.saturating_sub(part(self.time, MARGIN))
    }

    /// Submits a renewal if one is due.
    pub(crate) fn renew<S: Store>(&mut self, now: Instant, requests: &mut Requests<S>) {
        let Some(free) = self.in_progress.iter_mut().find(|place| place.is_none()) else { return };
        if now < self.next_at {
            return;
        }
        self.next_at = now.after(part(self.time, RENEWALS));
        *free = requests.submit(Request::Renew(self.lease)).map(|id| (id, now));
    }

    /// Takes the end of a request. `None` if it is not a renewal of this lease.
    pub(crate) fn completed(
        &mut self,
        id: RequestId,
        outcome: &Result<Outcome, StoreError>,
        now: Instant,
    ) -> Option<Renewal> {
        let is_this = |place: &&mut Option<(RequestId, Instant)>| place.is_some_and(|(own, _)| own == id);
        let (_, sent_at) = self.in_progress.iter_mut().find(is_this)?.take()?;
        Some(match outcome {
            Ok(Outcome::Renewed) => {
                self.renewed_at = self.renewed_at.max(sent_at);
                Renewal::Succeeded
            }
            Ok(_) => Renewal::Ended,
            Err(error) => {
                self.next_at = self.next_at.min(now.after(part(self.time, RETRIES)));
                Renewal::Failed(*error)
            }
        })
    }
}

fn part(time: Duration, parts: u32) -> Duration {
    time.checked_div(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_store::{Completion, Link, MemoryHub, MemoryStore, RequestId};

    const TIME: Duration = Duration::from_secs(3);
    const STEP: Duration = Duration::from_millis(50);

    struct Case {
        hub: MemoryHub,
        requests: Requests<MemoryStore>,
        lease: NodeLease,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let hub = MemoryHub::new();
            let mut requests = Requests::new(hub.store());
            requests.submit(Request::NewLease(TIME)).unwrap();
            hub.advance(Duration::ZERO);
            let granted = requests.store.next_completion().unwrap().outcome;
            let Ok(Outcome::LeaseGranted(lease)) = granted else { panic!("{granted:?}") };
            Self { hub, requests, lease: NodeLease::new(lease, TIME, Instant::ZERO), now: Instant::ZERO }
        }

        /// Runs for this time. Returns whether the lease has ended in the store, and the last renewal.
        fn run(&mut self, time: Duration) -> Option<Renewal> {
            let (mut last, until) = (None, self.now.after(time));
            while self.now < until {
                self.now = self.now.after(STEP);
                self.lease.renew(self.now, &mut self.requests);
                self.hub.advance(STEP);
                while let Some(Completion { id, outcome }) = self.requests.store.next_completion() {
                    last = self.lease.completed(id, &outcome, self.now);
                }
            }
            last
        }
    }

    #[test]
    fn a_renewed_lease_is_not_fenced() {
        let mut case = Case::new();
        assert_eq!(case.run(20 * TIME), Some(Renewal::Succeeded));
        assert!(!case.lease.is_fenced(case.now));
        assert_eq!(case.lease.completed(RequestId(u64::MAX), &Ok(Outcome::Renewed), case.now), None);
    }

    #[test]
    fn the_fence_comes_before_the_end() {
        for answer_delay in [Duration::ZERO, 4 * STEP] {
            let mut case = Case::new();
            case.requests.store.set_link(Link { answer_delay, ..Link::default() });
            case.run(TIME);
            case.requests.store.set_link(Link { delivers_requests: false, ..Link::default() });
            let mut fenced_for = 0;
            for _ in 0..200 {
                let last = case.run(STEP);
                assert_ne!(last, Some(Renewal::Ended));
                fenced_for += u32::from(case.lease.is_fenced(case.now));
                if fenced_for == 1 {
                    // The store still has the lease.
                    case.requests.store.set_link(Link::default());
                    assert_eq!(case.run(TIME / RENEWALS), Some(Renewal::Succeeded));
                    break;
                }
            }
            assert_eq!(fenced_for, 1);
            assert!(!case.lease.is_fenced(case.now));
        }
    }

    /// A store that fails at once would be asked for ever otherwise, while no time passes.
    #[test]
    fn a_failed_renewal_is_repeated_after_a_pause() {
        let mut case = Case::new();
        let fails = Link { delivers_requests: false, deadline: Duration::ZERO, ..Link::default() };
        case.requests.store.set_link(fails);
        case.now = case.now.after(TIME / RENEWALS);
        let renewals = |case: &mut Case| {
            let mut renewals = 0;
            case.lease.renew(case.now, &mut case.requests);
            while let Some(Completion { id, outcome }) = case.requests.store.next_completion() {
                case.lease.completed(id, &outcome, case.now);
                renewals += 1;
                assert!(renewals < 10);
                case.lease.renew(case.now, &mut case.requests);
            }
            renewals
        };
        assert_eq!(renewals(&mut case), 1);
        case.now = case.now.after(TIME / RETRIES);
        assert_eq!(renewals(&mut case), 1);
    }

    #[test]
    fn an_ended_lease_is_reported() {
        let mut case = Case::new();
        case.hub.advance(2 * TIME);
        assert_eq!(case.run(TIME / RENEWALS), Some(Renewal::Ended));
    }
}
