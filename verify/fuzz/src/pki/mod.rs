//! Keys, certificates and CRLs: casemate-pki, and what casemate-crypto reads.

pub(crate) mod certificate;
pub(crate) mod crl;
pub(crate) mod keys;
pub(crate) mod pem_file;

use casemate_crypto::{
    AeadAlg, AeadKey, CipherAlg, CipherKey, KeyError, MacAlg, MacKey, Provider, PublicKey, SignatureAlg,
    SignatureError,
};
use casemate_pki::pem;

/// A provider to which every signature holds, or else nothing would get past the first one.
struct Credulous;

impl Provider for Credulous {
    fn name(&self) -> &'static str {
        "credulous"
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

    fn verify(&self, _: SignatureAlg, _: &PublicKey, _: &[u8], _: &[u8]) -> Result<(), SignatureError> {
        Ok(())
    }
}

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../../../core/pki/tests/data/", $name))
    };
}
use data;

/// The first of January 2027, when the certificates of core/pki's tests are valid.
const NOW: u64 = 1_798_761_600;

fn root() -> Vec<u8> {
    pem::certificates(data!("root.pem")).unwrap().remove(0)
}

fn sub() -> Vec<u8> {
    pem::certificates(data!("sub.pem")).unwrap().remove(0)
}

fn moon() -> Vec<u8> {
    pem::certificates(data!("moon.pem")).unwrap().remove(0)
}
