//! The proof in an IKE_AUTH response (RFC 7296 section 2.15), as the initiator verifies it.

use crate::auth::credentials::id_matches;
use crate::auth::{AuthClaim, AuthError, PeerAuthenticated, verify};
use crate::config::{Connection, IdPattern, Identity};
use crate::context::Step;
use crate::state::{AuthSent, SaCommon};
use crate::transport::{Content, required};
use crate::{PeerFault, StateFault};
use casemate_wire::ike::NotifyType;

impl AuthSent {
    /// The identity of the responder and the body of its ID payload, if the connection is meant for it.
    pub(super) fn responder_id<'m>(
        &self,
        connection: &Connection,
        content: &Content<'m>,
        step: &mut Step<'_, '_>,
    ) -> Result<(Identity, &'m [u8]), Rejection> {
        let Some(received) = content.id_r else {
            // A response without an identity is a refusal.
            return Err(content.error().map_or(StateFault::PayloadMissing.into(), Rejection::Refused));
        };
        let id = Identity::from_payload(&received.id).ok_or(StateFault::IdentityType)?;
        let pattern = &connection.remote.id;
        let is_meant = match pattern {
            // Without a configured identity the configured address identifies the peer.
            IdPattern::Any => true,
            pattern => id_matches(step.context.credentials, pattern, &id),
        };
        if !is_meant {
            self.explain(StateFault::WrongIdentity, content, step);
            return Err(StateFault::WrongIdentity.into());
        }
        Ok((id, received.body))
    }

    /// Verifies the peer's proof, as `connection` requires.
    pub(super) fn verify_response(
        &self,
        connection: &Connection,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<PeerAuthenticated, Rejection> {
        let (id, body) = self.responder_id(connection, content, step)?;
        let octets = self.init.responder_octets(body, self.channel.suite);
        #[cfg(feature = "ppk")]
        let octets = self.init.ppk.responder_octets(octets, connection, content)?;
        let auth = required(content.auth)?;
        let claim = AuthClaim {
            id: &id,
            auth,
            certs: &content.certs,
            remote: common.path.remote.ip(),
            #[cfg(feature = "revocation")]
            status: self.auth_wait(common),
        };
        let verified = verify(&claim, &octets, connection, &self.own_id, step.context);
        verified.map_err(|error| {
            match error {
                AuthError::Fault(fault) => self.explain(fault, content, step),
                #[cfg(feature = "revocation")]
                AuthError::Pending => {}
            }
            error.into()
        })
    }

    fn explain(&self, fault: StateFault, content: &Content<'_>, step: &mut Step<'_, '_>) {
        step.explain(fault, false, |explainer, _| Some(explainer.responder(content, &self.own_id)));
    }
}

/// Reason why a response does not authenticate its sender.
pub(super) enum Rejection {
    /// The peer refused.
    Refused(NotifyType),
    Fault(PeerFault),
    /// The status of the certificates is being looked up, or our signature is being made.
    #[cfg(feature = "revocation")]
    Pending,
}

impl From<AuthError> for Rejection {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Fault(fault) => Self::Fault(fault.into()),
            #[cfg(feature = "revocation")]
            AuthError::Pending => Self::Pending,
        }
    }
}

impl From<PeerFault> for Rejection {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for Rejection {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}
