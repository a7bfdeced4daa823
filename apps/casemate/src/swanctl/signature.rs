//! Which signatures are made and taken, and which keys: the words behind `auth` other than `psk`.
//!
//! `pubkey`, `rsa`, `rsa/pss`, `ecdsa` and `ed25519` name kinds of keys; a number behind one is the least length of such a key, and hashes
//! name the schemes. As with strongSwan, lengths and schemes hold for the whole chain of certificates, and the schemes for the signature
//! in IKE_AUTH as well, unless parts with `ike:` in front say what is taken there.

use super::value::Read;
use casemate_crypto::{HashAlg, SignatureAlg};
use casemate_pki::{Demands, KeyKinds};

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
    /// Keys of the certificates; `None` is any.
    pub keys: Option<KeyKinds>,
    /// The value of `auth`, for messages.
    pub text: String,
}

impl SignatureRules {
    /// What is asked of a chain of certificates.
    pub fn demands(&self) -> Demands {
        let schemes = (!self.chain.is_empty()).then(|| self.chain.iter().copied().collect());
        Demands { schemes, keys: self.keys }
    }
}

/// What is meant by a kind of key without a hash. SHA-1 MUST NOT be used (RFC 8247 section 3.2).
const SOUND: [Hash; 3] = [Hash::Of(HashAlg::Sha256), Hash::Of(HashAlg::Sha384), Hash::Of(HashAlg::Sha512)];

/// What a word for a hash means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Of(HashAlg),
    /// The key hashes for itself (RFC 8420).
    Identity,
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

/// A kind of keys, and what is said of it.
struct Part {
    /// For the signature in IKE_AUTH only.
    for_ike: bool,
    kind: Kind,
    bits: Option<u32>,
    hashes: Vec<Hash>,
}

/// Reads the value of `auth`.
pub(super) fn auth(text: &str) -> Read<Auth> {
    if text.eq_ignore_ascii_case("psk") {
        return Ok(Auth::SharedKey);
    }
    let front = text.split(['-', ':']).next().unwrap_or_default().to_ascii_lowercase();
    if matches!(front.as_str(), "eap" | "xauth") {
        return Err(format!("{front} is not implemented: psk or pubkey was expected"));
    }
    let parts = parts(text)?;
    let of = |for_ike| parts.iter().filter(move |part| part.for_ike == for_ike);
    let chain: Vec<&Part> = of(false).collect();
    // A kind alone is asked of the peer's own key; schemes and lengths are asked of the chain as well.
    let binds_chain = chain.iter().any(|part| !part.hashes.is_empty() || part.kind == Kind::RsaPss);
    let for_ike: Vec<&Part> = if of(true).next().is_some() { of(true).collect() } else { chain.clone() };
    Ok(Auth::Signature(SignatureRules {
        ike: schemes(&for_ike),
        chain: if binds_chain { schemes(&chain) } else { Vec::new() },
        keys: key_kinds(&chain),
        text: if text == "pubkey" { String::new() } else { text.into() },
    }))
}

fn parts(text: &str) -> Read<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for word in text.split('-') {
        let (for_ike, name) = match word.strip_prefix("ike:") {
            Some(name) => (true, name),
            None => (false, word),
        };
        if let Some(kind) = kind_of(name) {
            parts.push(Part { for_ike, kind, bits: None, hashes: Vec::new() });
            continue;
        }
        let part = parts.last_mut().filter(|_| !for_ike).ok_or_else(|| expected(word))?;
        match (word, hash_of(word)) {
            ("sha1", _) => {
                return Err(
                    "signatures with sha1 are not taken: sha256, sha384 or sha512 was expected".into()
                );
            }
            (_, Some(hash)) => part.add_hash(hash)?,
            _ => part.set_bits(word)?,
        }
    }
    Ok(parts)
}

impl Part {
    fn add_hash(&mut self, hash: Hash) -> Read<()> {
        match (self.kind, hash) {
            (Kind::Ed25519, Hash::Of(_)) => {
                return Err("ed25519 has a hash of its own: identity or none was expected".into());
            }
            (Kind::Rsa | Kind::RsaPss | Kind::Ecdsa, Hash::Identity) => return Err(expected("identity")),
            _ => self.hashes.push(hash),
        }
        Ok(())
    }

    fn set_bits(&mut self, word: &str) -> Read<()> {
        let has_length = matches!(self.kind, Kind::Rsa | Kind::RsaPss | Kind::Ecdsa);
        let bits = super::value::number::<u32>(word).ok().filter(|_| has_length && self.bits.is_none());
        self.bits = Some(bits.ok_or_else(|| expected(word))?);
        if self.for_ike {
            return Err(
                "the length of a key is for the certificates: without ike: in front it was expected".into()
            );
        }
        Ok(())
    }

    /// The schemes that it allows, the preferred ones first.
    fn schemes(&self) -> Vec<SignatureAlg> {
        use SignatureAlg::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
        let is = |kinds: &[Kind]| kinds.contains(&self.kind) || self.kind == Kind::Any;
        let hashes = if self.hashes.is_empty() { &SOUND[..] } else { &self.hashes };
        let of_hash = |hash: &Hash| match hash {
            Hash::Of(hash) => [
                is(&[Kind::Ecdsa]).then_some(Ecdsa(*hash)),
                // Who names hashes, names them to strongSwan as well, which means PKCS #1 by them unless it is told otherwise.
                is(&[Kind::Rsa]).then_some(RsaPkcs1(*hash)),
                is(&[Kind::Rsa, Kind::RsaPss]).then_some(RsaPss(*hash)),
            ],
            Hash::Identity => [Some(Ed25519), None, None],
        };
        let mut schemes: Vec<SignatureAlg> = match self.kind {
            Kind::Ed25519 => vec![Ed25519],
            _ => hashes.iter().flat_map(of_hash).flatten().collect(),
        };
        if self.hashes.is_empty() {
            if self.kind == Kind::Any {
                schemes.push(Ed25519);
            }
            // RFC 8247 section 3.2: RSASSA-PSS rather than PKCS #1.
            schemes.sort_by_key(|scheme| matches!(scheme, RsaPkcs1(_)));
        }
        schemes
    }
}

/// The schemes of all of them; none if any will do.
fn schemes(parts: &[&Part]) -> Vec<SignatureAlg> {
    let mut all: Vec<SignatureAlg> = Vec::new();
    if parts.iter().all(|part| part.kind == Kind::Any && part.hashes.is_empty()) {
        return all;
    }
    for scheme in parts.iter().flat_map(|part| part.schemes()) {
        if !all.contains(&scheme) {
            all.push(scheme);
        }
    }
    all
}

/// The keys of a chain, if a least length is given: other kinds than those that are named are not taken then.
fn key_kinds(parts: &[&Part]) -> Option<KeyKinds> {
    parts.iter().find(|part| part.bits.is_some())?;
    // Of one kind that is named twice, either will do.
    let least = |kinds: &[Kind]| {
        let named = parts.iter().filter(|part| kinds.contains(&part.kind) || part.kind == Kind::Any);
        named.map(|part| part.bits.unwrap_or_default()).min()
    };
    let (rsa, ecdsa) = (least(&[Kind::Rsa, Kind::RsaPss]), least(&[Kind::Ecdsa]));
    Some(KeyKinds { rsa, ecdsa, ed25519: least(&[Kind::Ed25519]).is_some() })
}

fn expected(word: &str) -> String {
    format!(
        "`{}` is not understood: psk, pubkey, rsa, rsa/pss, ecdsa or ed25519 was expected, and behind it perhaps the least \
         length of a key and hashes such as sha256, with dashes between",
        word.escape_debug()
    )
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

fn hash_of(word: &str) -> Option<Hash> {
    Some(match word {
        "sha256" => Hash::Of(HashAlg::Sha256),
        "sha384" => Hash::Of(HashAlg::Sha384),
        "sha512" => Hash::Of(HashAlg::Sha512),
        "identity" => Hash::Identity,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use HashAlg::{Sha256, Sha384, Sha512};
    use SignatureAlg::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};

    fn signature(text: &str) -> SignatureRules {
        match auth(text) {
            Ok(Auth::Signature(rules)) => rules,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn schemes_of_the_signature_in_ike() {
        assert_eq!(auth("PSK"), Ok(Auth::SharedKey));
        let rsa = [
            RsaPss(Sha256),
            RsaPss(Sha384),
            RsaPss(Sha512),
            RsaPkcs1(Sha256),
            RsaPkcs1(Sha384),
            RsaPkcs1(Sha512),
        ];
        for (text, schemes) in [
            ("pubkey", &[][..]),
            ("ike:pubkey", &[]),
            ("rsa", &rsa),
            ("rsa-2048", &rsa),
            ("rsa-sha384", &[RsaPkcs1(Sha384), RsaPss(Sha384)]),
            ("pubkey-sha512", &[Ecdsa(Sha512), RsaPkcs1(Sha512), RsaPss(Sha512)]),
            ("rsa/pss", &[RsaPss(Sha256), RsaPss(Sha384), RsaPss(Sha512)]),
            ("ike:rsa/pss-sha384-sha256", &[RsaPss(Sha384), RsaPss(Sha256)]),
            ("ecdsa-384", &[Ecdsa(Sha256), Ecdsa(Sha384), Ecdsa(Sha512)]),
            ("ed25519", &[Ed25519]),
            ("ed25519-identity", &[Ed25519]),
            ("pubkey-identity-sha256", &[Ed25519, Ecdsa(Sha256), RsaPkcs1(Sha256), RsaPss(Sha256)]),
            ("rsa-4096-sha384-ike:rsa/pss-sha256", &[RsaPss(Sha256)]),
            ("ike:rsa/pss-sha256-rsa-sha512", &[RsaPss(Sha256)]),
        ] {
            assert_eq!(signature(text).ike, schemes, "{text}");
        }
    }

    #[test]
    fn schemes_of_certificates() {
        for (text, schemes) in [
            ("pubkey", &[][..]),
            ("rsa", &[]),
            ("rsa-4096", &[]),
            ("ecdsa-384-ed25519", &[]),
            ("ike:pubkey-sha512", &[]),
            ("pubkey-sha512", &[Ecdsa(Sha512), RsaPkcs1(Sha512), RsaPss(Sha512)]),
            ("rsa-2048-sha256-ike:rsa-sha512", &[RsaPkcs1(Sha256), RsaPss(Sha256)]),
            ("ike:rsa-sha512-ecdsa-sha384", &[Ecdsa(Sha384)]),
            ("rsa/pss", &[RsaPss(Sha256), RsaPss(Sha384), RsaPss(Sha512)]),
            ("ecdsa-sha384-ed25519", &[Ecdsa(Sha384), Ed25519]),
        ] {
            assert_eq!(signature(text).chain, schemes, "{text}");
        }
        assert_eq!(signature("pubkey").demands(), Demands::default());
    }

    #[test]
    fn keys_of_certificates() {
        let kinds = |rsa, ecdsa, ed25519| Some(KeyKinds { rsa, ecdsa, ed25519 });
        for (text, keys) in [
            ("pubkey", None),
            ("rsa-sha256", None),
            ("rsa-4096", kinds(Some(4096), None, false)),
            ("rsa/pss-3072-sha256", kinds(Some(3072), None, false)),
            ("rsa-2048-sha256-ecdsa-256-sha256-sha384", kinds(Some(2048), Some(256), false)),
            ("rsa-4096-ecdsa-ed25519", kinds(Some(4096), Some(0), true)),
            ("rsa-4096-sha256-rsa-2048-sha512", kinds(Some(2048), None, false)),
            ("rsa-4096-ike:ecdsa-sha256", kinds(Some(4096), None, false)),
        ] {
            assert_eq!(signature(text).keys, keys, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood() {
        for text in [
            "",
            "sha256",
            "ike:sha256",
            "rsa-md5",
            "rsa-sha1",
            "rsa-identity",
            "rsa-2048-4096",
            "rsa4096",
            "pubkey-2048",
            "ed25519-sha256",
            "foo",
            "ike:rsa-2048",
            "rsa--sha256",
            "ed448",
            "pubkey-ike:",
        ] {
            assert!(auth(text).is_err(), "{text}");
        }
        for text in ["eap", "eap-mschapv2", "eap-tls:ecdsa-384", "xauth-pam"] {
            assert!(auth(text).unwrap_err().contains("is not implemented"), "{text}");
        }
    }
}
