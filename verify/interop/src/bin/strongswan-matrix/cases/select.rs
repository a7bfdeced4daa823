//! Cases with several connections from which the responder selects one, as in strongSwan's scenarios
//! rw-psk-rsa-mixed, rw-sig-auth and ikev2-multi-ca; constraints on certificate chains; distinguished names
//! with other string types than in the configuration.
//!
//! Connection `s` precedes the connection of every case. It accepts every peer from every address, but
//! requires another authentication than the peer of the case uses.

use super::auth::{certified, certify};
use super::{Case, establish_and_talk};
use crate::peer::Side;
use crate::pki::{Credential, file_of, utf8_subject};
use crate::plan::{CONNECTION, Plan};

const OTHER: &str = "s";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push =
        |name: &str, plan| cases.push(Case::new(&format!("select/{name}"), plan, establish_and_talk));

    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    with_other(&mut plan, &[("local.auth", "psk"), ("remote.auth", "psk")]);
    push("certificate-behind-psk", plan);

    let mut plan = Plan::new(initiator);
    let mut own = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    certify_responder(&mut plan);
    with_other(&mut plan, &[("local.auth", "pubkey"), ("remote.auth", "pubkey")]);
    push("psk-behind-certificate", plan);

    own.connection_of(initiator, "local.auth", "ike:pubkey-sha384");
    own.connection_of(own.responder(), "remote.auth", "ike:pubkey-sha384");
    with_other(&mut own, &[("local.auth", "pubkey"), ("remote.auth", "ike:pubkey-sha512")]);
    push("signature", own);

    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    let responder = plan.responder();
    plan.credential(responder, Credential::Authority("ca-rsa"));
    plan.connection_of(responder, "remote.cacerts", "ca-ecdsa.pem");
    with_other(
        &mut plan,
        &[("local.auth", "pubkey"), ("remote.auth", "pubkey"), ("remote.cacerts", "ca-rsa.pem")],
    );
    push("authority", plan);

    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    plan.connection_of(plan.responder(), "remote.auth", "ecdsa-256-sha384-ike:ecdsa-sha256");
    with_other(&mut plan, &[("local.auth", "pubkey"), ("remote.auth", "rsa-2048")]);
    push("chain", plan);

    let mut push =
        |name: &str, plan| cases.push(Case::new(&format!("auth/{name}"), plan, establish_and_talk));
    push("utf8-names", utf8_names(initiator));
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    Side::BOTH.into_iter().for_each(|side| {
        plan.connection_of(side, "remote.auth", "rsa-4096-ecdsa-256-sha384-ike:ecdsa-sha256-sha384");
    });
    push("chain-as-asked-for", plan);
}

/// Gives the responder the certificate that its other connection uses.
fn certify_responder(plan: &mut Plan) {
    let responder = plan.responder();
    plan.credential(responder, Credential::Own("ecdsa256", responder));
    plan.credential(responder, Credential::Authority("ca-ecdsa"));
}

/// Adds a connection for every peer to the responder, first in the file.
fn with_other(plan: &mut Plan, settings: &[(&str, &str)]) {
    let responder = plan.responder();
    let mut other = plan.side(responder).conf.section(&format!("connections.{CONNECTION}"));
    other.remove("remote");
    other.remove("local.certs");
    other.set("remote_addrs", "%any");
    settings.iter().for_each(|(path, value)| other.set(path, value));
    if other.get("local.auth") == "pubkey" {
        other.set("local.certs", &file_of("ecdsa256", responder));
    }
    plan.put(responder, &format!("connections.{OTHER}"), other);
    // The authentication of the peer selects the connection: neither connection has the identity of the
    // peer.
    plan.without(responder, &format!("connections.{CONNECTION}.remote.id"));
    plan.connection_of(responder, "remote_addrs", "%any");
}

/// Plan in which both sides use the subjects of their certificates, encoded in UTF8Strings, as identities.
/// strongSwan sends the subject as encoded in its certificate. Both configurations encode the subjects in
/// PrintableStrings, as strongSwan does.
fn utf8_names(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, ["utf8"; 2], "ca-utf8");
    for side in Side::BOTH {
        plan.connection_of(
            side,
            "remote.id",
            &format!("\"{}\"", utf8_subject(&file_of("utf8", side.other()))),
        );
    }
    plan.connection_of(Side::Left, "remote.ca_id", &format!("\"{}\"", utf8_subject("ca-utf8.pem")));
    plan.connection_of(
        Side::Left,
        "local.id",
        &format!("\"{}\"", utf8_subject(&file_of("utf8", Side::Left))),
    );
    plan.without(Side::Right, &format!("connections.{CONNECTION}.local.id"));
    plan
}
