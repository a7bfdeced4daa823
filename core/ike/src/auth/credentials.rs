//! Interface to the keys and certificates of this host.

#[cfg(any(feature = "eap", feature = "revocation"))]
use crate::IkeSaId;
#[cfg(feature = "eap")]
use crate::Path;
use crate::config::{Connection, IdPattern, Identity};
#[cfg(feature = "eap")]
use alloc::boxed::Box;
use alloc::vec::Vec;
#[cfg(feature = "external-keys")]
use casemate_crypto::Rng;
use casemate_crypto::{Providers, PublicKey, SecretBytes, SignatureAlg, SigningKey};
use casemate_wire::ike::cert::HASH_LEN;
#[cfg(feature = "external-keys")]
use core::net::IpAddr;

/// SHA-1 hash of the public key of a certification authority, as in CERTREQ (RFC 7296 section 3.7).
pub type AuthorityHash = [u8; HASH_LEN];

/// Private key of this host with its certificates.
pub struct OwnKey<'c> {
    /// Private key.
    pub key: &'c dyn SigningKey,
    /// X.509 certificates in DER: that of the key, then those up to a root, without the root. Empty for a raw
    /// key, which the peer already has.
    pub chain: Vec<&'c [u8]>,
    /// Subject of the certificate, for a connection without a configured identity. Without a subject the
    /// address is used.
    pub subject: Option<Identity>,
}

/// Certificates that a peer presents for its key.
#[derive(Debug, Clone, Copy)]
pub struct PeerCertificates<'m> {
    /// Identity that the peer claims.
    pub id: &'m Identity,
    /// X.509 certificates in DER, the peer's own first. May be empty: the peer then relies on a certificate
    /// or key stored here.
    pub chain: &'m [&'m [u8]],
    /// Seconds since 1970.
    pub unix_time: u64,
}

/// The peer's certificate is not trusted for its identity. The implementation of [`Credentials`] logs the
/// reason; the peer only learns that the authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTrusted;

/// A peer that has proved that it has the private key of its certificate, which was verified.
#[cfg(feature = "revocation")]
#[derive(Debug, Clone, Copy)]
pub struct StatusQuery<'m> {
    /// The IKE SA; [`Ike::continue_authentication`](crate::Ike::continue_authentication) takes it.
    pub ike: IkeSaId,
    /// The certificates, and the identity that they prove.
    pub shown: PeerCertificates<'m>,
    /// OCSP responses that the peer has sent (RFC 4806).
    pub stapled: &'m [&'m [u8]],
    /// Whether the time is over: the answer must not be [`PeerStatus::Pending`], which would refuse the peer.
    pub is_last: bool,
}

/// Whether the certificates of a peer are still valid for their issuers.
#[cfg(feature = "revocation")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStatus {
    /// No certificate of the path is revoked, as far as the connection requires to know.
    Accepted,
    /// It is being looked up.
    Pending,
    /// A certificate is revoked, or it is not known but must be. The implementation logs the reason.
    Refused,
}

/// A signature that this host needs for its AUTH payload.
#[cfg(feature = "external-keys")]
#[derive(Clone, Copy)]
pub struct SignatureQuery<'m> {
    /// The IKE SA; [`Ike::continue_authentication`](crate::Ike::continue_authentication) takes it.
    pub ike: IkeSaId,
    /// Address of the peer, which may not have proved anything yet.
    pub remote: IpAddr,
    /// Key that [`Credentials::own_key`] has returned.
    pub key: &'m dyn SigningKey,
    /// Algorithm.
    pub alg: SignatureAlg,
    /// Octets to sign. They are the same whenever the signature is requested again.
    pub message: &'m [u8],
    /// Whether the time is over: the answer must not be [`Signing::Pending`], which would end the IKE SA.
    pub is_last: bool,
}

/// Answer to a [`SignatureQuery`].
#[cfg(feature = "external-keys")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signing {
    /// The signature.
    Signed(Vec<u8>),
    /// It is being made.
    Pending,
    /// There will be none. The implementation logs the reason.
    Failed,
}

/// A peer that begins EAP, as the responder knows it.
#[cfg(feature = "eap")]
#[derive(Debug, Clone)]
pub struct EapSession<'a> {
    /// The half-open IKE SA; [`Ike::continue_eap`](crate::Ike::continue_eap) takes it.
    pub ike: IkeSaId,
    /// Connection.
    pub connection: &'a Connection,
    /// Identity of the peer's ID payload, not yet proved.
    pub peer: &'a Identity,
    /// EAP identity that the peer has to prove; `None` if it is asked for one.
    pub identity: Option<Vec<u8>>,
    /// Addresses and ports.
    pub path: Path,
}

/// A TLS session that an EAP conversation needs.
#[cfg(feature = "eap")]
#[derive(Debug, Clone, Copy)]
pub struct EapTls<'a> {
    /// The IKE SA; [`Ike::continue_authentication`](crate::Ike::continue_authentication) takes it after
    /// [`TlsSession::certificate_status`](casemate_eap::TlsSession::certificate_status) was pending.
    pub ike: IkeSaId,
    /// Identity of the responder's ID payload, if this host is the client.
    pub responder: Option<&'a Identity>,
    /// What the session is for.
    pub role: casemate_eap::TlsRole<'a>,
}

/// Keys and certificates of this host, and trust in those of peers. Calls keep no state.
pub trait Credentials {
    /// Shared key of `local` and `remote`, if there is one.
    fn shared_key(
        &self,
        connection: &Connection,
        local: &Identity,
        remote: &Identity,
    ) -> Option<&SecretBytes>;

    /// The post-quantum pre-shared key with this PPK_ID of the type PPK_ID_FIXED, without the octet of the
    /// type (RFC 8784 section 5.1).
    #[cfg(feature = "ppk")]
    fn ppk(&self, _id: &[u8]) -> Option<&SecretBytes> {
        None
    }

    /// Whether there are post-quantum pre-shared keys: a responder announces then that it uses them.
    #[cfg(feature = "ppk")]
    fn has_ppks(&self) -> bool {
        false
    }

    /// Our key for a connection. `wanted` are the authorities that the peer trusts; empty if the peer named
    /// none.
    fn own_key(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>>;

    /// Our key for a connection without a configured identity, with a certificate that contains the identity
    /// `id`, which the peer asks for. The default is for hosts whose connections have an identity.
    fn own_key_as(
        &self,
        _connection: &Connection,
        _id: &Identity,
        _wanted: &[AuthorityHash],
    ) -> Option<OwnKey<'_>> {
        None
    }

    /// Authorities that are trusted for the peers of a connection.
    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash>;

    /// Verifies a peer's certificates: the chain up to a trusted authority, validity periods, revocation, key
    /// usage, the identity, and what the connection requires. Returns the peer's public key.
    fn verify_peer(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted>;

    /// Status of the certificates that [`verify_peer`](Self::verify_peer) has accepted. Called once the peer
    /// has proved that it has the private key, so that no other host can make this one fetch anything
    /// (CVE-2022-40617), and again after
    /// [`Ike::continue_authentication`](crate::Ike::continue_authentication).
    #[cfg(feature = "revocation")]
    fn peer_status(
        &self,
        _connection: &Connection,
        _query: &StatusQuery<'_>,
        _providers: &Providers<'_>,
    ) -> PeerStatus {
        PeerStatus::Accepted
    }

    /// A valid OCSP response for a certificate of this host in DER, which the peer has requested (RFC 4806).
    /// It must be at hand: the IKE SA does not wait for it. `None` if there is none.
    #[cfg(feature = "revocation")]
    fn own_ocsp_response(&self, _cert: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Whether a connection accepts this signature algorithm in IKE_AUTH from a peer whose certificates were
    /// verified.
    fn accepts_signature(&self, connection: &Connection, peer: &Identity, alg: SignatureAlg) -> bool;

    /// Algorithms for our signatures on a connection, in order of preference. Empty if any suitable one may
    /// be used.
    fn signature_algorithms(&self, connection: &Connection) -> &[SignatureAlg];

    /// Subject of the certificate that a connection names for its side of EAP: the identity of this host if
    /// none is configured.
    #[cfg(feature = "eap")]
    fn eap_subject(&self, _connection: &Connection) -> Option<Identity> {
        None
    }

    /// Whether a key that [`own_key`](Self::own_key) has returned is in another device, so that its signature
    /// may be pending.
    #[cfg(feature = "external-keys")]
    fn is_external(&self, _key: &dyn SigningKey) -> bool {
        false
    }

    /// Signs with our key. If the key is in another device, the answer may be pending; the signature is
    /// requested again after [`Ike::continue_authentication`](crate::Ike::continue_authentication). It is not
    /// needed any more once [`Event::IkeDown`](crate::Event::IkeDown) reports the end of the IKE SA.
    #[cfg(feature = "external-keys")]
    fn sign(&self, query: &SignatureQuery<'_>, rng: &mut dyn Rng) -> Signing {
        query.key.sign(query.alg, query.message, rng).map_or(Signing::Failed, Signing::Signed)
    }

    /// Passwords for EAP.
    #[cfg(feature = "eap")]
    fn eap(&self) -> &dyn casemate_eap::EapCredentials {
        &casemate_eap::NoCredentials
    }

    /// Authenticator for a peer whose EAP packets are passed on to an AAA server
    /// ([`RemoteEap::is_relayed`](crate::config::RemoteEap::is_relayed)); `None` if there is no server.
    #[cfg(feature = "eap")]
    fn eap_authenticator(&self, _session: &EapSession<'_>) -> Option<Box<dyn casemate_eap::Authenticator>> {
        None
    }

    /// Begins a TLS session of an EAP conversation. As the client, the server must prove the identity that
    /// the connection expects, by default that of its ID payload.
    #[cfg(feature = "eap")]
    fn eap_tls(
        &self,
        _connection: &Connection,
        _session: &EapTls<'_>,
    ) -> Result<alloc::boxed::Box<dyn casemate_eap::TlsSession>, casemate_eap::EapFault> {
        Err(casemate_eap::EapFault::Unsupported)
    }

    /// Whether a distinguished name matches the pattern of [`IdPattern::DnPattern`].
    fn dn_matches(&self, pattern: &str, name: &[u8]) -> bool;
}

/// Whether `id` matches `pattern`.
pub(crate) fn id_matches(credentials: &dyn Credentials, pattern: &IdPattern, id: &Identity) -> bool {
    match (pattern.matches(id), pattern, id) {
        (Some(decided), ..) => decided,
        (None, IdPattern::DnPattern(pattern), Identity::Dn(name)) => credentials.dn_matches(pattern, name),
        (None, ..) => false,
    }
}

/// Pre-shared keys only: for hosts with a few peers.
#[derive(Debug, Default)]
pub struct SharedKeys {
    keys: Vec<(IdPattern, SecretBytes)>,
    #[cfg(feature = "ppk")]
    ppks: Vec<(Vec<u8>, SecretBytes)>,
}

impl SharedKeys {
    /// Returns an empty set.
    pub const fn new() -> Self {
        Self {
            keys: Vec::new(),
            #[cfg(feature = "ppk")]
            ppks: Vec::new(),
        }
    }

    /// Adds a key that is shared with these peers. The first match is used.
    #[must_use]
    pub fn with(mut self, peers: IdPattern, key: SecretBytes) -> Self {
        self.keys.push((peers, key));
        self
    }

    /// Adds the post-quantum pre-shared key with this PPK_ID of the type PPK_ID_FIXED, without the octet of
    /// the type (RFC 8784 section 5.1).
    #[cfg(feature = "ppk")]
    #[must_use]
    pub fn with_ppk(mut self, id: &[u8], key: SecretBytes) -> Self {
        self.ppks.push((id.into(), key));
        self
    }
}

impl Credentials for SharedKeys {
    fn shared_key(&self, _: &Connection, _: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        let found = self.keys.iter().find(|(peers, _)| id_matches(self, peers, remote));
        found.map(|(_, key)| key)
    }

    #[cfg(feature = "ppk")]
    fn ppk(&self, id: &[u8]) -> Option<&SecretBytes> {
        self.ppks.iter().find(|(own, _)| own.eq_ignore_ascii_case(id)).map(|(_, key)| key)
    }

    #[cfg(feature = "ppk")]
    fn has_ppks(&self) -> bool {
        !self.ppks.is_empty()
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        None
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        Vec::new()
    }

    fn verify_peer(
        &self,
        _: &Connection,
        _: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        Err(NotTrusted)
    }

    fn accepts_signature(&self, _: &Connection, _: &Identity, _: SignatureAlg) -> bool {
        false
    }

    fn signature_algorithms(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn dn_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}
