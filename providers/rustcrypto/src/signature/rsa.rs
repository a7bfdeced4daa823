//! RSASSA-PKCS1-v1_5 and RSASSA-PSS (RFC 8017 section 8).
//!
//! Private operations are blinded with the caller's random source, and their result is verified with the
//! public key before it is returned. The Marvin attack (RUSTSEC-2023-0071) applies to decryption, which IKEv2
//! does not use.

use super::{SecretRng, hash};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    HashAlg, MAX_RSA_BITS, PublicKey, Rng, RsaPrivateKey, SignatureAlg, SignatureError, SigningKey,
};
use crypto_bigint::BoxedUint;
use rsa::pkcs1v15::Pkcs1v15Sign;
use rsa::pss::Pss;
use rsa::{RsaPublicKey, traits::SignatureScheme};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

/// Padding of the digest.
#[derive(Clone, Copy)]
pub(super) enum Padding {
    Pkcs1,
    Pss,
}

/// Verifies a signature. The crate compares the complete padded digest with its own result, so nothing can
/// hide in the padding (CVE-2018-16151).
pub(super) fn verify(
    padding: Padding,
    alg: HashAlg,
    (modulus, exponent): (&[u8], &[u8]),
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    let number = BoxedUint::from_be_slice_vartime;
    let key = RsaPublicKey::new_with_size_limits(
        number(modulus),
        number(exponent),
        RsaPublicKey::MIN_SIZE..=MAX_RSA_BITS,
    )
    .ok()?;
    let digest = hash(alg, &[message])?;
    with_scheme(padding, alg, Verify { key: &key, digest: digest.as_slice(), signature })
}

struct Key {
    private: rsa::RsaPrivateKey,
    public: PublicKey,
}

pub(super) fn key(key: &RsaPrivateKey) -> Option<Box<dyn SigningKey>> {
    let numbers = key.numbers().ok()?;
    let bits = u32::try_from(numbers.modulus.len().saturating_mul(8)).ok()?;
    let half = bits.div_ceil(2);
    let number = |bytes: &[u8], bits| BoxedUint::from_be_slice(bytes, bits).ok();
    let exponent = BoxedUint::from_be_slice_vartime(numbers.public_exponent);
    let primes = numbers.primes.map(|prime| number(prime, half));
    let [Some(p), Some(q)] = primes else { return None };
    let (modulus, private) = (number(numbers.modulus, bits)?, number(numbers.private_exponent, bits)?);
    let private = rsa::RsaPrivateKey::from_components(modulus, exponent, private, vec![p, q]).ok()?;
    Some(Box::new(Key { private, public: key.public().clone() }))
}

impl SigningKey for Key {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        let (padding, alg) = match alg {
            SignatureAlg::RsaPkcs1(hash) => (Padding::Pkcs1, hash),
            SignatureAlg::RsaPss(hash) => (Padding::Pss, hash),
            _ => return Err(SignatureError::WrongKey),
        };
        let digest = hash(alg, &[message]).ok_or(SignatureError::Failed)?;
        let signing = Sign { key: &self.private, rng: SecretRng(rng), digest: digest.as_slice() };
        with_scheme(padding, alg, signing).ok_or(SignatureError::Failed)
    }
}

/// An operation with a signature scheme. The type of the scheme depends on the hash.
trait SchemeOperation {
    type Output;
    fn run(self, scheme: impl SignatureScheme) -> Option<Self::Output>;
}

fn with_scheme<W: SchemeOperation>(padding: Padding, alg: HashAlg, work: W) -> Option<W::Output> {
    match (padding, alg) {
        (Padding::Pkcs1, HashAlg::Sha1) => work.run(Pkcs1v15Sign::new::<Sha1>()),
        (Padding::Pkcs1, HashAlg::Sha256) => work.run(Pkcs1v15Sign::new::<Sha256>()),
        (Padding::Pkcs1, HashAlg::Sha384) => work.run(Pkcs1v15Sign::new::<Sha384>()),
        (Padding::Pkcs1, HashAlg::Sha512) => work.run(Pkcs1v15Sign::new::<Sha512>()),
        (Padding::Pss, HashAlg::Sha1) => work.run(Pss::<Sha1>::new()),
        (Padding::Pss, HashAlg::Sha256) => work.run(Pss::<Sha256>::new()),
        (Padding::Pss, HashAlg::Sha384) => work.run(Pss::<Sha384>::new()),
        (Padding::Pss, HashAlg::Sha512) => work.run(Pss::<Sha512>::new()),
    }
}

struct Verify<'a> {
    key: &'a RsaPublicKey,
    digest: &'a [u8],
    signature: &'a [u8],
}

impl SchemeOperation for Verify<'_> {
    type Output = ();

    fn run(self, scheme: impl SignatureScheme) -> Option<()> {
        self.key.verify(scheme, self.digest, self.signature).ok()
    }
}

struct Sign<'a> {
    key: &'a rsa::RsaPrivateKey,
    rng: SecretRng<'a>,
    digest: &'a [u8],
}

impl SchemeOperation for Sign<'_> {
    type Output = Vec<u8>;

    fn run(mut self, scheme: impl SignatureScheme) -> Option<Vec<u8>> {
        self.key.sign_with_rng(&mut self.rng, scheme, self.digest).ok()
    }
}
