//! Deterministic simulation of endpoints on a hostile network, in virtual time.
//!
//! [`run`] draws a `plan` from a seed, exposes the nodes of a `simulation` to disruptions, then lets them
//! settle, and checks the `invariants` at every step. The same seed repeats a failure. Each [`Defect`] breaks
//! one property on purpose and shows that an invariant detects it. [`Coverage`] counts each situation, so
//! that a test notices a situation that no seed draws.
//!
//! ```text
//!  plan           topology, configuration, schedule of disruptions           addresses, config, keys,
//!                                                                            post_quantum
//!  simulation     virtual time and the event queue                           net, node, traffic
//!  disruptions    commands, restarts, reloads, outages, NAT rebinds          attacker, manual
//!  process        processes of nodes that keep their state in a store        state_store, cell, cell_faults,
//!                                                                            guarded_store
//!  invariants     what must hold                                             coverage, situation, trace
//! ```
//!
//! Invariants: a packet arrives unchanged, once, at the right node, and protected unless its policy says
//! otherwise. A lossless network delivers every packet, even under attack. No key seals twice with one IV,
//! and no message ID identifies two messages. No node authenticates an untrusted peer. Every SA has the
//! additional key exchanges and the post-quantum pre-shared key that both sides want, and no SA lacks what
//! one side requires. A session is resumed once at most. When all nodes are idle, both sides have the same
//! SAs with the same keys and no others; after the configuration is removed, no state is left.
// Test support: a broken expectation stops the test with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod addresses;
mod attacker;
mod cell;
mod cell_faults;
mod config;
mod coverage;
mod defect;
mod disruptions;
mod guarded_store;
mod invariants;
mod keys;
mod manual;
mod mix;
mod net;
mod node;
mod packet;
mod plan;
mod post_quantum;
mod process;
mod simulation;
mod situation;
mod state_store;
mod trace;
mod traffic;

pub use coverage::Coverage;
pub use defect::Defect;
pub use mix::{Mix, run_mix, run_mixes};
pub use situation::Situation;

use simulation::Simulation;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Prints a trace of all events.
    pub trace: bool,
    /// Defect to inject.
    pub defect: Option<Defect>,
}

/// Seed whose run violates an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// Violated invariant, or the message of a panic.
    pub what: String,
    /// Mix that the seed belongs to; none for a run of [`run`].
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
pub fn run(seed: u64, options: Options) -> Result<Coverage, Failure> {
    let failure = |what| Failure { seed, what, mix: None };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut simulation = Simulation::new(seed, options);
        simulation
            .run()
            .map_err(|violation| format!("{violation}, at {:.3} s", simulation.now().as_secs_f64()))
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

/// Runs seeds on all cores. Returns the coverage of the runs that pass, and the failures.
pub fn run_all(seeds: Range<u64>, options: Options) -> (Coverage, Vec<Failure>) {
    run_seeds(seeds, |seed| run(seed, options))
}

fn run_seeds(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<Coverage, Failure> + Sync,
) -> (Coverage, Vec<Failure>) {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new((Coverage::default(), vec![]));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = run(seed);
            let mut done = done.lock().expect("no thread panics");
            match result {
                Ok(coverage) => done.0.merge(&coverage),
                Err(failure) => done.1.push(failure),
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let (coverage, mut failures) = done.into_inner().expect("no thread panics");
    failures.sort_by_key(|failure| failure.seed);
    (coverage, failures)
}
