//! Additional key exchanges before IKE_AUTH, in IKE_INTERMEDIATE exchanges (RFC 9370 section 2.2.2, RFC
//! 9242). Each gives the IKE SA new keys.

use super::half_open::HalfOpen;
use super::init_exchange::InitExchange;
use crate::auth::{AuthenticatedExchange, authenticated_octets};
use crate::context::{KexResponse, Step};
use crate::keymat::SaKeys;
use crate::state::{IncomingMessage, InitSent, SaCommon, State};
use crate::transport::{Build, Content, MessageKind, SecureChannel, header, required, write_plain};
use crate::{DownReason, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, HEADER_LEN, Header, Ke, KeMethod};

/// Our IKE_INTERMEDIATE request is outstanding.
pub(crate) struct IntermediateSent {
    pub(crate) channel: SecureChannel,
    init: InitExchange,
    /// The state of IKE_SA_INIT, which knows what IKE_AUTH is to request.
    pub(crate) begun: Box<InitSent>,
    /// Number of completed additional key exchanges.
    done: usize,
    method: KexMethod,
    kex: Box<dyn KexSecret>,
    /// What AUTH covers of the request.
    request: Vec<u8>,
}

impl InitSent {
    /// Sends the next additional key exchange, or IKE_AUTH if `done` key exchanges are all.
    pub(super) fn exchange_keys(
        self: Box<Self>,
        common: &mut SaCommon,
        channel: SecureChannel,
        init: InitExchange,
        done: usize,
        step: &mut Step<'_, '_>,
    ) -> State {
        let Some(method) = channel.suite.additional.after(done) else {
            return self.prove(common, channel, init, step);
        };
        match IntermediateSent::send(self, common, channel, init, (done, method), step) {
            Ok(state) => State::IntermediateSent(Box::new(state)),
            Err(fault) => {
                step.sa_fault(fault.into(), common.path, common);
                State::Closed(DownReason::Fault(fault.into()))
            }
        }
    }
}

impl IntermediateSent {
    fn send(
        begun: Box<InitSent>,
        common: &SaCommon,
        mut channel: SecureChannel,
        init: InitExchange,
        (done, method): (usize, KexMethod),
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let kex = step.context.providers.kex(method, step.context.rng).map_err(|_| StateFault::Provider)?;
        let message_id = channel.window.next_request_id().ok_or(StateFault::Provider)?;
        let build: Build<'_> = &|out| out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() });
        let request = own_octets(common, message_id, false, build, step)?;
        let sent = channel.send_request(common, ExchangeType::IKE_INTERMEDIATE, step, build);
        sent.map_err(|_| StateFault::Provider)?;
        Ok(Self { channel, init, begun, done, method, kex, request })
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.channel.window.next_timeout()
    }

    /// Repeats the request. A peer that does not respond may have forgotten IKE_SA_INIT, so another sequence
    /// of requests starts with it, if the connection allows one.
    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        let begins_again = common.begins_again(self.channel.window.retransmissions(), step);
        if !begins_again && self.channel.retransmit(common, step).is_ok() {
            return State::IntermediateSent(self);
        }
        let begun = self.begun;
        let sequences = begun.sequences.saturating_add(u32::from(!begins_again));
        if !common.connection.allows_another_sequence(sequences) {
            return State::Closed(DownReason::DeadPeer);
        }
        match InitSent::restart(common, begun.child_requests, sequences, step) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Completes the key exchange. An invalid response ends the attempt: its sender has the keys of
    /// IKE_SA_INIT (RFC 9242 section 3.4).
    pub(crate) fn on_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        response: Result<IncomingMessage<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) -> State {
        if let Ok(response) = &response
            && let Some(refusal) = response.content.error()
        {
            return State::Closed(DownReason::Refused(refusal));
        }
        let message_id = self.channel.window.outstanding_id().unwrap_or_default();
        self.channel.window.response_received();
        let Self { mut channel, mut init, begun, done, method, kex, request } = *self;
        let completed = response.and_then(|response| {
            if response.exchange != ExchangeType::IKE_INTERMEDIATE {
                return Err(StateFault::WrongExchange.into());
            }
            let public = public_value(&response.content, method)?;
            let shared = kex.agree(public).map_err(|_| StateFault::KeValue)?;
            let response = peer_octets(common, message_id, true, &response)?;
            let exchange = Exchanged { message_id, request: &request, response: &response, shared: &shared };
            Ok(exchange.update_keys(common, &mut channel, &mut init, step)?)
        });
        match completed {
            Ok(()) => begun.exchange_keys(common, channel, init, done.saturating_add(1), step),
            Err(fault) => {
                step.sa_fault(fault, common.path, common);
                State::Closed(DownReason::Fault(fault))
            }
        }
    }
}

impl HalfOpen {
    /// Responds to an IKE_INTERMEDIATE request with the next additional key exchange.
    pub(super) fn respond_with_keys(
        &mut self,
        common: &SaCommon,
        method: KexMethod,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        if request.exchange != ExchangeType::IKE_INTERMEDIATE {
            return Err(StateFault::WrongExchange.into());
        }
        let value = public_value(&request.content, method)?;
        let KexResponse { public, shared, .. } = step.respond_to_kex(method, value)?;
        let message_id = self.channel.window.expected_id();
        let theirs = peer_octets(common, message_id, false, request)?;
        let build: Build<'_> = &|out| out.ke(&Ke { method: KeMethod(method.id()), data: &public });
        let ours = own_octets(common, message_id, true, build, step)?;
        let sent = self.channel.send_response(common, ExchangeType::IKE_INTERMEDIATE, step, build);
        sent.map_err(|_| StateFault::Provider)?;
        let exchange = Exchanged { message_id, request: &theirs, response: &ours, shared: &shared };
        exchange.update_keys(common, &mut self.channel, &mut self.init, step)?;
        self.kexes_done = self.kexes_done.saturating_add(1);
        Ok(())
    }
}

/// A completed IKE_INTERMEDIATE exchange.
struct Exchanged<'a> {
    message_id: u32,
    /// What AUTH covers of both messages.
    request: &'a [u8],
    response: &'a [u8],
    shared: &'a SecretBytes,
}

impl Exchanged<'_> {
    /// Adds the exchange to what AUTH covers, and derives the keys that all later messages use.
    fn update_keys(
        &self,
        common: &SaCommon,
        channel: &mut SecureChannel,
        init: &mut InitExchange,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let Self { message_id, request, response, shared } = *self;
        let (suite, providers) = (channel.suite, step.context.providers);
        let InitExchange { int_auth, sk_pi, sk_pr, .. } = init;
        let exchange = AuthenticatedExchange { request, response, message_id, sk_pi, sk_pr };
        int_auth.add(&exchange, suite.prf, providers)?;
        let (sk_d, spis) = (&channel.sk_d, common.spis());
        let keys = SaKeys::updated(suite.prf, suite.sk, sk_d, shared, init.nonces(), spis, providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        channel.update_keys(common, &keys, step);
        (init.sk_pi, init.sk_pr) = (keys.pi, keys.pr);
        Ok(())
    }
}

/// The peer's public value, which must be of this method.
pub(super) fn public_value<'m>(content: &Content<'m>, method: KexMethod) -> Result<&'m [u8], PeerFault> {
    let ke = required(content.ke)?;
    if ke.method.0 == method.id() { Ok(ke.data) } else { Err(StateFault::KeMethod.into()) }
}

fn kind(message_id: u32, response: bool) -> MessageKind {
    MessageKind { exchange: ExchangeType::IKE_INTERMEDIATE, message_id, response }
}

/// What AUTH covers of a message of this host.
fn own_octets(
    common: &SaCommon,
    message_id: u32,
    response: bool,
    build: Build<'_>,
    step: &mut Step<'_, '_>,
) -> Result<Vec<u8>, StateFault> {
    let (spis, role, kind) = (common.spis(), common.role, kind(message_id, response));
    let plain = write_plain(&header(spis, role, kind), &mut step.shared.scratch, build);
    let plain = plain.map_err(|_| StateFault::Provider)?;
    let first = Header::parse(&plain).map_err(|_| StateFault::Provider)?.next_payload;
    let payloads = plain.get(HEADER_LEN..).ok_or(StateFault::Provider)?;
    authenticated_octets(spis, role, kind, first, payloads)
}

/// What AUTH covers of a message of the peer.
fn peer_octets(
    common: &SaCommon,
    message_id: u32,
    response: bool,
    message: &IncomingMessage<'_>,
) -> Result<Vec<u8>, StateFault> {
    let sender = match common.role {
        Role::Initiator => Role::Responder,
        Role::Responder => Role::Initiator,
    };
    let payloads = message.payloads;
    authenticated_octets(common.spis(), sender, kind(message_id, response), payloads.first, payloads.bytes)
}
