//! The MODP groups (RFC 3526): Diffie-Hellman modulo a safe prime, with generator 2.
//!
//! Montgomery exponentiation in constant time: a fixed window whose table is read in full at each step, and as many steps as the
//! private value has bits, whatever they are. The table holds powers of the peer's value, which is public; it is not wiped.

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Rng, SecretBytes};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize, Zeroizing};

struct Modp {
    method: KexMethod,
    group: BoxedMontyParams,
    private: Zeroizing<BoxedUint>,
    public: Vec<u8>,
}

/// Our side of an exchange in the group of `method`.
pub(crate) fn secret(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
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

/// Big-endian bytes in the group's precision.
fn integer(group: &BoxedMontyParams, bytes: &[u8]) -> Option<BoxedUint> {
    BoxedUint::from_be_slice(bytes, group.bits_precision()).ok()
}

/// `base` to the private value; big-endian, as long as the prime (RFC 7296 section 2.14).
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
