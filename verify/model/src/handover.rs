//! Orderly ends: an owner writes the numbers that it has used, at once or after it has handed the slot over
//! (`core/cell/src/handover.rs`, `begin.rs`). The numbers are those of one SA, sent or received.
//!
//! A step that is possible need not take place: an owner that crashes takes none any more, and one that never
//! stops does not finish. The store executes requests in any order, late or never, and answers get lost. A
//! lease may end at any time, also while its owner goes on. The time that owners wait is not in the model: a
//! former owner may stop, and the next one may stop waiting for it, at any moment.
//!
//! An owner without an answer writes nothing more; the model [`cell`](crate::cell) has what else it may do.

mod state;
mod steps;

pub use state::{Owner, Phase, Record, Request, State, Used};
pub use steps::Action;

use stateright::{Checker as _, Model as _};
use std::fmt;

/// Whose numbers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// An owner sends with its numbers one after the other.
    Sent,
    /// An owner accepts those of its numbers that the network delivers, in any order, each once.
    Received,
}

/// A way to break the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// An owner reads used numbers although the former owner may still write them.
    HandoverIgnored,
    /// An owner reads first the used numbers, and then whether there is a handover.
    HandoverReadLast,
    /// A former owner writes its numbers whether its entry for the handover exists or not.
    HandoverNotCompared,
    /// An owner that does not wait for numbers any more begins without deleting the entry.
    NotVoided,
    /// Used numbers count for each record, also for that of a later owner.
    NumbersOfEarlierOwner,
    /// A former owner goes on when it has written its numbers.
    UsedAfterNumbers,
    /// An owner begins with what it has read without comparing its epoch afterwards.
    OwnershipNotConfirmed,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 7] = [
        Self::HandoverIgnored,
        Self::HandoverReadLast,
        Self::HandoverNotCompared,
        Self::NotVoided,
        Self::NumbersOfEarlierOwner,
        Self::UsedAfterNumbers,
        Self::OwnershipNotConfirmed,
    ];
}

/// The model, with its bounds.
#[derive(Debug, Clone, Copy)]
pub struct Handover {
    /// Whose numbers they are.
    pub numbers: Numbers,
    /// Size of a block of numbers.
    pub block: u8,
    /// Most owners, one after the other.
    pub owners: usize,
    /// Most writes of records, by all owners together.
    pub writes: u8,
    /// Whether the lease of the former owner ends its entry for the handover.
    pub is_bound_to_lease: bool,
    /// The defect; `None` for the protocol as it should be.
    pub defect: Option<Defect>,
}

const fn run(numbers: Numbers, block: u8, owners: usize, writes: u8) -> Handover {
    Handover { numbers, block, owners, writes, is_bound_to_lease: true, defect: None }
}

/// Runs of the tests.
pub const RUNS: [Handover; 5] = [
    run(Numbers::Sent, 1, 4, 0),
    run(Numbers::Sent, 2, 3, 1),
    run(Numbers::Received, 1, 3, 1),
    run(Numbers::Received, 2, 3, 0),
    // The entry outlives a former owner that has died: the next one waits, and then deletes it.
    Handover { is_bound_to_lease: false, ..run(Numbers::Sent, 2, 3, 0) },
];

/// Runs of up to a minute on two processors: `casemate-model --large`.
pub const LARGE_RUNS: [Handover; 4] = [
    run(Numbers::Sent, 2, 3, 2),
    run(Numbers::Received, 1, 3, 2),
    run(Numbers::Received, 2, 3, 1),
    Handover { is_bound_to_lease: false, ..run(Numbers::Sent, 2, 3, 1) },
];

/// Name of a property: owners use different numbers.
pub const ONE_OWNER: &str = "no number is used by two owners";
/// Name of a property: an owner that begins with numbers of a former one knows the last of them.
pub const FINAL: &str = "used numbers that were read are final";

/// What was explored.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Properties that do not hold, and situations that do not occur.
    pub failed: Vec<&'static str>,
}

impl Handover {
    /// Explores all states.
    #[must_use]
    pub fn explore(&self) -> Explored {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = self.checker().threads(threads).spawn_bfs().join();
        let has_failed = |name: &&'static str| {
            let is_found = checker.discovery(name).is_some();
            is_found == [ONE_OWNER, FINAL].contains(name)
        };
        let names = self.properties().into_iter().map(|property| property.name);
        let failed = names.filter(has_failed).collect();
        Explored { states: checker.unique_state_count(), failed }
    }
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { numbers, block, owners, writes, .. } = self;
        write!(f, "handover, {numbers:?}, block {block}, {owners} owners, {writes} writes")?;
        if self.is_bound_to_lease { Ok(()) } else { f.write_str(", without a lease") }
    }
}
