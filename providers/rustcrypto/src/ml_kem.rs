//! Key exchange with ML-KEM (FIPS 203), for the feature `ml-kem`.
//!
//! The initiator keeps the 64 bytes of the seed, from which it computes the decapsulation key again:
//! expanded, that key has up to 3,168 bytes. The library works on the stack: docs/decisions/0130-ml-kem.md
//! has the numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexResponse, KexSecret, KeyError, Rng, SecretBytes};
use core::convert::Infallible;
use core::marker::PhantomData;
use ml_kem::array::sizes::U32;
use ml_kem::kem::{Decapsulate, Decapsulator, Encapsulate, Kem, KeyExport, KeyInit, TryKeyInit};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// A parameter set of ML-KEM. The library wipes its decapsulation keys.
pub(crate) trait ParameterSet:
    Kem<DecapsulationKey: Decapsulate<Kem = Self> + KeyInit + ZeroizeOnDrop, SharedKeySize = U32>
{
}

impl ParameterSet for ml_kem::MlKem512 {}
impl ParameterSet for ml_kem::MlKem768 {}
impl ParameterSet for ml_kem::MlKem1024 {}

/// The initiator's side of an exchange with the parameter set `K`.
struct Initiator<K> {
    method: KexMethod,
    /// d || z (FIPS 203 section 7.1).
    seed: SecretBytes,
    /// The encapsulation key.
    public: Vec<u8>,
    parameters: PhantomData<fn() -> K>,
}

/// Creates the initiator's side of an exchange with the parameter set `K`, which is that of `method`.
pub(crate) fn initiator<K: ParameterSet>(
    method: KexMethod,
    rng: &mut dyn Rng,
) -> Result<Box<dyn KexSecret>, KeyError> {
    let seed = method.draw_private(rng, |bytes| Some(SecretBytes::new(bytes)))?;
    let key = K::DecapsulationKey::new_from_slice(seed.expose()).map_err(|_| KeyError::Refused)?;
    let public = key.encapsulation_key().to_bytes().to_vec();
    Ok(Box::new(Initiator::<K> { method, seed, public, parameters: PhantomData }))
}

impl<K: ParameterSet> KexSecret for Initiator<K> {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_response(peer)?;
        let key = K::DecapsulationKey::new_from_slice(self.seed.expose()).map_err(|_| KexError::Failed)?;
        let shared = key.decapsulate_slice(peer).map_err(|_| KexError::Failed)?;
        Ok(SecretBytes::new(&Zeroizing::new(shared)[..]))
    }
}

/// Performs the responder's side of an exchange with the parameter set `K`, which is that of `method`.
pub(crate) fn respond<K: ParameterSet>(
    method: KexMethod,
    peer: &[u8],
    rng: &mut dyn Rng,
) -> Result<KexResponse, KexError> {
    method.check_public(peer)?;
    // The library does the modulus check (FIPS 203 section 7.2), the only one besides that of the length.
    let key = K::EncapsulationKey::new_from_slice(peer).map_err(|_| KexError::NotReduced)?;
    let m = KexMethod::draw_encapsulation(rng, |m| Some(Zeroizing::new(*m)))?;
    let (ciphertext, shared) = key.encapsulate_with_rng(&mut Given(&m));
    let shared = SecretBytes::new(&Zeroizing::new(shared)[..]);
    Ok(KexResponse { public: ciphertext.to_vec(), shared })
}

/// The randomness of one encapsulation in the form that the library expects, which draws exactly these bytes.
struct Given<'m>(&'m [u8; 32]);

impl rand_core::TryRng for Given<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes).map(|()| u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        out.iter_mut().zip(self.0).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Given<'_> {}
