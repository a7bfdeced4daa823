//! Keys and certificates of a host that knows each of its peers: a few connections, each with its own keys.
//!
//! Besides pre-shared keys there are raw public keys and X.509 certificates. Both sides have the raw keys
//! beforehand (RFC 4301 section 4.4.3.2 leaves their format open; strongSwan calls them `pubkeys`). A raw key
//! is never sent: sending it would not make it more trusted.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_pki::dn_text_parts;
use casemate_pki::{CertFault, DnPattern, LocalCert, PeerName, TrustStore, VerifyOptions};
use core::cell::Cell;
use core::fmt;

/// The keys of one connection.
#[derive(Default)]
pub struct AuthKeys {
    /// The pre-shared key.
    pub shared: Option<SecretBytes>,
    /// The private key for our signatures.
    pub own: Option<LocalKey>,
    /// How to verify the peer's signature.
    pub peer: Option<PeerTrust>,
}

/// A private key, and the form in which peers get its public key.
pub enum LocalKey {
    /// A raw key, whose public key the peers have.
    Raw(Box<dyn SigningKey>),
    /// A key with a certificate.
    Certificate(LocalCert),
}

/// How to verify a peer's signature.
pub enum PeerTrust {
    /// With this pinned public key.
    Raw(PublicKey),
    /// With a certificate that one of these authorities issued for the peer's identity.
    Certificate(Authorities),
}

/// Certificate authorities for peers.
pub struct Authorities {
    store: TrustStore,
    options: VerifyOptions,
    /// Their hashes in CERTREQ payloads.
    hashes: Vec<AuthorityHash>,
}

impl Authorities {
    /// The authorities of a trust store. `options` are the requirements for certification paths.
    pub fn new(store: TrustStore, options: VerifyOptions, providers: &Providers<'_>) -> Self {
        let hashes = store.certificate_authorities(providers).as_chunks().0.to_vec();
        Self { store, options, hashes }
    }
}

/// Why a peer was not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRejection {
    /// The connection has no public key and no authority for the peer.
    NoKey,
    /// The certificate is not valid.
    Certificate(CertFault),
    /// The certificate does not contain the peer's identity.
    OtherName,
}

impl fmt::Display for PeerRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("no public key and no CA certificate is configured for the peer"),
            Self::Certificate(fault) => fault.fmt(f),
            Self::OtherName => f.write_str("the certificate does not contain the peer's identity"),
        }
    }
}

/// Post-quantum pre-shared key (RFC 8784) of a connection.
#[cfg(feature = "ppk")]
struct ConnectionPpk {
    connection: String,
    id: Vec<u8>,
    key: SecretBytes,
}

#[cfg(feature = "ppk")]
impl ConnectionPpk {
    /// Case does not matter, as in strongSwan and in [`PpkId`](casemate_ike::config::PpkId).
    fn is_named(&self, id: &[u8]) -> bool {
        self.id.eq_ignore_ascii_case(id)
    }
}

/// Another connection has another post-quantum pre-shared key with the same PPK_ID.
#[cfg(feature = "ppk")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousPpk;

/// The keys of each connection, by its name.
#[derive(Default)]
pub struct ConnectionKeys {
    keys: BTreeMap<String, AuthKeys>,
    #[cfg(feature = "ppk")]
    ppks: Vec<ConnectionPpk>,
    rejection: Cell<Option<PeerRejection>>,
}

impl ConnectionKeys {
    /// Without keys.
    pub const fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            #[cfg(feature = "ppk")]
            ppks: Vec::new(),
            rejection: Cell::new(None),
        }
    }

    /// Sets the keys of a connection.
    pub fn insert(&mut self, connection: &str, keys: AuthKeys) {
        self.keys.insert(connection.into(), keys);
    }

    /// Sets the post-quantum pre-shared key of a connection. `id` is a PPK_ID of the type PPK_ID_FIXED,
    /// without the octet of the type (RFC 8784 section 5.1). Peers name a key by its PPK_ID alone, so two
    /// connections with the same PPK_ID must have the same key; otherwise nothing changes.
    #[cfg(feature = "ppk")]
    pub fn insert_ppk(&mut self, connection: &str, id: &[u8], key: SecretBytes) -> Result<(), AmbiguousPpk> {
        let mut others = self.ppks.iter().filter(|ppk| ppk.connection != connection);
        if others.any(|ppk| ppk.is_named(id) && ppk.key != key) {
            return Err(AmbiguousPpk);
        }
        self.ppks.retain(|ppk| ppk.connection != connection);
        self.ppks.push(ConnectionPpk { connection: connection.into(), id: id.into(), key });
        Ok(())
    }

    /// Removes the keys of a connection.
    pub fn remove(&mut self, connection: &str) {
        self.keys.remove(connection);
        #[cfg(feature = "ppk")]
        self.ppks.retain(|ppk| ppk.connection != connection);
    }

    /// Why the last peer was not trusted. Resets the reason.
    pub fn take_rejection(&self) -> Option<PeerRejection> {
        self.rejection.take()
    }

    fn of(&self, connection: &Connection) -> Option<&AuthKeys> {
        self.keys.get(&connection.name)
    }

    fn check_peer(
        &self,
        connection: &Connection,
        presented: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, PeerRejection> {
        match self.of(connection).and_then(|keys| keys.peer.as_ref()).ok_or(PeerRejection::NoKey)? {
            // Certificates of the peer are ignored, because its key is pinned.
            PeerTrust::Raw(key) => Ok(key.clone()),
            PeerTrust::Certificate(Authorities { store, options, .. }) => {
                let name = peer_name(presented.id).ok_or(PeerRejection::OtherName)?;
                let cert = store.verify(presented.chain, presented.unix_time, options, providers);
                let cert = cert.map_err(PeerRejection::Certificate)?;
                // RFC 7296 section 3.5: the identity must be that of the certificate.
                if !cert.has_name(&name) {
                    return Err(PeerRejection::OtherName);
                }
                Ok(cert.public_key().clone())
            }
        }
    }
}

impl Credentials for ConnectionKeys {
    fn shared_key(&self, connection: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        self.of(connection)?.shared.as_ref()
    }

    #[cfg(feature = "ppk")]
    fn ppk(&self, id: &[u8]) -> Option<&SecretBytes> {
        self.ppks.iter().find(|ppk| ppk.is_named(id)).map(|ppk| &ppk.key)
    }

    #[cfg(feature = "ppk")]
    fn has_ppks(&self) -> bool {
        !self.ppks.is_empty()
    }

    fn own_key(&self, connection: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(match self.of(connection)?.own.as_ref()? {
            LocalKey::Raw(key) => OwnKey { key: &**key, chain: vec![], subject: None },
            LocalKey::Certificate(cert) => OwnKey {
                key: cert.key(),
                chain: cert.chain().collect(),
                subject: Some(Identity::Dn(cert.subject().to_vec())),
            },
        })
    }

    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash> {
        match self.of(connection).and_then(|keys| keys.peer.as_ref()) {
            Some(PeerTrust::Certificate(authorities)) => authorities.hashes.clone(),
            Some(PeerTrust::Raw(_)) | None => Vec::new(),
        }
    }

    fn verify_peer(
        &self,
        connection: &Connection,
        presented: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let result = self.check_peer(connection, presented, providers);
        // Overwrites the reason of another connection, which does not matter once one accepts the peer.
        self.rejection.set(result.as_ref().err().copied());
        result.map_err(|_| NotTrusted)
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn dn_matches(&self, pattern: &str, name: &[u8]) -> bool {
        dn_text_parts(pattern).is_some_and(|parts| DnPattern::new(parts).matches(name))
    }
}

/// The identity in the form that certificates contain; `None` if they cannot contain it.
pub fn peer_name(id: &Identity) -> Option<PeerName<'_>> {
    Some(match id {
        Identity::Address(addr) => PeerName::Ip(*addr),
        Identity::Fqdn(name) => PeerName::Dns(name),
        Identity::Email(name) => PeerName::Email(name),
        Identity::Dn(der) => PeerName::Dn(der),
        Identity::KeyId(_) => return None,
    })
}
