//! Cases for EAP methods with TLS.

use super::auth::{certificates, certified, chain};
use super::eap::{certified as with_password, expect_refusal};
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::Side;
use crate::pki::Credential;
use crate::plan::{CONNECTION, Plan};
use crate::testbed::Testbed;
use casemate_interop::Result;

/// An identity that no certificate contains.
const STRANGER: &str = "stranger.test";
/// The reasons of Casemate and strongSwan to refuse a certificate on a CRL.
const REVOKED: [&str; 2] = ["the certificate is revoked", "certificate was revoked"];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let responder = initiator.other();
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        cases.push(Case { runs_on: RunsOn::Casemate, ..Case::new(&format!("eap/tls/{name}"), plan, script) });
    };
    for (name, authority) in [("ecdsa256", "ca-ecdsa"), ("rsa3072", "ca-rsa"), ("ed25519", "ca-ed25519")] {
        push(name, with_tls(certified(initiator, [name; 2], authority)), establish_and_talk);
    }
    push("chain", with_tls(chain(initiator, "large", "sub-large", "ca-large")), establish_and_talk);
    let mut plan = with_ecdsa(initiator);
    plan.connection_of(initiator, "local.eap_id", initiator.id());
    plan.connection_of(responder, "remote.eap_id", "%any");
    push("identity", plan, establish_and_talk);
    let mut plan = with_ecdsa(initiator);
    plan.connection_of(initiator, "local.aaa_id", responder.id());
    push("aaa-id", plan, establish_and_talk);
    push("eap-only", eap_only(certified(initiator, ["ecdsa256"; 2], "ca-ecdsa")), establish_and_talk);
    push("subjects", with_subjects(with_ecdsa(initiator)), establish_and_talk);
    let plan = eap_only(certified(initiator, ["ecdsa256"; 2], "ca-ecdsa"));
    push("eap-only-subjects", with_subjects(plan), establish_and_talk);

    add_refusals(cases, initiator);
    add_ttls(cases, initiator);
}

/// Certificates that the other side of TLS refuses, with the reasons that Casemate and strongSwan log.
fn add_refusals(cases: &mut Vec<Case>, initiator: Side) {
    let responder = initiator.other();
    let mut push = |name: &str, plan, verifier: Side, reasons: [&'static str; 2]| {
        let [ours, theirs] = reasons;
        let reason = if verifier == Side::Left { ours } else { theirs };
        let script = move |testbed: &mut Testbed| expect_logged_refusal(testbed, verifier, reason);
        let case = Case::new(&format!("eap/tls/refused/{name}"), plan, script);
        cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    };
    let mut plan = with_ecdsa(initiator);
    plan.connection_of(initiator, "local.aaa_id", STRANGER);
    let reasons = [
        "TLS certificate of stranger.test: it does not",
        "server certificate does not match to 'stranger.test'",
    ];
    push("aaa-id", plan, initiator, reasons);
    let mut plan = with_tls(certified(initiator, certificates(initiator, "revoked", "ecdsa256"), "ca-ecdsa"));
    plan.credential(responder, Credential::Crl("ca-ecdsa"));
    push("revoked", plan, responder, REVOKED);
    let mut plan = with_tls(certified(initiator, certificates(initiator, "rsa2048", "ecdsa256"), "ca-ecdsa"));
    plan.credential(initiator, Credential::Authority("ca-rsa"));
    push("authority", plan, responder, ["no path to a trusted root", "no issuer certificate found"]);
    // charon's client sends no certificate in this case.
    let mut plan = with_ecdsa(initiator);
    plan.connection_of(initiator, "local.eap_id", STRANGER);
    plan.connection_of(responder, "remote.eap_id", "%any");
    let reasons =
        ["the other side of TLS is missing or refused", "found for 'stranger.test' to verify TLS peer"];
    push("identity", plan, responder, reasons);
    let mut plan = eap_only(certified(initiator, certificates(responder, "revoked", "ecdsa256"), "ca-ecdsa"));
    plan.credential(initiator, Credential::Crl("ca-ecdsa"));
    push("eap-only-revoked", plan, initiator, REVOKED);
}

fn expect_logged_refusal(testbed: &mut Testbed, verifier: Side, reason: &str) -> Result<String> {
    let refusal = expect_refusal(testbed)?;
    let [left, right] = testbed.logs();
    let log = if verifier == Side::Left { left } else { right };
    ensure(
        log.contains(reason),
        &format!("the log of the {} side does not contain `{reason}`", verifier.name()),
    )?;
    Ok(refusal)
}

/// charon's server uses one method in the tunnel, by default MD5. Its client uses what the server requests.
fn add_ttls(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        cases
            .push(Case { runs_on: RunsOn::Casemate, ..Case::new(&format!("eap/ttls/{name}"), plan, script) });
    };
    let ttls = || with_password(initiator, "eap-ttls");
    push("any-method", ttls(), establish_and_talk);
    let mschapv2 = || {
        let mut plan = ttls();
        for side in Side::BOTH {
            plan.daemon(side, "plugins.eap-ttls.phase2_method", "mschapv2");
        }
        plan
    };
    push("mschapv2", mschapv2(), establish_and_talk);
    let mut plan = mschapv2();
    for side in Side::BOTH {
        plan.connection_of(side, "local.auth", "eap-ttls");
        plan.connection_of(side, "remote.auth", "eap-ttls");
    }
    push("eap-only", plan, establish_and_talk);
    let mut plan = mschapv2();
    plan.connection_of(initiator, "remote.auth", "eap-ttls");
    plan.connection_of(initiator, "local.auth", "eap");
    plan.connection_of(initiator.other(), "local.auth", "eap-ttls");
    push("eap-only-any-method", plan, establish_and_talk);
    let mut plan = mschapv2();
    plan.on(initiator, "secrets.eap-t.secret", "\"another password\"");
    push("refused/password", plan, expect_refusal);
    let mut plan = mschapv2();
    plan.connection_of(initiator, "local.aaa_id", STRANGER);
    push("refused/aaa-id", plan, expect_refusal);
}

fn with_ecdsa(initiator: Side) -> Plan {
    with_tls(certified(initiator, ["ecdsa256"; 2], "ca-ecdsa"))
}

/// The initiator authenticates itself by EAP-TLS, the responder also by a signature in IKE.
fn with_tls(mut plan: Plan) -> Plan {
    plan.connection_of(plan.initiator, "local.auth", "eap-tls");
    plan.connection_of(plan.responder(), "remote.auth", "eap-tls");
    plan
}

/// Each side is known by the subject of its certificate, because no identity is configured.
fn with_subjects(mut plan: Plan) -> Plan {
    for side in Side::BOTH {
        for which in ["local", "remote"] {
            plan.without(side, &format!("connections.{CONNECTION}.{which}.id"));
        }
    }
    plan
}

/// Both sides authenticate themselves by EAP-TLS alone (RFC 5998).
fn eap_only(mut plan: Plan) -> Plan {
    for side in Side::BOTH {
        plan.connection_of(side, "local.auth", "eap-tls");
        plan.connection_of(side, "remote.auth", "eap-tls");
    }
    plan
}
