//! Cases in which SAs are replaced, deleted and lost under traffic; lost IKE messages; saved keys.

use super::{Case, ensure, establish_and_talk};
use crate::peer::Target;
use crate::peer::{Family, Side};
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use crate::wireshark;
use casemate_interop::{Error, Result};
use std::time::Duration;

/// Number of replacements during a flow.
const ROUNDS: u64 = 3;
/// Limit until both sides have retransmitted the lost messages and agree on the SAs.
const COLLISION_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    add_loss(cases, initiator);
    add_keys(cases, initiator);
    for side in Side::BOTH {
        let by = if side == Side::Left { "by-us" } else { "by-peer" };
        for (name, target) in [("child", Target::Child(CHILD)), ("ike", Target::Ike(CONNECTION))] {
            let plan = Plan::new(initiator);
            let script = move |testbed: &mut Testbed| rekey_under_traffic(testbed, side, target);
            cases.push(Case::new(&format!("rekey/{name}/{by}"), plan, script));
            let script = move |testbed: &mut Testbed| delete(testbed, side, target);
            cases.push(Case::new(&format!("delete/{name}/{by}"), Plan::new(initiator), script));
        }
        let mut plan = Plan::new(initiator);
        plan.child("esp_proposals", "aes128gcm16-x25519");
        let script = move |testbed: &mut Testbed| rekey_under_traffic(testbed, side, Target::Child(CHILD));
        cases.push(Case::new(&format!("rekey/child-pfs/{by}"), plan, script));
        let mut plan = Plan::new(initiator);
        for (setting, time) in [("rekey_time", "2s"), ("rand_time", "0s"), ("life_time", "1m")] {
            plan.child_of(side, setting, time);
        }
        let script = move |testbed: &mut Testbed| rekey_by_time(testbed, side, Target::Child(CHILD));
        cases.push(Case::new(&format!("rekey/child-by-time/{by}"), plan, script));
        let mut plan = Plan::new(initiator);
        for (setting, time) in [("rekey_time", "2s"), ("rand_time", "0s"), ("over_time", "1m")] {
            plan.connection_of(side, setting, time);
        }
        let script = move |testbed: &mut Testbed| rekey_by_time(testbed, side, Target::Ike(CONNECTION));
        cases.push(Case::new(&format!("rekey/ike-by-time/{by}"), plan, script));
        cases.push(dead_peer(initiator, side, by));
    }
    for (name, target) in [("child", Target::Child(CHILD)), ("ike", Target::Ike(CONNECTION))] {
        let mut plan = Plan::new(initiator);
        Side::BOTH.into_iter().for_each(|side| retransmit_after_a_second(&mut plan, side));
        let script = move |testbed: &mut Testbed| rekey_at_once(testbed, target);
        cases.push(Case::new(&format!("rekey/{name}/by-both"), plan, script));
    }
    cases.push(Case::new("reload", Plan::new(initiator), reload));
}

fn dead_peer(initiator: Side, side: Side, by: &str) -> Case {
    let mut plan = Plan::new(initiator);
    plan.connection_of(side, "dpd_delay", "1s");
    retransmit_quickly(&mut plan, side);
    Case::new(&format!("dpd/{by}"), plan, move |testbed| detect_dead_peer(testbed, side))
}

/// Retransmits every half second, three times.
pub(super) fn retransmit_quickly(plan: &mut Plan, side: Side) {
    plan.daemon(side, "retransmit_timeout", "0.5");
    plan.daemon(side, "retransmit_base", "1");
    plan.daemon(side, "retransmit_tries", "3");
}

/// Retransmits with the first timeouts of Casemate, so that the retransmitted requests of both sides
/// collide.
pub(super) fn retransmit_after_a_second(plan: &mut Plan, side: Side) {
    plan.daemon(side, "retransmit_timeout", "1.0");
    plan.daemon(side, "retransmit_base", "2");
    plan.daemon(side, "retransmit_tries", "5");
}

/// Replaces an SA from `side`. Afterwards, both sides have only the new SA.
pub(super) fn replace(testbed: &mut Testbed, side: Side, target: Target<'_>) -> Result<()> {
    let before = spis(testbed, target)?;
    testbed.peer(side).rekey(target).map_err(Error::context(side.name()))?;
    testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
        testbed.compare_sas()?;
        ensure(spis(testbed, target)? != before, "the SA was not replaced")
    })
}

fn spis(testbed: &mut Testbed, target: Target<'_>) -> Result<(String, String)> {
    match target {
        Target::Ike(_) => testbed.ike_sa(Side::Left).map(|sa| (sa.spi_i, sa.spi_r)),
        Target::Child(name) => testbed.child_sa(Side::Left, name).map(|sa| (sa.spi_in, sa.spi_out)),
    }
}

pub(super) fn rekey_under_traffic(testbed: &mut Testbed, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(testbed)?;
    let flows = vec![testbed.start_flow(Side::Left)?, testbed.start_flow(Side::Right)?];
    for _ in 0..ROUNDS {
        replace(testbed, side, target)?;
    }
    let summary = testbed.stop_flows(flows, ROUNDS)?;
    testbed.traffic(Family::V4)?;
    Ok(summary)
}

/// Both sides start a rekeying before they receive the request of the other side. One of the two new SAs
/// must be deleted (RFC 7296 sections 2.8.1 and 2.8.2).
pub(super) fn rekey_at_once(testbed: &mut Testbed, target: Target<'_>) -> Result<String> {
    establish_and_talk(testbed)?;
    let flow = testbed.start_flow(Side::Left)?;
    let before = spis(testbed, target)?;
    testbed.path.cut_ike()?;
    for side in Side::BOTH {
        testbed.peer(side).rekey(target).map_err(Error::context(side.name()))?;
    }
    testbed.path.restore()?;
    testbed.wait_until(COLLISION_LIMIT, |testbed| {
        testbed.compare_sas()?;
        ensure(spis(testbed, target)? != before, "the SA was not replaced")
    })?;
    let summary = flow.stop()?;
    ensure(
        testbed.strongswan_logged("collision"),
        "strongSwan's log shows no collision: the case is not valid",
    )?;
    testbed.traffic(Family::V4)?;
    Ok(summary)
}

pub(super) fn rekey_by_time(testbed: &mut Testbed, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(testbed)?;
    let before = spis(testbed, target)?;
    let flow = testbed.start_flow(side)?;
    testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
        testbed.compare_sas()?;
        ensure(spis(testbed, target)? != before, "the SA was not replaced")
    })?;
    let summary = testbed.stop_flows(vec![flow], 1)?;
    testbed.traffic(Family::V4)?;
    Ok(summary)
}

pub(super) fn delete(testbed: &mut Testbed, side: Side, target: Target<'_>) -> Result<String> {
    establish_and_talk(testbed)?;
    testbed.peer(side).terminate(target).map_err(Error::context(side.name()))?;
    match target {
        Target::Ike(_) => testbed.expect_no_sas()?,
        Target::Child(_) => testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
            let left = testbed.compare_sas()?;
            ensure(left.children.is_empty(), "the Child SA still exists")
        })?,
    }
    establish_and_talk(testbed)
}

fn detect_dead_peer(testbed: &mut Testbed, side: Side) -> Result<String> {
    establish_and_talk(testbed)?;
    testbed.path.cut()?;
    let dpd_timeout = testbed.peer(side).dpd_timeout();
    testbed.wait_until(dpd_timeout, |testbed| {
        let gone = testbed.peer(side).status()?.is_empty();
        ensure(gone, "the SA with the dead peer still exists")
    })?;
    testbed.path.restore()?;
    // The other side may not have noticed the loss of the SA. It must accept the new SA nevertheless.
    testbed.peer(side).initiate(Target::Child(CHILD)).map_err(Error::context(side.name()))?;
    testbed.traffic(Family::V4)
}

/// Loads a configuration with an additional child. Existing SAs must stay unchanged.
fn reload(testbed: &mut Testbed) -> Result<String> {
    establish_and_talk(testbed)?;
    let before = spis(testbed, Target::Child(CHILD))?;
    let flow = testbed.start_flow(Side::Left)?;
    testbed.plan.second_child();
    testbed.reload()?;
    testbed.initiate(Target::Child(SECOND_CHILD))?;
    testbed.wait_for_same_sas()?;
    ensure(spis(testbed, Target::Child(CHILD))? == before, "the reload replaced a Child SA")?;
    flow.stop()?;
    testbed.traffic_between(&Side::Left.second(), &Side::Right.second())?;
    testbed.traffic(Family::V4)
}

/// Name, and which message in each group of how many is lost. A lost request is sent again and answered:
/// three messages. A lost response makes four messages: request, response, the same request, the same
/// response.
const LOSSES: &[(&str, u32, u32)] = &[("requests", 0, 3), ("responses", 1, 4)];

fn add_loss(cases: &mut Vec<Case>, initiator: Side) {
    for &(name, index, count) in LOSSES {
        let mut plan = Plan::new(initiator);
        Side::BOTH.into_iter().for_each(|side| retransmit_quickly(&mut plan, side));
        let script = move |testbed: &mut Testbed| establish_with_loss(testbed, index, count);
        cases.push(Case::new(&format!("loss/{name}"), plan, script));
    }
}

fn establish_with_loss(testbed: &mut Testbed, index: u32, count: u32) -> Result<String> {
    testbed.path.drop_ike(index, count)?;
    testbed.establish()?;
    // The initiator has no SA until the last response arrives. A device does not report when it has the SA.
    let summary = testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.traffic(Family::V4))?;
    replace(testbed, testbed.initiator(), Target::Child(CHILD))?;
    // Until the deletion of the old SA arrives, one side still uses the old SA, and not all counters
    // increase.
    testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.traffic(Family::V4))?;
    testbed.peer(testbed.plan.responder()).terminate(Target::Child(CHILD))?;
    testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
        let left = testbed.compare_sas()?;
        ensure(left.children.is_empty(), "the Child SA still exists")
    })?;
    // strongSwan sent a request again, or answered a repeated request.
    let again = ["retransmit 1 of request", "received retransmit of request"];
    let was_lost = again.iter().any(|words| testbed.strongswan_logged(words));
    ensure(was_lost, "strongSwan retransmitted nothing: the case is not valid")?;
    Ok(summary)
}

/// Number of echo requests of both sides, before and after the replacement of the Child SA.
const REQUESTS: usize = 4 * 7;

fn add_keys(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("keys/wireshark", Plan::new(initiator), decrypt_capture));
}

pub(super) fn decrypt_capture(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    testbed.traffic(Family::V4)?;
    replace(testbed, testbed.initiator(), Target::Child(CHILD))?;
    testbed.traffic(Family::V4)?;
    let keys = testbed.peer(Side::Left).keys()?;
    let wire = testbed.wire()?;
    let inside = |filter: &str, field: &str| wireshark::decrypt(wire.file(), &keys, filter, field);
    let requests = inside("icmp.type == 8", "icmp.seq")?.len();
    let found = format!("Wireshark finds {requests} echo requests in the capture");
    ensure(requests == REQUESTS, &format!("{found}, expected {REQUESTS}"))?;
    // Both messages of IKE_AUTH contain the method of AUTH, encrypted.
    let methods = inside("isakmp.auth.method", "isakmp.auth.method")?;
    ensure(
        methods == ["2", "2"],
        &format!("Wireshark finds AUTH payloads with methods {methods:?}, expected two of 2"),
    )?;
    Ok(found)
}
