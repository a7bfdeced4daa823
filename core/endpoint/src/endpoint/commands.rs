//! Commands: SAs are set up, rekeyed and closed.

use super::Endpoint;
use alloc::sync::Arc;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{ChildId, Context, DownReason, IkeSaId, InitiateError};

impl Endpoint {
    /// Initiates a Child SA, or without a child an IKE SA. Ends the pauses of its traps.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<ChildConfig>>,
        context: &mut Context<'_>,
    ) -> Result<(), InitiateError> {
        if self.traps.resume(&connection.name, child.map(|child| &*child.name)) {
            self.datapath.flush_flow_cache();
        }
        let result = self.with_ike(|ike, host| ike.initiate(connection, child, None, host, context));
        self.handle_timeouts(context);
        result
    }

    /// Closes an IKE SA and its Child SAs; `false` if it does not exist.
    pub fn terminate(&mut self, ike: IkeSaId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|engine, host| engine.terminate(ike, DownReason::Local, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Closes a Child SA; `false` if it does not exist.
    pub fn terminate_child(&mut self, child: ChildId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|ike, host| ike.terminate_child(child, DownReason::Local, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Rekeys an IKE SA; `false` if it does not exist.
    pub fn rekey(&mut self, ike: IkeSaId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|engine, host| engine.rekey(ike, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Redirects the peer of an IKE SA to another gateway; `false` if the IKE SA or its peer cannot be
    /// redirected ([`Ike::redirect`](casemate_ike::Ike::redirect)).
    #[cfg(feature = "redirect")]
    pub fn redirect(
        &mut self,
        ike: IkeSaId,
        gateway: casemate_ike::config::Gateway,
        context: &mut Context<'_>,
    ) -> bool {
        let done = self.with_ike(|engine, host| engine.redirect(ike, gateway, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Rekeys a Child SA; `false` if it does not exist.
    pub fn rekey_child(&mut self, child: ChildId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|ike, host| ike.rekey_child(child, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Without records, no peer is known to accept higher sequence numbers only.
    #[cfg(not(feature = "records"))]
    pub(super) const fn skip_numbers(&self, _: &[ChildId], _: u64, _: &Context<'_>) {}

    /// Continues EAP with the peer of a half-open IKE SA after the server of its authenticator has answered;
    /// `false` if the IKE SA does not exist.
    #[cfg(feature = "eap")]
    pub fn continue_eap(&mut self, ike: IkeSaId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|engine, host| engine.continue_eap(ike, host, context));
        self.handle_timeouts(context);
        done
    }

    /// Continues with a peer the status of whose certificates was awaited, or for which our signature was;
    /// `false` if the IKE SA does not exist.
    #[cfg(feature = "revocation")]
    pub fn continue_authentication(&mut self, ike: IkeSaId, context: &mut Context<'_>) -> bool {
        let done = self.with_ike(|engine, host| engine.continue_authentication(ike, host, context));
        self.handle_timeouts(context);
        done
    }
}
