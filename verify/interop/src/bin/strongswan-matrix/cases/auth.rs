//! Authentication: every kind of key and certificate, and everything that has to be refused.

use super::{Case, demand, establish_and_talk};
use crate::arena::Arena;
use crate::peer::Target;
use crate::pki::{Credential, file_of};
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::side::{Family, Side};
use casemate_interop::{Error, Result};

/// A kind of signature.
struct Signature {
    name: &'static str,
    certificate: &'static str,
    authority: &'static str,
    /// In the words of `swanctl.conf`.
    auth: &'static str,
    /// What charon calls it, or how that begins.
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

/// RFC 7427, with RSA as in RFC 8017 and EdDSA as in RFC 8420.
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

/// The methods of before RFC 7427: 9, 10 and 11. Method 1 is RSA over a SHA-1 digest, which RFC 8247 section 3.2 forbids.
const OLD_SIGNATURES: &[Signature] = &[
    signature("old-ecdsa256", "ecdsa256", "ca-ecdsa", "pubkey", "ECDSA-256 signature"),
    signature("old-ecdsa384", "ecdsa384", "ca-ecdsa", "pubkey", "ECDSA-384 signature"),
    signature("old-ecdsa521", "ecdsa521", "ca-ecdsa", "pubkey", "ECDSA-521 signature"),
];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("auth/psk", Plan::new(initiator), establish_and_talk));
    for signature in SIGNATURES {
        let yes_or_no = if signature.name.ends_with("pss") { "yes" } else { "no" };
        cases.push(signed(initiator, signature, ("rsa_pss", yes_or_no)));
    }
    for signature in OLD_SIGNATURES {
        cases.push(signed(initiator, signature, ("signature_authentication", "no")));
    }
    let mut plan = certified(initiator, ["rsa2048", "rsa2048"], "ca-rsa");
    mixed(&mut plan);
    cases.push(Case::new("auth/psk-and-certificate", plan, establish_and_talk));
    cases.push(Case::new(
        "auth/chain",
        chain(initiator, "chain", "sub-ecdsa", "ca-ecdsa"),
        establish_and_talk,
    ));
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    Side::BOTH.into_iter().for_each(|side| plan.credential(side, Credential::Crl("ca-ecdsa")));
    cases.push(Case::new("auth/not-revoked", plan, establish_and_talk));
    for liar in Side::BOTH {
        refusals(cases, initiator, liar);
    }
}

/// Both sides sign in this way and accept no other.
fn signed(initiator: Side, signature: &'static Signature, (option, value): (&str, &str)) -> Case {
    let mut plan = certified(initiator, [signature.certificate; 2], signature.authority);
    for side in Side::BOTH {
        plan.connection_of(side, "local.auth", signature.auth);
        plan.connection_of(side, "remote.auth", &constraint(signature.auth));
        plan.daemon(side, option, value);
    }
    Case::new(&format!("auth/{}", signature.name), plan, |arena| {
        let said = establish_and_talk(arena)?;
        for who in ["'left.test'", "'right.test' (myself)"] {
            let line = format!("authentication of {who} with {}", signature.scheme);
            demand(arena.strongswan_said(&line), &format!("strongSwan's log does not say `{line}`"))?;
        }
        Ok(said)
    })
}

/// What `liar` presents has to be refused by the other side. With each goes what strongSwan says when it refuses that, which
/// shows that the case is what it says.
fn refusals(cases: &mut Vec<Case>, initiator: Side, liar: Side) {
    let whose = if liar == Side::Left { "ours" } else { "theirs" };
    let mut push = |name: &str, plan, reason: &'static str| {
        let script = move |arena: &mut Arena| be_refused(arena, liar, reason);
        cases.push(Case::new(&format!("auth/refused/{name}-{whose}"), plan, script));
    };
    // The responder is the one who sees these two.
    if liar == initiator {
        let mut plan = Plan::new(initiator);
        plan.on(liar, "secrets.ike-t.secret", "\"another secret\"");
        push("psk", plan, "but MAC mismatched");
        let mut plan = Plan::new(initiator);
        plan.connection_of(liar, "local.id", "stranger.test");
        push("identity", plan, "no matching peer config found");
    }
    // The certificate is good, but says nothing of this identity.
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    plan.connection_of(liar, "local.id", "stranger.test");
    plan.connection_of(liar.other(), "remote.id", "stranger.test");
    push("identity-not-certified", plan, "no trusted ECDSA public key found for 'stranger.test'");
    let plan = certified(initiator, of(liar, "expired", "ecdsa256"), "ca-ecdsa");
    push("expired", plan, "subject certificate invalid (valid from");
    let mut plan = certified(initiator, of(liar, "revoked", "ecdsa256"), "ca-ecdsa");
    plan.credential(liar.other(), Credential::Crl("ca-ecdsa"));
    push("revoked", plan, "certificate was revoked");
    let mut plan = certified(initiator, of(liar, "rsa2048", "ecdsa256"), "ca-ecdsa");
    plan.credential(liar, Credential::Authority("ca-rsa"));
    push("authority", plan, "no issuer certificate found");
    // The authority signs with SHA-384; the other one has a key of 2048 bits.
    let mut plan = certified(initiator, ["ecdsa256"; 2], "ca-ecdsa");
    plan.connection_of(liar.other(), "remote.auth", "pubkey-sha512-sha256");
    push("chain-signature", plan, "X.509 signature scheme ECDSA_WITH_SHA384_DER not acceptable");
    let mut plan = certified(initiator, ["rsa3072"; 2], "ca-rsa");
    plan.connection_of(liar.other(), "remote.auth", "rsa-3072");
    push("chain-key", plan, "RSA-2048 signatures not acceptable");
    // The intermediate certificate is neither sent nor known.
    let plan = certified(initiator, of(liar, "chain", "ecdsa256"), "ca-ecdsa");
    push("chain-with-a-gap", plan, "no issuer certificate found");
}

/// The certificates of the left and the right side.
fn of(liar: Side, false_one: &'static str, good: &'static str) -> [&'static str; 2] {
    Side::BOTH.map(|side| if side == liar { false_one } else { good })
}

/// `auth` for the peer: `ike:` keeps it from binding the certificates of the chain.
fn constraint(auth: &str) -> String {
    if auth.contains('-') { format!("ike:{auth}") } else { auth.into() }
}

/// A tunnel between sides with certificates, which both trust `authority`.
pub(super) fn certified(initiator: Side, names: [&'static str; 2], authority: &'static str) -> Plan {
    let mut plan = Plan::new(initiator);
    certify(&mut plan, names, authority);
    plan
}

/// Both sides sign, and believe each other's certificates.
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

/// Both sides sign with the key of this name, and have the other's public key.
pub(super) fn know_each_other(plan: &mut Plan, name: &'static str) {
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

/// A tunnel between sides whose certificates come from an intermediate authority that each side sends along.
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

/// The initiator proves itself with the pre-shared key, the responder with its certificate.
fn mixed(plan: &mut Plan) {
    let (initiator, responder) = (plan.initiator, plan.responder());
    plan.both("secrets.ike-t.secret", "\"a secret of the two\"");
    plan.without(initiator, &format!("connections.{CONNECTION}.local.certs"));
    plan.connection_of(initiator, "local.auth", "psk");
    plan.connection_of(responder, "remote.auth", "psk");
}

/// Nothing may stand afterwards, on neither side, and nothing may get through.
fn be_refused(arena: &mut Arena, liar: Side, reason: &str) -> Result<String> {
    let refusal = match arena.initiate(Target::Child(CHILD)) {
        Err(refusal) => refusal.to_string(),
        Ok(()) => return Err(Error::new("the initiator set the SA up, expected a refusal")),
    };
    arena.demand_nothing_left()?;
    let got_through = arena.ping(Side::Left, &Side::Left.behind(Family::V4), &Side::Right.behind(Family::V4));
    demand(got_through.is_err(), "packets got through although the peer was refused")?;
    // The cause has to be the authentication, not anything that happens to fail as well (RFC 7296 section 2.21.2).
    demand(arena.strongswan_said("N(AUTH_FAILED)"), "strongSwan's log tells of no AUTHENTICATION_FAILED")?;
    if liar == Side::Left {
        demand(arena.strongswan_said(reason), &format!("strongSwan's log does not say `{reason}`"))?;
    }
    Ok(refusal)
}
