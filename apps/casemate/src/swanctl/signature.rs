//! Allowed signatures and keys: the values of `auth` other than `psk` and those for EAP.
//!
//! `pubkey`, `rsa`, `rsa/pss`, `ecdsa` and `ed25519` name kinds of keys. A number after a kind is the
//! minimum key length, and hashes name the schemes. As in strongSwan, lengths and schemes apply to the
//! whole certificate chain. Schemes also apply to the signature in IKE_AUTH, unless parts with the prefix
//! `ike:` name the schemes for it.

use super::value::{Parsed, or};
use casemate_crypto::{HashAlg, SignatureAlg};
use casemate_eap::Method;
use casemate_ike::config::Identity;
use casemate_pki::{AlgorithmPolicy, KeyPolicy};

/// How one side of a connection authenticates itself, as `auth` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Auth {
    /// With a pre-shared key.
    SharedKey,
    /// With a signature.
    Signature(SignatureRules),
    /// By EAP with one of these methods.
    Eap(Vec<Method>),
    /// By EAP with a method that a RADIUS server chooses.
    EapRadius,
}

impl Auth {
    /// Whether one of the methods is EAP with TLS.
    pub(super) fn uses_tls(&self) -> bool {
        matches!(self, Self::Eap(methods) if methods.iter().any(|method| method.uses_tls()))
    }
}

/// The EAP methods of this host. `eap` leaves the method to the other side, which may want the certificate
/// that is named.
pub(super) fn with_certificate(mut methods: Vec<Method>, names_certificate: bool) -> Vec<Method> {
    if methods == Method::DEFAULT && names_certificate {
        methods.insert(0, Method::Tls);
    }
    methods
}

/// Reads the identity of the server of TLS.
pub(super) fn aaa_id(text: &str) -> Parsed<Identity> {
    let identity = casemate_strongswan::parse_identity(text)?;
    identity.ok_or_else(|| {
        "every server with a trusted certificate would be accepted: an identity was expected".into()
    })
}

/// Accepted signatures. The default accepts any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignatureRules {
    /// Schemes for the signature in IKE_AUTH in order of preference; empty means any.
    pub ike: Vec<SignatureAlg>,
    /// Schemes for the signatures on certificates; empty means any.
    pub chain: Vec<SignatureAlg>,
    /// Keys of the certificates; `None` means any.
    pub keys: Option<KeyPolicy>,
    /// The value of `auth`, for messages.
    pub text: String,
}

impl SignatureRules {
    /// The requirements on a certificate chain.
    pub fn demands(&self) -> AlgorithmPolicy {
        let schemes = (!self.chain.is_empty()).then(|| self.chain.iter().copied().collect());
        AlgorithmPolicy { signatures: schemes, keys: self.keys }
    }
}

/// The hashes of a kind of key that names none. SHA-1 MUST NOT be used (RFC 8247 section 3.2).
const DEFAULT_HASHES: [Hash; 3] =
    [Hash::Of(HashAlg::Sha256), Hash::Of(HashAlg::Sha384), Hash::Of(HashAlg::Sha512)];

/// A hash of a signature scheme.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Of(HashAlg),
    /// The identity hash: the signature algorithm hashes the message itself (RFC 8420).
    Identity,
}

/// A kind of key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Any,
    Rsa,
    RsaPss,
    Ecdsa,
    Ed25519,
}

/// A kind of key with its minimum length and hashes.
struct Part {
    /// Whether the part applies to the signature in IKE_AUTH only.
    for_ike: bool,
    kind: KeyKind,
    bits: Option<u32>,
    hashes: Vec<Hash>,
}

/// Reads the value of `auth`.
pub(super) fn auth(text: &str) -> Parsed<Auth> {
    if text.eq_ignore_ascii_case("psk") {
        return Ok(Auth::SharedKey);
    }
    let word = text.to_ascii_lowercase();
    match word.split(['-', ':']).next() {
        Some("eap") if word == "eap-radius" => return Ok(Auth::EapRadius),
        Some("eap") => return eap(&word).map(Auth::Eap),
        Some("xauth") => return Err("XAuth is a part of IKEv1: psk, pubkey or eap was expected".into()),
        _ => {}
    }
    let parts = parts(text)?;
    let of = |for_ike| parts.iter().filter(move |part| part.for_ike == for_ike);
    let chain: Vec<&Part> = of(false).collect();
    // A kind alone restricts the peer's own key; schemes and lengths restrict the whole chain.
    let binds_chain = chain.iter().any(|part| !part.hashes.is_empty() || part.kind == KeyKind::RsaPss);
    let for_ike: Vec<&Part> = if of(true).next().is_some() { of(true).collect() } else { chain.clone() };
    Ok(Auth::Signature(SignatureRules {
        ike: schemes(&for_ike),
        chain: if binds_chain { schemes(&chain) } else { Vec::new() },
        keys: key_kinds(&chain),
        text: if text == "pubkey" { String::new() } else { text.into() },
    }))
}

/// Reads `eap`, which allows the methods that are safe by default, or `eap-` and a method.
fn eap(word: &str) -> Parsed<Vec<Method>> {
    let keyword = match word.strip_prefix("eap").and_then(|rest| rest.strip_prefix('-')) {
        None | Some("dynamic") if !word.contains(':') => return Ok(Method::DEFAULT.to_vec()),
        keyword => keyword.unwrap_or(word),
    };
    if keyword == "sim" {
        let why =
            "EAP-SIM is not implemented: its keys have 64 bits, and it does not authenticate the network";
        return Err(format!("{why}: eap-aka was expected"));
    }
    Method::from_keyword(keyword).map(|method| vec![method]).ok_or_else(|| {
        let methods = Method::ALL.map(|method| method.to_string());
        let words: Vec<&str> =
            ["eap", "eap-radius"].into_iter().chain(methods.iter().map(String::as_str)).collect();
        format!("this method is not implemented: {} was expected", or(&words))
    })
}

fn parts(text: &str) -> Parsed<Vec<Part>> {
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
                    "signatures with sha1 are not accepted: sha256, sha384 or sha512 was expected".into()
                );
            }
            (_, Some(hash)) => part.add_hash(hash)?,
            _ => part.set_bits(word)?,
        }
    }
    Ok(parts)
}

impl Part {
    fn add_hash(&mut self, hash: Hash) -> Parsed<()> {
        match (self.kind, hash) {
            (KeyKind::Ed25519, Hash::Of(_)) => {
                return Err("ed25519 includes its own hash: identity or none was expected".into());
            }
            (KeyKind::Rsa | KeyKind::RsaPss | KeyKind::Ecdsa, Hash::Identity) => {
                return Err(expected("identity"));
            }
            _ => self.hashes.push(hash),
        }
        Ok(())
    }

    fn set_bits(&mut self, word: &str) -> Parsed<()> {
        let has_length = matches!(self.kind, KeyKind::Rsa | KeyKind::RsaPss | KeyKind::Ecdsa);
        let bits = super::value::parse_number::<u32>(word).ok().filter(|_| has_length && self.bits.is_none());
        self.bits = Some(bits.ok_or_else(|| expected(word))?);
        if self.for_ike {
            return Err(
                "a key length applies to certificates: the part without the prefix ike: was expected".into(),
            );
        }
        Ok(())
    }

    /// The schemes that the part allows, in order of preference.
    fn schemes(&self) -> Vec<SignatureAlg> {
        use SignatureAlg::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
        let is = |kinds: &[KeyKind]| kinds.contains(&self.kind) || self.kind == KeyKind::Any;
        let hashes = if self.hashes.is_empty() { &DEFAULT_HASHES[..] } else { &self.hashes };
        let of_hash = |hash: &Hash| match hash {
            Hash::Of(hash) => [
                is(&[KeyKind::Ecdsa]).then_some(Ecdsa(*hash)),
                // A named hash means PKCS #1 to strongSwan unless its settings say otherwise, so PKCS #1
                // comes first.
                is(&[KeyKind::Rsa]).then_some(RsaPkcs1(*hash)),
                is(&[KeyKind::Rsa, KeyKind::RsaPss]).then_some(RsaPss(*hash)),
            ],
            Hash::Identity => [Some(Ed25519), None, None],
        };
        let mut schemes: Vec<SignatureAlg> = match self.kind {
            KeyKind::Ed25519 => vec![Ed25519],
            _ => hashes.iter().flat_map(of_hash).flatten().collect(),
        };
        if self.hashes.is_empty() {
            if self.kind == KeyKind::Any {
                schemes.push(Ed25519);
            }
            // RFC 8247 section 3.2 prefers RSASSA-PSS to PKCS #1.
            schemes.sort_by_key(|scheme| matches!(scheme, RsaPkcs1(_)));
        }
        schemes
    }
}

/// The schemes of all parts without duplicates; an empty list means any.
fn schemes(parts: &[&Part]) -> Vec<SignatureAlg> {
    let mut all: Vec<SignatureAlg> = Vec::new();
    if parts.iter().all(|part| part.kind == KeyKind::Any && part.hashes.is_empty()) {
        return all;
    }
    for scheme in parts.iter().flat_map(|part| part.schemes()) {
        if !all.contains(&scheme) {
            all.push(scheme);
        }
    }
    all
}

/// The allowed keys of a chain if a minimum length is given. Kinds that are not named are refused then.
fn key_kinds(parts: &[&Part]) -> Option<KeyPolicy> {
    parts.iter().find(|part| part.bits.is_some())?;
    // If a kind is named twice, the smaller minimum applies.
    let least = |kinds: &[KeyKind]| {
        let named = parts.iter().filter(|part| kinds.contains(&part.kind) || part.kind == KeyKind::Any);
        named.map(|part| part.bits.unwrap_or_default()).min()
    };
    let (rsa, ecdsa) = (least(&[KeyKind::Rsa, KeyKind::RsaPss]), least(&[KeyKind::Ecdsa]));
    Some(KeyPolicy { rsa, ecdsa, ed25519: least(&[KeyKind::Ed25519]).is_some() })
}

fn expected(word: &str) -> String {
    format!(
        "`{}` is not known: psk, eap, a method such as eap-tls or eap-mschapv2, pubkey, rsa, rsa/pss, ecdsa \
         or ed25519 was expected; the last five optionally followed by the minimum key length and hashes \
         such as sha256, separated by dashes",
        word.escape_debug()
    )
}

fn kind_of(word: &str) -> Option<KeyKind> {
    Some(match word {
        "pubkey" => KeyKind::Any,
        "rsa" => KeyKind::Rsa,
        "rsa/pss" => KeyKind::RsaPss,
        "ecdsa" => KeyKind::Ecdsa,
        "ed25519" => KeyKind::Ed25519,
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
    fn schemes_for_ike_auth() {
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
    fn schemes_for_certificates() {
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
        assert_eq!(signature("pubkey").demands(), AlgorithmPolicy::default());
    }

    #[test]
    fn key_lengths_for_certificates() {
        let kinds = |rsa, ecdsa, ed25519| Some(KeyPolicy { rsa, ecdsa, ed25519 });
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
    fn unknown_auth_values() {
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
        for text in ["eap-tls:ecdsa-384", "eap-sim", "eap:x", "xauth-pam"] {
            assert!(auth(text).unwrap_err().contains("was expected"), "{text}");
        }
    }

    #[test]
    fn eap_methods() {
        assert_eq!(auth("eap"), Ok(Auth::Eap(Method::DEFAULT.to_vec())));
        assert_eq!(auth("eap-dynamic"), auth("EAP"));
        assert_eq!(auth("eap-md5"), Ok(Auth::Eap(vec![Method::Md5])));
    }
}
