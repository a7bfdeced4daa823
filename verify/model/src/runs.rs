//! The runs: bounds under which the whole space of states is explored, and their results.

use crate::cell::{Action, Cell};
use crate::protocol::{Bounds, Defect, Protocol};
use crate::wire::ALWAYS;
use stateright::{Checker, HasDiscoveries, Model};
use std::fmt;
use std::time::{Duration, Instant};

/// Longest time of one run. A run that takes longer is not complete.
const TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// Bounds with a name.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Name of the run, for the command line and messages.
    pub name: &'static str,
    /// Size of a block of sequence numbers.
    pub block: u8,
    /// How often each thing may happen.
    pub bounds: Bounds,
}

const STORED: Bounds = Bounds { stored: true, ..Bounds::SMALL };
const SENDS: Bounds = Bounds { outbound: true, ..Bounds::SMALL };
const STORED_SENDS: Bounds = Bounds { stored: true, ..SENDS };

/// Runs of the tests: together about 20 s on two processors, also without the release profile.
pub const RUNS: [Run; 11] = [
    run("negotiation", 1, Bounds { extensions: 1, crashes: 1, unanswered: 1, takeovers: 2, ..SENDS }),
    run("reserves", 1, Bounds { takeovers: 4, extensions: 1, unanswered: 1, crashes: 1, ..STORED_SENDS }),
    run("blocks of two", 2, Bounds { takeovers: 4, extensions: 1, unanswered: 1, ..STORED_SENDS }),
    run("three nodes", 1, Bounds { nodes: 3, takeovers: 4, extensions: 1, ..STORED_SENDS }),
    run("three owners", 1, Bounds { extensions: 1, unanswered: 1, ..SENDS }),
    run("lost answers", 1, Bounds { extensions: 2, unanswered: 2, ..STORED_SENDS }),
    run("responses", 1, Bounds { ike_requests: 2, unanswered: 2, liveness: 1, ..STORED }),
    run("inbound", 1, Bounds { extensions: 1, unanswered: 1, inbound: 4, ..Bounds::SMALL }),
    run("deletion", 1, Bounds { unanswered: 1, deletions: 1, ..SENDS }),
    run("restoration", 1, Bounds { restorations: 1, extensions: 1, ..STORED_SENDS }),
    run(
        "everything",
        1,
        Bounds { extensions: 1, unanswered: 1, ike_requests: 1, inbound: 2, ..STORED_SENDS },
    ),
];

/// Runs of up to nine minutes, with about 160 bytes of memory a state: `casemate-model --large`.
pub const LARGE_RUNS: [Run; 7] = [
    run("reserves, large", 1, Bounds { takeovers: 5, extensions: 2, unanswered: 2, ..STORED_SENDS }),
    run("three nodes, large", 1, Bounds { nodes: 3, extensions: 1, unanswered: 1, ..SENDS }),
    run("lost answers, large", 1, Bounds { extensions: 2, unanswered: 3, crashes: 1, ..STORED_SENDS }),
    run("responses, large", 1, Bounds { ike_requests: 2, unanswered: 1, liveness: 1, ..Bounds::SMALL }),
    run("deletion, large", 1, Bounds { extensions: 1, unanswered: 1, deletions: 1, ..SENDS }),
    run("restoration, large", 1, Bounds { restorations: 1, ike_requests: 1, unanswered: 1, ..STORED_SENDS }),
    run(
        "everything, large",
        1,
        Bounds { extensions: 1, unanswered: 1, ike_requests: 1, inbound: 2, ..SENDS },
    ),
];

const fn run(name: &'static str, block: u8, bounds: Bounds) -> Run {
    Run { name, block, bounds }
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Steps that led to them.
    pub steps: usize,
    /// Most steps between the first state and another one.
    pub depth: usize,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Whether all states were explored.
    pub is_complete: bool,
    /// Properties that do not hold, with the steps that show it; with [`Bounds::situations`], situations that
    /// occurred.
    pub found: Vec<(&'static str, Vec<Action>)>,
}

impl Run {
    /// The run of the tests with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        RUNS.into_iter().find(|run| run.name == name)
    }

    /// Explores all states, or those up to the first counterexample.
    #[must_use]
    pub fn explore(&self, defect: Option<Defect>) -> Report {
        self.explore_until(defect, HasDiscoveries::AnyFailures)
    }

    /// Explores states until one shows that this property does not hold. Returns the report, whose `found`
    /// is empty if there is none.
    #[must_use]
    pub fn search(&self, defect: Option<Defect>, property: &'static str) -> Report {
        let mut report = self.explore_until(defect, HasDiscoveries::AllOf([property].into()));
        report.found.retain(|(found, _)| *found == property);
        report
    }

    fn explore_until(&self, defect: Option<Defect>, end: HasDiscoveries) -> Report {
        let start = Instant::now();
        let cell = Cell { protocol: Protocol { block: self.block, defect }, bounds: self.bounds };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = cell.checker().threads(threads).finish_when(end).timeout(TIME_LIMIT).spawn_bfs().join();
        let elapsed = start.elapsed();
        let mut found: Vec<_> =
            checker.discoveries().into_iter().map(|(name, path)| (name, path.into_actions())).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        Report {
            states: checker.unique_state_count(),
            steps: checker.state_count(),
            depth: checker.max_depth(),
            elapsed,
            is_complete: found.is_empty() && elapsed < TIME_LIMIT,
            found,
        }
    }
}

impl Report {
    /// Whether all properties hold in all states.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_complete && self.found.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, depth, elapsed, .. } = self;
        let seconds = elapsed.as_secs_f64();
        write!(f, "{states} states, {steps} steps, depth {depth}, {seconds:.1} s: ")?;
        if self.holds() {
            return write!(f, "all {} properties hold", ALWAYS.len());
        }
        if self.found.is_empty() {
            return write!(f, "not complete within {} s", TIME_LIMIT.as_secs());
        }
        for (property, steps) in &self.found {
            write!(f, "\n  counterexample to \"{property}\":")?;
            for step in steps {
                write!(f, " {step:?}")?;
            }
        }
        Ok(())
    }
}
