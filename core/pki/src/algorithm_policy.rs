//! Restrictions on the keys and signatures of a certification path beyond RFC 5280: kinds and minimum lengths
//! of keys, and signature algorithms, as in strongSwan's `rsa-4096-sha384`.
//!
//! The lengths apply to every key on the path, including that of the root. The algorithms apply to every
//! signature on the path except that of the root, which is trusted as it is.

use crate::CertFault;
use casemate_crypto::{KeyKind, PublicKey, SignatureAlg};

/// A set of signature algorithms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignatureAlgs(u16);

impl SignatureAlgs {
    /// Whether the set contains the algorithm.
    pub fn has(self, alg: SignatureAlg) -> bool {
        self.0 & bit(alg) != 0
    }
}

impl FromIterator<SignatureAlg> for SignatureAlgs {
    fn from_iter<T: IntoIterator<Item = SignatureAlg>>(algs: T) -> Self {
        Self(algs.into_iter().fold(0, |set, alg| set | bit(alg)))
    }
}

fn bit(alg: SignatureAlg) -> u16 {
    let at = SignatureAlg::ALL.iter().position(|known| *known == alg);
    at.and_then(|at| 1_u16.checked_shl(u32::try_from(at).ok()?)).unwrap_or_default()
}

/// Accepted kinds of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Minimum length of the modulus of an RSA key, in bits; `None` rejects RSA keys.
    pub rsa: Option<u32>,
    /// Minimum length of the field of an ECDSA key, in bits; `None` rejects ECDSA keys.
    pub ecdsa: Option<u32>,
    /// Whether Ed25519 keys are accepted.
    pub ed25519: bool,
}

/// Restrictions on the algorithms of a path. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlgorithmPolicy {
    /// Accepted signatures on certificates; `None` accepts any that is secure.
    pub signatures: Option<SignatureAlgs>,
    /// Accepted keys of certificates; `None` accepts any that is secure.
    pub keys: Option<KeyPolicy>,
}

impl AlgorithmPolicy {
    /// Checks the kind and the length of a key, for keys without a certificate. The error is
    /// [`CertFault::KeyNotAllowed`].
    pub fn check_key(&self, key: &PublicKey) -> Result<(), CertFault> {
        let Some(kinds) = self.keys else { return Ok(()) };
        let (kind, bits) = (key.kind(), u32::try_from(key.bits()).unwrap_or(u32::MAX));
        let min_bits = match kind {
            KeyKind::Rsa => kinds.rsa,
            KeyKind::Ec(_) => kinds.ecdsa,
            KeyKind::Ed25519 => kinds.ed25519.then_some(0),
        };
        if min_bits.is_some_and(|min_bits| bits >= min_bits) {
            return Ok(());
        }
        Err(CertFault::KeyNotAllowed { kind, bits, min_bits })
    }

    pub(crate) fn check_scheme(&self, alg: SignatureAlg) -> Result<(), CertFault> {
        if self.signatures.is_none_or(|schemes| schemes.has(alg)) {
            Ok(())
        } else {
            Err(CertFault::SignatureNotAllowed(alg))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_its_elements() {
        for put_in in SignatureAlg::ALL {
            let set: SignatureAlgs = [put_in].into_iter().collect();
            let found: alloc::vec::Vec<_> =
                SignatureAlg::ALL.into_iter().filter(|alg| set.has(*alg)).collect();
            assert_eq!(found, [put_in]);
        }
        assert!(!SignatureAlg::ALL.into_iter().any(|alg| SignatureAlgs::default().has(alg)));
    }
}
