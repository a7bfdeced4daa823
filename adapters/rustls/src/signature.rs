//! Signatures with the private key of this host.

use crate::algorithms;
use casemate_crypto::HashAlg::{Sha256, Sha384, Sha512};
use casemate_crypto::{Curve, KeyKind, Rng, SignatureAlg, SigningKey};
use rustls::crypto::CryptoProvider;
use rustls::sign::Signer;
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// The schemes of a kind of key, in order of preference, with our algorithm for each. TLS 1.3 binds ECDSA to
/// the curve of the scheme (RFC 8446 section 4.2.3).
const fn schemes(kind: KeyKind) -> &'static [(SignatureScheme, SignatureAlg)] {
    match kind {
        KeyKind::Rsa => &[
            (SignatureScheme::RSA_PSS_SHA256, SignatureAlg::RsaPss(Sha256)),
            (SignatureScheme::RSA_PSS_SHA384, SignatureAlg::RsaPss(Sha384)),
            (SignatureScheme::RSA_PSS_SHA512, SignatureAlg::RsaPss(Sha512)),
            (SignatureScheme::RSA_PKCS1_SHA256, SignatureAlg::RsaPkcs1(Sha256)),
            (SignatureScheme::RSA_PKCS1_SHA384, SignatureAlg::RsaPkcs1(Sha384)),
            (SignatureScheme::RSA_PKCS1_SHA512, SignatureAlg::RsaPkcs1(Sha512)),
        ],
        KeyKind::Ec(Curve::P256) => &[(SignatureScheme::ECDSA_NISTP256_SHA256, SignatureAlg::Ecdsa(Sha256))],
        KeyKind::Ec(Curve::P384) => &[(SignatureScheme::ECDSA_NISTP384_SHA384, SignatureAlg::Ecdsa(Sha384))],
        KeyKind::Ec(Curve::P521) => &[(SignatureScheme::ECDSA_NISTP521_SHA512, SignatureAlg::Ecdsa(Sha512))],
        KeyKind::Ed25519 => &[(SignatureScheme::ED25519, SignatureAlg::Ed25519)],
    }
}

/// A private key as rustls uses it.
pub(crate) struct TlsKey(pub(crate) Arc<dyn SigningKey>);

impl rustls::sign::SigningKey for TlsKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let own = schemes(self.0.public_key().kind());
        let &(scheme, alg) = own.iter().find(|(scheme, _)| offered.contains(scheme))?;
        Some(Box::new(TlsSigner { key: Arc::clone(&self.0), scheme, alg }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.0.public_key().kind() {
            KeyKind::Rsa => SignatureAlgorithm::RSA,
            KeyKind::Ec(_) => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsKey({:?})", self.0.public_key().kind())
    }
}

/// A private key with the scheme of one signature.
struct TlsSigner {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    alg: SignatureAlg,
}

impl Signer for TlsSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut rng = SystemRng { algorithms: algorithms(), has_failed: false };
        let signature = self.key.sign(self.alg, message, &mut rng);
        match signature {
            Ok(signature) if !rng.has_failed => Ok(signature),
            Ok(_) => Err(Error::FailedToGetRandomBytes),
            Err(fault) => Err(Error::General(fault.to_string())),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl fmt::Debug for TlsSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsSigner({:?})", self.scheme)
    }
}

/// Random numbers of the operating system for one signature, which is discarded if they fail.
struct SystemRng {
    algorithms: Arc<CryptoProvider>,
    has_failed: bool,
}

impl Rng for SystemRng {
    fn public(&mut self, out: &mut [u8]) {
        self.has_failed |= self.algorithms.secure_random.fill(out).is_err();
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}
