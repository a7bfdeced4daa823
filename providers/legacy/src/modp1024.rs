//! Diffie-Hellman in the 1024-bit MODP group (RFC 2409 section 6.2).
//!
//! Montgomery exponentiation in constant time: a fixed window whose table is read completely in each step.
//! The table contains powers of the peer's public value and is not wiped.

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Rng, SecretBytes};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize, Zeroizing};

const METHOD: KexMethod = KexMethod::Modp1024;

/// A side of an exchange.
struct Modp1024 {
    group: BoxedMontyParams,
    private: Zeroizing<BoxedUint>,
    public: Vec<u8>,
}

/// Creates the local side of an exchange.
pub(crate) fn secret(rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let group = group().ok_or(KeyError::Unsupported)?;
    let private = METHOD.draw_private(rng, |bytes| integer(&group, bytes).map(Zeroizing::new))?;
    let two = integer(&group, &[2]).ok_or(KeyError::Refused)?;
    let public = power(&group, two, &private).to_vec();
    Ok(Box::new(Modp1024 { group, private, public }))
}

impl KexSecret for Modp1024 {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        METHOD.check_public(peer)?;
        let peer = integer(&self.group, peer).ok_or(KexError::Failed)?;
        Ok(SecretBytes::new(&power(&self.group, peer, &self.private)))
    }
}

fn group() -> Option<BoxedMontyParams> {
    let prime = BoxedUint::from_be_slice_vartime(METHOD.modp_prime()?);
    Some(BoxedMontyParams::new_vartime(Odd::new(prime).into_option()?))
}

/// A big-endian number in the precision of the group.
fn integer(group: &BoxedMontyParams, bytes: &[u8]) -> Option<BoxedUint> {
    BoxedUint::from_be_slice(bytes, group.bits_precision()).ok()
}

/// `base` to the power of the private value, big-endian and as long as the prime (RFC 7296 section 2.14).
fn power(group: &BoxedMontyParams, base: BoxedUint, private: &BoxedUint) -> Zeroizing<Box<[u8]>> {
    let bits = u32::try_from(METHOD.private_len().saturating_mul(8)).unwrap_or(u32::MAX);
    let mut power = BoxedMontyForm::new(base, group).pow_bounded_exp(private, bits);
    let result = Zeroizing::new(power.retrieve());
    power.zeroize();
    Zeroizing::new(result.to_be_bytes())
}
