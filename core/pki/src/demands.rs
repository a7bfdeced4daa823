//! What a connection asks of the keys and signatures of a certification path beyond RFC 5280: kinds of keys
//! and their least lengths, and signature algorithms, as strongSwan's `rsa-4096-sha384` does.
//!
//! The lengths hold for every key on the path, that of the root included. The algorithms hold for every
//! signature on it; that of the root itself is not looked at, because it is trusted as it is.

use crate::CertFault;
use casemate_crypto::{KeyKind, PublicKey, SignatureAlg};

/// A set of signature algorithms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schemes(u16);

impl Schemes {
    /// Whether the algorithm is one of them.
    pub fn has(self, alg: SignatureAlg) -> bool {
        self.0 & bit(alg) != 0
    }
}

impl FromIterator<SignatureAlg> for Schemes {
    fn from_iter<T: IntoIterator<Item = SignatureAlg>>(algs: T) -> Self {
        Self(algs.into_iter().fold(0, |set, alg| set | bit(alg)))
    }
}

fn bit(alg: SignatureAlg) -> u16 {
    let at = SignatureAlg::ALL.iter().position(|known| *known == alg);
    at.and_then(|at| 1_u16.checked_shl(u32::try_from(at).ok()?)).unwrap_or_default()
}

/// Kinds of keys that are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyKinds {
    /// Least length of the modulus of an RSA key, in bits; without one, RSA keys are not taken.
    pub rsa: Option<u32>,
    /// Least length of an ECDSA key's field, in bits; without one, ECDSA keys are not taken.
    pub ecdsa: Option<u32>,
    /// Whether Ed25519 keys are taken.
    pub ed25519: bool,
}

/// What is asked of a path. Nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demands {
    /// Signatures on certificates; `None` is any that is sound.
    pub schemes: Option<Schemes>,
    /// Keys of certificates; `None` is any that is sound.
    pub keys: Option<KeyKinds>,
}

impl Demands {
    pub(crate) fn check_key(&self, key: &PublicKey) -> Result<(), CertFault> {
        let Some(kinds) = self.keys else { return Ok(()) };
        let (kind, bits) = (key.kind(), u32::try_from(key.bits()).unwrap_or(u32::MAX));
        let least = match kind {
            KeyKind::Rsa => kinds.rsa,
            KeyKind::Ec(_) => kinds.ecdsa,
            KeyKind::Ed25519 => kinds.ed25519.then_some(0),
        };
        if least.is_some_and(|least| bits >= least) {
            return Ok(());
        }
        Err(CertFault::KeyNotWanted { kind, bits, least })
    }

    pub(crate) fn check_scheme(&self, alg: SignatureAlg) -> Result<(), CertFault> {
        if self.schemes.is_none_or(|schemes| schemes.has(alg)) {
            Ok(())
        } else {
            Err(CertFault::SchemeNotWanted(alg))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        for put_in in SignatureAlg::ALL {
            let set: Schemes = [put_in].into_iter().collect();
            let found: alloc::vec::Vec<_> =
                SignatureAlg::ALL.into_iter().filter(|alg| set.has(*alg)).collect();
            assert_eq!(found, [put_in]);
        }
        assert!(!SignatureAlg::ALL.into_iter().any(|alg| Schemes::default().has(alg)));
    }
}
