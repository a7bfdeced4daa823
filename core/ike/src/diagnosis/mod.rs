//! Explanations of failed negotiations: what a peer requested, and what the configuration allows.
//!
//! The name of a fault says which rule was violated; its [`Explanation`] contains the values that were
//! compared. It exists on this host only and contains no key: what a peer learns does not change. It is built
//! after a fault, from the message and the configuration, and its size is bounded, so that no message makes
//! it large. Before a peer is authenticated, at most [`MAX_PER_SECOND`] are built in a second.

mod explain;
mod proposal;

pub(crate) use explain::{Explain, ExplainFaults, ExplanationSlot, RefusedInitiator};
pub use proposal::{Difference, Proposal, closest};

use crate::config::{ChildConfig, Connection, Identity};
use crate::{StateFault, TrafficSelector};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::AuthMethod;
use core::fmt;
use core::ops::Deref;

/// Maximum number of connections or children in an explanation, the closest ones first.
pub const MAX_CONSIDERED: usize = 16;
/// Maximum number of proposals of a peer in an explanation, and of the algorithms of each.
pub const MAX_PROPOSALS: usize = 16;
/// Maximum number of algorithms of a proposal in an explanation.
pub const MAX_ALGORITHMS: usize = 64;
/// Maximum number of explanations in a second for peers that are not authenticated.
pub const MAX_PER_SECOND: u32 = 10;
/// Maximum length of a peer's identity in an explanation, in bytes.
const MAX_IDENTITY: usize = 512;

/// The values that were compared when a negotiation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explanation {
    /// No connection fits the addresses and proposals of a peer's IKE_SA_INIT request.
    FirstRequest {
        /// The peer's proposals.
        offered: Vec<Proposal>,
        /// Connections that were compared with the request.
        considered: Vec<Considered>,
    },
    /// No connection fits the identities and the proof of a peer that started the IKE SA.
    Initiator {
        /// What the peer sent.
        proof: PeerProof,
        /// Identity of this host that the peer asks for (IDr).
        asked: Option<Identity>,
        /// Connections that were compared with the request.
        considered: Vec<Considered>,
    },
    /// The responder's identity or proof is not the one that the connection requires.
    Responder {
        /// What the peer sent.
        proof: PeerProof,
        /// Identity that this host sent.
        own: Identity,
    },
    /// EAP has failed.
    #[cfg(feature = "eap")]
    Eap {
        /// Reason.
        fault: casemate_eap::EapFault,
        /// EAP identity that was to be proved, if it is known.
        identity: Option<Vec<u8>>,
        /// Identity of the initiator in its ID payload.
        peer: Identity,
    },
    /// The peer chose algorithms that this host did not offer.
    Choice {
        /// The peer's choice.
        chosen: Vec<Proposal>,
        /// Our proposals.
        offered: Vec<Proposal>,
    },
    /// The proposals of the connection do not fit the peer's request to replace the IKE SA.
    RekeyRequest {
        /// The peer's proposals.
        offered: Vec<Proposal>,
    },
    /// No configured child fits the peer's request for a Child SA.
    ChildRequest {
        /// Requested traffic. `local` is that of this host.
        traffic: Traffic,
        /// The peer's proposals.
        offered: Vec<Proposal>,
        /// Children that were compared with the request.
        considered: Vec<ConsideredChild>,
    },
    /// The peer's response contains traffic that this host did not request.
    ChildResponse {
        /// Traffic of the response.
        received: Traffic,
        /// Requested traffic.
        requested: Traffic,
    },
}

/// An explanation as an event carries it. A trait object, so that a device that asks for no explanations does
/// not contain the code that drops one.
#[derive(Clone)]
pub struct SharedExplanation(Arc<dyn AsRef<Explanation> + Send + Sync>);

impl AsRef<Self> for Explanation {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<Explanation> for SharedExplanation {
    fn from(explanation: Explanation) -> Self {
        Self(Arc::new(explanation))
    }
}

impl Deref for SharedExplanation {
    type Target = Explanation;

    fn deref(&self) -> &Explanation {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for SharedExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for SharedExplanation {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedExplanation {}

/// Identity and proof that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerProof {
    /// Identity; `None` if it is too long to show.
    pub id: Option<Identity>,
    /// Authentication method; `None` without an AUTH payload, with which the peer requests EAP.
    pub method: Option<AuthMethod>,
    /// Number of certificates.
    pub certificates: usize,
    /// PPK_ID of the post-quantum pre-shared key that the peer uses, without the octet of its type; empty in
    /// a response, and truncated if it is too long to show.
    #[cfg(feature = "ppk")]
    pub ppk_id: Option<Vec<u8>>,
}

/// A connection that was not selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    /// Connection.
    pub connection: Arc<Connection>,
    /// Reason.
    pub mismatch: Mismatch,
}

/// Reason why a connection was not selected. The order is that of the comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// The peer's address is not one of its `remote_addrs`.
    RemoteAddress,
    /// The message was not sent to one of its `local_addrs`.
    LocalAddress,
    /// No proposal is acceptable, or the negotiated algorithms are not among its proposals.
    Proposals,
    /// The peer asks for another identity of this host.
    LocalIdentity,
    /// The peer has another identity.
    RemoteIdentity,
    /// It does not accept the peer's proof, or cannot create ours.
    Proof(StateFault),
}

/// Traffic selectors of both sides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Of this host.
    pub local: Vec<TrafficSelector>,
    /// Of the peer.
    pub remote: Vec<TrafficSelector>,
}

/// A child that was not selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsideredChild {
    /// Configuration.
    pub child: Arc<ChildConfig>,
    /// Its traffic selectors, with the addresses of both hosts for `dynamic`.
    pub traffic: Traffic,
    /// Reason.
    pub mismatch: ChildMismatch,
}

/// Reason why a child was not selected. The order is that of the comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildMismatch {
    /// Neither side of the requested traffic overlaps with its selectors.
    Traffic,
    /// The requested traffic of this host does not overlap with its `local_ts`.
    LocalTraffic,
    /// The requested traffic of the peer does not overlap with its `remote_ts`.
    RemoteTraffic,
    /// Another host behind the same address has this traffic in transport mode (RFC 3948 section 5.2).
    SharedAddress,
    /// No proposal is acceptable.
    Proposals,
}
