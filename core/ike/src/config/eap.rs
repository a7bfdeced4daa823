//! Authentication by EAP (RFC 7296 section 2.16).

use alloc::vec::Vec;
use casemate_eap::Method;

/// How this host authenticates itself by EAP, as the initiator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalEap {
    /// EAP identity; `None` for the identity of the ID payload.
    pub identity: Option<Vec<u8>>,
    /// Accepted methods in order of preference. Never empty.
    pub methods: Vec<Method>,
}

/// How this host, as the responder, has a peer authenticate itself by EAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEap {
    /// EAP identity of the peer.
    pub identity: EapIdentity,
    /// Accepted methods in order of preference. Empty if the packets are passed on to an AAA server, which
    /// chooses the method ([`Credentials::eap_authenticator`](crate::Credentials::eap_authenticator)).
    pub methods: Vec<Method>,
}

impl RemoteEap {
    /// Whether an AAA server authenticates the peer.
    pub const fn is_relayed(&self) -> bool {
        self.methods.is_empty()
    }
}

/// EAP identity that a peer must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EapIdentity {
    /// The identity of its ID payload.
    Ike,
    /// This one.
    Fixed(Vec<u8>),
    /// The one that the peer sends in its response to an EAP Identity request. The identity of the ID payload
    /// is then a claim without proof: it selects the connection and nothing else.
    Asked,
}
