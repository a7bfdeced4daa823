//! Cases for initiators that authenticate themselves by EAP.

use super::auth::certify;
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::{Side, Target};
use crate::plan::{CHILD, Plan};
use crate::testbed::Testbed;
use casemate_interop::{Error, Result};

const PASSWORD: &str = "\"a password of the two\"";
/// EAP identity that differs from the identity of every ID payload.
const EAP_ID: &str = "carol";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        cases.push(Case { runs_on: RunsOn::Casemate, ..Case::new(&format!("eap/{name}"), plan, script) });
    };
    push("mschapv2", certified(initiator, "eap-mschapv2"), establish_and_talk);
    push("any-method", certified(initiator, "eap"), establish_and_talk);
    push("md5", certified(initiator, "eap-md5"), establish_and_talk);
    if initiator == Side::Right {
        // charon verifies passwords of GTC with PAM only.
        push("gtc", certified(initiator, "eap-gtc"), establish_and_talk);
    }
    let mut plan = Plan::new(initiator);
    use_eap(&mut plan, "eap-mschapv2");
    push("responder-with-shared-key", plan, establish_and_talk);
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.connection_of(initiator, "local.eap_id", EAP_ID);
    plan.connection_of(initiator.other(), "remote.eap_id", "%any");
    plan.both("secrets.eap-t.id", EAP_ID);
    push("identity", plan, |testbed| {
        let summary = establish_and_talk(testbed)?;
        ensure(
            testbed.strongswan_logged(&format!("'{EAP_ID}'")),
            "strongSwan has not logged the EAP identity",
        )?;
        Ok(summary)
    });
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.on(initiator, "secrets.eap-t.secret", "\"another password\"");
    push("refused/password", plan, expect_refusal);
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.on(initiator.other(), "secrets.eap-t.id", "mallory");
    push("refused/identity", plan, expect_refusal);
    let mut plan = certified(initiator, "eap-mschapv2");
    plan.connection_of(initiator, "local.auth", "eap-md5");
    push("refused/method", plan, expect_refusal);
}

/// The responder has a certificate, the initiator a password.
pub(super) fn certified(initiator: Side, method: &str) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, ["ecdsa256"; 2], "ca-ecdsa");
    use_eap(&mut plan, method);
    plan
}

fn use_eap(plan: &mut Plan, method: &str) {
    let (initiator, responder) = (plan.initiator, plan.responder());
    plan.without(initiator, "connections.t.local.certs");
    plan.connection_of(initiator, "local.auth", method);
    plan.connection_of(responder, "remote.auth", if method == "eap" { "eap-mschapv2" } else { method });
    plan.both("secrets.eap-t.id", initiator.id());
    plan.both("secrets.eap-t.secret", PASSWORD);
}

pub(super) fn expect_refusal(testbed: &mut Testbed) -> Result<String> {
    let refusal = match testbed.initiate(Target::Child(CHILD)) {
        Err(refusal) => refusal.to_string(),
        Ok(()) => return Err(Error::new("the initiator set up the SA, expected a refusal")),
    };
    testbed.expect_no_sas()?;
    Ok(refusal)
}
