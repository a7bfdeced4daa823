//! The wait for the status of a peer's certificates or for our own signature, in both roles. The message that
//! needs it is kept and processed again, from the beginning, once the answer is known or the time is over.
//! The status is looked up once the peer has proved that it has the private key.

use super::config_payload::LeasedConfig;
use super::delete::send_final_notify;
use super::half_open::Progress;
use crate::auth::AuthWait;
use crate::context::Step;
use crate::state::{AuthSent, HalfOpen, IncomingMessage, MessageMeta, Plaintext, SaCommon, State};
use crate::transport::parse_payloads;
use crate::{DownReason, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};

/// An IKE_AUTH message that waits.
pub(crate) struct AwaitedMessage {
    /// Type of the first payload.
    first: PayloadType,
    payloads: Vec<u8>,
    path: Path,
    /// When the wait ends.
    until: Instant,
}

impl AwaitedMessage {
    pub(super) fn new(message: &IncomingMessage<'_>, step: &Step<'_, '_>) -> Result<Box<Self>, StateFault> {
        let Plaintext { first, bytes } = message.payloads;
        if bytes.len() > step.shared.settings.max_unauthenticated_bytes {
            return Err(StateFault::FragmentLimit);
        }
        let until = step.context.now.after(step.shared.settings.auth_wait);
        Ok(Box::new(Self { first, payloads: bytes.into(), path: message.path, until }))
    }

    /// Length in bytes.
    pub(super) const fn len(&self) -> usize {
        self.payloads.len()
    }

    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    /// Processes the message again.
    fn process<T>(&self, act: impl FnOnce(Result<IncomingMessage<'_>, PeerFault>) -> T) -> T {
        let payloads = Plaintext { first: self.first, bytes: &self.payloads };
        let (exchange, path) = (ExchangeType::IKE_AUTH, self.path);
        let content = parse_payloads(self.first, &self.payloads);
        act(content.map(|content| IncomingMessage { exchange, content, payloads, path }))
    }
}

impl AuthWait {
    pub(super) fn new(common: &SaCommon, is_over: bool) -> Self {
        Self {
            ike: common.id,
            is_over,
            #[cfg(feature = "external-keys")]
            remote: common.path.remote.ip(),
        }
    }
}

impl HalfOpen {
    /// Whether an answer may still be awaited.
    pub(super) fn auth_wait(&self, common: &SaCommon) -> AuthWait {
        AuthWait::new(common, self.is_wait_over)
    }

    /// Keeps a request until the answer is known.
    pub(super) fn await_answer(
        &mut self,
        request: &IncomingMessage<'_>,
        step: &Step<'_, '_>,
    ) -> Result<Progress, PeerFault> {
        self.awaited_message = Some(AwaitedMessage::new(request, step)?);
        Ok(Progress::Continues)
    }

    /// Continues if an answer was awaited: for certificates of IKE, for those of TLS in EAP, or for our
    /// signature.
    pub(crate) fn continue_authentication(
        mut self: Box<Self>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> State {
        let Some(awaited) = self.awaited_message.take() else {
            #[cfg(feature = "eap")]
            return self.continue_eap(common, step);
            #[cfg(not(feature = "eap"))]
            return State::HalfOpen(self);
        };
        self.is_wait_over = step.context.now >= awaited.until;
        let meta = MessageMeta { exchange: ExchangeType::IKE_AUTH, path: awaited.path };
        let mut leased = LeasedConfig::default();
        let progress = awaited.process(|request| {
            request.and_then(|request| self.process_request(common, &request, &mut leased, step))
        });
        // In a later round of authentication the time begins again.
        self.is_wait_over = false;
        if let Ok(Progress::Continues) = progress {
            // Another certificate, or another connection: the time does not begin again.
            self.awaited_message.iter_mut().for_each(|again| again.until = awaited.until);
        }
        self.advance(common, progress, leased, meta, step)
    }
}

impl AuthSent {
    /// Whether an answer may still be awaited.
    pub(super) fn auth_wait(&self, common: &SaCommon) -> AuthWait {
        AuthWait::new(common, self.is_wait_over)
    }

    /// Continues if an answer was awaited.
    pub(crate) fn continue_authentication(
        mut self: Box<Self>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> State {
        let Some(awaited) = self.awaited_message.take() else { return State::AuthSent(self) };
        self.is_wait_over = step.context.now >= awaited.until;
        let mut state = awaited.process(|response| self.on_response(common, response, step));
        if let State::AuthSent(state) = &mut state {
            state.is_wait_over = false;
            state.awaited_message.iter_mut().for_each(|again| again.until = awaited.until);
        }
        state
    }

    /// Ends the IKE SA during the wait. The peer, for which it is established, is told.
    pub(crate) fn decline(
        mut self: Box<Self>,
        common: &mut SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> State {
        self.channel.window.response_received();
        send_final_notify(common, &mut self.channel, NotifyType::AUTHENTICATION_FAILED, step);
        self.give_up(common, reason, step)
    }
}
