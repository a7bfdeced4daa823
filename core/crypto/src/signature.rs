//! Signatures for the authentication of IKE peers and for certificates (RFC 7427, RFC 4754, RFC 8420).

use crate::der::{self, Reader, SEQUENCE};
use crate::{Curve, HashAlg, KeyKind, PublicKey, Rng};
use alloc::vec::Vec;
use core::fmt;

/// IANA id, beside those of [`HashAlg`], of signatures that hash for themselves (RFC 8420 section 2).
pub const IDENTITY_HASH: u16 = 5;

/// How a signature is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlg {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2).
    RsaPkcs1(HashAlg),
    /// RSASSA-PSS (RFC 8017 section 8.1): MGF1 with the same hash, and a salt as long as the digest.
    RsaPss(HashAlg),
    /// ECDSA (FIPS 186), the signature as DER Ecdsa-Sig-Value (RFC 3279 section 2.2.3). The curve is the key's.
    Ecdsa(HashAlg),
    /// Ed25519 (RFC 8032), over the message itself.
    Ed25519,
}

impl SignatureAlg {
    /// All of them.
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

    /// The hash; none with Ed25519, which hashes for itself.
    pub const fn hash(self) -> Option<HashAlg> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => Some(hash),
            Self::Ed25519 => None,
        }
    }

    /// IANA id of the hash that the peer must have announced in SIGNATURE_HASH_ALGORITHMS (RFC 7427 section 4).
    pub const fn hash_id(self) -> u16 {
        match self.hash() {
            Some(hash) => hash.id(),
            None => IDENTITY_HASH,
        }
    }

    /// RFC 8247 section 3.2: MUST NOT be used in IKE.
    pub const fn uses_sha1(self) -> bool {
        matches!(self.hash(), Some(HashAlg::Sha1))
    }

    /// Whether a key of this kind makes such signatures.
    pub const fn fits(self, kind: KeyKind) -> bool {
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

/// Why there is no signature, or none that holds. Only `Ok` of a verification means that a signature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureError {
    /// No provider at hand has this algorithm.
    Unsupported,
    /// The key is not one for this algorithm.
    WrongKey,
    /// The signature is over a SHA-1 digest (RFC 8247 section 3.2).
    Sha1,
    /// The signature does not hold for this key and message, or is malformed.
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

/// A private key that signs. Shared by all exchanges; a call keeps no state.
pub trait SigningKey: Send + Sync {
    /// The public key to it. Its kind says which algorithms it can do ([`SignatureAlg::fits`]).
    fn public_key(&self) -> &PublicKey;

    /// Signs `message`. Salts and blinding factors come from `rng`, unless the provider has a random source of its own.
    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError>;
}

/// The numbers r and s of an ECDSA signature in DER, each as long as the curve's field, one after the other: the form of the
/// authentication methods 9, 10 and 11 (RFC 4754 section 7).
pub fn ecdsa_to_fixed(curve: Curve, signature: &[u8]) -> Result<Vec<u8>, SignatureError> {
    let read = || {
        let mut reader = Reader::only(SEQUENCE, signature)?;
        let numbers = [reader.unsigned()?, reader.unsigned()?];
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

/// The way back from [`ecdsa_to_fixed`].
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

    /// Gives one verdict on every signature.
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
    fn sha1_is_a_choice_of_the_caller() {
        let (key, providers) = (PublicKey::ed25519([1; 32]), Providers(&[&Verdict(Ok(()))]));
        for alg in SignatureAlg::ALL {
            let of_sha1 = if alg.hash_id() == 1 { Err(SignatureError::Sha1) } else { Ok(()) };
            assert_eq!(providers.verify(alg, &key, b"", b""), of_sha1, "{alg}");
            assert_eq!(providers.verify_even_sha1(alg, &key, b"", b""), Ok(()), "{alg}");
        }
    }

    /// Who does not have the algorithm is passed over, and nobody else.
    #[test]
    fn the_first_verdict_counts() {
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
    fn both_forms_of_an_ecdsa_signature() {
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
