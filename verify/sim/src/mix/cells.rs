//! Mixes in which the state of one node belongs to a cell: processes are killed, stopped, cut off from the
//! store or drained, while both sides rekey, create and delete. The peer knows nothing of that.

use super::rules::{AllowedEnds, Rules};
use super::scenario::{self, Scenario};
use super::{Mix, NodeOperation, Operation, stored};
use crate::plan::{Plan, Topology};
use crate::state_store::{EndMoment, Machine};
use casemate_ike::config::Unique;
use casemate_test_support::TestRng;
use std::time::Duration;

/// Longest time for which a link or the store is away: less than the time after which a peer is dead.
const LONGEST_OUTAGE: usize = 60_000;
/// An hour, in microseconds.
const HOUR: i64 = 3_600_000_000;

/// A cell.
#[derive(Debug, Clone)]
pub(crate) struct CellPlan {
    /// Number of the node whose state belongs to the cell.
    pub(crate) node: usize,
    pub(crate) machines: usize,
    pub(crate) lease: Duration,
    /// How often a new owner loses its link to the store before it has written anything.
    pub(crate) cuts: usize,
    /// Difference between the wall clock of each machine and the time, in microseconds.
    pub(crate) clock_errors: [i64; 3],
}

impl CellPlan {
    /// A machine of the cell.
    pub(crate) fn machine(&self, number: usize) -> Machine {
        Machine::of_cell(number, self.lease, self.clock_errors[number])
    }
}

/// A machine, when the operation takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The last one that became the owner.
    Owner,
    /// The machine with this number, whatever it does.
    Machine(usize),
}

/// An operation on a machine of a cell, or on its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellOperation {
    /// The process ends, and the next one starts after a pause.
    Kill(EndMoment, Duration),
    /// The process hands the state over and ends, and the next one starts after a pause.
    Drain(Duration),
    /// The process does nothing for a time, and then goes on.
    Stop(Duration),
    /// The link to the store is disturbed for a time.
    Link(LinkFault, Duration),
    /// No machine reaches the store for a time.
    Outage {
        time: Duration,
        /// Whether leases last for that time, as in a cluster that has no leader.
        keeps_leases: bool,
    },
    /// The store returns to its present contents after this time. An administrator replaces it later.
    SetBack(Duration),
    /// The wall clock changes by this number of microseconds.
    StepClock(i64),
}

/// What is wrong with the link between a machine and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkFault {
    LosesRequests,
    LosesAnswers,
    LosesBoth,
    /// Requests and answers are lost at some moments and not at others.
    Flaky,
    /// Requests are executed late, some of them after their deadline.
    Late {
        request: Duration,
        answer: Duration,
        deadline: Duration,
    },
}

/// An operation of a cell and where it takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellStep {
    pub(crate) target: Target,
    pub(crate) operation: CellOperation,
}

/// A later change of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellChange {
    /// The link of a machine works again.
    LinkRepaired(usize),
    /// The link of a machine loses other things than before, until this time.
    LinkChanges {
        machine: usize,
        until: Duration,
    },
    OutageEnds {
        keeps_leases: bool,
    },
    SetBack,
    /// An administrator replaces the store by an empty one, and starts all processes again.
    Replaced,
}

impl Mix {
    /// Whether the state of a node belongs to a cell.
    pub(crate) const fn has_cell(self) -> bool {
        matches!(self, Self::CellKill | Self::CellStop | Self::CellPartition | Self::CellDrain)
    }
}

/// Draws the scenario of a mix with a cell.
pub(super) fn draw(mix: Mix, plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    scenario::draw_topology(plan, rng);
    plan.setup.liveness = true;
    plan.setup.unique = rng.pick(&[Unique::Never, Unique::No, Unique::Replace, Unique::Keep]);
    let cell = CellPlan {
        node: rng.pick(&[0, 0, 1]),
        machines: 2 + rng.below(2),
        cuts: rng.pick(&[0, 0, 1, 2]),
        lease: Duration::from_secs(rng.pick(&[3, 3, 6, 12])),
        clock_errors: [(); 3].map(|()| rng.pick(&[0, 20_000, -3_000_000, HOUR / 6, -HOUR / 6])),
    };
    let mut rules = Rules { after_silence: 1, ..Rules::one(false, AllowedEnds::Orderly) };
    let is_set_back = mix == Mix::CellPartition && rng.below(5) == 0;
    let mut operations = if !is_set_back && rng.coin() {
        stored::create_and_delete(plan, rng, &mut rules)
    } else {
        plan.setup.on_close = None;
        scenario::rekeys(rng)
    };
    // As in the mixes with stores: the next owner does not know the IKE SA that the peer has made.
    let rekeys_ike = rng.below(2);
    operations.retain(|planned| planned.operation != Operation::RekeyIke || planned.node == rekeys_ike);
    let is_own =
        |planned: &NodeOperation| planned.operation == Operation::RekeyIke && planned.node == cell.node;
    if operations.iter().any(is_own) {
        // The next owner authenticates again if its predecessor was rekeying the IKE SA.
        rules.allowed_ends = AllowedEnds::Intended;
    }
    for number in 0..cell.machines {
        let [request, answer] = [(); 2].map(|()| Duration::from_millis(rng.pick(&[0, 0, 1, 30, 200])));
        let deadline = Duration::from_secs(2);
        let late = LinkFault::Late { request, answer, deadline };
        let operation = CellOperation::Link(late, Duration::MAX);
        operations.push(step(&cell, Target::Machine(number), operation));
    }
    for _ in 0..1 + rng.below(4) {
        let operation = draw_operation(mix, &cell, rng);
        let target =
            if rng.below(4) == 0 { Target::Machine(rng.below(cell.machines)) } else { Target::Owner };
        operations.push(step(&cell, target, operation));
    }
    if is_set_back {
        let longest = rng.pick(&[1_000, 10_000]);
        let age = Duration::from_millis(rng.below(longest) as u64);
        operations.push(step(&cell, Target::Owner, CellOperation::SetBack(age)));
        expect_new_store(plan, &mut rules);
    }
    rules.cell = Some(cell);
    Scenario { operations, after: Duration::ZERO, rules }
}

fn step(cell: &CellPlan, target: Target, operation: CellOperation) -> NodeOperation {
    NodeOperation { node: cell.node, operation: Operation::Cell(CellStep { target, operation }) }
}

/// All SAs of the cell are lost. The peer notices it, and both sides negotiate again.
fn expect_new_store(plan: &mut Plan, rules: &mut Rules) {
    let most = if plan.topology == Topology::Sites { 2 } else { 1 };
    (rules.ikes, rules.children, rules.allowed_ends) = (1..=most, 1..=most, AllowedEnds::Outage);
}

fn draw_operation(mix: Mix, cell: &CellPlan, rng: &mut TestRng) -> CellOperation {
    let all = [Mix::CellKill, Mix::CellStop, Mix::CellPartition, Mix::CellDrain];
    let kind = match mix {
        Mix::CellKill => mix,
        _ if rng.below(3) > 0 => mix,
        _ => rng.pick(&all),
    };
    let down_for = Duration::from_millis(rng.pick(&[0, 50, 1_000, 5_000, 30_000]));
    match kind {
        _ if rng.below(8) == 0 => CellOperation::StepClock(rng.pick(&[HOUR, -HOUR, HOUR / 60, -HOUR / 60])),
        Mix::CellKill => CellOperation::Kill(rng.pick(&EndMoment::ALL), down_for),
        Mix::CellStop => {
            let lease = cell.lease.as_millis() as usize;
            let longest = rng.pick(&[lease, 2 * lease, 5 * lease]);
            CellOperation::Stop(Duration::from_millis((lease / 2 + rng.below(longest)) as u64))
        }
        Mix::CellDrain => CellOperation::Drain(down_for),
        _ => draw_fault(rng),
    }
}

fn draw_fault(rng: &mut TestRng) -> CellOperation {
    let longest = rng.pick(&[1_000, 10_000, LONGEST_OUTAGE]);
    let time = Duration::from_millis(rng.below(longest) as u64);
    if rng.below(3) == 0 {
        return CellOperation::Outage { time, keeps_leases: rng.coin() };
    }
    let mut late = |most: &[u64]| Duration::from_millis(rng.pick(most));
    let request = late(&[500, 1_000, 2_500, 6_000]);
    let late = LinkFault::Late { request, answer: late(&[0, 300]), deadline: late(&[100, 500, 2_000]) };
    let losses = [LinkFault::LosesRequests, LinkFault::LosesAnswers, LinkFault::LosesBoth];
    let fault = match rng.below(5) {
        0 | 1 => LinkFault::Flaky,
        2 => late,
        _ => rng.pick(&losses),
    };
    CellOperation::Link(fault, time)
}
