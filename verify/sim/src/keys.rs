//! Keys of the nodes, generated once. The "certificate" of a node consists of its name, its public key
//! and padding:
//! `casemate-pki` tests X.509, and here only the length of a certificate matters.

use crate::plan::Plan;
use crate::{config, post_quantum};
use casemate_crypto::{
    KeyLimits, PrivateKey, Provider as _, Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey,
};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_rustcrypto::RUSTCRYPTO;
use std::sync::OnceLock;

/// Largest number of nodes of a plan.
const NODES: usize = 4;
/// Length of a certificate, in bytes.
const CERTIFICATE: usize = 700;
/// PKCS #8 header of a 32-byte Ed25519 private key (RFC 8410 section 7).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Signing key with its certificate.
struct Signer {
    key: Box<dyn SigningKey>,
    certificate: Vec<u8>,
}

/// Trusted signers, one for each node, followed by as many untrusted ones.
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

/// Credentials of a node, and which peers it trusts.
pub(crate) struct Keys {
    shared: SecretBytes,
    ppk: Option<SecretBytes>,
    own: &'static Signer,
    trusts_all: bool,
}

impl Keys {
    /// Credentials of a node. An untrusted peer has a shared key and a signer of its own.
    pub(crate) fn new(plan: &Plan, node: usize, trusts_all: bool) -> Self {
        let untrusted = plan.is_untrusted(node);
        let shared: &[u8] =
            if untrusted && !trusts_all { b"a key that nobody has" } else { b"a key that all have" };
        let own = &signers()[if untrusted { NODES + node } else { node }];
        Self { shared: SecretBytes::new(shared), ppk: post_quantum::own_ppk(plan, node), own, trusts_all }
    }
}

impl Credentials for Keys {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        Some(&self.shared)
    }

    fn ppk(&self, id: &[u8]) -> Option<&SecretBytes> {
        self.ppk.as_ref().filter(|_| post_quantum::is_ppk_id(id))
    }

    fn has_ppks(&self) -> bool {
        self.ppk.is_some()
    }

    fn own_key(&self, connection: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        let Signer { key, certificate } = self.own;
        let subject = connection.local.id.clone()?;
        Some(OwnKey { key: key.as_ref(), chain: vec![certificate], subject: Some(subject) })
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        vec![[7; 20]]
    }

    fn verify_peer(
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

    fn accepts_signature(&self, _: &Connection, _: &Identity, alg: SignatureAlg) -> bool {
        alg == SignatureAlg::Ed25519
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[SignatureAlg::Ed25519]
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
