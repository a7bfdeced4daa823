//! The private keys of this host, each with its certificate or for itself, and the choice among them.

use casemate::peer_name;
use casemate_crypto::SigningKey;
use casemate_ike::config::{Connection, Identity, LocalMethod};
use casemate_ike::{AuthorityHash, OwnKey};
use casemate_pki::LocalCert;
use std::path::{Path, PathBuf};

/// A certificate with its private key, and its file.
pub(super) struct OwnCert {
    pub(super) path: PathBuf,
    pub(super) cert: LocalCert,
    /// Hashes of the CAs above it.
    pub(super) authorities: Vec<AuthorityHash>,
}

/// A private key without a certificate (RFC 7670), and the file with its public key.
pub(super) struct OwnRawKey {
    pub(super) path: PathBuf,
    pub(super) key: Box<dyn SigningKey>,
}

/// All private keys.
#[derive(Default)]
pub(super) struct OwnKeys {
    pub(super) certs: Vec<OwnCert>,
    pub(super) raw: Vec<OwnRawKey>,
}

impl OwnKeys {
    /// Selects the key for a connection: that of a certificate which the connection names, or else of a
    /// public key which it names. A connection that names neither uses any certificate with its identity.
    /// Certificates below a CA that the peer requested come first.
    pub(super) fn find(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let id = connection.local.id.as_ref();
        let suits = |own: &&OwnCert| match names.is_empty() {
            true => id.is_none_or(|id| own.contains_identity(id)),
            false => is_named(names, &own.path),
        };
        let is_wanted = |own: &&OwnCert| own.authorities.iter().any(|authority| wanted.contains(authority));
        let suiting = || self.certs.iter().filter(suits);
        let cert = suiting().find(is_wanted).or_else(|| suiting().next());
        let raw = || self.raw.iter().find(|own| is_named(names, &own.path));
        cert.map(OwnCert::own_key).or_else(|| raw().map(OwnRawKey::own_key))
    }
}

/// Whether a connection names the file.
pub(super) fn is_named(names: &[String], path: &Path) -> bool {
    names.iter().any(|name| path.as_os_str() == name.as_str())
}

impl OwnCert {
    pub(super) fn contains_identity(&self, id: &Identity) -> bool {
        peer_name(id).is_some_and(|name| self.cert.has_name(&name))
    }

    fn own_key(&self) -> OwnKey<'_> {
        OwnKey {
            key: self.cert.key(),
            chain: self.cert.chain().collect(),
            subject: Some(Identity::Dn(self.cert.subject().to_vec())),
        }
    }
}

impl OwnRawKey {
    fn own_key(&self) -> OwnKey<'_> {
        OwnKey { key: &*self.key, chain: Vec::new(), subject: None }
    }
}
