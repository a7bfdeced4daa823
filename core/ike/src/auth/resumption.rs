//! The AUTH payload of an IKE SA that resumes a session (RFC 5723 section 4.3.3): a MAC with SK_p, which is
//! derived from SK_d of the earlier IKE SA. The identities are those of the earlier IKE SA.

use super::{OwnProof, PeerAuthenticated, SignedOctets};
use crate::StateFault;
use crate::config::{Connection, Identity};
use crate::engine::peer_index::{AuthScope, PeerPair, Proof};
#[cfg(feature = "eap")]
use alloc::vec::Vec;
use casemate_crypto::{PrfOutput, Providers};
use casemate_wire::ike::{Auth, AuthMethod};
use core::net::IpAddr;
use subtle::ConstantTimeEq as _;

/// What was proved when a peer was authenticated, without the proof itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerRecord {
    /// Identity in the peer's ID payload.
    pub(crate) id: Identity,
    /// Our identity.
    pub(crate) own_id: Identity,
    pub(crate) proof: Proof,
    /// EAP identity that the peer has proved, if it used EAP.
    #[cfg(feature = "eap")]
    pub(crate) eap_identity: Option<Vec<u8>>,
    /// Virtual addresses that an AAA server has assigned to the peer.
    #[cfg(feature = "eap")]
    pub(crate) assigned_addrs: Vec<IpAddr>,
}

/// The payload with which a peer proves that it has the keys of the earlier IKE SA, and what it covers.
pub(crate) struct ResumptionProof<'a> {
    pub(crate) auth: Auth<'a>,
    pub(crate) octets: SignedOctets<'a>,
}

impl SignedOctets<'_> {
    /// prf(SK_p, octets)
    fn with_sk_p(&self, providers: &Providers<'_>) -> Result<PrfOutput, StateFault> {
        let key = providers.prf(self.suite.prf, self.sk_p.expose()).map_err(|_| StateFault::Provider)?;
        let maced_id = self.maced_id(providers)?;
        key.prf(&[self.message, self.nonce, maced_id.expose()]).map_err(|_| StateFault::Provider)
    }
}

impl OwnProof {
    /// Creates the proof that this host has the keys of the earlier IKE SA.
    pub(crate) fn of_resumption(
        octets: &SignedOctets<'_>,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        octets.with_sk_p(providers).map(Self::SharedKey)
    }
}

impl PeerAuthenticated {
    /// What an IKE SA that resumes the session has to know of this peer.
    pub(crate) fn record(&self) -> PeerRecord {
        PeerRecord {
            id: self.id.clone(),
            own_id: self.own_id.clone(),
            proof: self.proof,
            #[cfg(feature = "eap")]
            eap_identity: self.eap_identity.clone(),
            #[cfg(feature = "eap")]
            assigned_addrs: self.assigned_addrs.clone(),
        }
    }
}

impl PeerRecord {
    /// Verifies the proof of a peer that resumes its session.
    pub(crate) fn authenticate(
        &self,
        proof: &ResumptionProof<'_>,
        connection: &Connection,
        remote: IpAddr,
        providers: &Providers<'_>,
    ) -> Result<PeerAuthenticated, StateFault> {
        if proof.auth.method != AuthMethod::SHARED_KEY {
            return Err(StateFault::AuthMethod);
        }
        let expected = proof.octets.with_sk_p(providers)?;
        if !bool::from(expected.expose().ct_eq(proof.auth.data)) {
            return Err(StateFault::AuthMismatch);
        }
        let own = &self.own_id;
        #[cfg(feature = "eap")]
        let proven = self.eap_identity.clone().map_or_else(|| self.id.clone(), Identity::KeyId);
        #[cfg(not(feature = "eap"))]
        let proven = self.id.clone();
        Ok(PeerAuthenticated {
            id: self.id.clone(),
            pair: PeerPair::new(own, &self.id, remote),
            scope: AuthScope::new(connection, self.proof, own, &proven, remote),
            own_id: own.clone(),
            proof: self.proof,
            #[cfg(feature = "eap")]
            eap_identity: self.eap_identity.clone(),
            #[cfg(feature = "eap")]
            assigned_addrs: self.assigned_addrs.clone(),
            #[cfg(feature = "eap")]
            earlier_rounds: Vec::new(),
        })
    }
}
