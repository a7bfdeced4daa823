//! What the owner of keys and certificates does for IKE.

use crate::config::{Connection, IdPattern, Identity};
use alloc::vec::Vec;
use casemate_crypto::{Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey};
use casemate_wire::ike::cert::HASH_LEN;

/// SHA-1 of the public key of a certification authority, as CERTREQ names it (RFC 7296 section 3.7).
pub type AuthorityHash = [u8; HASH_LEN];

/// A private key of ours, with the certificates that go with it.
pub struct OwnKey<'c> {
    /// The key.
    pub key: &'c dyn SigningKey,
    /// X.509 certificates in DER: the key's own, then those that lead to an authority, without the latter's. None for a raw
    /// key, which the peer has already.
    pub chain: Vec<&'c [u8]>,
    /// Whom the certificate names, for a connection that has no identity of its own; without one, the address does.
    pub subject: Option<Identity>,
}

/// What a peer shows to prove that a key is its own.
#[derive(Debug, Clone, Copy)]
pub struct PeerCertificates<'m> {
    /// Who it says it is.
    pub id: &'m Identity,
    /// X.509 certificates in DER, the peer's own first. There may be none: then the peer relies on our having it.
    pub chain: &'m [&'m [u8]],
    /// Seconds since 1970.
    pub unix_time: u64,
}

/// The peer's certificate is not one that is trusted for its identity. Why is for the log of whoever judged it; the peer
/// learns no more than that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTrusted;

/// Keys and certificates, of this host and for judging peers. Calls keep no state.
pub trait Credentials {
    /// The key that `local` and `remote` share, if there is one.
    fn shared_key(
        &self,
        connection: &Connection,
        local: &Identity,
        remote: &Identity,
    ) -> Option<&SecretBytes>;

    /// Our key for a connection. `wanted` are the authorities that the peer trusts; nothing if it did not say.
    fn own_key(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>>;

    /// The authorities that we trust for the peers of a connection.
    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash>;

    /// Judges a peer's certificates: the chain up to an authority, times, revocation, the use of the key, the identity in
    /// it, and what the connection demands. Answers the key that is the peer's.
    fn peer_key(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted>;

    /// Whether a connection takes such a signature in IKE_AUTH from this peer, whose certificates were taken before.
    fn takes(&self, connection: &Connection, peer: &Identity, alg: SignatureAlg) -> bool;

    /// The signatures that we make on a connection, the preferred ones first; empty is whatever suits.
    fn makes(&self, connection: &Connection) -> &[SignatureAlg];

    /// Whether a distinguished name is one that the pattern means ([`IdPattern::NameLike`]).
    fn name_matches(&self, pattern: &str, name: &[u8]) -> bool;
}

/// Whether `id` is meant by `pattern`.
pub(crate) fn id_matches(credentials: &dyn Credentials, pattern: &IdPattern, id: &Identity) -> bool {
    match (pattern.matches(id), pattern, id) {
        (Some(decided), ..) => decided,
        (None, IdPattern::NameLike(pattern), Identity::Name(name)) => credentials.name_matches(pattern, name),
        (None, ..) => false,
    }
}

/// Pre-shared keys, and nothing else: for hosts that know a few peers.
#[derive(Debug, Default)]
pub struct SharedKeys(Vec<(IdPattern, SecretBytes)>);

impl SharedKeys {
    /// None yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// With one more: the key that is shared with these peers. The first that fits is used.
    #[must_use]
    pub fn with(mut self, peers: IdPattern, key: SecretBytes) -> Self {
        self.0.push((peers, key));
        self
    }
}

impl Credentials for SharedKeys {
    fn shared_key(&self, _: &Connection, _: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        let found = self.0.iter().find(|(peers, _)| id_matches(self, peers, remote));
        found.map(|(_, key)| key)
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        None
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        Vec::new()
    }

    fn peer_key(
        &self,
        _: &Connection,
        _: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        Err(NotTrusted)
    }

    fn takes(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        false
    }

    fn makes(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn name_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
