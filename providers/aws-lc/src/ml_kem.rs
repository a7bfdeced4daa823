//! Key exchange with ML-KEM (FIPS 203).

use crate::ffi::{DecapsulationKey, EncapsulationError, Kem, encapsulate, wipe};
use crate::kex::shared_secret;
use casemate_crypto::{KexError, KexMethod, KexResponse, KexSecret, KeyError, Rng, SecretBytes};

/// The initiator's side of an exchange.
struct Initiator {
    method: KexMethod,
    key: DecapsulationKey,
    /// The encapsulation key.
    public: Vec<u8>,
}

/// Creates the initiator's side of an exchange with the parameter set `kem`, which is that of `method`.
pub(crate) fn initiator(
    method: KexMethod,
    kem: Kem,
    rng: &mut dyn Rng,
) -> Result<Box<dyn KexSecret>, KeyError> {
    let key = method.draw_private(rng, |seed| DecapsulationKey::from_seed(kem, seed))?;
    let public = key.public(method.public_len()).ok_or(KeyError::Refused)?;
    Ok(Box::new(Initiator { method, key, public }))
}

impl KexSecret for Initiator {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_response(peer)?;
        shared_secret(self.method, |out| self.key.decapsulate(peer, out).ok_or(KexError::Failed))
    }
}

/// Performs the responder's side of an exchange with the parameter set `kem`, which is that of `method`.
pub(crate) fn respond(
    method: KexMethod,
    kem: Kem,
    peer: &[u8],
    rng: &mut dyn Rng,
) -> Result<KexResponse, KexError> {
    method.check_public(peer)?;
    let mut m = KexMethod::draw_encapsulation(rng, |m| Some(*m))?;
    let mut public = vec![0; method.response_len()];
    let shared = shared_secret(method, |out| {
        encapsulate(kem, peer, &m, &mut public, out).map_err(|why| match why {
            EncapsulationError::NotReduced => KexError::NotReduced,
            EncapsulationError::Failed => KexError::Failed,
        })
    });
    wipe(&mut m);
    Ok(KexResponse { public, shared: shared? })
}
