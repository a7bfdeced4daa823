//! Endpoints and a hostile network in virtual time, all of it from one seed.
//!
//! [`run`] draws a `plan` from the seed, lets the nodes of a `world` live through trouble, then through calm, and checks
//! the invariants of `watch` at every step. A failure is repeated by the same seed. `sabotage` breaks something on
//! purpose, to show that it is noticed: each invariant has one. A [`Tally`] says how often each situation came up, so that
//! one that is never drawn is noticed, too.
//!
//! ```text
//!  plan, style    who there is, what is configured, what will happen         places, config, keys
//!  world          time, and what is on its way                               net, node, traffic
//!  trouble        commands, restarts, other configurations, outages, NATs    attacker, manual
//!  watch          what must hold                                             counter, tally, trace
//! ```
//!
//! What must hold: a packet arrives where it belongs, unchanged, once, and protected unless its policy says otherwise; on
//! a network that loses nothing, none is lost, even if an attacker sends what he likes. No key seals twice with one IV, no
//! message number stands for two messages. Nobody believes a stranger. When all is at rest, both sides have the same SAs
//! with the same keys and nothing else; when nothing is configured any more, nothing is left.
// Test support: a broken expectation is meant to stop the test, with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod attacker;
mod config;
mod counter;
mod dice;
mod keys;
mod manual;
mod mix;
mod net;
mod node;
mod places;
mod plan;
mod sabotage;
mod style;
mod tally;
mod trace;
mod traffic;
mod trouble;
mod watch;
mod world;

pub use mix::{Mix, run_mix, run_mixes};
pub use sabotage::Sabotage;
pub use tally::{Seen, Tally};

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::World;

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether to print what happens.
    pub trace: bool,
    /// What is broken.
    pub sabotage: Option<Sabotage>,
}

/// A seed that breaks an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// The mix that it is a seed of, if it is one.
    pub mix: Option<Mix>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what, mix } = self;
        let mix = mix.map_or(String::new(), |mix| format!("--mix {mix} "));
        write!(f, "seed {seed}: {what}\n  cargo run -p casemate-sim --release -- {mix}--seed {seed} --trace")
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Tally, Failure> {
    let failure = |what| Failure { seed, what, mix: None };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, options);
        world.run().map_err(|violation| format!("{violation}, at {:.3} s", world.now().as_secs_f64()))
    }));
    match done {
        Ok(done) => done.map_err(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
            Err(failure(format!("panic: {text}")))
        }
    }
}

/// Runs seeds on all cores; answers what happened in those that passed, and those that did not.
pub fn run_all(seeds: std::ops::Range<u64>, options: Options) -> (Tally, Vec<Failure>) {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new((Tally::default(), vec![]));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = run(seed, options);
            let mut done = done.lock().expect("no thread panics");
            match result {
                Ok(tally) => done.0.merge(&tally),
                Err(failure) => done.1.push(failure),
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let (tally, mut failures) = done.into_inner().expect("no thread panics");
    failures.sort_by_key(|failure| failure.seed);
    (tally, failures)
}
