//! Mixes with more operations than rekeying, creating and deleting: configuration, operations and
//! rules.

use super::rules::{AllowedEnds, Rules};
use super::{Mix, NodeOperation, Operation, cells, stored};
use crate::plan::{PerNode, Plan, Topology, VirtualAddrs};
use crate::post_quantum::Outcome;
use casemate_ike::config::{CloseAction, Unique};
use casemate_test_support::TestRng;
use casemate_wire::ike::NotifyType;
use std::time::Duration;

/// Reauthentication time. A tenth of it is random. An IKE SA that ends within a minute is set up again after
/// increasing pauses.
pub(super) const REAUTH: Duration = Duration::from_secs(70);
/// Retransmissions of a request with which a peer is dead after 31 s.
const FEW_TRIES: u32 = 4;

/// Which of the two sides reauthenticate: at least one.
pub(super) const REAUTH_BY: [PerNode<bool>; 3] = [
    PerNode { first: true, others: false },
    PerNode { first: false, others: true },
    PerNode { first: true, others: true },
];

/// Operations and rules of a mix.
pub(super) struct Scenario {
    pub(super) operations: Vec<NodeOperation>,
    /// Time before the first operation.
    pub(super) after: Duration,
    pub(super) rules: Rules,
}

impl Scenario {
    fn at_once(operations: Vec<NodeOperation>, rules: Rules) -> Self {
        Self { operations, after: Duration::ZERO, rules }
    }
}

/// Draws the scenario of a mix and changes its plan. Returns `None` for a mix that only rekeys, creates and
/// deletes.
pub(super) fn draw(mix: Mix, plan: &mut Plan, rng: &mut TestRng) -> Option<Scenario> {
    let scenario = match mix {
        Mix::Reauth => reauth(plan, rng),
        Mix::Unique => unique(plan, rng),
        Mix::Limits => limits(plan, rng),
        Mix::CloseStart => close_start(plan, rng),
        Mix::DeadStart => dead_start(plan, rng),
        Mix::Crash => crash(plan, rng),
        Mix::Rebind => rebind(plan, rng),
        Mix::SoakReauth => soak_reauth(plan, rng),
        Mix::Resume => resume(plan, rng),
        Mix::Refused => refused(plan, rng),
        _ if mix.has_stores() => stored::draw(mix, plan, rng),
        _ if mix.has_cell() => cells::draw(mix, plan, rng),
        _ => return None,
    };
    Some(scenario)
}

/// Draws a gateway with a client, or two sites of which one initiates.
pub(super) fn draw_topology(plan: &mut Plan, rng: &mut TestRng) {
    if rng.coin() {
        (plan.topology, plan.single_initiator) = (Topology::Sites, true);
    }
}

/// Both sides rekey the IKE SA and the Child SA, each once or twice.
pub(super) fn rekeys(rng: &mut TestRng) -> Vec<NodeOperation> {
    let mut operations = vec![];
    for node in [0, 1] {
        for operation in [Operation::RekeyIke, Operation::RekeyChild] {
            operations.extend((0..1 + rng.below(2)).map(|_| NodeOperation { node, operation }));
        }
    }
    operations
}

fn reauth(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    draw_topology(plan, rng);
    let (is_gateway, setup) = (plan.topology != Topology::Sites, &mut plan.setup);
    setup.reauth = Some(REAUTH);
    setup.reauth_by = rng.pick(&REAUTH_BY);
    setup.unique = rng.pick(&[Unique::Never, Unique::No, Unique::Replace, Unique::Keep]);
    if is_gateway && rng.below(4) == 0 {
        setup.virtual_addrs = VirtualAddrs::Plenty;
    }
    // A gateway does not know the address of its client: it closes the IKE SA, and the client sets it up
    // again.
    let closes_first = is_gateway && setup.reauth_by.first || setup.virtual_addrs != VirtualAddrs::No;
    setup.on_close = if closes_first { None } else { rng.pick(&[None, Some(CloseAction::Clear)]) };
    let accepts_both = matches!(setup.unique, Unique::Never | Unique::No);
    let mut operations = rekeys(rng);
    let only_ike = rng.coin();
    operations.retain(|planned| !only_ike || planned.operation == Operation::RekeyIke);
    // The responder sends through its oldest Child SA. If that SA is rekeyed while the IKE_AUTH response is
    // delayed, the initiator does not have the oldest Child SA of the responder yet.
    let mut rules = Rules::one(only_ike && accepts_both && !closes_first, AllowedEnds::Intended);
    if setup.reauth_by.first && setup.reauth_by.others {
        // Both sides may initiate at once. One of the two IKE SAs remains after the next reauthentication.
        (rules.ikes, rules.children, rules.lossless) = (1..=2, 1..=2, false);
    }
    Scenario { operations, after: REAUTH * 9 / 10, rules }
}

fn unique(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    draw_topology(plan, rng);
    plan.setup.unique = rng.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(rng);
    operations.push(NodeOperation { node: 1, operation: Operation::Restart });
    // Without liveness checks, only INITIAL_CONTACT informs the peer of the restart.
    Scenario::at_once(operations, Rules::one(false, AllowedEnds::Intended))
}

fn limits(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    draw_topology(plan, rng);
    let setup = &mut plan.setup;
    setup.max_ike_sas = rng.pick(&[1, 2, 64]);
    setup.max_ike_sas_per_peer = rng.pick(&[1, 2]);
    setup.max_half_open = 2;
    setup.unique = rng.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(rng);
    if rng.coin() {
        if plan.topology == Topology::Sites {
            // If each side has room for one IKE SA, its own attempt blocks the attempt of the other side.
            setup.max_ike_sas = setup.max_ike_sas.max(2);
        }
        // A peer with a full table refuses a restarted peer until it finds the old IKE SA dead.
        (setup.liveness, setup.tries, setup.on_close) = (true, FEW_TRIES, None);
        operations.push(NodeOperation { node: 1, operation: Operation::Restart });
        return Scenario::at_once(operations, Rules::one(false, AllowedEnds::Outage));
    }
    Scenario::at_once(operations, Rules::one(true, AllowedEnds::Orderly))
}

fn close_start(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    draw_topology(plan, rng);
    plan.setup.on_close = Some(CloseAction::Restart);
    let mut operations = rekeys(rng);
    // One side deletes SAs, and the other side sets them up again. A gateway cannot initiate an IKE SA.
    let deletes = if plan.topology == Topology::Sites { rng.below(2) } else { 0 };
    let wanted: &[_] = match rng.below(3) {
        0 => &[Operation::DeleteChild],
        1 => &[Operation::DeleteChild, Operation::DeleteChild],
        _ => &[Operation::DeleteChild, Operation::Terminate],
    };
    operations.extend(wanted.iter().map(|operation| NodeOperation { node: deletes, operation: *operation }));
    let rules = Rules { after_silence: 1, ..Rules::one(false, AllowedEnds::Intended) };
    Scenario::at_once(operations, rules)
}

fn dead_start(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    let both_initiate = rng.coin();
    if both_initiate {
        (plan.topology, plan.single_initiator) = (Topology::Sites, true);
    }
    let setup = &mut plan.setup;
    (setup.liveness, setup.tries, setup.on_close) = (true, FEW_TRIES, None);
    setup.unique = rng.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(rng);
    let seconds = 5 + rng.below(120) as u64;
    operations.push(NodeOperation { node: rng.below(2), operation: Operation::CutOff(seconds) });
    Scenario::at_once(operations, at_most_two(both_initiate))
}

/// Sites that both notice the outage may initiate at once.
fn resume(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    let both_initiate = rng.coin();
    if both_initiate {
        (plan.topology, plan.single_initiator) = (Topology::Sites, true);
    }
    let setup = &mut plan.setup;
    (setup.liveness, setup.tries, setup.on_close, setup.tickets) = (true, FEW_TRIES, None, true);
    setup.unique = rng.pick(&[Unique::Never, Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(rng);
    // Long enough that the peer is taken for dead, unless it has just received something.
    let seconds = 35 + rng.below(90) as u64;
    operations.push(NodeOperation { node: rng.below(2), operation: Operation::CutOff(seconds) });
    if rng.below(4) == 0 {
        operations.push(NodeOperation { node: rng.below(2), operation: Operation::Restart });
    }
    Scenario::at_once(operations, at_most_two(both_initiate))
}

fn refused(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    draw_topology(plan, rng);
    let wanted = &mut plan.setup.post_quantum;
    let (used, refused) = (Outcome::Used, Outcome::Refused);
    let strips = match rng.below(5) {
        0 => {
            wanted.ike = PerNode::draw(refused, rng);
            None
        }
        1 => {
            wanted.ppk = PerNode::draw(refused, rng);
            None
        }
        2 => {
            wanted.ike = PerNode::draw(used, rng);
            Some(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED)
        }
        3 => {
            wanted.ppk = PerNode::draw(used, rng);
            Some(NotifyType::USE_PPK)
        }
        _ => Some(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH),
    };
    Scenario::at_once(vec![], Rules { strips, ..Rules::none() })
}

fn crash(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    let both_initiate = rng.coin();
    if both_initiate {
        (plan.topology, plan.single_initiator) = (Topology::Sites, true);
    }
    let setup = &mut plan.setup;
    (setup.liveness, setup.tries, setup.on_close) = (true, FEW_TRIES, None);
    setup.unique = rng.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(rng);
    let count = 1 + rng.below(2);
    operations
        .extend((0..count).map(|_| NodeOperation { node: rng.below(2), operation: Operation::Restart }));
    Scenario::at_once(operations, at_most_two(both_initiate))
}

/// Two sites that set up an IKE SA again at the same time may have two of them.
fn at_most_two(both_initiate: bool) -> Rules {
    let most = if both_initiate { 2 } else { 1 };
    Rules { ikes: 1..=most, children: 1..=most, ..Rules::one(false, AllowedEnds::Outage) }
}

fn rebind(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    // The gateway learns the new port from the next message of the client: a liveness check at the latest.
    (plan.setup.nat, plan.setup.liveness, plan.setup.on_close) = (true, true, None);
    let mut operations = rekeys(rng);
    let rebind = NodeOperation { node: 1, operation: Operation::Rebind };
    operations.extend((0..1 + rng.below(3)).map(|_| rebind));
    // If the gateway never received the response that created an IKE SA, a client that uses this IKE SA
    // cannot report the new port.
    Scenario::at_once(operations, Rules::one(false, AllowedEnds::Outage))
}

fn soak_reauth(plan: &mut Plan, rng: &mut TestRng) -> Scenario {
    plan.setup.reauth = Some(Duration::from_secs(50 + rng.below(60) as u64));
    plan.setup.reauth_by = rng.pick(&REAUTH_BY);
    plan.setup.unique = rng.pick(&[Unique::Never, Unique::No]);
    plan.conditions.informational_delay = Duration::from_millis(rng.pick(&[0, 1_000, 10_000]));
    let rules = Rules {
        initial_ike_sas: 2,
        ikes: 1..=2,
        children: 1..=2,
        ..Rules::one(false, AllowedEnds::Intended)
    };
    Scenario::at_once(vec![], rules)
}
