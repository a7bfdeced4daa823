//! ECDSA on the NIST curves (FIPS 186). The nonce is derived from the key, the digest and the caller's random
//! source (RFC 6979 section 3.6), so that a weak random source does not reveal the key.

use super::{SecretRng, hash};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    Curve, HashAlg, PublicKey, Rng, SecretBytes, SignatureAlg, SignatureError, SigningKey, ecdsa_from_fixed,
    ecdsa_to_fixed,
};
use ecdsa::elliptic_curve::ops::Invert;
use ecdsa::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use ecdsa::elliptic_curve::subtle::CtOption;
use ecdsa::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize, Scalar};
use ecdsa::signature::hazmat::{PrehashVerifier, RandomizedPrehashSigner};
use ecdsa::{DigestAlgorithm, EcdsaCurve, Signature, VerifyingKey};

/// Verifies a signature.
pub(super) fn verify<C>(
    curve: Curve,
    alg: HashAlg,
    point: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Option<()>
where
    C: EcdsaCurve + CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
{
    let key = VerifyingKey::<C>::from_sec1_bytes(point).ok()?;
    let signature = Signature::<C>::from_slice(&ecdsa_to_fixed(curve, signature).ok()?).ok()?;
    key.verify_prehash(&number(curve, alg, message)?, &signature).ok()
}

struct Key<C: EcdsaCurve + CurveArithmetic>
where
    Scalar<C>: Invert<Output = CtOption<Scalar<C>>>,
{
    curve: Curve,
    private: ecdsa::SigningKey<C>,
    public: PublicKey,
}

pub(super) fn key<C>(curve: Curve, scalar: &SecretBytes) -> Option<Box<dyn SigningKey>>
where
    C: EcdsaCurve + CurveArithmetic + DigestAlgorithm + 'static,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    Scalar<C>: Invert<Output = CtOption<Scalar<C>>>,
    ecdsa::SigningKey<C>: Send + Sync,
{
    let private = ecdsa::SigningKey::<C>::from_slice(scalar.expose()).ok()?;
    let point = private.verifying_key().to_sec1_point(false);
    let public = PublicKey::ec(curve, point.as_bytes()).ok()?;
    Some(Box::new(Key { curve, private, public }))
}

impl<C> SigningKey for Key<C>
where
    C: EcdsaCurve + CurveArithmetic + DigestAlgorithm,
    Scalar<C>: Invert<Output = CtOption<Scalar<C>>>,
    ecdsa::SigningKey<C>: Send + Sync,
{
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, alg: SignatureAlg, message: &[u8], rng: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        let SignatureAlg::Ecdsa(hash) = alg else { return Err(SignatureError::WrongKey) };
        let number = number(self.curve, hash, message).ok_or(SignatureError::Failed)?;
        let signed = self.private.sign_prehash_with_rng(&mut SecretRng(rng), &number);
        let signature: Signature<C> = signed.map_err(|_| SignatureError::Failed)?;
        ecdsa_from_fixed(self.curve, &signature.to_bytes())
    }
}

/// Returns the digest, with leading zeros if it is shorter than the field. The crate rejects digests shorter
/// than half of the field.
fn number(curve: Curve, alg: HashAlg, message: &[u8]) -> Option<Vec<u8>> {
    let digest = hash(alg, &[message])?;
    let digest = digest.as_slice();
    let mut number = vec![0; curve.field_len().saturating_sub(digest.len())];
    number.extend_from_slice(digest);
    Some(number)
}
