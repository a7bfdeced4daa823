//! Tests of the suite for signatures: it must detect faults in a provider.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, Digest, HashAlg, KeyError, MacAlg, MacKey, PrivateKey, Provider,
    PublicKey, PublicParts, Rng, SignatureAlg, SignatureError, SigningKey,
};
use casemate_vectors::conformance;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// The fault of [`Faulty`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// PKCS #1: every block that ends with the digest is accepted.
    LaxPadding,
    /// PKCS #1: numbers above the modulus are reduced.
    AboveModulus,
    /// Signatures that are too long are truncated.
    CutSignature,
    /// Empty signatures are accepted.
    EmptySignature,
    /// All failures count as success, except for invalid signatures of the right length, as in iked before
    /// commit 4b8f409.
    ErrorIsSuccess,
    /// ECDSA: concatenated r and s are accepted in place of DER.
    FixedEcdsa,
    /// Ed25519: only the first six bytes of the message are verified.
    CutMessage,
    /// A key of the wrong kind causes no distinct error.
    AnyKind,
    /// Digests only include the first part.
    FirstPart,
    /// Scalars out of range are reduced.
    AnyScalar,
    /// Signs with another hash function than requested.
    OtherHash,
}

struct Faulty(Fault);

impl Provider for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
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

    fn hash(&self, alg: HashAlg, parts: &[&[u8]]) -> Option<Digest> {
        AWS_LC.hash(alg, if self.0 == Fault::FirstPart { &parts[..1] } else { parts })
    }

    fn signing_key(&self, key: &PrivateKey) -> Result<Box<dyn SigningKey>, KeyError> {
        let made = match (self.0, AWS_LC.signing_key(key)) {
            (Fault::AnyScalar, Err(KeyError::Refused)) => AWS_LC.signing_key(&any_key()),
            (_, made) => made,
        };
        Ok(Box::new(FaultyKey(self.0, made?)))
    }

    fn verify(
        &self,
        alg: SignatureAlg,
        key: &PublicKey,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let right = |message: &[u8], signature: &[u8]| AWS_LC.verify(alg, key, message, signature);
        let verdict = right(message, signature);
        let taken = match (self.0, key.parts()) {
            (Fault::LaxPadding, PublicParts::Rsa { .. }) => lax(alg, key, message, signature),
            (Fault::AboveModulus, PublicParts::Rsa { modulus, .. }) if signature >= &modulus[..] => {
                let number = BoxedUint::from_be_slice_vartime;
                let n = number(modulus).to_nz().unwrap();
                signature.len() == modulus.len()
                    && right(message, &number(signature).rem_vartime(&n).to_be_bytes()).is_ok()
            }
            (Fault::CutSignature, PublicParts::Rsa { modulus, .. }) => {
                signature.get(..modulus.len()).is_some_and(|cut| right(message, cut).is_ok())
            }
            (Fault::EmptySignature, _) => signature.is_empty(),
            (Fault::ErrorIsSuccess, PublicParts::Rsa { modulus, .. }) => signature.len() != modulus.len(),
            (Fault::FixedEcdsa, PublicParts::Ec { curve, .. }) => {
                casemate_crypto::ecdsa_from_fixed(*curve, signature)
                    .is_ok_and(|signature| right(message, &signature).is_ok())
            }
            (Fault::CutMessage, PublicParts::Ed25519(_)) => {
                right(&message[..message.len().min(6)], signature).is_ok()
            }
            _ => false,
        };
        match verdict {
            Err(SignatureError::WrongKey) if self.0 == Fault::AnyKind => Err(SignatureError::Invalid),
            verdict if taken => verdict.or(Ok(())),
            verdict => verdict,
        }
    }
}

/// The scalar 1 on P-256.
fn any_key() -> PrivateKey {
    let scalar =
        [&[0x30, 0x31, 2, 1, 1, 4, 32][..], &[1; 32], &[0xA0, 10, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D]]
            .concat();
    PrivateKey::from_der(&[&scalar[..], &[3, 1, 7]].concat(), Default::default()).unwrap()
}

/// Insecure verification of PKCS #1.
fn lax(alg: SignatureAlg, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    let (SignatureAlg::RsaPkcs1(hash), PublicParts::Rsa { modulus, exponent, .. }) = (alg, key.parts())
    else {
        return false;
    };
    let number = BoxedUint::from_be_slice_vartime;
    let group = BoxedMontyParams::new_vartime(Odd::new(number(modulus)).unwrap());
    let Ok(signature) = BoxedUint::from_be_slice(signature, group.bits_precision()) else { return false };
    let block = BoxedMontyForm::new(signature, &group).pow(&number(exponent)).retrieve().to_be_bytes();
    let digest = AWS_LC.hash(hash, &[message]).unwrap();
    block.windows(digest.as_slice().len()).any(|part| part == digest.as_slice())
}

struct FaultyKey(Fault, Box<dyn SigningKey>);

impl SigningKey for FaultyKey {
    fn public_key(&self) -> &PublicKey {
        self.1.public_key()
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        let alg = match (self.0, alg) {
            (Fault::OtherHash, SignatureAlg::Ecdsa(_)) => SignatureAlg::Ecdsa(HashAlg::Sha256),
            _ => alg,
        };
        self.1.sign(alg, message, rng)
    }
}

#[test]
fn every_fault_is_detected() {
    let faults: [(Fault, &[&str]); 11] = [
        (Fault::LaxPadding, &["wycheproof/rsa_signature", "python/rsa-forgeries"]),
        (Fault::AboveModulus, &["python/rsa-forgeries"]),
        (Fault::CutSignature, &["wycheproof/rsa_pss", "contract/signature"]),
        (Fault::EmptySignature, &["wycheproof/ecdsa", "contract/signature"]),
        (Fault::ErrorIsSuccess, &["wycheproof/rsa_signature", "contract/signature"]),
        (Fault::FixedEcdsa, &["contract/signature"]),
        (Fault::CutMessage, &["contract/signature"]),
        (Fault::AnyKind, &["contract/signature"]),
        (Fault::FirstPart, &["fips/180-4"]),
        (Fault::AnyScalar, &["contract/signature"]),
        (Fault::OtherHash, &["contract/signature"]),
    ];
    for (fault, by) in faults {
        let report = conformance(&Faulty(fault));
        let noticed: Vec<_> = report.families.iter().filter(|family| !family.failures.is_empty()).collect();
        let noticed: Vec<_> = noticed.iter().map(|family| family.name.as_str()).collect();
        assert!(by.iter().all(|family| noticed.contains(family)), "{fault:?} is noticed only by {noticed:?}");
    }
}
