//! SAs that are replaced, deleted and lost, with traffic on its way.

use super::{Case, demand, establish_and_talk};
use crate::arena::{Arena, SOON};
use crate::peer::Target;
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::side::{Family, Side};
use casemate_interop::{Error, Result};
use std::time::Duration;

/// How often a flow sees its SA replaced.
const ROUNDS: u64 = 3;
/// Until both sides have sent again what was lost, and have agreed.
const COLLISION_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for side in Side::BOTH {
        let by = if side == Side::Left { "by-us" } else { "by-peer" };
        for (name, target) in [("child", Target::Child(CHILD)), ("ike", Target::Ike(CONNECTION))] {
            let plan = Plan::new(initiator);
            let script = move |arena: &mut Arena| rekey_under_traffic(arena, side, target);
            cases.push(Case::new(&format!("rekey/{name}/{by}"), plan, script));
            let script = move |arena: &mut Arena| delete(arena, side, target);
            cases.push(Case::new(&format!("delete/{name}/{by}"), Plan::new(initiator), script));
        }
        let mut plan = Plan::new(initiator);
        plan.child("esp_proposals", "aes128gcm16-x25519");
        let script = move |arena: &mut Arena| rekey_under_traffic(arena, side, Target::Child(CHILD));
        cases.push(Case::new(&format!("rekey/child-pfs/{by}"), plan, script));
        let mut plan = Plan::new(initiator);
        for (setting, time) in [("rekey_time", "2s"), ("rand_time", "0s"), ("life_time", "1m")] {
            plan.child_of(side, setting, time);
        }
        let script = move |arena: &mut Arena| rekey_by_time(arena, side, Target::Child(CHILD));
        cases.push(Case::new(&format!("rekey/child-by-time/{by}"), plan, script));
        let mut plan = Plan::new(initiator);
        for (setting, time) in [("rekey_time", "2s"), ("rand_time", "0s"), ("over_time", "1m")] {
            plan.connection_of(side, setting, time);
        }
        let script = move |arena: &mut Arena| rekey_by_time(arena, side, Target::Ike(CONNECTION));
        cases.push(Case::new(&format!("rekey/ike-by-time/{by}"), plan, script));
        cases.push(dead_peer(initiator, side, by));
    }
    for (name, target) in [("child", Target::Child(CHILD)), ("ike", Target::Ike(CONNECTION))] {
        let mut plan = Plan::new(initiator);
        Side::BOTH.into_iter().for_each(|side| retransmit_after_a_second(&mut plan, side));
        let script = move |arena: &mut Arena| rekey_at_once(arena, target);
        cases.push(Case::new(&format!("rekey/{name}/by-both"), plan, script));
    }
    cases.push(Case::new("reload", Plan::new(initiator), reload));
}

fn dead_peer(initiator: Side, side: Side, by: &str) -> Case {
    let mut plan = Plan::new(initiator);
    plan.connection_of(side, "dpd_delay", "1s");
    retransmit_quickly(&mut plan, side);
    Case::new(&format!("dpd/{by}"), plan, move |arena| outlive_the_peer(arena, side))
}

/// Every half second, three times.
pub(super) fn retransmit_quickly(plan: &mut Plan, side: Side) {
    plan.daemon(side, "retransmit_timeout", "0.5");
    plan.daemon(side, "retransmit_base", "1");
    plan.daemon(side, "retransmit_tries", "3");
}

/// As Casemate does at first: so what both sides lost meets when it is sent again.
fn retransmit_after_a_second(plan: &mut Plan, side: Side) {
    plan.daemon(side, "retransmit_timeout", "1.0");
    plan.daemon(side, "retransmit_base", "2");
    plan.daemon(side, "retransmit_tries", "5");
}

/// `side` replaces an SA. Afterwards both sides have the new one and no other.
pub(super) fn replace(arena: &mut Arena, side: Side, target: Target<'_>) -> Result<()> {
    let before = spis(arena, target)?;
    arena.peer(side).rekey(target).map_err(Error::in_front(side.name()))?;
    arena.wait_until(SOON, |arena| {
        arena.agree_now()?;
        demand(spis(arena, target)? != before, "the SA was not replaced")
    })
}

fn spis(arena: &mut Arena, target: Target<'_>) -> Result<(String, String)> {
    match target {
        Target::Ike(_) => arena.ike_sa(Side::Left).map(|sa| (sa.spi_i, sa.spi_r)),
        Target::Child(name) => arena.child_sa(Side::Left, name).map(|sa| (sa.spi_in, sa.spi_out)),
    }
}

pub(super) fn rekey_under_traffic(arena: &mut Arena, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(arena)?;
    let flows = vec![arena.start_flow(Side::Left)?, arena.start_flow(Side::Right)?];
    for _ in 0..ROUNDS {
        replace(arena, side, target)?;
    }
    let said = arena.stop_flows(flows, ROUNDS)?;
    arena.traffic(Family::V4)?;
    Ok(said)
}

/// Both sides begin before they hear of each other; one of the two new SAs has to give way (RFC 7296 sections 2.8.1 and
/// 2.8.2).
fn rekey_at_once(arena: &mut Arena, target: Target<'_>) -> Result<String> {
    establish_and_talk(arena)?;
    let flow = arena.start_flow(Side::Left)?;
    let before = spis(arena, target)?;
    arena.path.cut_ike()?;
    for side in Side::BOTH {
        arena.peer(side).rekey(target).map_err(Error::in_front(side.name()))?;
    }
    arena.path.heal()?;
    arena.wait_until(COLLISION_LIMIT, |arena| {
        arena.agree_now()?;
        demand(spis(arena, target)? != before, "the SA was not replaced")
    })?;
    let said = flow.stop()?;
    demand(
        arena.strongswan_said("collision"),
        "strongSwan's log tells of no collision: the case proves nothing",
    )?;
    arena.traffic(Family::V4)?;
    Ok(said)
}

pub(super) fn rekey_by_time(arena: &mut Arena, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(arena)?;
    let before = spis(arena, target)?;
    let flow = arena.start_flow(side)?;
    arena.wait_until(SOON, |arena| {
        arena.agree_now()?;
        demand(spis(arena, target)? != before, "the SA was not replaced")
    })?;
    let said = arena.stop_flows(vec![flow], 1)?;
    arena.traffic(Family::V4)?;
    Ok(said)
}

pub(super) fn delete(arena: &mut Arena, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(arena)?;
    arena.peer(side).terminate(target).map_err(Error::in_front(side.name()))?;
    match target {
        Target::Ike(_) => arena.demand_nothing_left()?,
        Target::Child(_) => arena.wait_until(SOON, |arena| {
            let left = arena.agree_now()?;
            demand(left.children.is_empty(), "the Child SA is still there")
        })?,
    }
    establish_and_talk(arena)
}

fn outlive_the_peer(arena: &mut Arena, side: Side) -> Result<String> {
    establish_and_talk(arena)?;
    arena.path.cut()?;
    let patience = arena.peer(side).patience();
    arena.wait_until(patience, |arena| {
        let gone = arena.peer(side).status()?.is_empty();
        demand(gone, "the SA with a peer that is gone is still there")
    })?;
    arena.path.heal()?;
    // The other side may not have noticed: it has to take the new SA nevertheless.
    arena.peer(side).initiate(Target::Child(CHILD)).map_err(Error::in_front(side.name()))?;
    arena.traffic(Family::V4)
}

/// A configuration with one more child is taken without touching what stands.
fn reload(arena: &mut Arena) -> Result<String> {
    establish_and_talk(arena)?;
    let before = spis(arena, Target::Child(CHILD))?;
    let flow = arena.start_flow(Side::Left)?;
    arena.plan.second_child();
    arena.reload()?;
    arena.initiate(Target::Child(SECOND_CHILD))?;
    arena.agree()?;
    demand(spis(arena, Target::Child(CHILD))? == before, "the reload replaced a Child SA")?;
    flow.stop()?;
    arena.traffic_between(&Side::Left.second(), &Side::Right.second())?;
    arena.traffic(Family::V4)
}
