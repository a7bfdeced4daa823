//! Plan of a mix: the two endpoints, their operations, and faults of single datagrams.

use super::scenario::{self, Scenario};
use super::{CellStep, Mix, ProcessOperation, Rules, StoreFault};
use crate::plan::{
    Disruptions, HALF_OPEN, Layout, MAX_IKE_SAS, NetworkConditions, PerNode, Plan, Protection, Setup,
    Topology, VirtualAddrs,
};
use crate::post_quantum::{Outcome, PostQuantum};
use casemate_ike::config::{Childless, CloseAction, Unique};
use casemate_test_support::TestRng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Largest number of datagrams of a run with a fault.
const MAX_FAULTS: usize = 8;
/// Longer than a run: nothing expires.
const FOREVER: Duration = Duration::from_secs(1_000_000);
/// Retransmissions of a request: more than the datagrams that can be lost.
const TRIES: u32 = 12;

/// Operation of an administrator, a timer or a volume limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    RekeyIke,
    RekeyChild,
    CreateChild,
    DeleteChild,
    /// Closes the IKE SA.
    Terminate,
    /// Restarts the endpoint, which loses its state.
    Restart,
    /// Cuts the endpoint off for this number of seconds.
    CutOff(u64),
    /// Makes the NAT assign other ports.
    Rebind,
    /// Ends or replaces the process of the endpoint, which keeps its state in a store.
    Process(ProcessOperation),
    /// A fault of the store of the endpoint.
    Store(StoreFault),
    /// An operation of the cell of the endpoint.
    Cell(CellStep),
}

/// An operation of one endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeOperation {
    /// Number of the endpoint.
    pub(crate) node: usize,
    pub(crate) operation: Operation,
}

/// Fault of one datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DatagramFault {
    Lost,
    /// The datagram is delayed by this additional time.
    Delayed(Duration),
    /// The datagram arrives, and a copy arrives after this additional time.
    Duplicated(Duration),
}

/// Faults of IKE datagrams, by their number since the operations began.
#[derive(Debug, Default)]
pub(crate) struct FaultSchedule {
    drawn: BTreeMap<usize, DatagramFault>,
    /// IKE datagrams sent so far; `None` before the operations begin.
    sent: Option<usize>,
}

impl FaultSchedule {
    /// Starts to count datagrams.
    pub(crate) fn begin(&mut self, drawn: BTreeMap<usize, DatagramFault>) {
        *self = Self { drawn, sent: Some(0) };
    }

    /// Whether the operations have begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.sent.is_some()
    }

    /// Fault of the next IKE datagram.
    pub(crate) fn next(&mut self) -> Option<DatagramFault> {
        let sent = self.sent.as_mut()?;
        let fault = self.drawn.get(sent).copied();
        *sent += 1;
        fault
    }
}

/// Plan of a mix.
#[derive(Debug)]
pub(crate) struct MixPlan {
    /// Endpoints and network.
    pub(crate) plan: Plan,
    /// Time before the first operation.
    pub(crate) after: Duration,
    /// Operations with their times, in order.
    pub(crate) operations: Vec<(Duration, NodeOperation)>,
    /// Faults by the number of the IKE datagram.
    pub(crate) faults: BTreeMap<usize, DatagramFault>,
    /// Conditions that must hold.
    pub(crate) rules: Rules,
}

impl MixPlan {
    pub(crate) fn new(mix: Mix, rng: &mut TestRng) -> Self {
        let mut plan = plan(mix, rng);
        if mix.is_soak() {
            soak(&mut plan, rng);
        }
        if mix == Mix::FollowupKe {
            (plan.setup.post_quantum, plan.setup.pfs) = (PostQuantum::draw_used(rng), true);
        }
        let scenario = scenario::draw(mix, &mut plan, rng);
        let spread = rng.pick(&[20, 300, 3_000, 20_000]);
        let Scenario { operations, after, rules } = scenario.unwrap_or_else(|| rekeying_mix(mix, &plan, rng));
        let mut operations: Vec<_> = operations
            .into_iter()
            .map(|operation| (after + Duration::from_millis(rng.below(spread) as u64), operation))
            .collect();
        operations.sort_by_key(|(time, _)| *time);
        let count = if mix.is_soak() { 0 } else { rng.below(MAX_FAULTS + 1) };
        let datagrams = (operations.len() + extra_exchanges(mix)) * datagrams_per_exchange(&plan.setup);
        let faults = (0..count).map(|_| (rng.below(datagrams), draw_fault(rng))).collect();
        Self { plan, after, operations, faults, rules }
    }
}

/// Number of exchanges that no operation starts.
const fn extra_exchanges(mix: Mix) -> usize {
    match mix {
        Mix::Reauth | Mix::Unique | Mix::Crash | Mix::CloseStart | Mix::DeadStart | Mix::Resume => 4,
        Mix::StoreCrash | Mix::StoreTakeover | Mix::StoreOutage | Mix::StoreReauth => 4,
        Mix::CellKill | Mix::CellStop | Mix::CellPartition | Mix::CellDrain => 4,
        Mix::Refused => 10,
        _ => 0,
    }
}

/// Datagrams of a rekeying in which faults can occur: that of the old SA's deletion included.
const fn datagrams_per_exchange(setup: &Setup) -> usize {
    let PostQuantum { rounds, ike, child, .. } = setup.post_quantum;
    match (ike.outcome(), child.outcome()) {
        // A message with a key of ML-KEM is fragmented.
        (Outcome::Used, _) | (_, Outcome::Used) => 5 + 6 * rounds,
        _ => 5,
    }
}

fn draw_fault(rng: &mut TestRng) -> DatagramFault {
    let longest = rng.pick(&[200, 2_000, 10_000, 90_000]);
    let time = Duration::from_millis(rng.below(longest) as u64);
    match rng.below(4) {
        0 | 1 => DatagramFault::Lost,
        2 => DatagramFault::Delayed(time),
        _ => DatagramFault::Duplicated(time),
    }
}

/// Mix that only rekeys, creates and deletes SAs.
fn rekeying_mix(mix: Mix, plan: &Plan, rng: &mut TestRng) -> Scenario {
    let operations = operations(mix, rng);
    let rules = Rules::for_rekeyings(plan, &operations);
    Scenario { operations, after: Duration::ZERO, rules }
}

fn operations(mix: Mix, rng: &mut TestRng) -> Vec<NodeOperation> {
    use Operation::{CreateChild, DeleteChild, RekeyChild, RekeyIke};
    let (a, b) = if rng.coin() { (0, 1) } else { (1, 0) };
    let at = |node, operation| NodeOperation { node, operation };
    let each = |what: &[Operation]| -> Vec<_> {
        [a, b].into_iter().flat_map(|node| what.iter().map(move |what| at(node, *what))).collect()
    };
    match mix {
        Mix::RekeyChild => vec![at(a, RekeyChild), at(a, RekeyChild), at(b, RekeyChild)],
        Mix::RekeyIke => each(&[RekeyIke, RekeyIke]),
        Mix::RekeyBoth | Mix::Parallel => each(&[RekeyIke, RekeyIke, RekeyChild, RekeyChild]),
        Mix::CreateDelete => each(&[RekeyChild, CreateChild, DeleteChild]),
        Mix::Everything => {
            let once = [RekeyIke, RekeyChild, CreateChild, DeleteChild];
            each(&[once, once].concat())
        }
        Mix::FollowupKe => {
            let all = [RekeyIke, RekeyChild, CreateChild, DeleteChild];
            let count = 1 + rng.below(6);
            (0..count).map(|_| at(rng.pick(&[a, b]), rng.pick(&all))).collect()
        }
        _ => vec![],
    }
}

fn plan(mix: Mix, rng: &mut TestRng) -> Plan {
    // Two sites initiate at the same time, which results in two IKE SAs.
    let is_parallel = matches!(mix, Mix::Parallel | Mix::SoakParallel | Mix::SoakReauth);
    let topology = if is_parallel { Topology::Sites } else { Topology::Clients(1) };
    let min_delay = Duration::from_millis(1 + rng.below(50) as u64);
    let max_delay = min_delay + Duration::from_millis(rng.pick(&[0, 20, 200]));
    let conditions = NetworkConditions { min_delay, max_delay, ..NetworkConditions::PERFECT };
    let disruptions = Disruptions { commands: 0, only_rekeys: true, ..Disruptions::ONLY_REKEYS };
    Plan {
        topology,
        single_initiator: false,
        conditions,
        setup: setup(rng),
        disruptions,
        disrupted_for: Duration::ZERO,
    }
}

/// Short lifetimes on a network with loss, duplication and reordering: conditions under which black holes
/// were found.
fn soak(plan: &mut Plan, rng: &mut TestRng) {
    (plan.setup.child_life, plan.setup.ike_life) = (Duration::from_secs(10), Duration::from_secs(35));
    plan.setup.on_close = rng.pick(&[Some(CloseAction::Clear), None]);
    let max_delay = plan.conditions.min_delay + Duration::from_millis(rng.pick(&[20, 200, 1_000]));
    let max_losses = Some(2);
    plan.conditions = NetworkConditions { loss: 50, duplicate: 50, max_delay, max_losses, ..plan.conditions };
    plan.disrupted_for = Duration::from_secs(600);
}

fn setup(rng: &mut TestRng) -> Setup {
    Setup {
        child_life: FOREVER,
        ike_life: FOREVER,
        reauth: None,
        reauth_by: PerNode { first: false, others: true },
        rekey_packets: None,
        pfs: rng.coin(),
        wrong_kex_guess: rng.below(8) == 0,
        protection: Protection::Combined,
        esn: rng.coin(),
        outer_v6: false,
        inner_v6: false,
        children: 1,
        layout: Layout::Networks,
        narrowed: false,
        shunts: false,
        fragment_bytes: rng.pick(&[1_280, 256]),
        certificates: false,
        childless: PerNode { first: Childless::Never, others: Childless::Never },
        unique: Unique::Never,
        virtual_addrs: VirtualAddrs::No,
        nat: false,
        traps: false,
        cookie_threshold: 64,
        manual: false,
        untrusted: false,
        on_close: Some(CloseAction::Clear),
        liveness: rng.coin(),
        tries: TRIES,
        max_ike_sas: MAX_IKE_SAS,
        max_ike_sas_per_peer: MAX_IKE_SAS,
        max_half_open: HALF_OPEN,
        rohc: false,
        post_quantum: PostQuantum::draw(rng),
        tickets: rng.below(4) == 0,
    }
}
