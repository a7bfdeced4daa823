//! Post-quantum pre-shared keys (RFC 8784) with strongSwan: used by both sides, missing, unknown, wrong, and
//! required by one side only.

use super::auth::certify;
use super::eap::{certified, expect_refusal};
use super::rekey::replace;
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::{Family, Side, Target};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use casemate_interop::Result;

const ID: &str = "ppk-of-both@t.test";
const SECRET: &str = "0x98c61dd0f8c7daf07759617546f7b3ae156f19a7bc935c61523c7ca998e5eedb";
const OTHER: &str = "0x06918e49398db61094438a5be8b743894f155f4e8521e6bcd1d47690557e4b13";
/// How strongSwan's log says that the keys depend on a PPK.
pub(super) const USED: &str = "using PPK for PPK_ID";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let responder = initiator.other();
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        // Devices have no EAP.
        let runs_on = if name.contains("eap") { RunsOn::Casemate } else { RunsOn::All };
        cases.push(Case { runs_on, ..Case::new(&format!("ppk/{name}"), plan, script) });
    };
    push("shared-key", with_ppk(Plan::new(initiator)), use_ppk);
    push("certificates", with_certificates(initiator), use_ppk);
    push("eap", with_ppk(certified(initiator, "eap-mschapv2")), use_ppk);
    // Without a key of the method, the AUTH payloads depend on SK_pi and SK_pr alone.
    push("eap-md5", with_ppk(certified(initiator, "eap-md5")), use_ppk);
    let mut plan = with_ppk(Plan::new(initiator));
    plan.connection("ppk_required", "yes");
    push("required", plan.clone(), use_ppk);
    plan.connection_of(responder, "ppk_id", "*@t.test");
    push("suffix", plan, use_ppk);
    let mut plan = with_ppk(certified(initiator, "eap-mschapv2"));
    plan.connection("ppk_required", "yes");
    push("eap-required", plan, use_ppk);

    push("unknown/optional", unknown(initiator), go_without);
    let mut plan = unknown(initiator);
    plan.connection_of(initiator, "ppk_required", "yes");
    push("unknown/initiator-requires", plan, expect_refusal);
    let mut plan = unknown(initiator);
    plan.connection_of(responder, "ppk_required", "yes");
    push("unknown/responder-requires", plan, expect_refusal);
    let mut plan = with_certificates(initiator);
    plan.on(responder, "secrets.ppk-t.id", "ppk-of-another@t.test");
    push("unknown/certificates", plan, go_without);
    let mut plan = with_ppk(certified(initiator, "eap-mschapv2"));
    plan.on(responder, "secrets.ppk-t.id", "ppk-of-another@t.test");
    push("unknown/eap", plan, go_without);

    let without = |side: Side| {
        let mut plan = with_ppk(Plan::new(initiator));
        plan.without(side, "secrets.ppk-t");
        plan.without(side, "connections.t.ppk_id");
        plan
    };
    for (side, whose) in [(initiator, "initiator"), (responder, "responder")] {
        push(&format!("none-of-{whose}/optional"), without(side), go_without);
        let mut plan = without(side);
        plan.connection_of(side.other(), "ppk_required", "yes");
        push(&format!("none-of-{whose}/required"), plan, expect_refusal);
    }

    let mut plan = with_ppk(Plan::new(initiator));
    plan.on(responder, "secrets.ppk-t.secret", OTHER);
    push("wrong", plan, expect_refusal);
    let mut plan = with_ppk(Plan::new(initiator));
    plan.connection_of(responder, "ppk_id", "*@example.org");
    plan.connection_of(responder, "ppk_required", "yes");
    push("not-allowed", plan, expect_refusal);
}

/// Both sides have the same PPK, and require none.
fn with_ppk(mut plan: Plan) -> Plan {
    plan.both("secrets.ppk-t.id", ID);
    plan.both("secrets.ppk-t.secret", SECRET);
    plan.connection("ppk_id", ID);
    plan
}

fn with_certificates(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, ["ecdsa256"; 2], "ca-ecdsa");
    with_ppk(plan)
}

/// The responder has a PPK that the initiator does not name.
fn unknown(initiator: Side) -> Plan {
    let mut plan = with_ppk(Plan::new(initiator));
    let responder = initiator.other();
    plan.on(responder, "secrets.ppk-t.id", "ppk-of-another@t.test");
    plan
}

/// Sets up the SAs with the PPK, and replaces both.
fn use_ppk(testbed: &mut Testbed) -> Result<String> {
    let summary = establish_and_talk(testbed)?;
    ensure(testbed.strongswan_logged(USED), "strongSwan has not logged that it uses the PPK")?;
    for target in [Target::Child(CHILD), Target::Ike(CONNECTION)] {
        replace(testbed, testbed.initiator(), target)?;
        testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.traffic(Family::V4))?;
    }
    Ok(summary)
}

/// Sets up the SAs without a PPK.
fn go_without(testbed: &mut Testbed) -> Result<String> {
    let summary = establish_and_talk(testbed)?;
    ensure(!testbed.strongswan_logged(USED), "strongSwan has logged that it uses a PPK")?;
    Ok(summary)
}
