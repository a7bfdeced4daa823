//! Post-quantum pre-shared keys in the exchanges that begin an IKE SA (RFC 8784 section 3).

use super::half_open::{Authenticated, HalfOpen};
use super::init_exchange::InitExchange;
use crate::auth::PeerAuthenticated;
use crate::auth::ppk::{PeerPpk, PlainKeys, PpkOffer, PpkUse, UsedPpk, is_announced};
use crate::config::Connection;
use crate::context::Step;
use crate::state::SaCommon;
use crate::transport::{Content, SecureChannel};
use crate::{Context, StateFault};
use alloc::boxed::Box;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::NotifyType;

/// Evaluates the announcement in the response to our IKE_SA_INIT request.
pub(super) fn agree_on_ppk(
    common: &SaCommon,
    content: &Content<'_>,
    step: &Step<'_, '_>,
) -> Result<PpkUse, StateFault> {
    let is_ours = is_announced(&common.connection, step.context.credentials)?;
    match is_ours && content.has_notify(NotifyType::USE_PPK) {
        true => Ok(PpkUse::Agreed),
        false if common.connection.ppk.required => Err(StateFault::PpkUnused),
        false => Ok(PpkUse::No),
    }
}

impl InitExchange {
    /// SK_d, SK_pi and SK_pr without a post-quantum pre-shared key.
    pub(super) const fn plain_keys<'a>(&'a self, sk_d: &'a SecretBytes) -> PlainKeys<'a> {
        PlainKeys { d: sk_d, pi: &self.sk_pi, pr: &self.sk_pr }
    }

    /// Derives the keys with our PPK before our AUTH payload, if both sides use PPKs.
    pub(super) fn offer_ppk(
        &mut self,
        connection: &Connection,
        channel: &SecureChannel,
        step: &Step<'_, '_>,
    ) -> Result<(), StateFault> {
        if let PpkUse::Agreed = self.ppk {
            let plain = self.plain_keys(&channel.sk_d);
            let offer = PpkOffer::new(connection, channel.suite.prf, plain, step.context)?;
            self.ppk = PpkUse::Offered(Box::new(offer));
        }
        Ok(())
    }
}

impl HalfOpen {
    /// The PPK that the peer names in this request with an AUTH payload.
    pub(super) fn ppk_of_request<'m>(
        &self,
        connection: &Connection,
        content: &Content<'m>,
        context: &Context<'_>,
    ) -> Result<PeerPpk<'m>, StateFault> {
        let (init, channel) = (&self.init, &self.channel);
        let keys = (init.plain_keys(&channel.sk_d), channel.suite.prf);
        PeerPpk::of_request(&init.ppk, connection, content, keys, context)
    }

    /// Derives further keys with the PPK of the peer whose proof depends on it, if it uses one.
    pub(super) fn accept_ppk<'c>(&mut self, authenticated: Authenticated<'c>) -> Authenticated<'c> {
        let Authenticated { peer, own, proof, ppk } = authenticated;
        let peer = self.with_accepted_ppk(ppk, peer);
        Authenticated { peer, own, proof, ppk: None }
    }

    /// Checks that a peer that has not announced PPKs may go on, before it proves its identity by EAP.
    #[cfg(feature = "eap")]
    pub(super) fn check_ppk_announced(&self, connection: &Connection) -> Result<(), StateFault> {
        match self.init.ppk {
            PpkUse::No if connection.ppk.required => Err(StateFault::PpkUnused),
            _ => Ok(()),
        }
    }

    /// Goes on with SK_d that depends on the PPK of the peer, if there is one. Otherwise later rounds of
    /// authentication name no PPK either.
    pub(super) fn with_accepted_ppk(
        &mut self,
        ppk: Option<UsedPpk>,
        mut peer: PeerAuthenticated,
    ) -> PeerAuthenticated {
        self.init.ppk = match ppk {
            Some(UsedPpk { id, sk_d }) => {
                self.channel.sk_d = sk_d;
                peer.set_ppk(id);
                PpkUse::Accepted
            }
            None => PpkUse::No,
        };
        peer
    }
}
