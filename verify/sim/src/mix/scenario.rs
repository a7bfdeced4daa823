//! Mixes with more than rekeying, creating and deleting: what each configures, does and demands.

use super::rules::{Ends, Rules};
use super::{Mix, Operation};
use crate::dice::Dice;
use crate::plan::{Plan, Shape};
use crate::style::VirtualAddrs;
use casemate_ike::config::{OnClose, Unique};
use std::time::Duration;

/// After this time IKE SAs are reauthenticated, or up to a tenth earlier. An IKE SA that ends within a minute is set up
/// again after growing pauses.
const REAUTH: Duration = Duration::from_secs(70);
/// Repetitions of a request after which a peer is dead: 31 s.
const SOON_DEAD: u32 = 4;

/// What a mix does, and what must hold.
pub(super) struct Scenario {
    /// By which endpoint, what.
    pub(super) operations: Vec<(usize, Operation)>,
    /// Time before the first operation.
    pub(super) after: Duration,
    pub(super) rules: Rules,
}

impl Scenario {
    fn at_once(operations: Vec<(usize, Operation)>, rules: Rules) -> Self {
        Self { operations, after: Duration::ZERO, rules }
    }
}

/// What this mix adds to the plan; nothing if it only rekeys, creates and deletes.
pub(super) fn draw(mix: Mix, plan: &mut Plan, dice: &mut Dice) -> Option<Scenario> {
    let scenario = match mix {
        Mix::Reauth => reauth(plan, dice),
        Mix::Unique => unique(plan, dice),
        Mix::Limits => limits(plan, dice),
        Mix::CloseStart => close_start(plan, dice),
        Mix::DeadStart => dead_start(plan, dice),
        Mix::Crash => crash(plan, dice),
        Mix::Rebind => rebind(plan, dice),
        Mix::SoakReauth => soak_reauth(plan, dice),
        _ => return None,
    };
    Some(scenario)
}

/// A gateway with a client, or two sites of which one begins.
fn draw_shape(plan: &mut Plan, dice: &mut Dice) {
    if dice.coin() {
        (plan.shape, plan.one_begins) = (Shape::Sites, true);
    }
}

/// Both sides rekey the IKE SA and the Child SA, each once or twice.
fn rekeys(dice: &mut Dice) -> Vec<(usize, Operation)> {
    let mut operations = vec![];
    for node in [0, 1] {
        for operation in [Operation::RekeyIke, Operation::RekeyChild] {
            operations.extend((0..1 + dice.below(2)).map(|_| (node, operation)));
        }
    }
    operations
}

fn reauth(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    draw_shape(plan, dice);
    let (is_gateway, style) = (plan.shape != Shape::Sites, &mut plan.style);
    style.reauth = Some(REAUTH);
    style.reauth_by = dice.pick(&[(true, false), (false, true), (true, true)]);
    style.unique = dice.pick(&[Unique::Never, Unique::No, Unique::Replace, Unique::Keep]);
    if is_gateway && dice.below(4) == 0 {
        style.virtual_addrs = VirtualAddrs::Plenty;
    }
    // A gateway does not know where its clients are: it closes the IKE SA, and the client sets it up again.
    let closes_first = is_gateway && style.reauth_by.0 || style.virtual_addrs != VirtualAddrs::No;
    style.close = if closes_first { None } else { dice.pick(&[None, Some(OnClose::Clear)]) };
    let accepts_both = matches!(style.unique, Unique::Never | Unique::No);
    let mut operations = rekeys(dice);
    let only_ike = dice.coin();
    operations.retain(|(_, operation)| !only_ike || *operation == Operation::RekeyIke);
    // The responder sends through the oldest Child SA. If that is rekeyed while the IKE_AUTH response is late, the oldest one is
    // one that the initiator does not have yet.
    let mut rules = Rules::one(only_ike && accepts_both && !closes_first, Ends::Intended);
    if style.reauth_by == (true, true) {
        // Both sides may begin at once. Of the two, one remains after the next reauthentication.
        (rules.ikes, rules.children, rules.lossless) = (1..=2, 1..=2, false);
    }
    Scenario { operations, after: REAUTH * 9 / 10, rules }
}

fn unique(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    draw_shape(plan, dice);
    plan.style.unique = dice.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(dice);
    operations.push((1, Operation::Restart));
    // Without liveness checks, only INITIAL_CONTACT tells the peer.
    Scenario::at_once(operations, Rules::one(false, Ends::Intended))
}

fn limits(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    draw_shape(plan, dice);
    let style = &mut plan.style;
    style.most_ikes = (dice.pick(&[1, 2, 64]), dice.pick(&[1, 2]));
    style.most_half_open = 2;
    style.unique = dice.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(dice);
    if dice.coin() {
        if plan.shape == Shape::Sites {
            // With room for one, each side's own attempt keeps the other side's out.
            style.most_ikes.0 = style.most_ikes.0.max(2);
        }
        // A peer with a full table refuses a restarted peer until it finds the old IKE SA dead.
        (style.liveness, style.tries, style.close) = (true, SOON_DEAD, None);
        operations.push((1, Operation::Restart));
        return Scenario::at_once(operations, Rules::one(false, Ends::Outage));
    }
    Scenario::at_once(operations, Rules::one(true, Ends::Orderly))
}

fn close_start(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    draw_shape(plan, dice);
    plan.style.close = Some(OnClose::Restart);
    let mut operations = rekeys(dice);
    // What one side deletes, the other sets up again. A gateway cannot begin an IKE SA.
    let deletes = if plan.shape == Shape::Sites { dice.below(2) } else { 0 };
    let wanted: &[_] = match dice.below(3) {
        0 => &[Operation::DeleteChild],
        1 => &[Operation::DeleteChild, Operation::DeleteChild],
        _ => &[Operation::DeleteChild, Operation::Terminate],
    };
    operations.extend(wanted.iter().map(|operation| (deletes, *operation)));
    Scenario::at_once(operations, Rules::one(false, Ends::Intended))
}

fn dead_start(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    let both_begin = dice.coin();
    if both_begin {
        (plan.shape, plan.one_begins) = (Shape::Sites, true);
    }
    let style = &mut plan.style;
    (style.liveness, style.tries, style.close) = (true, SOON_DEAD, None);
    style.unique = dice.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(dice);
    let seconds = 5 + dice.below(120) as u64;
    operations.push((dice.below(2), Operation::CutOff(seconds)));
    Scenario::at_once(operations, at_most_two(both_begin))
}

fn crash(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    let both_begin = dice.coin();
    if both_begin {
        (plan.shape, plan.one_begins) = (Shape::Sites, true);
    }
    let style = &mut plan.style;
    (style.liveness, style.tries, style.close) = (true, SOON_DEAD, None);
    style.unique = dice.pick(&[Unique::No, Unique::Replace, Unique::Keep]);
    let mut operations = rekeys(dice);
    operations.extend((0..1 + dice.below(2)).map(|_| (dice.below(2), Operation::Restart)));
    Scenario::at_once(operations, at_most_two(both_begin))
}

/// Two sites that set up what ended at the same time may have two IKE SAs.
fn at_most_two(both_begin: bool) -> Rules {
    let most = if both_begin { 2 } else { 1 };
    Rules { ikes: 1..=most, children: 1..=most, ..Rules::one(false, Ends::Outage) }
}

fn rebind(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    // The gateway learns the new port from the next message of the client: a liveness check at the latest.
    (plan.style.nat, plan.style.liveness, plan.style.close) = (true, true, None);
    let mut operations = rekeys(dice);
    operations.extend((0..1 + dice.below(3)).map(|_| (1, Operation::Rebind)));
    // A client that uses an IKE SA whose response the gateway never got cannot tell it the new port.
    Scenario::at_once(operations, Rules::one(false, Ends::Outage))
}

fn soak_reauth(plan: &mut Plan, dice: &mut Dice) -> Scenario {
    plan.style.reauth = Some(Duration::from_secs(50 + dice.below(60) as u64));
    plan.style.reauth_by = dice.pick(&[(true, false), (false, true), (true, true)]);
    plan.style.unique = dice.pick(&[Unique::Never, Unique::No]);
    plan.weather.late = Duration::from_millis(dice.pick(&[0, 1_000, 10_000]));
    let rules = Rules { at_first: 2, ikes: 1..=2, children: 1..=2, ..Rules::one(false, Ends::Intended) };
    Scenario::at_once(vec![], rules)
}
