//! Keys of the nodes, made in advance. What is shown as a certificate is a name, a key and padding: X.509 is for
//! `casemate-pki`, and here only its length matters.

use crate::config;
use casemate_crypto::{
    KeyLimits, PrivateKey, Provider as _, Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey,
};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_rustcrypto::RUSTCRYPTO;
use std::sync::OnceLock;

/// Nodes that a plan may have.
const NODES: usize = 4;
/// As long as certificates are.
const CERTIFICATE: usize = 700;
/// PKCS #8 in front of the 32 bytes of an Ed25519 key (RFC 8410 section 7).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A key with what is shown for it.
struct Signer {
    key: Box<dyn SigningKey>,
    certificate: Vec<u8>,
}

/// Those that everybody trusts, and as many that nobody does.
fn signers() -> &'static [Signer] {
    static SIGNERS: OnceLock<Vec<Signer>> = OnceLock::new();
    SIGNERS.get_or_init(|| (0..2 * NODES).map(signer).collect())
}

fn signer(number: usize) -> Signer {
    let der = [&PKCS8[..], &[1 + number as u8; 32]].concat();
    let private = PrivateKey::from_der(&der, KeyLimits::default()).expect("it is well-formed");
    let key = RUSTCRYPTO.signing_key(&private).expect("Ed25519 is known");
    let mut certificate = [config::name(number % NODES).as_bytes(), &[0], key.public_key().spki()].concat();
    certificate.resize(CERTIFICATE, number as u8);
    Signer { key, certificate }
}

/// What a node has, and whom it trusts.
pub(crate) struct Keys {
    shared: SecretBytes,
    own: &'static Signer,
    trusts_all: bool,
}

impl Keys {
    /// Those of a node. A stranger has keys of his own.
    pub(crate) fn new(node: usize, stranger: bool, trusts_all: bool) -> Self {
        let shared: &[u8] =
            if stranger && !trusts_all { b"a key that nobody has" } else { b"a key that all have" };
        let own = &signers()[if stranger { NODES + node } else { node }];
        Self { shared: SecretBytes::new(shared), own, trusts_all }
    }
}

impl Credentials for Keys {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        Some(&self.shared)
    }

    fn own_key(&self, connection: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        let Signer { key, certificate } = self.own;
        let subject = connection.local.id.clone()?;
        Some(OwnKey { key: key.as_ref(), chain: vec![certificate], subject: Some(subject) })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        vec![[7; 20]]
    }

    fn peer_key(
        &self,
        _: &Connection,
        shown: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let trusted = if self.trusts_all { 2 * NODES } else { NODES };
        let is_its = |(number, signer): &(usize, &Signer)| {
            let is_shown = shown.chain.first().is_some_and(|first| **first == *signer.certificate);
            is_shown && *shown.id == Identity::Fqdn(config::name(number % NODES))
        };
        let known = signers().iter().enumerate().take(trusted).find(is_its);
        known.map(|(_, signer)| signer.key.public_key().clone()).ok_or(NotTrusted)
    }

    fn takes(&self, _: &Connection, _: &Identity, alg: SignatureAlg) -> bool {
        alg == SignatureAlg::Ed25519
    }

    fn makes(&self, _: &Connection) -> &[SignatureAlg] {
        &[SignatureAlg::Ed25519]
    }

    fn name_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
