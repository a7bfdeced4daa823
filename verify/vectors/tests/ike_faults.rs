//! Tests of the suite for IKE: it must detect faults in the PRFs or the key exchange of a provider.

use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, KexError, KexMethod, KexSecret, KeyError, MacAlg, MacKey, PrfAlg,
    PrfError, PrfKey, PrfOutput, Provider, Providers, Rng, SecretBytes,
};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_test_support::FixedRng;
use casemate_vectors::{conformance, differential};

/// The fault of [`Faulty`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// PRF keys are truncated to the preferred length.
    CutKey,
    /// AES-CMAC-PRF-128 pads short keys as AES-XCBC-PRF-128 does.
    PaddedKey,
    /// The PRF only processes the first part.
    FirstPart,
    /// Outputs are one byte too short.
    ShortOutput,
    /// Public values that are too long are truncated.
    CutPublic,
    /// Every public value yields a shared secret.
    AnyPublic,
    /// 1 and p - 1 are accepted.
    Edges,
    /// A shared secret of zeros is accepted.
    Zeros,
    /// Public values with the top bit set are rejected, although RFC 8031 requires masking.
    NoMask,
    /// Leading zeros of a shared secret are dropped.
    Stripped,
    /// The caller's random source is ignored.
    OwnRandom,
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

    fn prf(&self, alg: PrfAlg, key: &[u8]) -> Result<Box<dyn PrfKey>, KeyError> {
        let mut key = key.to_vec();
        match self.0 {
            Fault::CutKey => key.truncate(alg.key_len()),
            Fault::PaddedKey if alg == PrfAlg::AesCmac && key.len() < 16 => key.resize(16, 0),
            _ => {}
        }
        Ok(Box::new(FaultyPrf(self.0, Providers(&[&RUSTCRYPTO]).prf(alg, &key)?)))
    }

    /// Supports one method of each kind, because the suite runs once per fault.
    fn kex(&self, method: KexMethod, rng: &mut dyn Rng) -> Result<Box<dyn KexSecret>, KeyError> {
        if !matches!(method, KexMethod::Modp2048 | KexMethod::EcpP256 | KexMethod::X25519) {
            return Err(KeyError::Unsupported);
        }
        let secret = match self.0 {
            Fault::OwnRandom => RUSTCRYPTO.kex(method, &mut FixedRng::new(7))?,
            _ => RUSTCRYPTO.kex(method, rng)?,
        };
        Ok(Box::new(FaultyKex(self.0, method, secret)))
    }
}

struct FaultyPrf(Fault, Box<dyn PrfKey>);

impl PrfKey for FaultyPrf {
    fn prf(&self, parts: &[&[u8]]) -> Result<PrfOutput, PrfError> {
        let parts = if self.0 == Fault::FirstPart { parts.get(..1).unwrap_or_default() } else { parts };
        let output = self.1.prf(parts)?;
        let (last, front) = output.expose().split_last().ok_or(PrfError::Failed)?;
        let whole = [front, &[*last][..]].concat();
        Ok(PrfOutput::from_slice(if self.0 == Fault::ShortOutput { front } else { &whole }))
    }
}

struct FaultyKex(Fault, KexMethod, Box<dyn KexSecret>);

impl KexSecret for FaultyKex {
    fn public(&self) -> &[u8] {
        self.2.public()
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        let Self(fault, method, secret) = *self;
        let masked = method == KexMethod::X25519 && peer.last().is_some_and(|last| last & 0x80 != 0);
        let peer =
            if fault == Fault::CutPublic { peer.get(..method.public_len()).unwrap_or(peer) } else { peer };
        let edge = method.modp_prime().is_some_and(|prime| prime.first() == peer.first());
        let zeros = SecretBytes::new(&vec![0; method.shared_len()]);
        match (fault, secret.agree(peer)) {
            (Fault::NoMask, _) if masked => Err(KexError::OutOfRange),
            (Fault::Stripped, Ok(shared)) => {
                let zeros = shared.expose().iter().take_while(|byte| **byte == 0).count();
                Ok(SecretBytes::new(shared.expose().get(zeros..).unwrap_or_default()))
            }
            (Fault::AnyPublic, Err(KexError::NotOnCurve)) => Ok(zeros),
            (Fault::Edges, Err(KexError::OutOfRange)) if edge => Ok(zeros),
            (Fault::Zeros, Err(KexError::AllZero)) => Ok(zeros),
            (_, agreed) => agreed,
        }
    }
}

#[test]
fn every_fault_is_detected() {
    let faults: [(Fault, &[&str]); 11] = [
        (Fault::CutKey, &["prf/rfc-4434", "prf/rfc-4615", "contract/prf"]),
        (Fault::PaddedKey, &["prf/rfc-4615"]),
        (Fault::FirstPart, &["prf/rfc-4434", "cavp/ikev2.rsp", "contract/prf"]),
        (Fault::ShortOutput, &["prf/rfc-2202-sha1", "prf/rfc-4231-sha512", "cavp/ikev2.rsp"]),
        (Fault::CutPublic, &["contract/kex"]),
        (Fault::AnyPublic, &["wycheproof/ecdh_secp256r1_ecpoint", "contract/kex"]),
        (Fault::Edges, &["contract/kex"]),
        (Fault::Zeros, &["wycheproof/x25519", "contract/kex"]),
        (Fault::NoMask, &["wycheproof/x25519"]),
        (Fault::Stripped, &["python/modp"]),
        (Fault::OwnRandom, &["rfc/5903", "rfc/8031", "python/modp"]),
    ];
    for (fault, by) in faults {
        let report = conformance(&Faulty(fault));
        let noticed: Vec<_> = report.families.iter().filter(|family| !family.failures.is_empty()).collect();
        let noticed: Vec<_> = noticed.iter().map(|family| family.name.as_str()).collect();
        assert!(by.iter().all(|family| noticed.contains(family)), "{fault:?} is noticed only by {noticed:?}");
    }
}

#[test]
fn an_ignored_random_source_is_detected() {
    let report = differential(&RUSTCRYPTO, &Faulty(Fault::OwnRandom), 1);
    let failures = report.failures();
    assert!(failures.iter().any(|line| line.starts_with("differential/kex")), "{failures:?}");
}
