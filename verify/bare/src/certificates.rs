//! Certificate credentials from the test data of core/pki.

use alloc::vec::Vec;
use casemate_crypto::{KeyLimits, PrivateKey, Providers, PublicKey, SecretBytes, SignatureAlg};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_pki::{LocalCert, PeerName, StoreLimits, TrustStore, VerifyOptions, pem};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/", $name))
    };
}

/// A certificate and its private key in PEM.
pub(crate) type Files = (&'static [u8], &'static [u8]);

/// An Ed25519 key pair.
pub(crate) const MOON: Files = (file!("moon.pem"), file!("moon.key"));
/// A P-384 key pair.
pub(crate) const SUN: Files = (file!("sun.pem"), file!("sun.key"));

/// A local certificate, and a trust store with one root.
pub(crate) struct Certificates {
    own: LocalCert,
    store: TrustStore,
}

impl Certificates {
    /// Loads the credentials of one peer.
    pub(crate) fn load((certificate, key): Files, providers: &Providers<'_>) -> Option<Self> {
        let first = |text: &[u8]| pem::certificates(text).ok()?.into_iter().next();
        let key = PrivateKey::from_der(pem::private_key(key).ok()?.expose(), KeyLimits::default()).ok()?;
        let key = providers.signing_key(&key).ok()?;
        let chain = [first(certificate)?, first(file!("sub.pem"))?];
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let own = LocalCert::new(&chain, key, KeyLimits::default()).ok()?;
        let mut store = TrustStore::new(StoreLimits::default());
        store.add_root(&first(file!("root.pem"))?).ok()?;
        Some(Self { own, store })
    }
}

impl Credentials for Certificates {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        None
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(OwnKey { key: self.own.key(), chain: self.own.chain().collect(), subject: None })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        // The hash is not used, because each peer has only one certificate.
        Vec::from([[0; 20]])
    }

    fn verify_peer(
        &self,
        _: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let Identity::Fqdn(name) = shown.id else { return Err(NotTrusted) };
        let verified = self.store.verify(shown.chain, shown.unix_time, &VerifyOptions::default(), providers);
        let verified = verified.map_err(|_| NotTrusted)?;
        if verified.has_name(&PeerName::Dns(name)) {
            Ok(verified.public_key().clone())
        } else {
            Err(NotTrusted)
        }
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
