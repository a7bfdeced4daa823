//! Addresses of host names for a dry run, which has no event loop that could go on while name servers are
//! asked. All names are looked up at the same time, for a limited time in total.

use crate::swanctl;
use casemate_ike::config::{AddrPattern, Connection};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of threads, which is that of names that are looked up at the same time.
const MAX_THREADS: usize = 64;
/// Time for all look-ups together.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Looks up a name.
type LookUp = fn(&str) -> io::Result<Vec<IpAddr>>;

/// The addresses of names, as far as they were found.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    pub(super) addrs: HashMap<String, Vec<IpAddr>>,
    /// One line for each name without an address, in alphabetical order.
    pub(super) problems: Vec<String>,
}

impl HostNames {
    /// Looks up the names of all peers and local addresses of these connections.
    pub(super) fn of(connections: &[Arc<Connection>]) -> Self {
        let patterns =
            connections.iter().flat_map(|one| one.local_addrs.iter().chain(one.remote_addrs.iter()));
        let names = patterns.filter_map(|pattern| match pattern {
            AddrPattern::Host(name) => Some(name.to_string()),
            AddrPattern::Any | AddrPattern::Range(_) => None,
        });
        Self::look_up(names.collect(), TIME_LIMIT, swanctl::look_up)
    }

    /// Looks up names. A look-up that has not ended after `limit` is given up: the system's resolver cannot
    /// be interrupted, so its thread ends later or with the process.
    fn look_up(names: BTreeSet<String>, limit: Duration, look_up: LookUp) -> Self {
        let deadline = Instant::now() + limit;
        let (sender, results) = channel();
        let queue = Arc::new(Mutex::new(names.clone().into_iter()));
        let mut found = Self::default();
        for _ in 0..names.len().min(MAX_THREADS) {
            let (queue, sender) = (queue.clone(), sender.clone());
            let work = move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(name) = next() {
                    let result = look_up(&name);
                    // Nothing receives results after the time limit.
                    if sender.send((name, result)).is_err() {
                        return;
                    }
                }
            };
            if let Err(error) = thread::Builder::new().name("resolver".into()).spawn(work) {
                found.problems.push(format!("a thread that looks up names: {error}"));
                break;
            }
        }
        drop(sender);
        let mut missing = names;
        while let Ok((name, result)) =
            results.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            missing.remove(&name);
            match result {
                Ok(addrs) => drop(found.addrs.insert(name, addrs)),
                Err(error) => found.problems.push(format!("{name}: no address was found: {error}")),
            }
        }
        let late = missing.iter().map(|name| {
            format!("{name}: no address was found within {} s: no name server responds", limit.as_secs())
        });
        found.problems.extend(late);
        found.problems.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn names(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("host-{number}")).collect()
    }

    #[test]
    fn names_are_looked_up_at_the_same_time() {
        static ALL: Barrier = Barrier::new(MAX_THREADS);
        let found = HostNames::look_up(names(MAX_THREADS), Duration::from_secs(60), |name| {
            ALL.wait();
            if name == "host-1" {
                return Err(io::Error::other("the host has no address"));
            }
            Ok(vec![[192, 0, 2, 1].into()])
        });
        assert_eq!(found.addrs.len(), MAX_THREADS - 1);
        assert_eq!(found.addrs["host-2"], [IpAddr::from([192, 0, 2, 1])]);
        assert_eq!(found.problems, ["host-1: no address was found: the host has no address"]);
    }

    #[test]
    fn look_ups_that_do_not_end_are_given_up() {
        let found = HostNames::look_up(names(1_000), Duration::ZERO, |_| {
            loop {
                thread::park();
            }
        });
        assert!(found.addrs.is_empty());
        assert_eq!(found.problems.len(), 1_000);
        assert_eq!(found.problems[0], "host-0: no address was found within 0 s: no name server responds");
    }
}
