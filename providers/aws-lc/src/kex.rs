//! Key exchange: MODP (RFC 3526), ECP (RFC 5903), X25519 (RFC 8031) and ML-KEM (FIPS 203). Curve448 is not in
//! the library.

use crate::ffi::{
    Curve, DecapsulationKey, EcKey, EcdhError, EncapsulationError, Kem, X25519, encapsulate, mod_exp, wipe,
    x25519, x25519_public,
};
use casemate_crypto::{KexError, KexMethod, KexResponse, KexSecret, KeyError, Rng, SecretBytes};

/// Creates the local side of an exchange with `method`.
pub(crate) fn secret(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    match method {
        KexMethod::Modp1536
        | KexMethod::Modp2048
        | KexMethod::Modp3072
        | KexMethod::Modp4096
        | KexMethod::Modp6144
        | KexMethod::Modp8192 => modp(method, rng),
        KexMethod::EcpP256 => ecp(method, Curve::P256, rng),
        KexMethod::EcpP384 => ecp(method, Curve::P384, rng),
        KexMethod::EcpP521 => ecp(method, Curve::P521, rng),
        KexMethod::X25519 => montgomery(rng),
        KexMethod::MlKem512 => ml_kem(method, Kem::MlKem512, rng),
        KexMethod::MlKem768 => ml_kem(method, Kem::MlKem768, rng),
        KexMethod::MlKem1024 => ml_kem(method, Kem::MlKem1024, rng),
        KexMethod::Modp1024 | KexMethod::BrainpoolP256 | KexMethod::BrainpoolP384 | KexMethod::X448 => {
            Err(KeyError::Unsupported)
        }
    }
}

/// Performs an exchange with `method` as the responder.
pub(crate) fn response(method: KexMethod, peer: &[u8], rng: &mut dyn Rng) -> Result<KexResponse, KexError> {
    match method {
        KexMethod::MlKem512 => ml_kem_response(method, Kem::MlKem512, peer, rng),
        KexMethod::MlKem768 => ml_kem_response(method, Kem::MlKem768, peer, rng),
        KexMethod::MlKem1024 => ml_kem_response(method, Kem::MlKem1024, peer, rng),
        _ => KexResponse::with_secret(secret(method, rng)?, peer),
    }
}

struct Modp {
    method: KexMethod,
    prime: &'static [u8],
    private: SecretBytes,
    public: Vec<u8>,
}

fn modp(method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let prime = method.modp_prime().ok_or(KeyError::Unsupported)?;
    let private = method.draw_private(rng, |bytes| Some(SecretBytes::new(bytes)))?;
    let mut public = vec![0; method.public_len()];
    mod_exp(&[2], private.expose(), prime, &mut public).ok_or(KeyError::Refused)?;
    Ok(Box::new(Modp { method, prime, private, public }))
}

impl KexSecret for Modp {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_public(peer)?;
        shared_secret(self.method, |out| {
            mod_exp(peer, self.private.expose(), self.prime, out).ok_or(KexError::Failed)
        })
    }
}

struct Ecp {
    method: KexMethod,
    private: EcKey,
    public: Vec<u8>,
}

fn ecp(method: KexMethod, curve: Curve, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let private = method.draw_private(rng, |bytes| EcKey::new(curve, bytes))?;
    let public = private.public(method.public_len()).ok_or(KeyError::Refused)?;
    Ok(Box::new(Ecp { method, private, public }))
}

impl KexSecret for Ecp {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_public(peer)?;
        shared_secret(self.method, |out| {
            self.private.agree(peer, out).map_err(|why| match why {
                EcdhError::NotOnCurve => KexError::NotOnCurve,
                EcdhError::Failed => KexError::Failed,
            })
        })
    }
}

struct Montgomery {
    private: SecretBytes,
    public: [u8; X25519],
}

fn montgomery(rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let (private, public) = KexMethod::X25519.draw_private(rng, |bytes| {
        let public = x25519_public(bytes.first_chunk()?);
        Some((SecretBytes::new(bytes), public))
    })?;
    Ok(Box::new(Montgomery { private, public }))
}

impl KexSecret for Montgomery {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        KexMethod::X25519.check_public(peer)?;
        shared_secret(KexMethod::X25519, |out| {
            let private = self.private.expose().first_chunk().ok_or(KexError::Failed)?;
            let (peer, out) = peer.first_chunk().zip(out.first_chunk_mut()).ok_or(KexError::Failed)?;
            // RFC 8031 section 3.2: the library masks the top bit and accepts non-canonical values.
            if x25519(private, peer, out) { Ok(()) } else { Err(KexError::AllZero) }
        })
    }
}

/// The initiator's side of an exchange with ML-KEM.
struct MlKem {
    method: KexMethod,
    key: DecapsulationKey,
    /// The encapsulation key.
    public: Vec<u8>,
}

/// Creates the initiator's side of an exchange with the parameter set `kem`, which is that of `method`.
fn ml_kem(method: KexMethod, kem: Kem, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
    let key = method.draw_private(rng, |seed| DecapsulationKey::from_seed(kem, seed))?;
    let public = key.public(method.public_len()).ok_or(KeyError::Refused)?;
    Ok(Box::new(MlKem { method, key, public }))
}

impl KexSecret for MlKem {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        self.method.check_response(peer)?;
        shared_secret(self.method, |out| self.key.decapsulate(peer, out).ok_or(KexError::Failed))
    }
}

/// Performs the responder's side of an exchange with the parameter set `kem`, which is that of `method`.
fn ml_kem_response(
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

/// Returns the shared secret that `write` writes to a buffer, and wipes the buffer.
fn shared_secret(
    method: KexMethod,
    write: impl FnOnce(&mut [u8]) -> Result<(), KexError>,
) -> Result<SecretBytes, KexError> {
    let mut buffer = vec![0; method.shared_len()];
    let shared = write(&mut buffer).map(|()| SecretBytes::new(&buffer));
    wipe(&mut buffer);
    shared
}
