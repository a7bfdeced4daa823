//! Our own certificates.

use casemate::peer_name;
use casemate_ike::config::{Connection, Identity, LocalMethod};
use casemate_ike::{AuthorityHash, OwnKey};
use casemate_pki::LocalCert;
use std::path::PathBuf;

/// A certificate with its key, and the file that it came from.
pub(super) struct OwnCert {
    pub(super) path: PathBuf,
    pub(super) cert: LocalCert,
    /// The authorities above it.
    pub(super) authorities: Vec<AuthorityHash>,
}

/// All of them.
#[derive(Default)]
pub(super) struct OwnCerts(pub(super) Vec<OwnCert>);

impl OwnCerts {
    /// The certificate for a connection: of those that it names, or else of those with its identity, one that leads to an
    /// authority that the peer wants, or else the first.
    pub(super) fn find(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let id = connection.local.id.as_ref();
        let suits = |own: &&OwnCert| match names.is_empty() {
            true => id.is_none_or(|id| own.bears(id)),
            false => names.iter().any(|name| own.path.as_os_str() == name.as_str()),
        };
        let is_wanted = |own: &&OwnCert| own.authorities.iter().any(|authority| wanted.contains(authority));
        let suiting = || self.0.iter().filter(suits);
        let own = suiting().find(is_wanted).or_else(|| suiting().next())?;
        Some(OwnKey {
            key: own.cert.key(),
            chain: own.cert.chain().collect(),
            subject: Some(Identity::Name(own.cert.subject().to_vec())),
        })
    }
}

impl OwnCert {
    fn bears(&self, id: &Identity) -> bool {
        peer_name(id).is_some_and(|name| self.cert.is_named(&name))
    }
}
