//! Signatures for the authentication of IKE peers and for certificates (RFC 7427, RFC 4754, RFC 8420).

use crate::der::{self, Reader, SEQUENCE};
use crate::{Curve, HashAlg, KeyKind, PublicKey, Rng};
use alloc::vec::Vec;
use core::fmt;

/// IANA id for signature algorithms with a built-in hash function (RFC 8420 section 2). The other ids are
/// those of [`HashAlg`].
pub const IDENTITY_HASH: u16 = 5;

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlg {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2).
    RsaPkcs1(HashAlg),
    /// RSASSA-PSS (RFC 8017 section 8.1) with MGF1 over the same hash function, and a salt as long as the
    /// digest.
    RsaPss(HashAlg),
    /// ECDSA (FIPS 186). The signature is a DER Ecdsa-Sig-Value (RFC 3279 section 2.2.3); the key determines
    /// the curve.
    Ecdsa(HashAlg),
    /// Ed25519 (RFC 8032), over the message itself.
    Ed25519,
}

impl SignatureAlg {
    /// All signature algorithms.
    pub const ALL: [Self; 13] = [
        Self::RsaPkcs1(HashAlg::Sha1),
        Self::RsaPkcs1(HashAlg::Sha256),
        Self::RsaPkcs1(HashAlg::Sha384),
        Self::RsaPkcs1(HashAlg::Sha512),
        Self::RsaPss(HashAlg::Sha1),
        Self::RsaPss(HashAlg::Sha256),
        Self::RsaPss(HashAlg::Sha384),
        Self::RsaPss(HashAlg::Sha512),
        Self::Ecdsa(HashAlg::Sha1),
        Self::Ecdsa(HashAlg::Sha256),
        Self::Ecdsa(HashAlg::Sha384),
        Self::Ecdsa(HashAlg::Sha512),
        Self::Ed25519,
    ];

    /// The hash function; `None` for Ed25519, which has a built-in one.
    pub const fn hash(self) -> Option<HashAlg> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => Some(hash),
            Self::Ed25519 => None,
        }
    }

    /// IANA id of the hash function that the peer must announce in SIGNATURE_HASH_ALGORITHMS (RFC 7427
    /// section 4).
    pub const fn hash_id(self) -> u16 {
        match self.hash() {
            Some(hash) => hash.id(),
            None => IDENTITY_HASH,
        }
    }

    /// Whether the algorithm uses SHA-1, which MUST NOT be used in IKE (RFC 8247 section 3.2).
    pub const fn uses_sha1(self) -> bool {
        matches!(self.hash(), Some(HashAlg::Sha1))
    }

    /// Whether the algorithm works with keys of this kind.
    pub const fn accepts_key(self, kind: KeyKind) -> bool {
        matches!(
            (self, kind),
            (Self::RsaPkcs1(_) | Self::RsaPss(_), KeyKind::Rsa)
                | (Self::Ecdsa(_), KeyKind::Ec(_))
                | (Self::Ed25519, KeyKind::Ed25519)
        )
    }
}

impl fmt::Display for SignatureAlg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RsaPkcs1(hash) => write!(f, "RSASSA-PKCS1-v1_5 with {hash}"),
            Self::RsaPss(hash) => write!(f, "RSASSA-PSS with {hash}"),
            Self::Ecdsa(hash) => write!(f, "ECDSA with {hash}"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// Why signing or verifying failed. Only `Ok` from a verification means that a signature is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureError {
    /// No available provider supports the algorithm.
    Unsupported,
    /// The key has the wrong kind for the algorithm.
    WrongKey,
    /// The signature is over a SHA-1 digest (RFC 8247 section 3.2).
    Sha1,
    /// The signature is malformed, or invalid for this key and message.
    Invalid,
    /// The provider failed to sign.
    Failed,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "no provider has this signature algorithm",
            Self::WrongKey => "the key is not one for this signature algorithm",
            Self::Sha1 => "signature with SHA-1",
            Self::Invalid => "the signature does not hold",
            Self::Failed => "the provider failed to sign",
        })
    }
}

impl core::error::Error for SignatureError {}

/// A private key for signing. Stateless: exchanges may share one key.
pub trait SigningKey: Send + Sync {
    /// The public key. Its kind determines the algorithms that [`sign`](Self::sign) accepts
    /// ([`SignatureAlg::accepts_key`]).
    fn public_key(&self) -> &PublicKey;

    /// Signs `message`. Salts and blinding factors come from `rng`, unless the provider has its own random
    /// source.
    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError>;
}

/// Converts an ECDSA signature from DER to the concatenation of r and s, each as long as the curve's field.
/// Authentication methods 9, 10 and 11 use this format (RFC 4754 section 7).
pub fn ecdsa_to_fixed(curve: Curve, signature: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let read = || {
        let mut reader = Reader::only(SEQUENCE, signature)?;
        let numbers = [reader.read_unsigned()?, reader.read_unsigned()?];
        reader.finish().map(|()| numbers)
    };
    let mut fixed = Vec::new();
    for number in read().map_err(|_| SignatureError::Invalid)? {
        let zeros = curve.field_len().checked_sub(number.len()).ok_or(SignatureError::Invalid)?;
        fixed.resize(fixed.len().saturating_add(zeros), 0);
        fixed.extend_from_slice(number);
    }
    Ok(fixed)
}

/// Converts an ECDSA signature to DER; the reverse of [`ecdsa_to_fixed`].
pub fn ecdsa_from_fixed(curve: Curve, fixed: &[u8]) -> Result<Vec<u8>, SignatureError> {
    match fixed.split_at_checked(curve.field_len()) {
        Some((r, s)) if r.len() == s.len() => {
            Ok(der::write(SEQUENCE, &[&der::write_unsigned(r), &der::write_unsigned(s)]))
        }
        _ => Err(SignatureError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AeadAlg, AeadKey, CipherAlg, CipherKey, KeyError, MacAlg, MacKey, Provider, Providers, PublicKey,
    };
    use alloc::boxed::Box;
    use alloc::vec;

    /// A provider that returns the same verdict for every signature.
    struct Verdict(Result<(), SignatureError>);

    impl Provider for Verdict {
        fn name(&self) -> &'static str {
            "verdict"
        }

        fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
            Err(KeyError::Unsupported)
        }

        fn cipher(&self, _: CipherAlg, _: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
            Err(KeyError::Unsupported)
        }

        fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
            Err(KeyError::Unsupported)
        }

        fn verify(&self, _: SignatureAlg, _: &PublicKey, _: &[u8], _: &[u8]) -> Result<(), SignatureError> {
            self.0
        }
    }

    #[test]
    fn sha1_is_accepted_only_if_the_caller_allows_it() {
        let (key, providers) = (PublicKey::ed25519([1; 32]), Providers(&[&Verdict(Ok(()))]));
        for alg in SignatureAlg::ALL {
            let of_sha1 = if alg.hash_id() == 1 { Err(SignatureError::Sha1) } else { Ok(()) };
            assert_eq!(providers.verify(alg, &key, b"", b""), of_sha1, "{alg}");
            assert_eq!(providers.verify_allowing_sha1(alg, &key, b"", b""), Ok(()), "{alg}");
        }
    }

    /// Only providers without the algorithm are skipped.
    #[test]
    fn the_first_supporting_provider_decides() {
        let key = PublicKey::ed25519([1; 32]);
        let (none, no, yes) = (
            Verdict(Err(SignatureError::Unsupported)),
            Verdict(Err(SignatureError::Invalid)),
            Verdict(Ok(())),
        );
        let verify =
            |providers: &[&dyn Provider]| Providers(providers).verify(SignatureAlg::Ed25519, &key, b"", b"");
        assert_eq!(verify(&[&none, &yes, &no]), Ok(()));
        assert_eq!(verify(&[&none, &no, &yes]), Err(SignatureError::Invalid));
        assert_eq!(verify(&[&none, &none]), Err(SignatureError::Unsupported));
        assert_eq!(verify(&[]), Err(SignatureError::Unsupported));
    }

    #[test]
    fn ecdsa_signatures_convert_between_der_and_fixed_length() {
        for curve in Curve::ALL {
            let len = curve.field_len();
            for (r, s) in [(0x80, 1), (0x7F, 0xFF), (0, 0x80)] {
                let mut fixed = vec![5; 2 * len];
                (fixed[0], fixed[len]) = (r, s);
                let signature = ecdsa_from_fixed(curve, &fixed).unwrap();
                assert_eq!(ecdsa_to_fixed(curve, &signature), Ok(fixed));
            }
            for wrong in [0, len, 2 * len - 1, 2 * len + 1, 2 * len + 2] {
                assert_eq!(ecdsa_from_fixed(curve, &vec![1; wrong]), Err(SignatureError::Invalid));
            }
            let long = der::write_unsigned(&vec![1; len + 1]);
            let long = der::write(SEQUENCE, &[&long, &long]);
            assert_eq!(ecdsa_to_fixed(curve, &long), Err(SignatureError::Invalid));
        }
        for wrong in [&[][..], &[0x30, 0], &[0x30, 3, 2, 1, 1], &[0x30, 6, 2, 1, 0x80, 2, 1, 1]] {
            assert_eq!(ecdsa_to_fixed(Curve::P256, wrong), Err(SignatureError::Invalid));
        }
    }
}
