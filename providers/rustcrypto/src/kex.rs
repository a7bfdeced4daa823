//! Key exchange: the MODP groups (RFC 3526), the random ECP groups (RFC 5903) and X25519 (RFC 7748).

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Rng, SecretBytes};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use p256::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize, PublicKey, SecretKey};
use x25519_dalek::{StaticSecret, X25519_BASEPOINT_BYTES};
use zeroize::{Zeroize, Zeroizing};

/// A side of an exchange in a MODP group: Diffie-Hellman modulo a safe prime, with generator 2.
///
/// Montgomery exponentiation in constant time: a fixed window whose table is read completely in each step.
/// The number of steps is the number of bits of the private value, including leading zeros. The table
/// contains powers of the peer's public value and is not wiped.
struct Modp {
    method: KexMethod,
    group: BoxedMontyParams,
    private: Zeroizing<BoxedUint>,
    public: Vec<u8>,
}

/// Creates the local side of an exchange in the group of `method`.
pub(crate) fn modp(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let group = group(method).ok_or(KeyError::Unsupported)?;
    let private = method.draw_private(rng, |bytes| integer(&group, bytes).map(Zeroizing::new))?;
    let two = integer(&group, &[2]).ok_or(KeyError::Refused)?;
    let public = power(&group, two, &private, method).to_vec();
    Ok(Box::new(Modp { method, group, private, public }))
}

impl KexSecret for Modp {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_public(peer)?;
        let peer = integer(&self.group, peer).ok_or(KexError::Failed)?;
        let shared = power(&self.group, peer, &self.private, self.method);
        Ok(SecretBytes::new(&shared))
    }
}

fn group(method: KexMethod) -> Option<BoxedMontyParams> {
    let prime = BoxedUint::from_be_slice_vartime(method.modp_prime()?);
    Some(BoxedMontyParams::new_vartime(Odd::new(prime).into_option()?))
}

/// Returns a big-endian number in the precision of the group.
fn integer(group: &BoxedMontyParams, bytes: &[u8]) -> Option<BoxedUint> {
    BoxedUint::from_be_slice(bytes, group.bits_precision()).ok()
}

/// Returns `base` to the power of the private value, big-endian and as long as the prime (RFC 7296 section
/// 2.14).
fn power(
    group: &BoxedMontyParams,
    base: BoxedUint,
    private: &BoxedUint,
    method: KexMethod,
) -> Zeroizing<Box<[u8]>> {
    let bits = u32::try_from(method.private_len().saturating_mul(8)).unwrap_or(u32::MAX);
    let base = BoxedMontyForm::new(base, group);
    let mut power = base.pow_bounded_exp(private, bits);
    let result = Zeroizing::new(power.retrieve());
    power.zeroize();
    Zeroizing::new(result.to_be_bytes())
}

/// First byte of an uncompressed point (SEC 1 section 2.3.3). IKE sends the coordinates without it.
const UNCOMPRESSED: u8 = 4;

/// A side of an exchange on a random ECP group (RFC 5903).
struct Ecp<C: CurveArithmetic> {
    method: KexMethod,
    private: SecretKey<C>,
    public: Vec<u8>,
}

/// Creates the local side of an exchange on the curve `C`, which is the curve of `method`.
pub(crate) fn ecp<C>(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError>
where
    C: CurveArithmetic + 'static,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    SecretKey<C>: Send,
{
    let private = method.draw_private(rng, |bytes| SecretKey::<C>::from_slice(bytes).ok())?;
    let point = private.public_key().to_sec1_point(false);
    let public = point.as_bytes().get(1..).unwrap_or_default().to_vec();
    Ok(Box::new(Ecp { method, private, public }))
}

impl<C> KexSecret for Ecp<C>
where
    C: CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    SecretKey<C>: Send,
{
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_public(peer)?;
        let encoded = [&[UNCOMPRESSED], peer].concat();
        // RFC 6989 section 2.3: coordinates must be below the prime of the field, and on the curve. The point
        // at infinity cannot be encoded.
        let peer = PublicKey::<C>::from_sec1_bytes(&encoded).map_err(|_| KexError::NotOnCurve)?;
        Ok(SecretBytes::new(self.private.diffie_hellman(&peer).raw_secret_bytes()))
    }
}

/// A side of an X25519 exchange (RFC 7748, for IKE RFC 8031).
struct X25519 {
    private: StaticSecret,
    public: x25519_dalek::PublicKey,
}

/// Creates the local side of an exchange. `public_of` is [`x25519_by_table`] or [`x25519_by_ladder`].
pub(crate) fn x25519(
    rng: &mut dyn Rng,
    public_of: fn(&StaticSecret) -> x25519_dalek::PublicKey,
) -> Result<Box<dyn KexSecret>, KeyError> {
    let private = KexMethod::X25519.draw_private(rng, |bytes| {
        let bytes = Zeroizing::new(*bytes.first_chunk()?);
        Some(StaticSecret::from(*bytes))
    })?;
    let public = public_of(&private);
    Ok(Box::new(X25519 { private, public }))
}

/// Computes the public value from multiples of the base point, which are 30 KiB of constants.
pub(crate) fn x25519_by_table(private: &StaticSecret) -> x25519_dalek::PublicKey {
    x25519_dalek::PublicKey::from(private)
}

/// Computes the public value like a shared secret (RFC 7748 section 6.1): slower, but without constants.
pub(crate) fn x25519_by_ladder(private: &StaticSecret) -> x25519_dalek::PublicKey {
    private.diffie_hellman(&x25519_dalek::PublicKey::from(X25519_BASEPOINT_BYTES)).to_bytes().into()
}

impl KexSecret for X25519 {
    fn public(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        KexMethod::X25519.check_public(peer)?;
        let peer: [u8; 32] = *peer.first_chunk().ok_or(KexError::Failed)?;
        // RFC 8031 section 3.2: the library masks the top bit and accepts non-canonical values.
        let shared = self.private.diffie_hellman(&x25519_dalek::PublicKey::from(peer));
        if shared.was_contributory() {
            Ok(SecretBytes::new(shared.as_bytes()))
        } else {
            Err(KexError::AllZero)
        }
    }
}
