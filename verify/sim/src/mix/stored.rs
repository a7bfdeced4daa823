//! Mixes in which nodes keep their state in a store: processes end and are replaced, and the store has
//! faults, while both sides rekey, create, delete and reauthenticate SAs.

use super::rules::{AllowedEnds, Rules};
use super::scenario::{self, Scenario};
use super::{Mix, NodeOperation, Operation};
use crate::plan::{PerNode, Plan, Topology};
use crate::state_store::EndMoment;
use casemate_ike::config::{CloseAction, Unique};
use casemate_test_support::TestRng;
use std::time::Duration;

/// Longest time for which a store is away or full: a minute, less than the time after which a peer is dead.
const LONGEST_OUTAGE: usize = 60_000;

/// What happens to the process of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessOperation {
    /// It ends, and the next one starts after a pause.
    Crash(EndMoment, Duration),
    /// It writes its state and ends, and the next one starts after a pause.
    Restart(Duration),
    /// The next one starts, and this one goes on for a time.
    TakeOver(Duration),
}

/// Fault of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// Requests and answers are late from now on.
    Delays { request: Duration, answer: Duration },
    /// No request arrives for a time.
    LosesRequests(Duration),
    /// Requests are executed for a time, and no answer arrives.
    LosesAnswers(Duration),
    /// The store refuses writes for a time.
    IsFull(Duration),
}

impl Mix {
    /// Whether nodes keep their state in a store.
    pub(crate) const fn has_stores(self) -> bool {
        matches!(self, Self::StoreCrash | Self::StoreTakeover | Self::StoreOutage | Self::StoreReauth)
    }
}

/// Draws the scenario of a mix with stores.
pub(super) fn draw(mix: Mix, plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    scenario::draw_topology(plan, rng);
    plan.setup.liveness = true;
    plan.setup.unique = rng.pick(&[Unique::Never, Unique::No, Unique::Replace, Unique::Keep]);
    let stores = rng.pick(&[&[0][..], &[1], &[0, 1]]);
    let mut rules =
        Rules { stores: stores.into(), after_silence: 1, ..Rules::one(false, AllowedEnds::Intended) };
    let mut operations = match mix {
        Mix::StoreReauth => {
            reauthenticate(plan, rng, &mut rules);
            scenario::rekeys(rng)
        }
        _ if rng.coin() => create_and_delete(plan, rng, &mut rules),
        _ => {
            plan.setup.on_close = None;
            scenario::rekeys(rng)
        }
    };
    if mix != Mix::StoreTakeover && plan.topology != Topology::Sites && rng.below(4) == 0 {
        plan.setup.nat = true;
        operations.push(NodeOperation { node: 1, operation: Operation::Rebind });
        rules.allowed_ends = AllowedEnds::Outage;
    }
    // If both sides rekey an IKE SA at once and a process ends, its successor does not know that the peer has
    // moved the Child SAs to the IKE SA that the peer has made: records do not name it.
    let rekeys_ike = rng.below(2);
    operations.retain(|planned| planned.operation != Operation::RekeyIke || planned.node == rekeys_ike);
    for node in stores {
        let add = |what| NodeOperation { node: *node, operation: what };
        let [request, answer] = [(); 2].map(|()| Duration::from_millis(rng.pick(&[0, 0, 1, 30, 400])));
        operations.push(add(Operation::Store(StoreFault::Delays { request, answer })));
        for _ in 0..1 + rng.below(3) {
            operations.push(add(Operation::Process(process_operation(mix, rng))));
        }
        if mix == Mix::StoreOutage || mix == Mix::StoreReauth && rng.coin() {
            operations.push(add(Operation::Store(outage(rng))));
        }
    }
    let after = if mix == Mix::StoreReauth { scenario::REAUTH * 9 / 10 } else { Duration::ZERO };
    Scenario { operations, after, rules }
}

fn process_operation(mix: Mix, rng: &mut TestRng) -> ProcessOperation {
    let kind = match mix {
        Mix::StoreCrash => rng.below(3),
        Mix::StoreTakeover => 3,
        _ => rng.below(4),
    };
    let down_for = Duration::from_millis(rng.pick(&[0, 0, 50, 1_000, 5_000]));
    match kind {
        0 | 1 => ProcessOperation::Crash(rng.pick(&EndMoment::ALL), down_for),
        2 => ProcessOperation::Restart(down_for),
        _ => ProcessOperation::TakeOver(Duration::from_millis(rng.pick(&[500, 5_000, 30_000]))),
    }
}

fn outage(rng: &mut TestRng) -> StoreFault {
    let longest = rng.pick(&[1_000, 5_000, LONGEST_OUTAGE]);
    let time = Duration::from_millis(rng.below(longest) as u64);
    rng.pick(&[StoreFault::LosesRequests(time), StoreFault::LosesAnswers(time), StoreFault::IsFull(time)])
}

/// Both sides create and delete Child SAs, which are not set up again.
pub(super) fn create_and_delete(plan: &mut Plan, rng: &mut TestRng, rules: &mut Rules) -> Vec<NodeOperation> {
    plan.setup.on_close = Some(CloseAction::Clear);
    let all = [
        Operation::RekeyIke,
        Operation::RekeyChild,
        Operation::CreateChild,
        Operation::CreateChild,
        Operation::DeleteChild,
    ];
    let count = 2 + rng.below(6);
    let operations: Vec<_> =
        (0..count).map(|_| NodeOperation { node: rng.below(2), operation: rng.pick(&all) }).collect();
    let count = |wanted| operations.iter().filter(|planned| planned.operation == wanted).count();
    let created = count(Operation::CreateChild);
    // A process that ends forgets a Child SA that it was about to create. If it ends while it rekeys one, the
    // peer closes that Child SA after three minutes, because it has replaced it.
    rules.children = 0..=1 + created;
    // A peer refuses to authenticate again without a Child SA.
    rules.ikes = 0..=1;
    operations
}

/// One side or both reauthenticate.
fn reauthenticate(plan: &mut Plan, rng: &mut TestRng, rules: &mut Rules) {
    let setup = &mut plan.setup;
    setup.reauth = Some(scenario::REAUTH);
    setup.reauth_by = rng.pick(&scenario::REAUTH_BY);
    setup.on_close = None;
    if setup.reauth_by == (PerNode { first: true, others: true }) {
        (rules.ikes, rules.children) = (1..=2, 1..=2);
    }
}
