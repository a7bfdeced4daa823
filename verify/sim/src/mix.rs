//! Mixes: operations of both sides overlap within seconds, while the network loses, delays or duplicates
//! single datagrams.
//!
//! [`run`](crate::run) simulates minutes of ordinary disruptions, in which two operations seldom overlap. A
//! mix only overlaps operations: two endpoints with one or two IKE SAs and Child SAs rekey, create and delete
//! SAs within seconds. Then the network is quiet, and the mix checks the result: both sides have the same
//! SAs, traffic passes in both directions, and the number of Child SAs is one that the operations allow. No
//! other mechanism repairs the result: SAs do not expire, closed Child SAs are not set up again, and half of
//! the runs have no liveness checks.
//!
//! Some mixes add reauthentication, restarts, outages, limits or NATs (`scenario`). Their configurations set
//! up again what ends. In half of the runs of every mix, the nodes use additional key exchanges or
//! post-quantum pre-shared keys, and in a quarter tickets.

mod cells;
mod plan;
mod refused;
mod rules;
mod run;
mod scenario;
mod stored;

use crate::simulation::Simulation;
use crate::{Coverage, Failure, Options};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use cells::{CellChange, CellOperation, CellPlan, CellStep, LinkFault, Target};
pub(crate) use plan::{FaultSchedule, MixPlan, NodeOperation, Operation};
pub(crate) use rules::Rules;
pub(crate) use stored::{ProcessOperation, StoreFault};

/// Operations of a run.
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
    /// Timers rekey the Child SA every 10 s and the IKE SA every 35 s for ten minutes, on a network that
    /// loses, duplicates and reorders datagrams.
    Soak,
    /// [`Soak`](Self::Soak) with two parallel IKE SAs.
    SoakParallel,
    /// Timers of one or both sides reauthenticate while both sides rekey the IKE SA and the Child SA.
    Reauth,
    /// The initiator restarts and sends INITIAL_CONTACT while both sides rekey.
    Unique,
    /// Both sides rekey while the tables of IKE SAs are full.
    Limits,
    /// `close_action = start`: one side deletes SAs while both sides rekey.
    CloseStart,
    /// `dpd_action = restart`: one side is cut off while both sides rekey.
    DeadStart,
    /// One side restarts and loses its state while both sides rekey.
    Crash,
    /// A NAT assigns other ports while both sides rekey.
    Rebind,
    /// [`SoakParallel`](Self::SoakParallel) with reauthentication and late Delete payloads.
    SoakReauth,
    /// Both sides create, delete and rekey SAs with additional key exchanges.
    FollowupKe,
    /// One side is cut off until its peer takes it for dead. Sessions are resumed with tickets.
    Resume,
    /// One side requires what its peer does not have, or an attacker removes an announcement from every
    /// message: no IKE SA is established.
    Refused,
    /// One side or both keep their state in a store. Their processes end at any moment, and the next ones
    /// continue, while both sides rekey, create and delete.
    StoreCrash,
    /// As [`StoreCrash`](Self::StoreCrash), but the next process starts while the former one goes on.
    StoreTakeover,
    /// Both of these, while the store is late, loses requests or answers, or is full for up to a minute.
    StoreOutage,
    /// [`StoreOutage`](Self::StoreOutage) while one or both sides reauthenticate.
    StoreReauth,
    /// The state of one side belongs to a cell of two or three machines. Processes are killed, and others
    /// take over, while both sides rekey, create and delete.
    CellKill,
    /// As [`CellKill`](Self::CellKill), but processes are stopped for longer than their leases, and go on.
    CellStop,
    /// Machines lose their links to the store, or the whole store is away, late or set back.
    CellPartition,
    /// Processes hand over the state, while others are killed, stopped or cut off.
    CellDrain,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 27] = [
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
        Self::FollowupKe,
        Self::Resume,
        Self::Refused,
        Self::StoreCrash,
        Self::StoreTakeover,
        Self::StoreOutage,
        Self::StoreReauth,
        Self::CellKill,
        Self::CellStop,
        Self::CellPartition,
        Self::CellDrain,
    ];

    /// Name on the command line.
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
            Self::FollowupKe => "followup-ke",
            Self::Resume => "resume",
            Self::Refused => "refused",
            Self::StoreCrash => "store-crash",
            Self::StoreTakeover => "store-takeover",
            Self::StoreOutage => "store-outage",
            Self::StoreReauth => "store-reauth",
            Self::CellKill => "cell-kill",
            Self::CellStop => "cell-stop",
            Self::CellPartition => "cell-partition",
            Self::CellDrain => "cell-drain",
        }
    }

    /// Whether timers start all operations.
    pub(crate) const fn is_soak(self) -> bool {
        matches!(self, Self::Soak | Self::SoakParallel | Self::SoakReauth)
    }

    /// Mix with this name.
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
pub fn run_mix(mix: Mix, seed: u64, trace: bool) -> Result<Coverage, Failure> {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut simulation = Simulation::for_mix(mix, seed, Options { trace, defect: None });
        match simulation.run_mix() {
            Ok(()) => Ok(simulation.sum_up()),
            Err(violation) => Err(format!("{violation}, at {:.3} s", simulation.now().as_secs_f64())),
        }
    }));
    let done = done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(format!("panic: {text}"))
    });
    done.map_err(|what| Failure { seed, what, mix: Some(mix) })
}

/// Runs seeds of a mix on all processors. Returns the coverage of the runs that pass, and the failures.
pub fn run_mixes(mix: Mix, seeds: Range<u64>) -> (Coverage, Vec<Failure>) {
    crate::run_seeds(seeds, |seed| run_mix(mix, seed, false))
}
