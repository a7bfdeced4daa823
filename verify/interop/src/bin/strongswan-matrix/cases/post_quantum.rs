//! Additional key exchanges and ML-KEM with strongSwan 6 (RFC 9242, RFC 9370,
//! draft-ietf-ipsecme-ikev2-mlkem): establishment, rekeying by either side and by both at once, loss, NAT,
//! fragments, and what happens if only one side has them.

use super::addresses::hide_initiator;
use super::rekey::{
    rekey_at_once, rekey_under_traffic, replace, retransmit_after_a_second, retransmit_quickly,
};
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::{Family, Side, Target};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use casemate_interop::Result;

/// Proposals of the IKE SA, and how strongSwan's log names their key exchanges.
const EXCHANGES: [(&str, &str, &str); 4] = [
    ("x25519-mlkem768", "x25519-ke1_mlkem768", "/CURVE_25519/KE1_ML_KEM_768"),
    ("ecp384-mlkem1024", "ecp384-ke1_mlkem1024", "/ECP_384/KE1_ML_KEM_1024"),
    ("three", "x25519-ke1_mlkem768-ke2_ecp384", "/CURVE_25519/KE1_ML_KEM_768/KE2_ECP_384"),
    ("mlkem512-first", "mlkem512", "/ML_KEM_512"),
];

const HYBRID: &str = "x25519-ke1_mlkem768";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut all = Vec::new();
    for (name, kexes, logged) in EXCHANGES {
        let script = move |testbed: &mut Testbed| exchange_keys(testbed, logged);
        all.push(Case::new(name, plan(initiator, kexes, kexes), script));
    }
    add_rekeyings(&mut all, initiator);
    add_paths(&mut all, initiator);
    add_one_sided(&mut all, initiator);
    add_defaults(&mut all, initiator);
    // Every strongSwan has classical key exchanges.
    let classical = ["classical-peer", "required-not-peer", "default-with-default"];
    let needs_ml_kem = |case: &Case| !classical.contains(&name_of(case));
    cases.extend(all.into_iter().map(|case| Case {
        name: format!("post-quantum/{}", case.name),
        runs_on: RunsOn::Casemate,
        needs_ml_kem: needs_ml_kem(&case),
        ..case
    }));
}

/// Name of a case without the role.
fn name_of(case: &Case) -> &str {
    case.name.split('/').next().unwrap_or_default()
}

/// Plan with these key exchanges of the two sides.
fn plan(initiator: Side, left: &str, right: &str) -> Plan {
    let mut plan = Plan::new(initiator);
    for (side, kexes) in [(Side::Left, left), (Side::Right, right)] {
        plan.connection_of(side, "proposals", &format!("aes128-sha256-{kexes}"));
        plan.child_of(side, "esp_proposals", &format!("aes128gcm16-{kexes}"));
    }
    plan
}

/// Sets up the SAs with these key exchanges, and replaces both.
fn exchange_keys(testbed: &mut Testbed, logged: &str) -> Result<String> {
    let summary = establish_and_talk(testbed)?;
    ensure(testbed.strongswan_logged(logged), &format!("strongSwan's log does not name {logged}"))?;
    for target in [Target::Child(CHILD), Target::Ike(CONNECTION)] {
        replace(testbed, testbed.initiator(), target)?;
        testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.traffic(Family::V4))?;
    }
    Ok(summary)
}

fn add_rekeyings(cases: &mut Vec<Case>, initiator: Side) {
    for (name, target) in [("child", Target::Child(CHILD)), ("ike", Target::Ike(CONNECTION))] {
        for side in Side::BOTH {
            let by = if side == Side::Left { "by-us" } else { "by-peer" };
            let script = move |testbed: &mut Testbed| rekey_under_traffic(testbed, side, target);
            cases.push(Case::new(&format!("rekey-{name}/{by}"), plan(initiator, HYBRID, HYBRID), script));
        }
        let mut both = plan(initiator, HYBRID, HYBRID);
        Side::BOTH.into_iter().for_each(|side| retransmit_after_a_second(&mut both, side));
        let script = move |testbed: &mut Testbed| rekey_at_once(testbed, target);
        cases.push(Case::new(&format!("rekey-{name}/by-both"), both, script));
    }
}

fn add_paths(cases: &mut Vec<Case>, initiator: Side) {
    // Each tenth message is lost, the third or the eighth of ten.
    for index in [2, 7] {
        let mut plan = plan(initiator, HYBRID, HYBRID);
        Side::BOTH.into_iter().for_each(|side| retransmit_quickly(&mut plan, side));
        let script = move |testbed: &mut Testbed| {
            testbed.path.drop_ike(index, 10)?;
            exchange_keys(testbed, "KE1_ML_KEM_768")
        };
        cases.push(Case::new(&format!("loss-{index}"), plan, script));
    }
    let mut hidden = plan(initiator, HYBRID, HYBRID);
    hide_initiator(&mut hidden);
    hidden.connection_of(initiator.other(), "remote_addrs", "%any");
    cases.push(Case::new("nat", hidden, |testbed| exchange_keys(testbed, "KE1_ML_KEM_768")));
    let mut small = plan(initiator, HYBRID, HYBRID);
    Side::BOTH.into_iter().for_each(|side| small.daemon(side, "fragment_size", "576"));
    cases.push(Case::new("fragments", small, |testbed| {
        testbed.path.drop_fragments()?;
        exchange_keys(testbed, "KE1_ML_KEM_768")
    }));
}

/// One side has classical key exchanges only.
fn add_one_sided(cases: &mut Vec<Case>, initiator: Side) {
    let choice = "x25519-ke1_mlkem768,aes128-sha256-x25519";
    for side in Side::BOTH {
        let whose = if side == Side::Left { "us" } else { "peer" };
        let kexes = |offer: &str| -> [String; 2] {
            let of = |own: Side| if own == side { "x25519".to_owned() } else { offer.to_owned() };
            [of(Side::Left), of(Side::Right)]
        };
        let [left, right] = kexes(choice);
        let mut fallback = Plan::new(initiator);
        for (own, kexes) in [(Side::Left, left), (Side::Right, right)] {
            fallback.connection_of(own, "proposals", &format!("aes128-sha256-{kexes}"));
        }
        cases.push(Case::new(&format!("classical-{whose}"), fallback, establish_and_talk));
        let [left, right] = kexes(HYBRID);
        let required = plan(initiator, &left, &right);
        cases.push(Case::new(&format!("required-not-{whose}"), required, |testbed| {
            let refused = testbed.initiate(Target::Child(CHILD)).is_err();
            ensure(refused, "the SA was set up without ML-KEM, which one side requires")?;
            testbed.expect_no_sas()?;
            Ok("refused".into())
        }));
    }
}

/// Casemate has its default proposals. strongSwan has its own defaults, or requires ML-KEM.
fn add_defaults(cases: &mut Vec<Case>, initiator: Side) {
    for (name, theirs, logged) in [
        ("default-with-default", "default", ""),
        ("default-with-mlkem768", "aes128gcm16-prfsha256-x25519-ke1_mlkem768", "KE1_ML_KEM_768"),
        ("default-with-mlkem1024", "aes256-sha384-ecp384-ke1_mlkem1024", "KE1_ML_KEM_1024"),
    ] {
        let mut plan = Plan::new(initiator);
        plan.connection_of(Side::Left, "proposals", "default");
        plan.connection_of(Side::Right, "proposals", theirs);
        cases.push(Case::new(name, plan, move |testbed| exchange_keys(testbed, logged)));
    }
}
