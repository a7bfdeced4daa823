//! Cases for authentication: all kinds of keys and certificates, and credentials that must be refused.

use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::Target;
use crate::peer::{Family, Side};
use crate::pki::{Credential, PASSPHRASE, POLICY, file_of};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::testbed::Testbed;
use casemate_interop::{Error, Result};

/// Kind of signature.
struct Signature {
    name: &'static str,
    certificate: &'static str,
    authority: &'static str,
    /// Value of `auth` in `swanctl.conf`.
    auth: &'static str,
    /// Start of the name in charon's log.
    scheme: &'static str,
}

const fn signature(
    name: &'static str,
    certificate: &'static str,
    authority: &'static str,
    auth: &'static str,
    scheme: &'static str,
) -> Signature {
    Signature { name, certificate, authority, auth, scheme }
}

/// Signatures as in RFC 7427, with RSA as in RFC 8017 and EdDSA as in RFC 8420.
const SIGNATURES: &[Signature] = &[
    signature("rsa2048-pkcs1", "rsa2048", "ca-rsa", "rsa-sha256", "RSA_EMSA_PKCS1_SHA2_256"),
    signature("rsa3072-pkcs1", "rsa3072", "ca-rsa", "rsa-sha512", "RSA_EMSA_PKCS1_SHA2_512"),
    signature("rsa2048-pss", "rsa2048", "ca-rsa", "rsa/pss-sha256", "RSA_EMSA_PSS_SHA2_256"),
    signature("rsa3072-pss", "rsa3072", "ca-rsa", "rsa/pss-sha512", "RSA_EMSA_PSS_SHA2_512"),
    signature("rsa-any-pss", "rsa2048", "ca-rsa", "rsa", "RSA_EMSA_PSS_SHA2_256"),
    signature("ecdsa256", "ecdsa256", "ca-ecdsa", "ecdsa-sha256", "ECDSA_WITH_SHA256"),
    signature("ecdsa384", "ecdsa384", "ca-ecdsa", "ecdsa-sha384", "ECDSA_WITH_SHA384"),
    signature("ecdsa521", "ecdsa521", "ca-ecdsa", "ecdsa-sha512", "ECDSA_WITH_SHA512"),
    signature("ed25519", "ed25519", "ca-ed25519", "pubkey", "ED25519"),
];

/// Authentication methods older than RFC 7427: 9, 10 and 11. Method 1 is RSA with SHA-1, which RFC 8247
/// section 3.2 forbids.
const OLD_SIGNATURES: &[Signature] = &[
    signature("old-ecdsa256", "ecdsa256", "ca-ecdsa", "pubkey", "ECDSA-256 signature"),
    signature("old-ecdsa384", "ecdsa384", "ca-ecdsa", "pubkey", "ECDSA-384 signature"),
    signature("old-ecdsa521", "ecdsa521", "ca-ecdsa", "pubkey", "ECDSA-521 signature"),
];

/// Kinds of keys without certificates (RFC 7670).
const RAW_KEYS: [(&str, &str); 3] = [
    ("auth/raw-key-rsa", "rsa3072"),
    ("auth/raw-key-ecdsa", "ecdsa384"),
    ("auth/raw-key-ed25519", "ed25519"),
];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("auth/psk", Plan::new(initiator), establish_and_talk));
    for signature in SIGNATURES {
        let yes_or_no = if signature.name.ends_with("pss") { "yes" } else { "no" };
        cases.push(signed(initiator, signature, "rsa_pss", yes_or_no));
    }
    for signature in OLD_SIGNATURES {
        cases.push(signed(initiator, signature, "signature_authentication", "no"));
    }
    for (name, key) in RAW_KEYS {
        let mut plan = Plan::new(initiator);
        exchange_public_keys(&mut plan, key);
        cases.push(Case::new(name, plan, establish_and_talk));
    }
    for (name, key) in [("key-id", "ecdsa384"), ("key-id-rsa", "rsa3072"), ("key-id-ed25519", "ed25519")] {
        cases.push(Case {
            runs_on: RunsOn::Casemate,
            ..Case::new(&format!("auth/{name}"), without_ids(initiator, key), establish_and_talk)
        });
    }
    for (name, certificate, script) in [
        ("cert-policy", "policy", establish_and_talk as fn(&mut Testbed) -> Result<String>),
        ("refused/cert-policy", "other-policy", super::eap::expect_refusal),
    ] {
        let names = match initiator {
            Side::Left => [certificate, "policy"],
            Side::Right => ["policy", certificate],
        };
        let mut plan = certified(initiator, names, "ca-policy");
        plan.connection("remote.cert_policy", POLICY);
        cases.push(Case { runs_on: RunsOn::Casemate, ..Case::new(&format!("auth/{name}"), plan, script) });
    }
    // Each side has the other one's key, and its connection does not name it.
    let mut plan = without_ids(initiator, "ecdsa256");
    plan.without(initiator.other(), "connections.t.remote.pubkeys");
    cases.push(Case { runs_on: RunsOn::Casemate, ..Case::new("auth/any-key", plan, establish_and_talk) });
    let mut plan = without_ids(initiator, "ecdsa256");
    plan.without(initiator.other(), "connections.t.remote.pubkeys");
    plan.connection_of(initiator, "local.pubkeys", &file_of("ecdsa384", initiator));
    plan.credential(initiator, Credential::PublicKey("ecdsa384", initiator));
    plan.credential(initiator, Credential::PrivateKey("ecdsa384", initiator));
    cases.push(Case {
        runs_on: RunsOn::Casemate,
        ..Case::new("auth/refused/unknown-key", plan, super::eap::expect_refusal)
    });
    let mut plan = certified(initiator, ["rsa2048", "rsa2048"], "ca-rsa");
    psk_and_certificate(&mut plan);
    cases.push(Case::new("auth/psk-and-certificate", plan, establish_and_talk));
    cases.push(Case::new(
        "auth/chain",
        chain(initiator, "chain", "sub-ecdsa", "ca-ecdsa"),
        establish_and_talk,
    ));
    let mut plan = container(initiator, &["sub-ecdsa"]);
    plan.credential(Side::Left, Credential::Authority("ca-ecdsa"));
    cases.push(Case::new("auth/container", plan, establish_and_talk));
    // The left side has the trusted authority from the container.
    let plan = container(initiator, &["sub-ecdsa", "ca-ecdsa"]);
    cases.push(Case::new("auth/container-with-root", plan, establish_and_talk));
    cases.push(Case {
        runs_on: RunsOn::Casemate,
        ..Case::new("auth/requested-identity", requested_identity(initiator), establish_and_talk)
    });
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    Side::BOTH.into_iter().for_each(|side| plan.credential(side, Credential::Crl("ca-ecdsa")));
    cases.push(Case::new("auth/not-revoked", plan, establish_and_talk));
    for wrong_side in Side::BOTH {
        refusals(cases, initiator, wrong_side);
    }
}

/// Both sides sign with this signature and accept no other. The daemon gets an option with this value.
fn signed(initiator: Side, signature: &'static Signature, option: &str, value: &str) -> Case {
    let mut plan = certified(initiator, [signature.certificate; 2], signature.authority);
    for side in Side::BOTH {
        plan.connection_of(side, "local.auth", signature.auth);
        plan.connection_of(side, "remote.auth", &constraint(signature.auth));
        plan.daemon(side, option, value);
    }
    Case::new(&format!("auth/{}", signature.name), plan, |testbed| {
        let summary = establish_and_talk(testbed)?;
        for who in ["'left.test'", "'right.test' (myself)"] {
            let line = format!("authentication of {who} with {}", signature.scheme);
            ensure(testbed.strongswan_logged(&line), &format!("strongSwan's log does not contain `{line}`"))?;
        }
        Ok(summary)
    })
}

/// The credentials that `wrong_side` presents must be refused by the other side. Each case has the message
/// that strongSwan logs when it refuses them, which proves the cause of the refusal.
fn refusals(cases: &mut Vec<Case>, initiator: Side, wrong_side: Side) {
    let whose = if wrong_side == Side::Left { "ours" } else { "theirs" };
    let mut push = |name: &str, plan, reason: &'static str| {
        let script = move |testbed: &mut Testbed| expect_refusal(testbed, wrong_side, reason);
        cases.push(Case::new(&format!("auth/refused/{name}-{whose}"), plan, script));
    };
    // Only the responder can detect these two.
    if wrong_side == initiator {
        let mut plan = Plan::new(initiator);
        plan.on(wrong_side, "secrets.ike-t.secret", "\"another secret\"");
        push("psk", plan, "but MAC mismatched");
        let mut plan = Plan::new(initiator);
        plan.connection_of(wrong_side, "local.id", "stranger.test");
        push("identity", plan, "no matching peer config found");
    }
    // The certificate is valid, but does not contain this identity.
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    plan.connection_of(wrong_side, "local.id", "stranger.test");
    plan.connection_of(wrong_side.other(), "remote.id", "stranger.test");
    push("identity-not-certified", plan, "no trusted ECDSA public key found for 'stranger.test'");
    let plan = certified(initiator, certificates(wrong_side, "expired", "ecdsa256"), "ca-ecdsa");
    push("expired", plan, "subject certificate invalid (valid from");
    let mut plan = certified(initiator, certificates(wrong_side, "revoked", "ecdsa256"), "ca-ecdsa");
    plan.credential(wrong_side.other(), Credential::Crl("ca-ecdsa"));
    push("revoked", plan, "certificate was revoked");
    let mut plan = certified(initiator, certificates(wrong_side, "rsa2048", "ecdsa256"), "ca-ecdsa");
    plan.credential(wrong_side, Credential::Authority("ca-rsa"));
    push("authority", plan, "no issuer certificate found");
    // The authority of the first case signs with SHA-384; the authority of the second case has a key of
    // 2048 bits.
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    plan.connection_of(wrong_side.other(), "remote.auth", "pubkey-sha512-sha256");
    push("chain-signature", plan, "X.509 signature scheme ECDSA_WITH_SHA384_DER not acceptable");
    let mut plan = certified(initiator, ["rsa3072"; 2], "ca-rsa");
    plan.connection_of(wrong_side.other(), "remote.auth", "rsa-3072");
    push("chain-key", plan, "RSA-2048 signatures not acceptable");
    // The public key that the other side has for this side belongs to another private key.
    let mut plan = Plan::new(initiator);
    exchange_public_keys(&mut plan, "ecdsa256");
    plan.connection_of(wrong_side, "local.pubkeys", &file_of("ecdsa384", wrong_side));
    plan.credential(wrong_side, Credential::PublicKey("ecdsa384", wrong_side));
    plan.credential(wrong_side, Credential::PrivateKey("ecdsa384", wrong_side));
    push("raw-key", plan, "signature validation failed, looking for another key");
    // The intermediate certificate is neither sent nor configured.
    let plan = certified(initiator, certificates(wrong_side, "chain", "ecdsa256"), "ca-ecdsa");
    push("chain-with-a-gap", plan, "no issuer certificate found");
}

/// Returns the names of the certificates of the left and the right side.
pub(super) fn certificates(wrong_side: Side, wrong: &'static str, good: &'static str) -> [&'static str; 2] {
    Side::BOTH.map(|side| if side == wrong_side { wrong } else { good })
}

/// Returns `auth` for the peer. The prefix `ike:` limits the constraint to the IKE signature, without the
/// certificate chain.
fn constraint(auth: &str) -> String {
    if auth.contains('-') { format!("ike:{auth}") } else { auth.into() }
}

/// Tunnel between sides with certificates. Both sides trust `authority`.
pub(super) fn certified(initiator: Side, names: [&'static str; 2], authority: &'static str) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, names, authority);
    plan
}

/// Both sides sign and trust the certificates of the other side.
pub(super) fn certify(plan: &mut Plan, names: [&'static str; 2], authority: &'static str) {
    for (side, name) in Side::BOTH.into_iter().zip(names) {
        plan.without(side, "secrets.ike-t");
        plan.connection_of(side, "local.auth", "pubkey");
        plan.connection_of(side, "local.certs", &file_of(name, side));
        plan.connection_of(side, "remote.auth", "pubkey");
        plan.credential(side, Credential::Own(name, side));
        plan.credential(side, Credential::Authority(authority));
    }
}

/// Both sides sign with the key of this name and have the public key of the other side.
pub(super) fn exchange_public_keys(plan: &mut Plan, name: &'static str) {
    for side in Side::BOTH {
        plan.without(side, "secrets.ike-t");
        for (which, whose) in [("local", side), ("remote", side.other())] {
            plan.connection_of(side, &format!("{which}.auth"), "pubkey");
            plan.connection_of(side, &format!("{which}.pubkeys"), &file_of(name, whose));
            plan.credential(side, Credential::PublicKey(name, whose));
        }
        plan.credential(side, Credential::PrivateKey(name, side));
    }
}

/// Like [`exchange_public_keys`]; the identities are the key IDs.
fn without_ids(initiator: Side, name: &'static str) -> Plan {
    let mut plan = Plan::new(initiator);
    exchange_public_keys(&mut plan, name);
    for side in Side::BOTH {
        plan.without(side, &format!("connections.{CONNECTION}.local.id"));
        plan.without(side, &format!("connections.{CONNECTION}.remote.id"));
    }
    plan
}

/// Tunnel between sides with certificates of an intermediate authority. Each side sends the certificate of
/// the intermediate authority.
pub(super) fn chain(
    initiator: Side,
    name: &'static str,
    intermediate: &'static str,
    authority: &'static str,
) -> Plan {
    let mut plan = certified(initiator, [name; 2], authority);
    Side::BOTH.into_iter().for_each(|side| plan.credential(side, Credential::Intermediate(intermediate)));
    plan
}

/// The responder has no configured identity, and a certificate with the one that the initiator asks for.
fn requested_identity(initiator: Side) -> Plan {
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    for key in ["id", "certs"] {
        plan.without(initiator.other(), &format!("connections.{CONNECTION}.local.{key}"));
    }
    plan
}

/// The key of the left side and these authorities are in a PKCS #12 container.
fn container(initiator: Side, authorities: &'static [&'static str]) -> Plan {
    let mut plan = Plan::new(initiator);
    for side in Side::BOTH {
        plan.without(side, "secrets.ike-t");
        plan.connection_of(side, "local.auth", "pubkey");
        plan.connection_of(side, "remote.auth", "pubkey");
    }
    plan.credential(Side::Right, Credential::Authority("ca-ecdsa"));
    plan.on(Side::Left, "secrets.pkcs12-own.file", "own.p12");
    plan.on(Side::Left, "secrets.pkcs12-own.secret", &format!("\"{PASSPHRASE}\""));
    plan.credential(Side::Left, Credential::Container("chain", Side::Left, authorities));
    plan.connection_of(Side::Right, "local.certs", &file_of("ecdsa256", Side::Right));
    plan.credential(Side::Right, Credential::Own("ecdsa256", Side::Right));
    plan
}

/// The initiator authenticates with the pre-shared key, the responder with its certificate.
fn psk_and_certificate(plan: &mut Plan) {
    let (initiator, responder) = (plan.initiator, plan.responder());
    plan.both("secrets.ike-t.secret", "\"a secret of the two\"");
    plan.without(initiator, &format!("connections.{CONNECTION}.local.certs"));
    plan.connection_of(initiator, "local.auth", "psk");
    plan.connection_of(responder, "remote.auth", "psk");
}

/// Checks that no SA remains on either side and that no packet passes.
fn expect_refusal(testbed: &mut Testbed, wrong_side: Side, reason: &str) -> Result<String> {
    let refusal = match testbed.initiate(Target::Child(CHILD)) {
        Err(refusal) => refusal.to_string(),
        Ok(()) => return Err(Error::new("the initiator set up the SA, expected a refusal")),
    };
    testbed.expect_no_sas()?;
    let got_through =
        testbed.ping(Side::Left, &Side::Left.behind(Family::V4), &Side::Right.behind(Family::V4));
    ensure(got_through.is_err(), "packets passed although the peer was refused")?;
    // The cause must be the authentication, not another failure (RFC 7296 section 2.21.2).
    ensure(
        testbed.strongswan_logged("N(AUTH_FAILED)"),
        "strongSwan's log does not contain AUTHENTICATION_FAILED",
    )?;
    if wrong_side == Side::Left {
        ensure(testbed.strongswan_logged(reason), &format!("strongSwan's log does not contain `{reason}`"))?;
    }
    Ok(refusal)
}
