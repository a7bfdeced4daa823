//! Mixes: several operations of both sides overlap in a short time, while single datagrams are lost, late or
//! duplicated.
//!
//! [`run`](crate::run) simulates minutes of ordinary trouble, in which two operations seldom overlap. A mix
//! does nothing else: two endpoints with one IKE SA and one Child SA (or two of each) rekey, create and
//! delete SAs within at most some seconds. Then the network is quiet, and the mix checks the result: both
//! sides have the same SAs, traffic passes in both directions, and there are as many Child SAs as the
//! operations allow. Nothing else repairs the result: SAs do not expire, closed Child SAs are not set up
//! again, and half of the runs have no liveness checks.
//!
//! Some mixes add reauthentication, restarts, outages, limits or NATs (`scenario`); their configurations set up again
//! what ends.

mod draw;
mod rules;
mod scenario;
mod world;

use crate::world::World;
use crate::{Failure, Options};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use draw::{Draw, Fates, Operation};
pub(crate) use rules::Rules;

/// Which operations a run mixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// One side rekeys the Child SA twice, the other side once.
    RekeyChild,
    /// Both sides rekey the IKE SA twice.
    RekeyIke,
    /// Both sides rekey the IKE SA and the Child SA, twice each.
    RekeyBoth,
    /// Both sides create, delete and rekey Child SAs.
    CreateDelete,
    /// All of these operations, twice each on both sides.
    Everything,
    /// Both sides rekey two parallel IKE SAs and their Child SAs.
    Parallel,
    /// Ten minutes in which timers rekey the Child SA every 10 s and the IKE SA every 35 s, on a network that
    /// loses, duplicates and reorders.
    Soak,
    /// The same with two parallel IKE SAs.
    SoakParallel,
    /// One side or both reauthenticate by timer; both rekey the IKE SA and the Child SA at that time.
    Reauth,
    /// The initiator restarts, sends INITIAL_CONTACT, and both sides rekey.
    Unique,
    /// Both sides rekey while the tables of IKE SAs are full.
    Limits,
    /// `close_action = start`: one side deletes SAs while both rekey.
    CloseStart,
    /// `dpd_action = restart`: one side is cut off while both rekey.
    DeadStart,
    /// Either side loses its memory while both rekey.
    Crash,
    /// A NAT assigns other ports while both sides rekey.
    Rebind,
    /// [`SoakParallel`](Self::SoakParallel) with reauthentication and late Delete payloads.
    SoakReauth,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 16] = [
        Self::RekeyChild,
        Self::RekeyIke,
        Self::RekeyBoth,
        Self::CreateDelete,
        Self::Everything,
        Self::Parallel,
        Self::Soak,
        Self::SoakParallel,
        Self::Reauth,
        Self::Unique,
        Self::Limits,
        Self::CloseStart,
        Self::DeadStart,
        Self::Crash,
        Self::Rebind,
        Self::SoakReauth,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RekeyChild => "rekey-child",
            Self::RekeyIke => "rekey-ike",
            Self::RekeyBoth => "rekey-both",
            Self::CreateDelete => "create-delete",
            Self::Everything => "everything",
            Self::Parallel => "parallel",
            Self::Soak => "soak",
            Self::SoakParallel => "soak-parallel",
            Self::Reauth => "reauth",
            Self::Unique => "unique",
            Self::Limits => "limits",
            Self::CloseStart => "close-start",
            Self::DeadStart => "dead-start",
            Self::Crash => "crash",
            Self::Rebind => "rebind",
            Self::SoakReauth => "soak-reauth",
        }
    }

    /// Whether timers and the network do everything.
    pub(crate) const fn is_soak(self) -> bool {
        matches!(self, Self::Soak | Self::SoakParallel | Self::SoakReauth)
    }

    /// The mix with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mix| mix.name() == name)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs one seed of a mix.
pub fn run_mix(mix: Mix, seed: u64, trace: bool) -> Result<(), Failure> {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::of_mix(mix, seed, Options { trace, sabotage: None });
        world.run_mix().map_err(|violation| format!("{violation}, at {:.3} s", world.now().as_secs_f64()))
    }));
    let done = done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(format!("panic: {text}"))
    });
    done.map_err(|what| Failure { seed, what, mix: Some(mix) })
}

/// Runs seeds of a mix on all processors; returns the failures.
pub fn run_mixes(mix: Mix, seeds: Range<u64>) -> Vec<Failure> {
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(vec![]);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(failure) = run_mix(mix, seed, false) {
                failures.lock().expect("no thread panics").push(failure);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let mut failures = failures.into_inner().expect("no thread panics");
    failures.sort_by_key(|failure| failure.seed);
    failures
}
