//! What IKE_AUTH needs of the exchanges before it.

#[cfg(feature = "ppk")]
use crate::auth::ppk::PpkUse;
use crate::auth::{CertRequests, IntAuth, OwnProof, SignedOctets, announced_hashes};
use crate::config::Connection;
#[cfg(feature = "multiple-kex")]
use crate::keymat::Nonces;
use crate::nat::NatStatus;
use crate::negotiate::IkeSuite;
use crate::transport::Content;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::NotifyType;

/// Results of the exchanges before IKE_AUTH that IKE_AUTH needs.
pub(crate) struct InitExchange {
    /// Both complete messages, which AUTH covers.
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) nonce_i: Vec<u8>,
    pub(crate) nonce_r: Vec<u8>,
    /// SK_pi and SK_pr.
    pub(crate) sk_pi: SecretBytes,
    pub(crate) sk_pr: SecretBytes,
    /// Whether each AUTH payload covers both messages, because both peers support that
    /// (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    pub(crate) full_transcript: bool,
    /// What AUTH covers of the IKE_INTERMEDIATE exchanges.
    pub(crate) int_auth: IntAuth,
    pub(crate) nat: NatStatus,
    pub(crate) peer: PeerFeatures,
    /// Use of a post-quantum pre-shared key.
    #[cfg(feature = "ppk")]
    pub(crate) ppk: PpkUse,
}

impl InitExchange {
    /// Nonces of IKE_SA_INIT.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.nonce_i, responder: &self.nonce_r }
    }

    /// Octets that the initiator's AUTH payload covers (RFC 7296 section 2.15). `id` is the body of its ID
    /// payload.
    pub(crate) fn initiator_octets<'a>(&'a self, id: &'a [u8], suite: IkeSuite) -> SignedOctets<'a> {
        let (message, nonce, sk_p) = (&*self.request, &*self.nonce_r, &self.sk_pi);
        let other_message = self.full_transcript.then_some(&*self.response);
        SignedOctets { message, other_message, nonce, sk_p, id, int_auth: self.int_auth.octets(), suite }
    }

    /// Octets that the responder's AUTH payload covers, as [`Self::initiator_octets`].
    pub(crate) fn responder_octets<'a>(&'a self, id: &'a [u8], suite: IkeSuite) -> SignedOctets<'a> {
        let (message, nonce, sk_p) = (&*self.response, &*self.nonce_i, &self.sk_pr);
        let other_message = self.full_transcript.then_some(&*self.request);
        SignedOctets { message, other_message, nonce, sk_p, id, int_auth: self.int_auth.octets(), suite }
    }

    /// Creates our proof as the initiator. `id` is the body of our ID payload.
    pub(crate) fn prove<E>(
        &mut self,
        id: &[u8],
        connection: &Connection,
        suite: IkeSuite,
        mut prove: impl FnMut(&Self, &SignedOctets<'_>) -> Result<OwnProof, E>,
    ) -> Result<OwnProof, E> {
        #[cfg(feature = "ppk")]
        if let PpkUse::Offered(mut offer) = core::mem::take(&mut self.ppk) {
            let init: &Self = self;
            let plain = init.initiator_octets(id, suite);
            let proof = offer.prove(&plain, connection.ppk.required, |octets| prove(init, octets));
            self.ppk = PpkUse::Offered(offer);
            return proof;
        }
        #[cfg(not(feature = "ppk"))]
        let _ = connection;
        prove(self, &self.initiator_octets(id, suite))
    }
}

/// Features that the peer announced.
#[derive(Debug, Default)]
pub(crate) struct PeerFeatures {
    /// Hash algorithms for signatures, by number.
    pub(crate) hashes: Vec<u16>,
    pub(crate) fragments: bool,
    pub(crate) childless: bool,
    /// Whether the peer supports several rounds of authentication.
    #[cfg(feature = "eap")]
    pub(crate) multiple_auth: bool,
    /// Whether the peer detects NATs.
    #[cfg(feature = "mobike")]
    pub(crate) nat_traversal: bool,
    /// What it requests of our certificates.
    pub(crate) requests: CertRequests,
}

impl PeerFeatures {
    pub(crate) fn of(content: &Content<'_>) -> Self {
        Self {
            hashes: announced_hashes(content),
            fragments: content.has_notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED),
            childless: content.has_notify(NotifyType::CHILDLESS_IKEV2_SUPPORTED),
            #[cfg(feature = "eap")]
            multiple_auth: content.has_notify(NotifyType::MULTIPLE_AUTH_SUPPORTED),
            #[cfg(feature = "mobike")]
            nat_traversal: content.has_notify(NotifyType::NAT_DETECTION_SOURCE_IP)
                && content.has_notify(NotifyType::NAT_DETECTION_DESTINATION_IP),
            requests: CertRequests::of(content),
        }
    }
}
