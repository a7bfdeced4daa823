//! The part of a record that says who the peer has proved to be.

use crate::auth::resumption::PeerRecord;
use crate::config::Identity;
use crate::engine::peer_index::Proof;
use crate::{IkeSaId, UserIdentity};
use alloc::vec::Vec;
use casemate_wire::ike::{Id, IdType};
use core::net::IpAddr;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// What a peer proved, and how.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct PeerFields {
    /// Type and data of the peer's ID payload.
    #[n(0)]
    id: (u8, ByteVec),
    /// The same of ours.
    #[n(1)]
    own_id: (u8, ByteVec),
    #[n(2)]
    proof: ProofField,
    /// Whether AUTH covered the first messages of both sides.
    #[n(3)]
    full_transcript: bool,
    #[n(4)]
    ppk_id: Option<ByteVec>,
    #[n(5)]
    eap_identity: Option<EapFields>,
    /// Virtual addresses that an AAA server has assigned.
    #[n(6)]
    assigned_addrs: Vec<IpAddr>,
    /// Whether the peer had an IPv4 address then.
    #[n(7)]
    pub(crate) was_v4: bool,
}

/// An EAP identity.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct EapFields {
    #[n(0)]
    identity: ByteVec,
    /// Whether it was proved, and not only claimed.
    #[n(1)]
    is_proven: bool,
}

/// Kind of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
enum ProofField {
    #[n(0)]
    SharedKey,
    #[n(1)]
    Signature,
    #[n(2)]
    Eap,
    #[n(3)]
    EapLogin,
}

impl ProofField {
    /// `None` for several proofs: their records would have to contain all rounds.
    const fn new(proof: Proof) -> Option<Self> {
        match proof {
            Proof::SharedKey => Some(Self::SharedKey),
            Proof::Signature => Some(Self::Signature),
            Proof::Eap => Some(Self::Eap),
            Proof::EapLogin => Some(Self::EapLogin),
            Proof::Rounds => None,
        }
    }
}

impl From<ProofField> for Proof {
    fn from(field: ProofField) -> Self {
        match field {
            ProofField::SharedKey => Self::SharedKey,
            ProofField::Signature => Self::Signature,
            ProofField::Eap => Self::Eap,
            ProofField::EapLogin => Self::EapLogin,
        }
    }
}

fn id_fields(id: &Identity) -> (u8, ByteVec) {
    let (kind, data) = id.to_payload();
    (kind.0, data.into())
}

fn identity((kind, data): &(u8, ByteVec)) -> Option<Identity> {
    Identity::from_payload(&Id { kind: IdType(*kind), data })
}

impl PeerFields {
    /// `None` for a peer that has passed several rounds of authentication.
    pub(crate) fn new(peer: &PeerRecord, was_v4: bool) -> Option<Self> {
        let PeerRecord { id, own_id, proof, full_transcript, ppk_id, eap_identity, assigned_addrs } = peer;
        let eap = |user: &UserIdentity| match user {
            UserIdentity::Proven(identity) => {
                EapFields { identity: identity.clone().into(), is_proven: true }
            }
            UserIdentity::Claimed { identity, .. } => {
                EapFields { identity: identity.clone().into(), is_proven: false }
            }
        };
        Some(Self {
            id: id_fields(id),
            own_id: id_fields(own_id),
            proof: ProofField::new(*proof)?,
            full_transcript: *full_transcript,
            ppk_id: ppk_id.as_ref().map(|id| id.to_vec().into()),
            eap_identity: eap_identity.as_ref().map(eap),
            assigned_addrs: assigned_addrs.clone(),
            was_v4,
        })
    }

    /// What the peer proved; `None` if an identity has an unknown type. A login whose user is not proven
    /// counts as one of its own, `login`: identifiers of another process mean nothing here.
    pub(crate) fn to_peer(&self, login: IkeSaId) -> Option<PeerRecord> {
        let eap = |fields: &EapFields| {
            let identity: Vec<u8> = fields.identity.to_vec();
            if fields.is_proven {
                UserIdentity::Proven(identity)
            } else {
                UserIdentity::Claimed { identity, login }
            }
        };
        Some(PeerRecord {
            id: identity(&self.id)?,
            own_id: identity(&self.own_id)?,
            proof: self.proof.into(),
            full_transcript: self.full_transcript,
            ppk_id: self.ppk_id.as_ref().map(|id| id.to_vec().into()),
            eap_identity: self.eap_identity.as_ref().map(eap),
            assigned_addrs: self.assigned_addrs.clone(),
        })
    }
}
