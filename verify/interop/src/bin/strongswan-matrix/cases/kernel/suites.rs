//! Algorithms of ESP and AH, and extended sequence numbers.

use super::{Form, TRANSPORT, TUNNEL, case};
use crate::cases::{Case, establish_and_talk};
use crate::plan::Plan;
use crate::side::Side;

/// Proposals of ESP in strongSwan's words, one for each way in which ciphers and integrity algorithms are put together. The
/// others are negotiated in the same way, and the kernel matrix runs all of them.
const ESP: &[&str] = &[
    "aes128-sha1",
    "aes256-sha512",
    "aes128-aesxcbc",
    "aes128-aescmac",
    "aes256ctr-sha384",
    "aes128ccm12",
    "chacha20poly1305",
    "null-sha256",
    "aes128gmac",
];
const AH: &[&str] = &["sha1", "sha256", "sha512", "aescmac"];
/// With extended sequence numbers.
const ESN: &[&str] = &["aes128gcm16", "aes128-sha256", "chacha20poly1305"];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for proposal in ESP {
        let mut plan = Plan::transport(initiator);
        plan.child("esp_proposals", proposal);
        let case = case(&format!("esp/{proposal}"), plan, TRANSPORT, establish_and_talk);
        let is_encrypted = !proposal.starts_with("null") && !proposal.ends_with("gmac");
        cases.push(Case { is_encrypted, ..case });
    }
    authentication_header(cases, initiator);
    for proposal in ESN {
        for form in [TUNNEL, TRANSPORT] {
            let mut plan = of(form, initiator);
            plan.child("esp_proposals", &format!("{proposal}-esn"));
            cases.push(case(
                &format!("esn/{proposal}/{}", form.mode),
                plan,
                extended(form),
                establish_and_talk,
            ));
        }
    }
    // RFC 7296 section 3.3.2: the responder takes one of what was offered.
    for (name, offered, taken, esn) in [
        ("taken", "aes128gcm16-noesn-esn", "aes128gcm16-esn", true),
        ("declined", "aes128gcm16-esn-noesn", "aes128gcm16-noesn", false),
    ] {
        let mut plan = Plan::new(initiator);
        plan.child_of(initiator, "esp_proposals", offered);
        plan.child_of(plan.responder(), "esp_proposals", taken);
        cases.push(case(&format!("esn/{name}"), plan, Form { esn, ..TUNNEL }, establish_and_talk));
    }
}

fn authentication_header(cases: &mut Vec<Case>, initiator: Side) {
    for proposal in AH {
        push_ah(cases, initiator, proposal, TRANSPORT);
    }
    push_ah(cases, initiator, "sha256", TUNNEL);
    push_ah(cases, initiator, "sha256-esn", extended(TUNNEL));
    push_ah(cases, initiator, "sha256-esn", extended(TRANSPORT));
}

fn push_ah(cases: &mut Vec<Case>, initiator: Side, proposal: &str, form: Form) {
    let mut plan = of(form, initiator);
    for side in Side::BOTH {
        plan.without(side, "connections.t.children.c.esp_proposals");
    }
    plan.child("ah_proposals", proposal);
    cases.push(case(
        &format!("ah/{proposal}/{}", form.mode),
        plan,
        Form { protocol: "ah", ..form },
        establish_and_talk,
    ));
}

fn extended(form: Form) -> Form {
    Form { esn: true, ..form }
}

fn of(form: Form, initiator: Side) -> Plan {
    if form.mode == TRANSPORT.mode { Plan::transport(initiator) } else { Plan::new(initiator) }
}
