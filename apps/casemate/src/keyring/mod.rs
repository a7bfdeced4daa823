//! Keys and certificates of a configuration: the credentials that IKE uses.
//!
//! [`Keyring::load`] reads all files that a configuration names or that are in its folders, and returns
//! all errors if there are any. Only the status of certificates is fetched over the network, by
//! [`crate::revocation`].

mod eap_secrets;
mod encrypted;
mod join;
mod load;
mod own;
mod raw_keys;
mod shared_keys;
mod tls;
mod tls_peer;
mod unusable;
mod validity;
mod verifier;

use crate::radius::{RadiusLink, RelayAuthenticator};
use crate::revocation::{Authorities, Fetched, RevocationLink};
use crate::sequence_numbers::SequenceStore;
use crate::swanctl::{Config, Environment, OwnSignature, PeerConditions};
use crate::tokens::{OpenedKey, TokenLink};
use casemate_crypto::{Provider, Providers, PublicKey, Rng, SecretBytes, SignatureAlg, SigningKey};
use casemate_eap::{Authenticator, EapCredentials, EapFault, TlsSession};
use casemate_ike::config::{Connection, IdPattern, Identity, LocalMethod};
use casemate_ike::{
    AuthorityHash, Credentials, EapSession, EapTls, NotTrusted, OwnKey, PeerCertificates, PeerStatus,
    SignatureQuery, Signing, StatusQuery,
};
use casemate_pki::{DnPattern, PolicyOid, dn_text_parts};
use eap_secrets::EapSecrets;
pub use load::KeyFileError;
pub(crate) use load::{certificates_of, crls_of, private_key_of, public_key_of};
use own::{OwnCert, OwnKeys};
use shared_keys::SharedKeys;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use validity::ValidityWatch;
pub use verifier::RefusedPeer;
use verifier::{PeerVerifier, Refusals, StatusCheck};

/// The keys and certificates of a configuration.
pub struct Keyring {
    shared: SharedKeys,
    /// Post-quantum pre-shared keys by PPK_ID in its canonical form.
    /// By PPK_ID in lower case.
    ppks: HashMap<Vec<u8>, SecretBytes>,
    eap: EapSecrets,
    own: OwnKeys,
    /// Whether a connection sends OCSP responses for our certificates.
    sends_ocsp: bool,
    own_rules: Vec<OwnSignature>,
    verifiers: Vec<Arc<PeerVerifier>>,
    /// All certificates and CRLs, for clients that show them.
    listed: Vec<ListedFile>,
    /// Refused peers, for the log.
    refusals: Arc<Refusals>,
    /// Algorithms for the certificates of TLS.
    providers: Vec<&'static dyn Provider>,
    /// AAA servers for peers that use EAP.
    radius: Mutex<Option<RadiusLink>>,
    /// CAs and OCSP responders, for the status of certificates.
    authorities: Arc<Authorities>,
    /// The threads that fetch it; `None` if nothing is fetched.
    revocation: Mutex<Option<RevocationLink>>,
    /// Where signatures of tokens are ordered; `None` if none are made.
    tokens: Mutex<Option<TokenLink>>,
}

/// A certificate or CRL that was read.
pub(crate) struct ListedFile {
    /// The file that contains it.
    pub(crate) path: PathBuf,
    pub(crate) der: Vec<u8>,
    pub(crate) kind: ListedKind,
}

/// What a listed file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListedKind {
    /// A certificate of this host, whose private key is known.
    Own,
    /// A certificate of a peer, or of this host without its private key.
    Peer,
    /// A certificate of a trusted CA.
    Authority,
    /// A certificate revocation list.
    Crl,
}

/// IKE may run on another thread than the one that loaded the keys.
const _: () = {
    const fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Keyring>();
};

impl Keyring {
    /// Reads all files of the configuration from this file system.
    pub fn load(
        config: &Config,
        providers: &[&'static dyn Provider],
        environment: &dyn Environment,
    ) -> Result<Self, Vec<KeyFileError>> {
        load::load(config, providers, environment)
    }

    /// A keyring without keys.
    pub fn empty() -> Self {
        Self {
            shared: SharedKeys::default(),
            ppks: HashMap::new(),
            eap: EapSecrets::default(),
            own: OwnKeys::default(),
            sends_ocsp: false,
            own_rules: Vec::new(),
            verifiers: Vec::new(),
            listed: Vec::new(),
            refusals: Arc::default(),
            providers: Vec::new(),
            radius: Mutex::default(),
            authorities: Arc::default(),
            revocation: Mutex::default(),
            tokens: Mutex::default(),
        }
    }

    /// Has AAA servers authenticate the peers of connections that want it.
    pub(crate) fn use_radius(&self, link: Option<RadiusLink>) {
        *self.radius() = link;
    }

    /// All private keys on tokens.
    pub(crate) fn on_tokens(&self) -> &[OpenedKey] {
        &self.own.tokens
    }

    /// Algorithms for certificates.
    pub(crate) fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }

    /// Has the status of certificates fetched: of those of peers when it is needed, and of our own in
    /// advance.
    pub(crate) fn use_revocation(&self, link: Option<RevocationLink>) {
        if let Some(link) = &link {
            let own = self.own.certs.iter().filter(|_| self.sends_ocsp);
            let issued = own.filter_map(|own| own.issued());
            link.keep_own(&issued.collect::<Vec<_>>(), &self.authorities);
        }
        *self.revocation.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// Has the private keys on tokens sign.
    pub(crate) fn use_tokens(&self, link: Option<TokenLink>) {
        *self.tokens.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// Forgets what was fetched about the status of certificates.
    pub(crate) fn forget(&self, fetched: Fetched) {
        if let Some(link) = &*self.revocation.lock().unwrap_or_else(PoisonError::into_inner) {
            link.forget(fetched);
        }
    }

    /// Keeps the sequence numbers of EAP-AKA there.
    pub(crate) fn use_sequence_numbers(&self, store: Arc<SequenceStore>) {
        self.eap.use_sequence_numbers(store);
    }

    /// Whether `secrets` has a section `eap` with this user.
    pub(crate) fn names_user(&self, identity: &str) -> bool {
        self.eap.names(identity)
    }

    /// Returns the refusals since the last call.
    pub fn take_refusals(&self) -> Vec<RefusedPeer> {
        self.refusals.take()
    }

    /// The threads that fetch the status of certificates.
    fn revocation(&self) -> Option<RevocationLink> {
        self.revocation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Locks the link to the AAA servers, which is replaced as a whole.
    fn radius(&self) -> MutexGuard<'_, Option<RadiusLink>> {
        self.radius.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificates, our own, those of peers and those of trusted CAs, and the CRLs.
    pub(crate) fn listed(&self) -> &[ListedFile] {
        &self.listed
    }

    fn verifier(&self, connection: &Connection) -> Option<&Arc<PeerVerifier>> {
        let (name, round) = (&connection.name, connection.round().remote);
        let is_meant =
            |conditions: &PeerConditions| conditions.connection == *name && conditions.round == round;
        self.verifiers.iter().find(|verifier| is_meant(verifier.conditions()))
    }

    /// The policies that the certificate of the peer must have, in the current round of a connection.
    pub(crate) fn required_policies(&self, connection: &Connection) -> &[PolicyOid] {
        self.verifier(connection).map_or(&[], |verifier| &verifier.conditions().policies)
    }

    /// The rules for our side of a connection in its current round.
    fn own_rules(&self, connection: &Connection) -> Option<&OwnSignature> {
        let (name, round) = (&connection.name, connection.round().local);
        self.own_rules.iter().find(|rules| rules.connection == *name && rules.round == round)
    }
}

impl Credentials for Keyring {
    fn shared_key(&self, _: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        self.shared.find(local, remote)
    }

    fn ppk(&self, id: &[u8]) -> Option<&SecretBytes> {
        self.ppks.get(&id.to_ascii_lowercase())
    }

    fn has_ppks(&self) -> bool {
        !self.ppks.is_empty()
    }

    fn eap(&self) -> &dyn EapCredentials {
        &self.eap
    }

    fn eap_authenticator(&self, session: &EapSession<'_>) -> Option<Box<dyn Authenticator>> {
        let link = self.radius().clone()?;
        Some(Box::new(RelayAuthenticator::new(link, session)))
    }

    fn eap_tls(
        &self,
        connection: &Connection,
        session: &EapTls<'_>,
    ) -> Result<Box<dyn TlsSession>, EapFault> {
        self.begin_tls(connection, session)
    }

    fn own_key(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        self.own.find(connection, wanted)
    }

    fn own_key_as(
        &self,
        connection: &Connection,
        id: &Identity,
        wanted: &[AuthorityHash],
    ) -> Option<OwnKey<'_>> {
        match connection.local.method {
            // The certificate is that of TLS, whose choice does not depend on the peer's wishes.
            LocalMethod::Eap(_) => {
                self.eap_cert(connection).filter(|own| own.contains_identity(id)).map(|own| own.own_key())
            }
            LocalMethod::Certificate(_) => self.own.find_as(connection, id, wanted),
            LocalMethod::SharedKey => None,
        }
    }

    fn eap_subject(&self, connection: &Connection) -> Option<Identity> {
        let names_certs = self.own_rules(connection).is_some_and(|rules| !rules.certs.is_empty());
        self.eap_cert(connection).filter(|_| names_certs).map(|own| own.subject())
    }

    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash> {
        self.verifier(connection).map_or(Vec::new(), |verifier| verifier.authorities.clone())
    }

    fn verify_peer(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let verifier = self.verifier(connection).ok_or(NotTrusted)?;
        verifier.verify(shown, providers, &pattern_matches).map_err(|why| {
            self.refuse(connection, shown.id, format!("certificate of {}: {why}", shown.id));
            NotTrusted
        })
    }

    fn peer_status(
        &self,
        connection: &Connection,
        query: &StatusQuery<'_>,
        providers: &Providers<'_>,
    ) -> PeerStatus {
        let Some(verifier) = self.verifier(connection) else { return PeerStatus::Refused };
        let (authorities, link) = (&self.authorities, self.revocation());
        let check = StatusCheck { verifier, authorities, link: link.as_ref(), providers };
        check.run(query).unwrap_or_else(|why| {
            let id = query.shown.id;
            self.refuse(connection, id, format!("certificate of {id}: {why}"));
            PeerStatus::Refused
        })
    }

    fn own_ocsp_response(&self, cert: &[u8]) -> Option<Vec<u8>> {
        self.revocation()?.own_response(cert)
    }

    fn accepts_signature(&self, connection: &Connection, peer: &Identity, alg: SignatureAlg) -> bool {
        let rules = self.verifier(connection).map(|verifier| &verifier.conditions().signatures);
        match rules.filter(|rules| !rules.ike.is_empty() && !rules.ike.contains(&alg)) {
            None => {
                // Clears refusals by other connections, now that this connection accepts the peer.
                self.refusals.clear(peer);
                true
            }
            Some(rules) => {
                let why = format!(
                    "signature of {peer} is {alg}, but remote.auth = {} requires another one",
                    rules.text
                );
                self.refuse(connection, peer, why);
                false
            }
        }
    }

    fn signature_algorithms(&self, connection: &Connection) -> &[SignatureAlg] {
        let rules = self.own_rules(connection);
        rules.map_or(&[], |rules| &rules.signatures.ike)
    }

    fn is_external(&self, key: &dyn SigningKey) -> bool {
        self.own.on_token(key.public_key()).is_some()
    }

    fn sign(&self, query: &SignatureQuery<'_>, rng: &mut dyn Rng) -> Signing {
        match self.own.on_token(query.key.public_key()) {
            None => query.key.sign(query.alg, query.message, rng).map_or(Signing::Failed, Signing::Signed),
            Some(opened) => {
                let link = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone();
                link.map_or(Signing::Failed, |link| link.sign(query, opened))
            }
        }
    }

    fn dn_matches(&self, pattern: &str, name: &[u8]) -> bool {
        dn_matches(pattern, name)
    }
}

impl Keyring {
    fn refuse(&self, connection: &Connection, peer: &Identity, reason: String) {
        let connection = connection.name.clone();
        self.refusals.add(RefusedPeer { peer: peer.clone(), connection, reason });
    }
}

fn dn_matches(pattern: &str, name: &[u8]) -> bool {
    dn_text_parts(pattern).is_some_and(|parts| DnPattern::new(parts).matches(name))
}

fn pattern_matches(pattern: &IdPattern, id: &Identity) -> bool {
    match (pattern.matches(id), pattern, id) {
        (Some(decided), ..) => decided,
        (None, IdPattern::DnPattern(pattern), Identity::Dn(name)) => dn_matches(pattern, name),
        (None, ..) => false,
    }
}
