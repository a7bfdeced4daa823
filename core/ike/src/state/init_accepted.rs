//! The valid response to the first request (RFC 7296 sections 1.2, 2.7, 2.14 and 2.23): keys, what IKE_AUTH
//! needs, and the way to the first IKE_AUTH request, for which our signature may have to be awaited.

use super::first_proof::{FirstProof, Opening};
use super::init_exchange::{InitExchange, PeerFeatures};
#[cfg(feature = "ppk")]
use super::ppk::agree_on_ppk;
use super::select_connection::AnnouncedFeatures;
#[cfg(feature = "external-keys")]
use crate::auth::AuthWait;
#[cfg(feature = "ppk")]
use crate::auth::ppk::PpkUse;
use crate::auth::{AuthError, IntAuth};
use crate::config::Encapsulation;
use crate::context::Step;
use crate::keymat::{Nonces, SaKeys};
use crate::nat::detect;
use crate::negotiate::{IkeSuite, verify_choice};
use crate::state::{AuthSent, InitSent, SaCommon, State};
use crate::transport::{Content, FragmentSupport, SecureChannel, Window, required};
use crate::{DownReason, IkeSpis, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use casemate_wire::ike::{Header, IkeSpi, NotifyType};

/// A valid response to the first request.
#[derive(Clone, Copy)]
pub(super) struct KeyedResponse<'m> {
    pub(super) spi_r: IkeSpi,
    /// The whole message.
    pub(super) bytes: &'m [u8],
    pub(super) path: Path,
    pub(super) content: &'m Content<'m>,
    /// Nonce of the responder.
    pub(super) nonce: &'m [u8],
}

impl InitSent {
    /// Evaluates the peer's choice. Changes nothing unless the whole response is valid, except that an
    /// invalid public value consumes our private value.
    pub(super) fn accept(
        &mut self,
        common: &mut SaCommon,
        header: &Header,
        bytes: &[u8],
        path: Path,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(SecureChannel, InitExchange), PeerFault> {
        if header.spi_r == IkeSpi::NONE {
            return Err(StateFault::ZeroSpi.into());
        }
        let (sa, ke, nonce) = (required(content.sa)?, required(content.ke)?, required(content.nonce)?);
        let chosen = verify_choice(&self.offers, &sa).inspect_err(|fault| {
            step.explain_proposals(*fault, false, &sa, &self.offers);
        })?;
        let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
        if suite.kex != self.method || ke.method.0 != suite.kex.id() {
            return Err(StateFault::KeMethod.into());
        }
        // RFC 9370 section 2.2.1: without IKE_INTERMEDIATE there are no additional key exchanges.
        if !suite.additional.is_empty() && !content.has_notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED) {
            return Err(StateFault::NotOffered.into());
        }
        #[cfg(feature = "ppk")]
        let ppk = agree_on_ppk(common, content, step)?;
        let spis = IkeSpis { initiator: common.spi_i, responder: header.spi_r };
        let kex = self.kex.take().ok_or(StateFault::Provider)?;
        let Ok(shared) = kex.agree(ke.data) else {
            // The public value may be forged, and our private value is consumed. The attempt continues with a
            // new one.
            self.count_retry()?;
            self.new_kex(step)?;
            self.send(common, step)?;
            return Err(StateFault::KeValue.into());
        };
        let nonces = Nonces { initiator: &self.nonce, responder: nonce.data() };
        let keys = SaKeys::initial(suite.prf, suite.sk, &shared, nonces, spis, step.context.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        let response = KeyedResponse { spi_r: header.spi_r, bytes, path, content, nonce: nonce.data() };
        let keyed = self.keyed(common, &response, suite, keys, step);
        #[cfg(feature = "ppk")]
        let keyed = keyed.map(|(channel, init)| (channel, InitExchange { ppk, ..init }));
        keyed
    }

    /// The results of the exchange, with the keys that it has given.
    pub(super) fn keyed(
        &mut self,
        common: &mut SaCommon,
        response: &KeyedResponse<'_>,
        suite: IkeSuite,
        keys: SaKeys,
        step: &mut Step<'_, '_>,
    ) -> Result<(SecureChannel, InitExchange), PeerFault> {
        let KeyedResponse { spi_r, bytes, path, content, nonce } = *response;
        let spis = IkeSpis { initiator: common.spi_i, responder: spi_r };
        let mut nat = detect(content, spis, path, step.context.providers)?;
        if let Some(nat) = nat.as_mut().filter(|_| common.connection.encapsulation == Encapsulation::Always) {
            nat.force_local();
        }
        common.spi_r = spi_r;
        let peer = PeerFeatures::of(content);
        let ours = AnnouncedFeatures::of_connection(&common.connection).fragments;
        let fragments = FragmentSupport { local: ours, remote: peer.fragments };
        let channel = SecureChannel::new(common, suite, &keys, Window::new(1, 0), fragments, step)?;
        let init = InitExchange {
            request: core::mem::take(&mut self.request),
            response: bytes.into(),
            nonce_i: core::mem::take(&mut self.nonce),
            nonce_r: nonce.into(),
            sk_pi: keys.pi,
            sk_pr: keys.pr,
            full_transcript: common.connection.full_transcript_auth
                && content.has_notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH),
            int_auth: IntAuth::default(),
            nat: nat.unwrap_or_default(),
            peer,
            #[cfg(feature = "ppk")]
            ppk: PpkUse::No,
        };
        Ok((channel, init))
    }

    /// Begins with our proof, after all key exchanges.
    pub(super) fn prove(
        #[cfg_attr(not(feature = "external-keys"), expect(unused_mut, reason = "only a wait changes it"))]
        mut self: Box<Self>,
        common: &mut SaCommon,
        channel: SecureChannel,
        init: InitExchange,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "external-keys")]
        self.begin_wait(step);
        self.begin_auth(common, channel, init, step)
    }

    /// Sends the IKE_AUTH request, once our proof exists.
    #[cfg_attr(
        not(any(feature = "external-keys", feature = "redirect", feature = "resumption")),
        expect(clippy::boxed_local, reason = "only a wait keeps the state")
    )]
    pub(super) fn begin_auth(
        #[cfg_attr(not(feature = "external-keys"), expect(unused_mut, reason = "only a wait changes it"))]
        mut self: Box<Self>,
        common: &mut SaCommon,
        channel: SecureChannel,
        mut init: InitExchange,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "external-keys")]
        let wait = AuthWait::new(common, step.context.now >= self.due);
        #[cfg(feature = "external-keys")]
        let first = FirstProof::new(common, &channel, &mut init, wait, step);
        #[cfg(not(feature = "external-keys"))]
        let first = FirstProof::new(common, &channel, &mut init, step);
        match first {
            Ok(first) => {
                let Self { child_requests, sequences, .. } = *self;
                AuthSent::begin(common, Opening { channel, init, child_requests, sequences }, first, step)
            }
            Err(AuthError::Fault(fault)) => {
                step.sa_fault(fault.into(), common.path, common);
                State::Closed(DownReason::Fault(fault.into()))
            }
            #[cfg(feature = "external-keys")]
            Err(AuthError::Pending) => {
                self.accepted = Some(Box::new((channel, init)));
                State::InitSent(self)
            }
            // Only a signature is awaited here.
            #[cfg(all(feature = "revocation", not(feature = "external-keys")))]
            Err(AuthError::Pending) => State::Closed(DownReason::Fault(StateFault::OwnSignature.into())),
        }
    }

    /// Begins the wait for our signature.
    #[cfg(feature = "external-keys")]
    fn begin_wait(&mut self, step: &Step<'_, '_>) {
        self.refused = None;
        self.due = step.context.now.after(step.shared.settings.auth_wait);
    }

    /// Continues if our signature was awaited.
    #[cfg(feature = "external-keys")]
    pub(crate) fn continue_authentication(
        mut self: Box<Self>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> State {
        match self.accepted.take() {
            Some(accepted) => {
                let (channel, init) = *accepted;
                self.begin_auth(common, channel, init, step)
            }
            None => State::InitSent(self),
        }
    }
}

/// Switches to port 4500 behind a NAT (RFC 7296 section 2.23), or if a later path may have one (RFC 4555
/// section 3.3).
pub(super) fn switch_to_natt_port(common: &mut SaCommon, init: &InitExchange, step: &Step<'_, '_>) {
    let port = step.shared.settings.natt_port;
    let switches = init.nat.any();
    #[cfg(feature = "mobike")]
    let switches = switches || common.connection.mobike && init.peer.nat_traversal;
    if switches && common.path.local.port() != port {
        common.path.local.set_port(port);
        common.path.remote.set_port(port);
    }
}
