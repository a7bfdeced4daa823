//! A store in memory for tests and simulations, with faults on request.
//!
//! A [`MemoryHub`] has the contents and the time. Each [`MemoryStore`] of the hub is the store of one user,
//! such as a node, with its own pending requests, watches and [`Link`]. Nothing happens by itself: the caller
//! moves the time with [`MemoryHub::advance`], and requests, answers and the ends of leases take place in the
//! order of their times.
//!
//! Faults: a link loses or delays requests and answers ([`MemoryStore::set_link`]); the store is full
//! ([`MemoryHub::set_full`]), forgets changes that watches need ([`MemoryHub::compact`]), or returns to
//! earlier contents, so that its revision goes backwards ([`MemoryHub::restore`]).

use crate::{
    Completion, Entry, MAX_PENDING, Outcome, Request, RequestId, Revision, State, Store, StoreError,
    WatchEvent, Watches,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;

/// Bytes of keys and values that a store in memory holds.
const CAPACITY: usize = 256 << 20;
/// Shortest lease of a store in memory.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The way between a user and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Whether requests reach the store. A request that does not is never executed.
    pub delivers_requests: bool,
    /// Whether answers and events reach the user. A lost answer is not repeated; events wait.
    pub delivers_answers: bool,
    /// Time from the submission of a request to its execution, at least; requests that are not given up keep
    /// their order.
    pub request_delay: Duration,
    /// Time from the execution of a request to its completion.
    pub answer_delay: Duration,
    /// Time from the submission of a request to its completion with [`StoreError::Unavailable`], if no answer
    /// has arrived. The request may be executed later.
    pub deadline: Duration,
}

impl Default for Link {
    /// A link without delays that loses nothing; requests have a deadline of two seconds.
    fn default() -> Self {
        Self {
            delivers_requests: true,
            delivers_answers: true,
            request_delay: Duration::ZERO,
            answer_delay: Duration::ZERO,
            deadline: Duration::from_secs(2),
        }
    }
}

/// Contents of a store at one time, for [`MemoryHub::restore`].
#[derive(Debug, Clone)]
pub struct Snapshot(State);

/// Contents of a store in memory, and its time. Clones are the same hub.
#[derive(Debug, Clone)]
pub struct MemoryHub(Rc<RefCell<Hub>>);

#[derive(Debug)]
struct Hub {
    now: Duration,
    identity: u64,
    state: State,
    users: BTreeMap<u64, User>,
    next_user: u64,
}

#[derive(Debug, Default)]
struct User {
    link: Link,
    watches: Watches,
    /// In the order of submission.
    in_flight: VecDeque<InFlight>,
    completions: VecDeque<Completion>,
    /// Whether the store of the user is dropped.
    is_gone: bool,
}

/// A request that is not executed, or whose answer has not arrived.
#[derive(Debug)]
struct InFlight {
    id: RequestId,
    progress: Progress,
    /// When the user no longer waits.
    deadline: Duration,
    /// Whether the user has a completion.
    is_completed: bool,
}

#[derive(Debug)]
enum Progress {
    /// The request is on the way to the store, where it arrives at this time.
    Sent(Request, Duration),
    /// The answer is on the way to the user, where it arrives at this time.
    Answered(Result<Outcome, StoreError>, Duration),
    /// The request or its answer is lost.
    Lost,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Expire,
    Execute { user: u64, index: usize },
    Answer { user: u64, index: usize },
    GiveUp { user: u64, index: usize },
}

impl Default for MemoryHub {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryHub {
    /// Returns a store without entries and users. Its time is zero.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(Hub {
            now: Duration::ZERO,
            identity: 0,
            state: State::new(Revision(0), CAPACITY, SHORTEST_LEASE),
            users: BTreeMap::new(),
            next_user: 0,
        })))
    }

    /// Returns the store of a new user, with a link that loses nothing.
    pub fn store(&self) -> MemoryStore {
        let mut hub = self.0.borrow_mut();
        let user = hub.next_user;
        hub.next_user = user.saturating_add(1);
        hub.users.insert(user, User::default());
        MemoryStore { hub: self.0.clone(), user }
    }

    /// Changes the identity of the contents, as the restoration of an etcd cluster does.
    pub fn set_identity(&self, identity: u64) {
        self.0.borrow_mut().identity = identity;
    }

    /// Time of the store, since its creation.
    pub fn now(&self) -> Duration {
        self.0.borrow().now
    }

    /// Lets time pass: executes requests, delivers answers, and ends leases, each at its time.
    pub fn advance(&self, time: Duration) {
        let mut hub = self.0.borrow_mut();
        let now = hub.now.saturating_add(time);
        hub.run(now);
    }

    /// Time of the next execution, answer, deadline or end of a lease; `None` if nothing will happen.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.0.borrow().next_step().map(|(at, _)| at)
    }

    /// Revision of the last change.
    pub fn revision(&self) -> Revision {
        self.0.borrow().state.revision()
    }

    /// All entries, in the order of their keys, as an observer outside sees them.
    pub fn entries(&self) -> Vec<Entry> {
        self.0.borrow().state.entries().cloned().collect()
    }

    /// Makes the store refuse transactions that write, until this is undone. Leases with entries do not end.
    pub fn set_full(&self, is_full: bool) {
        let mut hub = self.0.borrow_mut();
        hub.state.set_full(is_full);
        let now = hub.now;
        hub.run(now);
    }

    /// Forgets all changes so far. Watches that have not seen them end with [`WatchEvent::Gap`].
    pub fn compact(&self) {
        let mut hub = self.0.borrow_mut();
        let last = hub.state.revision();
        hub.state.forget(last);
    }

    /// The contents now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.borrow().state.clone())
    }

    /// Returns to earlier contents of this hub, as a store does that lost writes which it had confirmed, or
    /// that was restored from a backup. The revision goes backwards and is used again for other changes. All
    /// leases last for their whole time, and watches end with a gap. Requests on the way are executed.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut hub = self.0.borrow_mut();
        hub.state = snapshot.0.clone();
        let now = hub.now;
        hub.state.renew_all(now);
        for user in hub.users.values_mut() {
            user.watches.interrupt();
        }
    }
}

impl Hub {
    /// Takes all steps up to this time, which becomes the time of the hub.
    fn run(&mut self, now: Duration) {
        while let Some((at, step)) = self.next_step().filter(|(at, _)| *at <= now) {
            // A step that was overdue takes place now.
            self.now = self.now.max(at);
            self.take_step(step);
        }
        self.now = self.now.max(now);
        self.users.retain(|_, user| !user.is_gone || !user.in_flight.is_empty());
    }

    /// The next step and its time. Of steps at one time, leases end first.
    fn next_step(&self) -> Option<(Duration, Step)> {
        let steps = self.users.iter().flat_map(|(&number, user)| user.next_steps(number));
        let expiry = if self.state.is_full() { None } else { self.state.next_expiry() };
        steps.chain(expiry.map(|at| (at, Step::Expire))).min()
    }

    fn take_step(&mut self, step: Step) {
        let Self { now, state, users, .. } = self;
        match step {
            Step::Expire => state.expire(*now),
            Step::Execute { user, index } => {
                if let Some(user) = users.get_mut(&user) {
                    user.execute(index, state, *now);
                }
            }
            Step::Answer { user, index } => {
                if let Some(user) = users.get_mut(&user) {
                    user.answer(index);
                }
            }
            Step::GiveUp { user, index } => {
                if let Some(user) = users.get_mut(&user) {
                    user.give_up(index);
                }
            }
        }
        state.trim();
    }
}

impl User {
    /// The steps of this user that may be next.
    fn next_steps(&self, user: u64) -> impl Iterator<Item = (Duration, Step)> {
        let sent = |is_completed: bool| {
            let requests =
                self.in_flight.iter().enumerate().filter(move |(_, sent)| sent.is_completed == is_completed);
            requests.filter_map(move |(index, request)| match request.progress {
                Progress::Sent(_, at) => Some((at, Step::Execute { user, index })),
                _ => None,
            })
        };
        // Requests are executed in the order of submission, so a later one waits for the first. Those that
        // the user has given up may be on the way to another server, and wait for nothing.
        let (first, given_up) = (sent(false).next(), sent(true));
        let ends = self.in_flight.iter().enumerate().filter(|(_, request)| !request.is_completed);
        let ends = ends.map(move |(index, request)| match request.progress {
            Progress::Answered(_, at) if at <= request.deadline => (at, Step::Answer { user, index }),
            _ => (request.deadline, Step::GiveUp { user, index }),
        });
        first.into_iter().chain(given_up).chain(ends)
    }

    fn execute(&mut self, index: usize, state: &mut State, now: Duration) {
        let Self { link, watches, in_flight, .. } = self;
        let Some(in_flight) = in_flight.get_mut(index) else { return };
        if let Progress::Sent(request, _) = &in_flight.progress {
            in_flight.progress = if link.delivers_requests {
                let outcome = state.execute(request, watches, now);
                Progress::Answered(outcome, now.saturating_add(link.answer_delay))
            } else {
                Progress::Lost
            };
        }
        self.forget_completed();
    }

    fn answer(&mut self, index: usize) {
        let Some(in_flight) = self.in_flight.get_mut(index) else { return };
        match &in_flight.progress {
            Progress::Answered(outcome, _) if self.link.delivers_answers => {
                let completion = Completion { id: in_flight.id, outcome: outcome.clone() };
                in_flight.is_completed = true;
                self.completions.push_back(completion);
            }
            _ => in_flight.progress = Progress::Lost,
        }
        self.forget_completed();
    }

    fn give_up(&mut self, index: usize) {
        let Some(in_flight) = self.in_flight.get_mut(index) else { return };
        in_flight.is_completed = true;
        self.completions.push_back(Completion { id: in_flight.id, outcome: Err(StoreError::Unavailable) });
        self.forget_completed();
    }

    /// Forgets requests that the user no longer waits for and that are not on the way to the store.
    fn forget_completed(&mut self) {
        let is_sent = |request: &InFlight| matches!(request.progress, Progress::Sent(..));
        self.in_flight.retain(|request| !request.is_completed || is_sent(request));
    }

    fn accepts(&self, id: RequestId) -> bool {
        let requests =
            self.in_flight.iter().filter(|request| !request.is_completed).map(|request| request.id);
        let mut pending = requests.chain(self.completions.iter().map(|completion| completion.id));
        // Requests that are on the way although the user has given up count, so that they are bounded.
        let count = self.in_flight.len().saturating_add(self.completions.len());
        count < MAX_PENDING && pending.all(|pending| pending != id)
    }
}

/// The store of one user of a [`MemoryHub`]. Requests that are on the way when the store is dropped are still
/// executed.
#[derive(Debug)]
pub struct MemoryStore {
    hub: Rc<RefCell<Hub>>,
    user: u64,
}

impl MemoryStore {
    /// Changes the link of this user. What is on the way is subject to it: requests when they arrive at the
    /// store, answers when they arrive at the user. Delays count for requests that are sent later, and for
    /// their answers.
    pub fn set_link(&mut self, link: Link) {
        if let Some(user) = self.hub.borrow_mut().users.get_mut(&self.user) {
            user.link = link;
        }
    }

    /// The link of this user.
    pub fn link(&self) -> Link {
        self.hub.borrow().users.get(&self.user).map(|user| user.link).unwrap_or_default()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let mut hub = self.hub.borrow_mut();
        if let Some(user) = hub.users.get_mut(&self.user) {
            user.is_gone = true;
        }
        let now = hub.now;
        hub.run(now);
    }
}

impl Store for MemoryStore {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        let mut hub = self.hub.borrow_mut();
        let now = hub.now;
        let Some(user) = hub.users.get_mut(&self.user) else { return Err(request) };
        if !request.is_within_limits() || !user.accepts(id) {
            return Err(request);
        }
        let progress = Progress::Sent(request, now.saturating_add(user.link.request_delay));
        let deadline = now.saturating_add(user.link.deadline);
        user.in_flight.push_back(InFlight { id, progress, deadline, is_completed: false });
        hub.run(now);
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.hub.borrow_mut().users.get_mut(&self.user)?.completions.pop_front()
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        let mut hub = self.hub.borrow_mut();
        let Hub { state, users, .. } = &mut *hub;
        let user = users.get_mut(&self.user)?;
        if user.link.delivers_answers { user.watches.next_event(state) } else { None }
    }

    fn shortest_lease(&self) -> Duration {
        SHORTEST_LEASE
    }

    fn identity(&self) -> Option<u64> {
        Some(self.hub.borrow().identity)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
