//! The private keys of this host, each with its certificate or for itself, and the choice among them.

use crate::tokens::OpenedKey;
use casemate::peer_name;
use casemate_crypto::{PublicKey, SigningKey};
use casemate_ike::config::{Connection, Identity, LocalMethod};
use casemate_ike::{AuthorityHash, OwnKey};
use casemate_pki::{IssuedCert, LocalCert};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A certificate with its private key, and its file.
pub(super) struct OwnCert {
    pub(super) path: PathBuf,
    pub(super) cert: LocalCert,
    /// Certificate of the CA that has issued it in DER; `None` if it is not known.
    pub(super) issuer: Option<Vec<u8>>,
    /// Certificate of the root CA above it in DER; `None` if it is not known.
    pub(super) root: Option<Vec<u8>>,
    /// Hashes of the CAs above it.
    pub(super) authorities: Vec<AuthorityHash>,
}

/// A private key without a certificate (RFC 7670), and the file with its public key.
pub(super) struct OwnRawKey {
    pub(super) path: PathBuf,
    pub(super) key: Box<dyn SigningKey>,
    /// Key ID, the identity of this host if the connection names none.
    pub(super) id: Option<Identity>,
}

/// All private keys.
#[derive(Default)]
pub(super) struct OwnKeys {
    pub(super) certs: Vec<Arc<OwnCert>>,
    pub(super) raw: Vec<OwnRawKey>,
    /// Private keys on tokens, which belong to some of the certificates and raw keys.
    pub(super) tokens: Vec<OpenedKey>,
}

impl OwnKeys {
    /// Selects a certificate among those with the paths `names`, or without paths among those that contain
    /// the identity: one below a CA that the peer requested, or else the first.
    pub(super) fn select(
        &self,
        names: &[impl AsRef<Path>],
        id: Option<&Identity>,
        wanted: &[AuthorityHash],
    ) -> Option<&Arc<OwnCert>> {
        self.best(wanted, |own| match names.is_empty() {
            true => id.is_none_or(|id| own.contains_identity(id)),
            false => is_named(names, &own.path),
        })
    }

    /// The first suiting certificate below a CA that the peer requested, or else the first.
    fn best(&self, wanted: &[AuthorityHash], suits: impl Fn(&OwnCert) -> bool) -> Option<&Arc<OwnCert>> {
        let is_wanted =
            |own: &&Arc<OwnCert>| own.authorities.iter().any(|authority| wanted.contains(authority));
        let suiting = || self.certs.iter().filter(|own| suits(own));
        suiting().find(is_wanted).or_else(|| suiting().next())
    }

    /// The private key of a public key, if it is on a token.
    pub(super) fn on_token(&self, public: &PublicKey) -> Option<&OpenedKey> {
        self.tokens.iter().find(|opened| opened.key.public_key() == public)
    }

    /// Selects the key for the AUTH payload of a connection: that of a certificate which the connection
    /// names, or else of a public key which it names. A connection that names neither uses any certificate
    /// with its identity.
    pub(super) fn find(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let cert = self.select(names, connection.local.id.as_ref(), wanted);
        let raw = || self.raw.iter().find(|own| is_named(names, &own.path));
        cert.map(|own| own.own_key()).or_else(|| raw().map(OwnRawKey::own_key))
    }

    /// Like [`find`](Self::find), among the certificates that contain an identity.
    pub(super) fn find_as(
        &self,
        connection: &Connection,
        id: &Identity,
        wanted: &[AuthorityHash],
    ) -> Option<OwnKey<'_>> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let suits =
            |own: &OwnCert| own.contains_identity(id) && (names.is_empty() || is_named(names, &own.path));
        self.best(wanted, suits).map(|own| own.own_key())
    }
}

/// Whether a connection names the file.
pub(super) fn is_named(names: &[impl AsRef<Path>], path: &Path) -> bool {
    names.iter().any(|name| path.as_os_str() == name.as_ref().as_os_str())
}

impl OwnCert {
    pub(super) fn contains_identity(&self, id: &Identity) -> bool {
        peer_name(id).is_some_and(|name| self.cert.has_name(&name))
    }

    /// The certificate with that of its CA, if this is known.
    pub(super) fn issued(&self) -> Option<IssuedCert<'_>> {
        Some(IssuedCert { cert: self.cert.chain().next()?, issuer: self.issuer.as_deref()? })
    }

    pub(super) fn subject(&self) -> Identity {
        Identity::Dn(self.cert.subject().to_vec())
    }

    pub(super) fn own_key(&self) -> OwnKey<'_> {
        OwnKey { key: self.cert.key(), chain: self.cert.chain().collect(), subject: Some(self.subject()) }
    }
}

impl OwnRawKey {
    fn own_key(&self) -> OwnKey<'_> {
        OwnKey { key: &*self.key, chain: Vec::new(), subject: self.id.clone() }
    }
}
