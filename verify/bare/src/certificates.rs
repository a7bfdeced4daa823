//! Certificates as credentials: the test data of core/pki.

use alloc::vec::Vec;
use casemate_crypto::{KeyLimits, PrivateKey, Providers, PublicKey, SecretBytes, SignatureAlg};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_pki::{LocalCert, Options, PeerName, StoreLimits, TrustStore, pem};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../core/pki/tests/data/", $name))
    };
}

/// Certificate and key in PEM.
pub(crate) type Files = (&'static [u8], &'static [u8]);

/// An Ed25519 key.
pub(crate) const MOON: Files = (file!("moon.pem"), file!("moon.key"));
/// A key on P-384.
pub(crate) const SUN: Files = (file!("sun.pem"), file!("sun.key"));

/// A certificate of our own, and the CA that is trusted.
pub(crate) struct Certificates {
    own: LocalCert,
    store: TrustStore,
}

impl Certificates {
    /// Of one of the two peers.
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
        // What the root's key hashes to does not matter where everybody has one certificate.
        Vec::from([[0; 20]])
    }

    fn peer_key(
        &self,
        _: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let Identity::Fqdn(name) = shown.id else { return Err(NotTrusted) };
        let verified = self.store.verify(shown.chain, shown.unix_time, &Options::default(), providers);
        let verified = verified.map_err(|_| NotTrusted)?;
        if verified.is_named(&PeerName::Dns(name)) {
            Ok(verified.public_key().clone())
        } else {
            Err(NotTrusted)
        }
    }

    fn takes(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn makes(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn name_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
