//! The AUTH payloads of an IKE SA whose initiator uses EAP (RFC 7296 section 2.16).

use super::{OwnProof, PeerAuthenticated, SignedOctets};
use crate::config::{Connection, Identity};
use crate::engine::peer_index::{AuthScope, PeerPair, Proof};
use crate::{Context, Credentials, EapTls, IkeSaId, StateFault, UserIdentity};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_eap::{
    Authenticated, EapContext, EapCredentials, EapFault, NtHash, SequenceNumbers, Subscriber, TlsRole,
    TlsSession,
};
use casemate_wire::ike::{Auth, AuthMethod};
use core::net::IpAddr;
use subtle::ConstantTimeEq as _;

/// Credentials of the EAP conversation of one IKE SA.
pub(crate) struct ConversationCredentials<'c> {
    credentials: &'c dyn Credentials,
    ike: IkeSaId,
    connection: &'c Connection,
    /// Identity in the responder's ID payload, if this host is the initiator.
    responder: Option<&'c Identity>,
}

impl<'c> ConversationCredentials<'c> {
    pub(crate) const fn new(
        credentials: &'c dyn Credentials,
        ike: IkeSaId,
        connection: &'c Connection,
        responder: Option<&'c Identity>,
    ) -> Self {
        Self { credentials, ike, connection, responder }
    }

    /// What the conversation works with.
    pub(crate) fn context<'s>(&'s self, context: &'s mut Context<'_>) -> EapContext<'s> {
        EapContext { rng: &mut *context.rng, providers: context.providers, credentials: self }
    }
}

impl EapCredentials for ConversationCredentials<'_> {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        self.credentials.eap().algorithms()
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        self.credentials.eap().password(identity)
    }

    fn nt_hash(&self, identity: &[u8]) -> Option<&NtHash> {
        self.credentials.eap().nt_hash(identity)
    }

    fn subscriber(&self, identity: &[u8]) -> Option<&Subscriber> {
        self.credentials.eap().subscriber(identity)
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        self.credentials.eap().sequence_numbers()
    }

    fn tls(&self, role: TlsRole<'_>) -> Result<Box<dyn TlsSession>, EapFault> {
        let session = EapTls { ike: self.ike, responder: self.responder, role };
        self.credentials.eap_tls(self.connection, &session)
    }
}

/// Key of the AUTH payload with these octets: the MSK, or SK_p of the side if the method has derived no key.
fn auth_key<'a>(done: &'a Authenticated, octets: &SignedOctets<'a>) -> &'a SecretBytes {
    done.msk.as_ref().unwrap_or(octets.sk_p)
}

/// Creates our proof after EAP.
pub(crate) fn prove(
    done: &Authenticated,
    octets: &SignedOctets<'_>,
    providers: &Providers<'_>,
) -> Result<OwnProof, StateFault> {
    OwnProof::with_shared_key(octets, auth_key(done, octets), providers)
}

/// Verifies the peer's proof after EAP.
pub(crate) fn verify(
    done: &Authenticated,
    auth: Auth<'_>,
    octets: &SignedOctets<'_>,
    providers: &Providers<'_>,
) -> Result<(), StateFault> {
    if auth.method != AuthMethod::SHARED_KEY {
        return Err(StateFault::AuthMethod);
    }
    let expected = octets.with_shared_key(auth_key(done, octets), providers)?;
    if bool::from(expected.expose().ct_eq(auth.data)) { Ok(()) } else { Err(StateFault::AuthMismatch) }
}

impl UserIdentity {
    /// The user of an IKE SA whose peer has passed EAP.
    fn new(done: &Authenticated, ike: IkeSaId) -> Self {
        match done.proven_name() {
            Some(name) => Self::Proven(name.into()),
            None => Self::Claimed { identity: done.identity.clone(), login: ike },
        }
    }

    const fn proof(&self) -> Proof {
        match self {
            Self::Proven(_) => Proof::Eap,
            Self::Claimed { .. } => Proof::EapLogin,
        }
    }

    /// The identity in the scope of the user's IKE SAs: the name, or else the login.
    pub(crate) fn scope_identity(&self) -> Identity {
        Identity::KeyId(match self {
            Self::Proven(name) => name.clone(),
            Self::Claimed { login, .. } => login.0.to_be_bytes().into(),
        })
    }
}

/// Both sides of an IKE SA.
pub(crate) struct Parties<'a> {
    pub(crate) ike: IkeSaId,
    pub(crate) own: &'a Identity,
    /// Identity in the peer's ID payload.
    pub(crate) peer: &'a Identity,
    /// Address of the peer.
    pub(crate) remote: IpAddr,
}

impl PeerAuthenticated {
    /// Verifies the proof of a peer that only EAP authenticates. IKE SAs of different users have different
    /// scopes, whatever their ID payloads and EAP identities claim.
    pub(crate) fn by_eap(
        parties: &Parties<'_>,
        done: &Authenticated,
        auth: Auth<'_>,
        octets: &SignedOctets<'_>,
        connection: &Connection,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        verify(done, auth, octets, providers)?;
        let Parties { ike, own, peer, remote } = *parties;
        let user = UserIdentity::new(done, ike);
        let (proof, proven) = (user.proof(), user.scope_identity());
        Ok(Self {
            id: peer.clone(),
            pair: PeerPair::new(own, peer, remote),
            scope: AuthScope::new(connection, proof, own, &proven, remote),
            own_id: own.clone(),
            #[cfg(feature = "resumption")]
            proof,
            full_transcript: octets.other_message.is_some(),
            #[cfg(feature = "ppk")]
            ppk_id: None,
            eap_identity: Some(user),
            assigned_addrs: done.addrs.clone(),
            earlier_rounds: Vec::new(),
        })
    }

    /// Virtual addresses that an AAA server has assigned to the peer.
    pub(crate) fn assigned_addrs(&self) -> &[IpAddr] {
        &self.assigned_addrs
    }

    /// Our identity when the peer was authenticated.
    pub(crate) const fn own_id(&self) -> &Identity {
        &self.own_id
    }

    /// EAP identity of the peer, if it used EAP.
    pub(crate) const fn eap_identity(&self) -> Option<&UserIdentity> {
        self.eap_identity.as_ref()
    }
}
