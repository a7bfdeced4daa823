//! Looks up host names of connections, on a thread of its own: a look-up waits for name servers, and the
//! event loop must not.
//!
//! [`Resolver::addrs`] returns what is known and starts a look-up if that is too old. The resolver signals
//! its event when a look-up has ended. The system's resolver decides how names are looked up
//! (`nsswitch.conf`, `/etc/hosts`, DNS); it does not tell how long an answer is valid.

use crate::sys::EventFd;
use crate::{Error, sandbox};
use casemate::{HostAddrs, Lookup};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An attempt uses addresses that were looked up within this time. The attempts for several Child SAs of a
/// connection follow each other at once.
const FRESH: Duration = Duration::from_secs(2);
/// After this time, addresses are looked up again when they are compared with those of a peer.
const CACHED: Duration = Duration::from_secs(60);

/// A peer whose address matches no connection makes its names be looked up again after this time, if the
/// budget for peers allows it. It sends its request again earlier, and that one gets a response.
const RECHECK: Duration = Duration::from_secs(10);

/// Look-ups per minute that messages of peers may cause, for all names together. They share it equally.
const FOR_PEERS_PER_MINUTE: u32 = 60;
/// Look-ups of one name that messages of peers may cause at once, and per minute. A peer that has moved needs
/// one, and a second one if its name still had the former address.
const FOR_PEERS_OF_ONE_NAME: u32 = 2;

/// Looks up a name.
type LookUp = fn(&str) -> io::Result<Vec<IpAddr>>;

/// Largest number of names that are kept. Gateways choose some, to which they redirect this host.
const MAX_NAMES: usize = 4_096;

/// The names of all connections, and of gateways to which this host was redirected.
pub(crate) struct Resolver {
    look_up: LookUp,
    ended: Arc<EventFd>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    names: HashMap<Arc<str>, Entry>,
    /// The thread, from the first look-up on.
    worker: Option<Worker>,
    /// Errors for the log.
    errors: Vec<String>,
}

struct Worker {
    requests: Sender<Arc<str>>,
    answers: Receiver<Answer>,
}

struct Answer {
    name: Arc<str>,
    result: io::Result<Vec<IpAddr>>,
}

/// What is known of a name.
#[derive(Default)]
struct Entry {
    /// The addresses that were last found. A look-up that fails leaves them.
    addrs: Vec<IpAddr>,
    /// Whether a look-up has not ended.
    is_pending: bool,
    /// When the last look-up ended.
    ended: Option<Instant>,
    /// Whether it found nothing. The log says so once.
    has_failed: bool,
    for_peers: Budget,
}

/// Look-ups of a name that messages of peers may still cause. Such messages need no authentication, so any
/// host can send them, and a look-up of a slow name server delays those of this host.
struct Budget {
    left: u32,
    /// When the last one was added.
    counted_at: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: FOR_PEERS_OF_ONE_NAME, counted_at: Instant::now() }
    }
}

impl Budget {
    /// Whether a look-up may begin. `names` is the number of names that share the budget.
    fn allows(&mut self, names: usize) -> bool {
        let names = u32::try_from(names).unwrap_or(u32::MAX);
        let minute = Duration::from_secs(60);
        let share = minute / FOR_PEERS_PER_MINUTE * names;
        let interval = share.max(minute / FOR_PEERS_OF_ONE_NAME);
        while self.left < FOR_PEERS_OF_ONE_NAME && self.counted_at.elapsed() >= interval {
            self.left += 1;
            self.counted_at += interval;
        }
        if self.left == FOR_PEERS_OF_ONE_NAME {
            self.counted_at = Instant::now();
        }
        let rest = self.left.checked_sub(1);
        self.left = rest.unwrap_or_default();
        rest.is_some()
    }
}

impl Resolver {
    /// Uses the resolver of this system.
    pub(crate) fn new() -> Result<Self, Error> {
        Self::with(|name| Ok((name, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect()))
    }

    fn with(look_up: LookUp) -> Result<Self, Error> {
        let ended = EventFd::new().map_err(|error| Error::new("eventfd", error))?;
        Ok(Self { look_up, ended: Arc::new(ended), state: RefCell::default() })
    }

    /// Signalled when a look-up has ended, until [`take_errors`](Self::take_errors) is called.
    pub(crate) fn ended(&self) -> &Arc<EventFd> {
        &self.ended
    }

    /// Takes the answers. Returns errors for the log, one for each name that cannot be looked up any more.
    pub(crate) fn take_errors(&self) -> Vec<String> {
        self.ended.clear();
        let mut state = self.state.borrow_mut();
        state.take_answers();
        std::mem::take(&mut state.errors)
    }

    /// The addresses of a host. Starts a look-up if they are too old for this purpose.
    pub(crate) fn addrs(&self, name: &str, lookup: Lookup) -> HostAddrs {
        let mut state = self.state.borrow_mut();
        state.take_answers();
        let entry = state.names.get(name);
        let age = entry.and_then(|entry| entry.ended).map(|ended| ended.elapsed());
        let max_age = match lookup {
            Lookup::Fresh => FRESH,
            Lookup::Cached => CACHED,
            Lookup::Recheck => RECHECK,
        };
        let is_current = age.is_some_and(|age| age < max_age);
        if !is_current && !entry.is_some_and(|entry| entry.is_pending) && state.allows(name, lookup) {
            state.begin(name, self.look_up, &self.ended);
        }
        let Some(entry) = state.names.get(name) else { return HostAddrs::Unknown };
        match (lookup, entry.addrs.is_empty()) {
            (Lookup::Fresh | Lookup::Recheck, _) if entry.is_pending => HostAddrs::Pending,
            (_, false) => HostAddrs::Known(entry.addrs.clone()),
            (Lookup::Cached, true) if entry.is_pending => HostAddrs::Pending,
            (_, true) => HostAddrs::Unknown,
        }
    }
}

impl State {
    /// Whether the budget allows a look-up. Attempts of this host and the first look-up of a name need none.
    fn allows(&mut self, name: &str, lookup: Lookup) -> bool {
        let names = self.names.len();
        match (lookup, self.names.get_mut(name)) {
            (Lookup::Fresh, _) | (_, None) => true,
            (Lookup::Cached | Lookup::Recheck, Some(entry)) => entry.for_peers.allows(names),
        }
    }

    /// Forgets the name whose last look-up is the oldest if there are too many.
    fn make_room(&mut self) {
        if self.names.len() < MAX_NAMES {
            return;
        }
        let ended = self.names.iter().filter(|(_, entry)| !entry.is_pending);
        let oldest = ended.min_by_key(|(_, entry)| entry.ended).map(|(name, _)| name.clone());
        oldest.and_then(|name| self.names.remove(&name));
    }

    /// Starts a look-up.
    fn begin(&mut self, name: &str, look_up: LookUp, ended: &Arc<EventFd>) {
        if self.worker.is_none() {
            match Worker::start(look_up, ended.clone()) {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => return self.errors.push(format!("the thread that looks up names: {error}")),
            }
        }
        let name: Arc<str> = name.into();
        let is_sent = self.worker.as_ref().is_some_and(|worker| worker.requests.send(name.clone()).is_ok());
        if is_sent {
            self.make_room();
            self.names.entry(name).or_default().is_pending = true;
        } else {
            // The thread has panicked; the next look-up starts another one.
            self.worker = None;
            self.names.values_mut().for_each(|entry| entry.is_pending = false);
        }
    }

    fn take_answers(&mut self) {
        let Self { names, worker: Some(worker), errors } = self else { return };
        for Answer { name, result } in worker.answers.try_iter() {
            let entry = names.entry(name.clone()).or_default();
            (entry.is_pending, entry.ended) = (false, Some(Instant::now()));
            let found = result.and_then(|addrs| match addrs.is_empty() {
                true => Err(io::Error::other("it has no address")),
                false => Ok(addrs),
            });
            match found {
                Ok(addrs) => (entry.addrs, entry.has_failed) = (addrs, false),
                Err(error) => {
                    if !std::mem::replace(&mut entry.has_failed, true) {
                        errors.push(format!("{name}: no address was found: {error}"));
                    }
                }
            }
        }
    }
}

impl Worker {
    fn start(look_up: LookUp, ended: Arc<EventFd>) -> io::Result<Self> {
        let ((requests, names), (answer, answers)) = (channel::<Arc<str>>(), channel());
        let work = move || {
            // A name server's answer is parsed here, so the thread has no capabilities.
            let confined = sandbox::drop_capabilities();
            for name in names {
                let result = match &confined {
                    Ok(()) => look_up(&name),
                    Err(error) => Err(io::Error::other(error.to_string())),
                };
                let is_over = answer.send(Answer { name, result }).is_err();
                ended.signal();
                if is_over {
                    return;
                }
            }
        };
        thread::Builder::new().name("resolver".into()).spawn(work)?;
        Ok(Self { requests, answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Waits until a look-up has ended. Returns the errors.
    fn wait(resolver: &Resolver) -> Vec<String> {
        for _ in 0..1_000 {
            let errors = resolver.take_errors();
            if resolver.state.borrow().names.values().all(|entry| !entry.is_pending) {
                return errors;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the look-up does not end");
    }

    /// Lets the last look-up be this old.
    fn age(resolver: &Resolver, age: Duration) {
        for entry in resolver.state.borrow_mut().names.values_mut() {
            entry.ended = Instant::now().checked_sub(age);
        }
    }

    fn known(last: u8) -> HostAddrs {
        HostAddrs::Known(vec![[192, 0, 2, last].into()])
    }

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// The first two look-ups find different addresses, the later ones fail.
    fn moving_host(_: &str) -> io::Result<Vec<IpAddr>> {
        match COUNT.fetch_add(1, Ordering::SeqCst) {
            count @ 0..2 => Ok(vec![[192, 0, 2, count as u8].into()]),
            _ => Err(io::Error::other("no server answers")),
        }
    }

    #[test]
    fn each_attempt_gets_current_addresses_and_a_failed_look_up_loses_none() {
        let resolver = Resolver::with(moving_host).unwrap();
        assert_eq!(resolver.addrs("host", Lookup::Fresh), HostAddrs::Pending);
        assert_eq!(wait(&resolver), [""; 0]);
        assert_eq!(resolver.addrs("host", Lookup::Fresh), known(0));
        // The next attempt.
        age(&resolver, FRESH);
        assert_eq!(resolver.addrs("host", Lookup::Cached), known(0));
        assert_eq!(COUNT.load(Ordering::SeqCst), 1, "a comparison needs no new look-up yet");
        assert_eq!(resolver.addrs("host", Lookup::Fresh), HostAddrs::Pending);
        wait(&resolver);
        assert_eq!(resolver.addrs("host", Lookup::Fresh), known(1));
        age(&resolver, CACHED);
        assert_eq!(resolver.addrs("host", Lookup::Cached), known(1));
        assert_eq!(wait(&resolver), ["host: no address was found: no server answers"]);
        age(&resolver, FRESH);
        assert_eq!(resolver.addrs("host", Lookup::Fresh), HostAddrs::Pending);
        assert_eq!(wait(&resolver), [""; 0], "the error is reported once");
        assert_eq!(resolver.addrs("host", Lookup::Fresh), known(1));
    }

    #[test]
    fn a_peer_without_a_connection_gets_a_new_look_up_after_some_seconds() {
        let resolver = Resolver::with(|_| Ok(vec![[192, 0, 2, 9].into()])).unwrap();
        assert_eq!(resolver.addrs("host", Lookup::Cached), HostAddrs::Pending);
        wait(&resolver);
        for (since, expected) in [(FRESH, known(9)), (RECHECK, HostAddrs::Pending)] {
            age(&resolver, since);
            assert_eq!(resolver.addrs("host", Lookup::Recheck), expected);
        }
        wait(&resolver);
        assert_eq!(resolver.addrs("host", Lookup::Recheck), known(9));
    }

    /// Makes the budget and the last look-ups this much older.
    fn pass(resolver: &Resolver, time: Duration) {
        let mut state = resolver.state.borrow_mut();
        for entry in state.names.values_mut() {
            entry.ended = entry.ended.and_then(|ended| ended.checked_sub(time));
            entry.for_peers.counted_at = entry.for_peers.counted_at.checked_sub(time).unwrap();
        }
    }

    /// Number of look-ups in ten minutes in which a message arrives every second that matches no connection.
    /// Each message asks for all of these names.
    fn look_ups_for_strangers(resolver: &Resolver, names: usize) -> usize {
        let names: Vec<String> = (0..names).map(|number| format!("host{number}")).collect();
        let before = FOR_STRANGERS.load(Ordering::SeqCst);
        for _ in 0..600 {
            for name in &names {
                resolver.addrs(name, Lookup::Cached);
                resolver.addrs(name, Lookup::Recheck);
            }
            wait(resolver);
            pass(resolver, Duration::from_secs(1));
        }
        FOR_STRANGERS.load(Ordering::SeqCst) - before
    }

    static FOR_STRANGERS: AtomicUsize = AtomicUsize::new(0);

    fn counted_host(_: &str) -> io::Result<Vec<IpAddr>> {
        FOR_STRANGERS.fetch_add(1, Ordering::SeqCst);
        Ok(vec![[192, 0, 2, 9].into()])
    }

    /// Whatever strangers send, their messages cause 60 look-ups a minute at most, and two for each name. An
    /// attempt of this host is not affected.
    #[test]
    fn messages_of_strangers_cause_a_limited_number_of_look_ups() {
        for (names, per_minute) in [(1, 2), (30, 60), (90, 60)] {
            let resolver = Resolver::with(counted_host).unwrap();
            let begun = look_ups_for_strangers(&resolver, names);
            let at_once = names * 3;
            assert!(begun <= at_once + 10 * per_minute, "{names} names: {begun}");
            assert!(begun >= 9 * per_minute, "{names} names: {begun}");
            assert_eq!(resolver.addrs("host0", Lookup::Recheck), known(9), "the budget is used up");
            age(&resolver, FRESH);
            assert_eq!(resolver.addrs("host0", Lookup::Fresh), HostAddrs::Pending);
            wait(&resolver);
        }
    }

    /// A peer that has moved, and whose name server follows some seconds later, after a quiet time.
    #[test]
    fn a_peer_that_has_moved_gets_two_look_ups() {
        let resolver = Resolver::with(|_| Ok(vec![[192, 0, 2, 9].into()])).unwrap();
        resolver.addrs("host", Lookup::Fresh);
        wait(&resolver);
        for since in [RECHECK, RECHECK] {
            pass(&resolver, since);
            assert_eq!(resolver.addrs("host", Lookup::Recheck), HostAddrs::Pending);
            wait(&resolver);
        }
        pass(&resolver, RECHECK);
        assert_eq!(resolver.addrs("host", Lookup::Recheck), known(9));
        pass(&resolver, RECHECK);
        assert_eq!(resolver.addrs("host", Lookup::Recheck), HostAddrs::Pending, "half a minute later");
        wait(&resolver);
    }

    #[test]
    fn unknown_names_are_unknown_until_the_next_attempt() {
        let resolver = Resolver::with(|_| Ok(Vec::new())).unwrap();
        assert_eq!(resolver.addrs("host", Lookup::Cached), HostAddrs::Pending);
        assert_eq!(wait(&resolver), ["host: no address was found: it has no address"]);
        assert_eq!(resolver.addrs("host", Lookup::Fresh), HostAddrs::Unknown);
        age(&resolver, FRESH);
        assert_eq!(resolver.addrs("host", Lookup::Fresh), HostAddrs::Pending);
        wait(&resolver);
    }

    #[test]
    fn the_number_of_names_is_limited() {
        let resolver = Resolver::with(|_| Ok(vec![[192, 0, 2, 9].into()])).unwrap();
        let has = |name: &str| resolver.state.borrow().names.contains_key(name);
        resolver.addrs("first", Lookup::Fresh);
        wait(&resolver);
        for number in 1..MAX_NAMES {
            resolver.addrs(&number.to_string(), Lookup::Fresh);
        }
        wait(&resolver);
        assert!(has("first"));
        // It is not the oldest any more.
        age(&resolver, FRESH);
        resolver.addrs("first", Lookup::Fresh);
        wait(&resolver);
        resolver.addrs("last", Lookup::Fresh);
        assert_eq!(resolver.state.borrow().names.len(), MAX_NAMES);
        assert!(has("first") && has("last"));
    }
}
