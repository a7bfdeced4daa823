//! Keys and certificates of a host that knows each of its peers: a few connections, each with its own.
//!
//! Beside pre-shared keys there are raw public keys, which both sides were given beforehand (RFC 4301 section 4.4.3.2 leaves
//! the form of keys open; what strongSwan's `pubkeys` does), and X.509 certificates. A raw key is never sent: nothing in a
//! message would make it more trusted.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey};
use casemate_ike::config::{Connection, Identity};
use casemate_ike::spelling::name_parts;
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_pki::{CertFault, DnPattern, LocalCert, Options, PeerName, TrustStore};
use core::cell::Cell;
use core::fmt;

/// What both sides of one connection prove themselves with.
#[derive(Default)]
pub struct Keys {
    /// The pre-shared key.
    pub shared: Option<SecretBytes>,
    /// The private key with which we sign.
    pub own: Option<OwnProof>,
    /// What the peer's signature is judged by.
    pub peer: Option<PeerProof>,
}

/// Our private key, and what peers see of it.
pub enum OwnProof {
    /// A raw key: peers have its public half.
    Raw(Box<dyn SigningKey>),
    /// One with a certificate.
    Certificate(LocalCert),
}

/// What a peer's signature is judged by.
pub enum PeerProof {
    /// The peer's public key, which is pinned.
    Raw(PublicKey),
    /// The authorities that its certificate has to lead to. It also has to bear the peer's identity.
    Certificate(Authorities),
}

/// Authorities for the certificates of peers.
pub struct Authorities {
    store: TrustStore,
    options: Options,
    /// What CERTREQ names them by.
    hashes: Vec<AuthorityHash>,
}

impl Authorities {
    /// Those of the store. `options` is what is asked of paths to them.
    pub fn new(store: TrustStore, options: Options, providers: &Providers<'_>) -> Self {
        let hashes = store.certificate_authorities(providers).as_chunks().0.to_vec();
        Self { store, options, hashes }
    }
}

/// Why a peer was not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The connection has no key or authority for peers that sign.
    NoKey,
    /// The certificate is no good.
    Certificate(CertFault),
    /// The certificate does not bear the peer's identity.
    OtherName,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("no public key and no authority is known for the peer"),
            Self::Certificate(fault) => fault.fmt(f),
            Self::OtherName => f.write_str("the certificate does not bear the peer's identity"),
        }
    }
}

/// The keys of each connection, by its name.
#[derive(Default)]
pub struct ConnectionKeys {
    keys: BTreeMap<String, Keys>,
    refusal: Cell<Option<Refusal>>,
}

impl ConnectionKeys {
    /// None yet.
    pub const fn new() -> Self {
        Self { keys: BTreeMap::new(), refusal: Cell::new(None) }
    }

    /// Gives a connection its keys, instead of those that it may have had.
    pub fn insert(&mut self, connection: &str, keys: Keys) {
        self.keys.insert(connection.into(), keys);
    }

    /// Forgets the keys of a connection.
    pub fn remove(&mut self, connection: &str) {
        self.keys.remove(connection);
    }

    /// Why the last peer was not trusted, since the last call.
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.refusal.take()
    }

    fn of(&self, connection: &Connection) -> Option<&Keys> {
        self.keys.get(&connection.name)
    }

    fn judge(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, Refusal> {
        match self.of(connection).and_then(|keys| keys.peer.as_ref()).ok_or(Refusal::NoKey)? {
            // Certificates that come all the same say nothing: it is the key that is trusted.
            PeerProof::Raw(key) => Ok(key.clone()),
            PeerProof::Certificate(Authorities { store, options, .. }) => {
                let name = peer_name(shown.id).ok_or(Refusal::OtherName)?;
                let cert = store.verify(shown.chain, shown.unix_time, options, providers);
                let cert = cert.map_err(Refusal::Certificate)?;
                // RFC 7296 section 3.5: the identity is the certificate's.
                if !cert.is_named(&name) {
                    return Err(Refusal::OtherName);
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

    fn own_key(&self, connection: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        Some(match self.of(connection)?.own.as_ref()? {
            OwnProof::Raw(key) => OwnKey { key: &**key, chain: vec![], subject: None },
            OwnProof::Certificate(cert) => OwnKey {
                key: cert.key(),
                chain: cert.chain().collect(),
                subject: Some(Identity::Name(cert.subject().to_vec())),
            },
        })
    }

    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash> {
        match self.of(connection).and_then(|keys| keys.peer.as_ref()) {
            Some(PeerProof::Certificate(authorities)) => authorities.hashes.clone(),
            Some(PeerProof::Raw(_)) | None => Vec::new(),
        }
    }

    fn peer_key(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let judged = self.judge(connection, shown, providers);
        // Why another connection did not take the peer is of no interest once one does.
        self.refusal.set(judged.as_ref().err().copied());
        judged.map_err(|_| NotTrusted)
    }

    fn takes(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        true
    }

    fn makes(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn name_matches(&self, pattern: &str, name: &[u8]) -> bool {
        name_parts(pattern).is_some_and(|parts| DnPattern::new(parts).matches(name))
    }
}

/// An identity as a certificate bears it; `None` if none can.
pub fn peer_name(id: &Identity) -> Option<PeerName<'_>> {
    Some(match id {
        Identity::Address(addr) => PeerName::Ip(*addr),
        Identity::Fqdn(name) => PeerName::Dns(name),
        Identity::Email(name) => PeerName::Email(name),
        Identity::Name(der) => PeerName::Dn(der),
        Identity::KeyId(_) => return None,
    })
}
