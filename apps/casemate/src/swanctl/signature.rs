//! Which signatures are made and taken: the words behind `auth` other than `psk`.
//!
//! `pubkey`, `rsa`, `rsa/pss`, `ecdsa` and `ed25519` name kinds of keys; numbers behind them the least length of a key, and
//! hashes the schemes. `ike:` in front leaves the certificates alone and is for the signature in IKE_AUTH only.

use super::value::Read;
use casemate_crypto::{HashAlg, SignatureAlg};

/// How a side of a connection proves who it is, as its `auth` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Auth {
    /// With a pre-shared key.
    SharedKey,
    /// With a signature.
    Signature(SignatureRules),
}

/// Which signatures will do. Empty and without numbers: any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignatureRules {
    /// Schemes for the signature in IKE_AUTH, the preferred ones first; empty is any.
    pub ike: Vec<SignatureAlg>,
    /// Schemes for the signatures on certificates; empty is any.
    pub chain: Vec<SignatureAlg>,
    /// Least length of the modulus of an RSA key, in bits.
    pub least_rsa_bits: Option<u32>,
    /// Least length of an ECDSA key, in bits.
    pub least_ecdsa_bits: Option<u32>,
}

/// What is meant by a kind of key without a hash.
const SOUND: [HashAlg; 3] = [HashAlg::Sha256, HashAlg::Sha384, HashAlg::Sha512];

/// Reads the value of `auth`.
pub(super) fn auth(text: &str) -> Read<Auth> {
    if text.eq_ignore_ascii_case("psk") {
        return Ok(Auth::SharedKey);
    }
    let front = text.split(['-', ':']).next().unwrap_or_default().to_ascii_lowercase();
    if matches!(front.as_str(), "eap" | "xauth") {
        return Err(format!("{front} is not implemented: psk or pubkey was expected"));
    }
    match text.strip_prefix("ike:") {
        Some(rest) => {
            let rules = rules(rest)?;
            if rules.least_rsa_bits.is_some() || rules.least_ecdsa_bits.is_some() {
                return Err(
                    "the length of a key is for the certificates: without ike: in front it was expected"
                        .into(),
                );
            }
            Ok(Auth::Signature(SignatureRules { chain: Vec::new(), ..rules }))
        }
        None => rules(text).map(Auth::Signature),
    }
}

/// A kind of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Any,
    Rsa,
    RsaPss,
    Ecdsa,
    Ed25519,
}

fn rules(text: &str) -> Read<SignatureRules> {
    let mut rules = SignatureRules::default();
    let mut kind = None;
    let mut hashes = Vec::new();
    for word in text.split('-') {
        if let Some(next) = kind_of(word) {
            close(kind.replace(next), &mut hashes, &mut rules.chain)?;
        } else if word == "sha1" {
            // RFC 8247 section 3.2: MUST NOT be used in a signature.
            return Err("signatures with sha1 are not taken: sha256, sha384 or sha512 was expected".into());
        } else if let Some(hash) = hash_of(word) {
            hashes.push(hash);
        } else {
            let bits = super::value::number::<u32>(word).ok();
            let slot = match kind {
                Some(Kind::Rsa | Kind::RsaPss) => &mut rules.least_rsa_bits,
                Some(Kind::Ecdsa) => &mut rules.least_ecdsa_bits,
                _ => return Err(expected(word)),
            };
            *slot = Some(bits.ok_or_else(|| expected(word))?);
        }
    }
    close(kind, &mut hashes, &mut rules.chain)?;
    // Schemes of certificates bind the signature in IKE as well.
    rules.ike.clone_from(&rules.chain);
    Ok(rules)
}

fn expected(word: &str) -> String {
    format!(
        "`{}` is not understood: psk, pubkey, rsa, rsa/pss, ecdsa or ed25519 was expected, and behind it perhaps the least \
         length of a key and hashes such as sha256, with dashes between",
        word.escape_debug()
    )
}

/// Adds the schemes of a kind of keys with the hashes behind it.
fn close(kind: Option<Kind>, hashes: &mut Vec<HashAlg>, schemes: &mut Vec<SignatureAlg>) -> Read<()> {
    let hashes = std::mem::take(hashes);
    let Some(kind) = kind else {
        return if hashes.is_empty() { Ok(()) } else { Err(expected("a hash in front")) };
    };
    if kind == Kind::Any && hashes.is_empty() {
        return Ok(());
    }
    if kind == Kind::Ed25519 {
        return if hashes.is_empty() {
            add(schemes, SignatureAlg::Ed25519)
        } else {
            Err("ed25519 has a hash of its own: none was expected".into())
        };
    }
    let hashes = if hashes.is_empty() { SOUND.to_vec() } else { hashes };
    for hash in hashes {
        if matches!(kind, Kind::Any | Kind::Ecdsa) {
            add(schemes, SignatureAlg::Ecdsa(hash))?;
        }
        if matches!(kind, Kind::Any | Kind::RsaPss) {
            add(schemes, SignatureAlg::RsaPss(hash))?;
        }
        if matches!(kind, Kind::Any | Kind::Rsa) {
            add(schemes, SignatureAlg::RsaPkcs1(hash))?;
        }
    }
    Ok(())
}

fn add(schemes: &mut Vec<SignatureAlg>, scheme: SignatureAlg) -> Read<()> {
    if !schemes.contains(&scheme) {
        schemes.push(scheme);
    }
    Ok(())
}

fn kind_of(word: &str) -> Option<Kind> {
    Some(match word {
        "pubkey" => Kind::Any,
        "rsa" => Kind::Rsa,
        "rsa/pss" => Kind::RsaPss,
        "ecdsa" => Kind::Ecdsa,
        "ed25519" => Kind::Ed25519,
        _ => return None,
    })
}

fn hash_of(word: &str) -> Option<HashAlg> {
    Some(match word {
        "sha256" => HashAlg::Sha256,
        "sha384" => HashAlg::Sha384,
        "sha512" => HashAlg::Sha512,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use HashAlg::{Sha256, Sha384, Sha512};

    fn signature(text: &str) -> SignatureRules {
        match auth(text) {
            Ok(Auth::Signature(rules)) => rules,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_asked_for() {
        assert_eq!(auth("PSK"), Ok(Auth::SharedKey));
        assert_eq!(signature("pubkey"), SignatureRules::default());
        let rules = signature("rsa-2048-sha256-ecdsa-256-sha256-sha384");
        assert_eq!((rules.least_rsa_bits, rules.least_ecdsa_bits), (Some(2048), Some(256)));
        let schemes =
            [SignatureAlg::RsaPkcs1(Sha256), SignatureAlg::Ecdsa(Sha256), SignatureAlg::Ecdsa(Sha384)];
        assert_eq!((rules.ike.as_slice(), rules.chain.as_slice()), (&schemes[..], &schemes[..]));
        let pss = signature("ike:rsa/pss-sha384-sha256");
        assert_eq!(pss.ike, [SignatureAlg::RsaPss(Sha384), SignatureAlg::RsaPss(Sha256)]);
        assert_eq!(pss.chain, []);
        assert_eq!(signature("ecdsa-384").ike, [Sha256, Sha384, Sha512].map(SignatureAlg::Ecdsa));
        assert_eq!(signature("ike:ed25519").ike, [SignatureAlg::Ed25519]);
        assert_eq!(signature("pubkey-sha512").ike.len(), 3);
        assert!(signature("rsa").ike.iter().all(|scheme| !scheme.uses_sha1()));
    }

    #[test]
    fn what_is_not_understood() {
        for text in [
            "",
            "sha256",
            "rsa-md5",
            "rsa-sha1",
            "pubkey-2048",
            "ed25519-sha256",
            "foo",
            "ike:rsa-2048",
            "rsa--sha256",
            "ed448",
        ] {
            assert!(auth(text).is_err(), "{text}");
        }
        for text in ["eap", "eap-mschapv2", "eap-tls:ecdsa-384", "xauth-pam"] {
            assert!(auth(text).unwrap_err().contains("is not implemented"), "{text}");
        }
    }
}
