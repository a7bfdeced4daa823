//! Cases for several rounds of authentication (RFC 4739).

use super::auth::certify;
use super::eap::expect_refusal;
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::Side;
use crate::pki::{Credential, file_of};
use crate::plan::Plan;
use crate::testbed::Testbed;
use casemate_interop::Result;

/// Identity of the initiator in its second round.
const USER: &str = "user.test";
/// Identity of the responder in its second round.
const SECOND_GATEWAY: &str = "second.test";
const PASSWORD: &str = "\"a password of the two\"";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: Script| {
        cases.push(Case { runs_on: RunsOn::Casemate, ..Case::new(&format!("rounds/{name}"), plan, script) });
    };
    let mut plan = Plan::new(initiator);
    second_round(&mut plan, "psk");
    push("psk-psk", plan, talk_as_user);
    let mut plan = Plan::new(initiator);
    second_round(&mut plan, "eap-mschapv2");
    push("psk-eap", plan, talk_as_user);
    push("pubkey-eap", certified(initiator, "eap-mschapv2"), talk_as_user);
    let mut plan = certified(initiator, "eap-mschapv2");
    second_round(&mut plan, "eap-mschapv2");
    first_by_eap(&mut plan);
    push("eap-eap", plan, talk_as_user);
    push("pubkey-pubkey", two_certificates(initiator), talk_as_user);
    let mut plan = two_certificates(initiator);
    first_by_eap(&mut plan);
    push("eap-pubkey", plan, talk_as_user);
    // As an initiator with a pre-shared key, charon expects the last round of the responder at once.
    let mut plan = Plan::new(initiator);
    certify(&mut plan, ["ecdsa256"; 2], "ca-ecdsa");
    second_round_of(&mut plan, initiator.other(), "psk", SECOND_GATEWAY);
    push("responder", plan, establish_and_talk);
    for (name, method) in [("both", "psk"), ("both-eap", "eap-mschapv2")] {
        let mut plan = certified(initiator, method);
        second_round_of(&mut plan, initiator.other(), "psk", SECOND_GATEWAY);
        push(name, plan, talk_as_user);
    }
    push("order", reordered(initiator), talk_as_user);
    refusals(&mut push, initiator);
}

type Script = fn(&mut Testbed) -> Result<String>;

fn refusals(push: &mut dyn FnMut(&str, Plan, Script), initiator: Side) {
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.on(initiator, "secrets.eap-t.secret", "\"another password\"");
    push("refused/password", plan, expect_refusal);
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.without(initiator, "connections.t.local-2");
    push("refused/one-round", plan, expect_refusal);
    let mut plan = Plan::new(initiator);
    second_round(&mut plan, "psk");
    plan.connection_of(initiator, "local-3.auth", "psk");
    plan.connection_of(initiator, "local-3.id", "third.test");
    push("refused/three-rounds", plan, expect_refusal);
    let mut plan = Plan::new(initiator);
    second_round(&mut plan, "psk");
    plan.connection_of(initiator, "local-2.id", "mallory.test");
    push("refused/identity", plan, expect_refusal);
    let mut plan = Plan::new(initiator);
    second_round(&mut plan, "psk");
    plan.connection_of(initiator, "local.round", "2");
    plan.connection_of(initiator, "local-2.round", "1");
    push("refused/order", plan, expect_refusal);
    let mut plan = certified(initiator, "psk");
    second_round_of(&mut plan, initiator.other(), "psk", SECOND_GATEWAY);
    plan.without(initiator.other(), "connections.t.local-2");
    push("refused/responder", plan, expect_refusal);
}

/// Sets up the child and sends traffic, with the identity of the second round.
fn talk_as_user(testbed: &mut Testbed) -> Result<String> {
    let summary = establish_and_talk(testbed)?;
    let words = match testbed.initiator() {
        Side::Left => format!("authentication of '{USER}' with"),
        Side::Right => format!("authentication of '{USER}' (myself) with"),
    };
    ensure(testbed.strongswan_logged(&words), "strongSwan has not logged the second round")?;
    Ok(summary)
}

/// The initiator has a second round with this method.
fn second_round(plan: &mut Plan, method: &str) {
    let initiator = plan.initiator;
    second_round_of(plan, initiator, method, USER);
    if method.starts_with("eap") {
        plan.both("secrets.eap-t.id", USER);
        plan.both("secrets.eap-t.secret", PASSWORD);
    }
}

fn second_round_of(plan: &mut Plan, side: Side, method: &str, id: &str) {
    if method == "psk" {
        plan.both("secrets.ike-t.secret", "\"a secret of the two\"");
    }
    for (whose, which) in [(side, "local-2"), (side.other(), "remote-2")] {
        plan.connection_of(whose, &format!("{which}.auth"), method);
        plan.connection_of(whose, &format!("{which}.id"), id);
    }
}

/// Both sides have certificates, then the initiator has a round with this method.
fn certified(initiator: Side, method: &str) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, ["ecdsa256"; 2], "ca-ecdsa");
    second_round(&mut plan, method);
    plan
}

/// The first round of the initiator is EAP instead.
fn first_by_eap(plan: &mut Plan) {
    let (initiator, responder) = (plan.initiator, plan.responder());
    plan.without(initiator, "connections.t.local.certs");
    plan.without(responder, "connections.t.remote.cacerts");
    plan.connection_of(initiator, "local.auth", "eap-mschapv2");
    plan.connection_of(responder, "remote.auth", "eap-mschapv2");
    plan.both("secrets.eap-first.id", initiator.id());
    plan.both("secrets.eap-first.secret", "\"the password of the first round\"");
}

/// The initiator has certificates of two authorities: one with its name, then one without the user's, so its
/// second identity is the subject.
fn two_certificates(initiator: Side) -> Plan {
    let mut plan = certified(initiator, "pubkey");
    let responder = plan.responder();
    plan.credential(initiator, Credential::Own("user", initiator));
    plan.connection_of(initiator, "local-2.certs", &file_of("user", initiator));
    plan.credential(responder, Credential::Authority("ca-rsa"));
    plan.connection_of(responder, "remote-2.cacerts", "ca-rsa.pem");
    plan.connection_of(responder, "remote.cacerts", "ca-ecdsa.pem");
    plan
}

/// The sections are in another order than their rounds.
fn reordered(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    second_round_of(&mut plan, initiator, "psk", initiator.id());
    for (side, which) in [(initiator, "local"), (initiator.other(), "remote")] {
        plan.connection_of(side, &format!("{which}.id"), USER);
        plan.connection_of(side, &format!("{which}.round"), "2");
        plan.connection_of(side, &format!("{which}-2.round"), "1");
    }
    plan
}
