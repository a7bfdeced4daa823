//! Our identity and proof in the first IKE_AUTH request (RFC 7296 section 2.15), between IKE_SA_INIT and the
//! request. A signature may have to be awaited.

use super::init_exchange::InitExchange;
#[cfg(feature = "eap")]
use super::initiator_rounds::InitiatorRounds;
#[cfg(feature = "external-keys")]
use crate::auth::AuthWait;
use crate::auth::{AuthError, LocalAuthenticator, OwnProof, ProofTerms, Wanted};
use crate::child_sa::ChildRequest;
use crate::config::Identity;
use crate::context::Step;
use crate::state::SaCommon;
use crate::transport::SecureChannel;
use alloc::vec::Vec;

/// The keys of an IKE SA and its IKE_SA_INIT exchange, before the first IKE_AUTH request.
pub(crate) struct Opening {
    pub(crate) channel: SecureChannel,
    pub(crate) init: InitExchange,
    /// Requested Child SAs. The first is part of IKE_AUTH.
    pub(crate) child_requests: Vec<ChildRequest>,
    /// Number of failed sequences of requests before this one.
    pub(crate) sequences: u32,
}

/// Our identity and proof in the first round.
pub(crate) struct FirstProof<'c> {
    pub(super) own: LocalAuthenticator<'c>,
    /// `None` if EAP proves the identity.
    pub(super) proof: Option<OwnProof>,
    #[cfg(feature = "eap")]
    pub(super) rounds: InitiatorRounds,
}

impl<'c> FirstProof<'c> {
    /// Creates the proof. Nothing was sent then.
    pub(crate) fn new(
        common: &SaCommon,
        channel: &SecureChannel,
        init: &mut InitExchange,
        #[cfg(feature = "external-keys")] wait: AuthWait,
        step: &mut Step<'_, 'c>,
    ) -> Result<Self, AuthError> {
        let (connection, credentials) = (&*common.connection, step.context.credentials);
        let wanted = Wanted { requests: &init.peer.requests, id: None };
        let own = LocalAuthenticator::new(connection, wanted, common.path.local.ip(), credentials)?;
        #[cfg(feature = "eap")]
        let rounds = InitiatorRounds::begin(connection, &own.id, &init.peer)?;
        #[cfg(feature = "eap")]
        if rounds.proves_by_eap() {
            return Ok(Self { own, proof: None, rounds });
        }
        #[cfg(feature = "ppk")]
        init.offer_ppk(connection, channel, step)?;
        let own_body = own.id_body();
        // The peer has not sent its identity yet. The expected identity selects the shared key.
        let expected = connection.remote.id.exact().cloned();
        let peer = expected.unwrap_or(Identity::Address(common.path.remote.ip()));
        let proof = init.prove(&own_body, connection, channel.suite, |init, octets| {
            let terms = ProofTerms {
                connection,
                peer: &peer,
                hashes: &init.peer.hashes,
                #[cfg(feature = "external-keys")]
                wait,
            };
            own.prove(octets, &terms, step)
        })?;
        Ok(Self {
            own,
            proof: Some(proof),
            #[cfg(feature = "eap")]
            rounds,
        })
    }
}
