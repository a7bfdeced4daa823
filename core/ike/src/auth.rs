//! The AUTH payload (RFC 7296 section 2.15): our proof, and verification of the peer's proof.

mod cert_requests;
pub(crate) mod credentials;
#[cfg(feature = "eap")]
pub(crate) use credentials::EapSession;
#[cfg(feature = "eap")]
pub(crate) mod eap;
mod int_auth;
#[cfg(feature = "ppk")]
pub(crate) mod ppk;
#[cfg(feature = "resumption")]
pub(crate) mod resumption;
#[cfg(feature = "eap")]
pub(crate) mod rounds;
mod signature;
mod signed_octets;

use crate::config::{Connection, Identity, LocalMethod, RemoteMethod, SendCert};
use crate::context::Step;
use crate::engine::peer_index::{AuthScope, PeerPair, Proof};
#[cfg(feature = "eap")]
use crate::status::{ProvenRound, UserIdentity};
use crate::{Context, Credentials, OwnKey, StateFault};
#[cfg(feature = "ppk")]
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{PrfOutput, Providers, SecretBytes};
use casemate_wire::ike::{Auth, AuthMethod, Cert, CertEncoding, Id, WriteError, Writer};
use core::net::IpAddr;
use subtle::ConstantTimeEq as _;

pub(crate) use cert_requests::CertRequests;
pub(crate) use int_auth::IntAuth;
#[cfg(feature = "multiple-kex")]
pub(crate) use int_auth::{AuthenticatedExchange, authenticated_octets};
pub(crate) use signature::{OwnSignature, announced_hashes};
pub(crate) use signed_octets::SignedOctets;

/// Proof that a peer's AUTH payload was valid for this identity, and its certificate not revoked. Only this
/// module creates it. An IKE SA and its successors share one proof.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PeerAuthenticated {
    id: Identity,
    pair: PeerPair,
    scope: AuthScope,
    /// Our identity when the peer was authenticated.
    #[cfg(any(feature = "eap", feature = "resumption"))]
    own_id: Identity,
    #[cfg(feature = "resumption")]
    proof: Proof,
    /// Whether AUTH covered the first messages of both sides.
    full_transcript: bool,
    #[cfg(feature = "ppk")]
    ppk_id: Option<Box<[u8]>>,
    #[cfg(feature = "eap")]
    eap_identity: Option<UserIdentity>,
    #[cfg(feature = "eap")]
    assigned_addrs: Vec<IpAddr>,
    #[cfg(feature = "eap")]
    earlier_rounds: Vec<ProvenRound>,
}

impl PeerAuthenticated {
    /// Identity of the peer.
    pub(crate) const fn id(&self) -> &Identity {
        &self.id
    }

    /// Whether AUTH covered the first messages of both sides.
    pub(crate) const fn has_full_transcript(&self) -> bool {
        self.full_transcript
    }

    /// Notes that SK_d depends on the post-quantum pre-shared key with this PPK_ID.
    #[cfg(feature = "ppk")]
    pub(crate) fn set_ppk(&mut self, id: Box<[u8]>) {
        self.ppk_id = Some(id);
    }

    /// PPK_ID of the post-quantum pre-shared key that was used when the peer was authenticated.
    #[cfg(feature = "ppk")]
    pub(crate) fn ppk_id(&self) -> Option<&[u8]> {
        self.ppk_id.as_deref()
    }

    /// Pair of both identities, for the index of peers.
    pub(crate) const fn pair(&self) -> &PeerPair {
        &self.pair
    }

    /// Scope of the authentication. IKE SAs that were authenticated equally have the same one.
    pub(crate) const fn scope(&self) -> &AuthScope {
        &self.scope
    }
}

/// Body of an ID payload, which AUTH covers.
pub(crate) fn id_body(id: &Identity) -> Vec<u8> {
    let (kind, data) = id.to_payload();
    [&[kind.0, 0, 0, 0], data.as_slice()].concat()
}

/// Our proof.
pub(crate) enum OwnProof {
    SharedKey(PrfOutput),
    Signature(OwnSignature),
}

impl OwnProof {
    /// Creates the proof with the shared key of the connection.
    pub(crate) fn with_shared_key(
        octets: &SignedOctets<'_>,
        secret: &SecretBytes,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        octets.with_shared_key(secret, providers).map(Self::SharedKey)
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self {
            Self::SharedKey(mac) => out.auth(&Auth { method: AuthMethod::SHARED_KEY, data: mac.expose() }),
            Self::Signature(signature) => signature.write(out),
        }
    }
}

#[cfg(feature = "ppk")]
impl OwnProof {
    /// The data of the AUTH payload.
    pub(crate) fn data(&self) -> Vec<u8> {
        match self {
            Self::SharedKey(mac) => mac.expose().into(),
            Self::Signature(signature) => signature.data(),
        }
    }
}

/// Claim of a peer: identity and proof.
pub(crate) struct AuthClaim<'a> {
    pub(crate) id: &'a Identity,
    pub(crate) auth: Auth<'a>,
    pub(crate) certs: &'a [Cert<'a>],
    /// Address of the peer.
    pub(crate) remote: IpAddr,
    #[cfg(feature = "revocation")]
    pub(crate) status: AuthWait,
}

/// The wait for the status of a peer's certificates, or for our signature.
#[cfg(feature = "revocation")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthWait {
    pub(crate) ike: crate::IkeSaId,
    /// Whether the time is over.
    pub(crate) is_over: bool,
    /// Address of the peer.
    #[cfg(feature = "external-keys")]
    pub(crate) remote: IpAddr,
}

/// Why a claim does not authenticate its peer, or why there is no proof of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    Fault(StateFault),
    /// The peer's proof is valid, and the status of its certificates is being looked up, or our signature is
    /// being made.
    #[cfg(feature = "revocation")]
    Pending,
}

impl From<StateFault> for AuthError {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault)
    }
}

/// Verifies a peer's proof as its connection requires.
pub(crate) fn verify(
    claim: &AuthClaim<'_>,
    octets: &SignedOctets<'_>,
    connection: &Connection,
    own_id: &Identity,
    context: &Context<'_>,
) -> Result<PeerAuthenticated, AuthError> {
    let method = &connection.remote.method;
    let by_key = matches!(method, RemoteMethod::SharedKey | RemoteMethod::Any(_));
    let by_signature = matches!(method, RemoteMethod::Certificate(_) | RemoteMethod::Any(_));
    let proof = match claim.auth.method {
        AuthMethod::SHARED_KEY if by_key => {
            let secret = context.credentials.shared_key(connection, own_id, claim.id);
            let secret = secret.ok_or(StateFault::NoSharedKey)?;
            let expected = octets.with_shared_key(secret, context.providers)?;
            if !bool::from(expected.expose().ct_eq(claim.auth.data)) {
                return Err(StateFault::AuthMismatch.into());
            }
            Proof::SharedKey
        }
        AuthMethod::SHARED_KEY => return Err(StateFault::AuthMethod.into()),
        _ if by_signature => {
            signature::verify(claim, octets, connection, context)?;
            Proof::Signature
        }
        _ => return Err(StateFault::AuthMethod.into()),
    };
    let pair = PeerPair::new(own_id, claim.id, claim.remote);
    let scope = AuthScope::new(connection, proof, own_id, claim.id, claim.remote);
    Ok(PeerAuthenticated {
        id: claim.id.clone(),
        pair,
        scope,
        #[cfg(any(feature = "eap", feature = "resumption"))]
        own_id: own_id.clone(),
        #[cfg(feature = "resumption")]
        proof,
        full_transcript: octets.other_message.is_some(),
        #[cfg(feature = "ppk")]
        ppk_id: None,
        #[cfg(feature = "eap")]
        eap_identity: None,
        #[cfg(feature = "eap")]
        assigned_addrs: Vec::new(),
        #[cfg(feature = "eap")]
        earlier_rounds: Vec::new(),
    })
}

/// What the peer wants of this host.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What it has requested of our certificates.
    pub(crate) requests: &'a CertRequests,
    /// Identity that an initiator asks for.
    pub(crate) id: Option<&'a Identity>,
}

/// What our proof depends on besides the signed octets.
pub(crate) struct ProofTerms<'a> {
    /// The connection in the current round.
    pub(crate) connection: &'a Connection,
    /// Identity of the peer, which selects a shared key.
    pub(crate) peer: &'a Identity,
    /// Hash algorithms that the peer has announced, by number.
    pub(crate) hashes: &'a [u16],
    #[cfg(feature = "external-keys")]
    pub(crate) wait: AuthWait,
}

/// Our identity and key for a peer.
pub(crate) struct LocalAuthenticator<'c> {
    pub(crate) id: Identity,
    key: Option<OwnKey<'c>>,
    /// Whether our certificates are sent.
    sends_certs: bool,
    /// The OCSP response that is sent with them (RFC 4806).
    #[cfg(feature = "revocation")]
    ocsp_response: Option<Vec<u8>>,
}

impl<'c> LocalAuthenticator<'c> {
    /// Without a configured identity, ours is the one that the peer asks for if our certificate contains it,
    /// otherwise the subject of the certificate or our address.
    pub(crate) fn new(
        connection: &Connection,
        wanted: Wanted<'_>,
        addr: IpAddr,
        credentials: &'c dyn Credentials,
    ) -> Result<Self, StateFault> {
        let configured = connection.local.id.clone();
        let asked = wanted.id.filter(|_| configured.is_none());
        let Wanted { requests, .. } = wanted;
        let as_asked = asked.and_then(|id| credentials.own_key_as(connection, id, &requests.authorities));
        let asked = asked.filter(|_| as_asked.is_some()).cloned();
        let (key, subject) = match &connection.local.method {
            LocalMethod::SharedKey => (None, None),
            #[cfg(feature = "eap")]
            LocalMethod::Eap(_) => (None, credentials.eap_subject(connection)),
            LocalMethod::Certificate(_) => {
                let key = as_asked.or_else(|| credentials.own_key(connection, &requests.authorities));
                let key = key.ok_or(StateFault::NoSharedKey)?;
                let subject = key.subject.clone();
                (Some(key), subject)
            }
        };
        let id = match (configured.or(asked), subject) {
            // RFC 4945 section 3.1.5: the identity equals the subject of the certificate byte for byte,
            // because a peer may compare only bytes.
            (Some(id), Some(subject)) if id.is_same_peer(&subject) => subject,
            (Some(id), _) => id,
            (None, subject) => subject.unwrap_or(Identity::Address(addr)),
        };
        let shows = match connection.send_cert {
            SendCert::Always => true,
            SendCert::IfAsked => !requests.authorities.is_empty(),
            SendCert::Never => false,
        };
        #[cfg(feature = "revocation")]
        let ocsp_response = match &key {
            Some(key) if shows && requests.ocsp && connection.ocsp.replies() => {
                key.chain.first().and_then(|cert| credentials.own_ocsp_response(cert))
            }
            _ => None,
        };
        Ok(Self {
            id,
            key,
            sends_certs: shows,
            #[cfg(feature = "revocation")]
            ocsp_response,
        })
    }

    /// Whether our signature may have to be awaited.
    #[cfg(all(feature = "eap", feature = "external-keys"))]
    pub(crate) fn has_external_key(&self, credentials: &dyn Credentials) -> bool {
        self.key.as_ref().is_some_and(|own| credentials.is_external(own.key))
    }

    /// Body of our ID payload, which AUTH covers.
    pub(crate) fn id_body(&self) -> Vec<u8> {
        id_body(&self.id)
    }

    /// Creates our proof without EAP.
    pub(crate) fn prove(
        &self,
        octets: &SignedOctets<'_>,
        terms: &ProofTerms<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<OwnProof, AuthError> {
        let connection = terms.connection;
        #[cfg(feature = "eap")]
        if let LocalMethod::Eap(_) = connection.local.method {
            return Err(StateFault::AuthMethod.into());
        }
        match &self.key {
            Some(key) => OwnSignature::new(octets, key, terms, step.context).map(OwnProof::Signature),
            None => {
                let secret = step.context.credentials.shared_key(connection, &self.id, terms.peer);
                let secret = secret.ok_or(StateFault::NoSharedKey)?;
                Ok(OwnProof::with_shared_key(octets, secret, step.context.providers)?)
            }
        }
    }

    /// Writes IDi or IDr with `write_id`, and the certificates.
    pub(crate) fn write(
        &self,
        out: &mut Writer<'_>,
        write_id: impl FnOnce(&mut Writer<'_>, &Id<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let (kind, data) = self.id.to_payload();
        write_id(out, &Id { kind, data: &data })?;
        let chain = self.key.iter().filter(|_| self.sends_certs).flat_map(|key| key.chain.iter());
        chain
            .copied()
            .try_for_each(|data| out.cert(&Cert { encoding: CertEncoding::X509_SIGNATURE, data }))?;
        #[cfg(feature = "revocation")]
        if let Some(data) = &self.ocsp_response {
            out.cert(&Cert { encoding: CertEncoding::OCSP, data })?;
        }
        Ok(())
    }
}
