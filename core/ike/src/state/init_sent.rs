//! IKE_SA_INIT as the initiator (RFC 7296 sections 1.2, 2.6, 2.7 and 2.23). `init_accepted` evaluates the
//! valid response.

use super::init_accepted::switch_to_natt_port;
#[cfg(feature = "external-keys")]
use super::init_exchange::InitExchange;
use super::init_response::write_features;
use super::select_connection::AnnouncedFeatures;
use crate::child_sa::ChildRequest;
use crate::config::{Connection, Encapsulation};
use crate::context::{Retransmitted, Step};
use crate::nat::{NatDetection, PREFERS_UDP};
use crate::negotiate::{Offer, with_proposals};
#[cfg(feature = "redirect")]
use crate::redirect::Redirect;
#[cfg(feature = "resumption")]
use crate::state::resumption::Attempt;
use crate::state::{IkeSa, SaCommon, State, retry_at};
#[cfg(feature = "external-keys")]
use crate::transport::SecureChannel;
use crate::transport::{Content, MessageKind, header, write_plain};
use crate::{DownReason, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret};
use casemate_sa::Instant;
use casemate_wire::ike::{Header, IkeSpi, Ke, KeMethod, Nonce, Notify, NotifyType, WriteError, Writer};

/// Maximum number of cookies and other key exchange methods that a peer may request in one attempt.
const MAX_RETRIES: u32 = 8;

/// The first request is outstanding.
pub(crate) struct InitSent {
    pub(super) offers: Vec<Offer>,
    pub(super) method: KexMethod,
    /// Consumed by the response.
    pub(super) kex: Option<Box<dyn KexSecret>>,
    pub(crate) nonce: Vec<u8>,
    pub(super) cookie: Vec<u8>,
    /// The session that the IKE SA may resume.
    #[cfg(feature = "resumption")]
    pub(super) attempt: Option<Attempt>,
    /// Last message as sent. AUTH covers it.
    pub(super) request: Vec<u8>,
    /// Requested Child SAs. The first is part of IKE_AUTH.
    pub(crate) child_requests: Vec<ChildRequest>,
    pub(super) retries: u32,
    pub(super) tries: u32,
    /// Number of failed sequences of retransmissions.
    pub(crate) sequences: u32,
    pub(crate) due: Instant,
    /// An unauthenticated refusal. It takes effect if no better response arrives in time.
    pub(super) refused: Option<DownReason>,
    /// What it waits for after a redirect to the name of a gateway.
    #[cfg(feature = "redirect")]
    pub(crate) waiting: Option<crate::redirect::Waiting>,
    /// The response, once it was accepted, while our signature for IKE_AUTH is being made.
    #[cfg(feature = "external-keys")]
    pub(super) accepted: Option<Box<(SecureChannel, InitExchange)>>,
}

impl InitSent {
    /// Starts an IKE SA.
    pub(crate) fn begin(
        connection: Arc<Connection>,
        path: Path,
        child_requests: Vec<ChildRequest>,
        step: &mut Step<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        #[cfg(feature = "resumption")]
        let lost = step.shared.resumption.client.take(&connection, path, step.context.now);
        let common = SaCommon::of_initiator(connection, path, step);
        #[cfg(feature = "resumption")]
        if let Some(lost) = lost {
            let state = Self::resuming(&common, lost, child_requests, 0, step)?;
            return Ok(IkeSa { common, state: State::InitSent(Box::new(state)) });
        }
        Self::begin_with(common, child_requests, step)
    }

    pub(crate) fn begin_with(
        common: SaCommon,
        child_requests: Vec<ChildRequest>,
        step: &mut Step<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        let state = Self::new(&common, child_requests, 0, step)?;
        Ok(IkeSa { common, state: State::InitSent(Box::new(state)) })
    }

    /// Restarts an IKE SA whose peer did not respond to IKE_AUTH: with a new SPI, a new key exchange and the
    /// configured ports. `sequences` is the number of failed sequences so far.
    pub(crate) fn restart(
        common: &mut SaCommon,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        Self::reset(common, step);
        Self::new(common, child_requests, sequences, step)
    }

    /// Begins an IKE SA again, with a new SPI and the configured ports.
    pub(crate) fn reset(common: &mut SaCommon, step: &mut Step<'_, '_>) {
        (common.spi_i, common.spi_r) = (step.ike_spi(), IkeSpi::NONE);
        common.is_reported_unknown = false;
        common.path.local.set_port(common.connection.local_port);
        common.path.remote.set_port(common.connection.remote_port);
    }

    fn new(
        common: &SaCommon,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let offers = Offer::all_ike(&common.connection);
        let method =
            offers.iter().find_map(|offer| offer.kex().next()).ok_or(StateFault::NoProposalChosen)?;
        let kex = step.context.providers.kex(method, step.context.rng).map_err(|_| StateFault::Provider)?;
        let mut state = Self::unsent(method, child_requests, sequences, step);
        (state.offers, state.kex) = (offers, Some(kex));
        state.send(common, step)?;
        Ok(state)
    }

    /// A request that was not sent, without offers and without a public value.
    pub(crate) fn unsent(
        method: KexMethod,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Self {
        Self {
            offers: Vec::new(),
            method,
            kex: None,
            nonce: step.nonce(),
            cookie: Vec::new(),
            #[cfg(feature = "resumption")]
            attempt: None,
            request: Vec::new(),
            child_requests,
            retries: 0,
            tries: 0,
            sequences,
            due: step.context.now,
            refused: None,
            #[cfg(feature = "redirect")]
            waiting: None,
            #[cfg(feature = "external-keys")]
            accepted: None,
        }
    }

    /// Exchange of the request.
    #[cfg(not(feature = "resumption"))]
    pub(crate) const fn exchange(&self) -> casemate_wire::ike::ExchangeType {
        casemate_wire::ike::ExchangeType::IKE_SA_INIT
    }

    /// Number of retransmissions in this sequence.
    #[cfg(not(feature = "resumption"))]
    fn max_tries(&self, common: &SaCommon, step: &Step<'_, '_>) -> u32 {
        common.first_retransmission(step).tries
    }

    pub(crate) const fn next_timeout(&self) -> Instant {
        self.due
    }

    /// Builds the request and sends it.
    pub(super) fn send(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) -> Result<(), StateFault> {
        let connection = &common.connection;
        let always = connection.encapsulation == Encapsulation::Always;
        let detection = NatDetection::new(common.spis(), common.path, always, step.context.providers)?;
        let kind = MessageKind { exchange: self.exchange(), message_id: 0, response: false };
        let features = AnnouncedFeatures::of_request(connection, self.exchange(), step)?;
        let build = |out: &mut Writer<'_>| {
            // RFC 7296 section 2.6: the cookie comes first.
            if !self.cookie.is_empty() {
                out.notify(&Notify::new(NotifyType::COOKIE, &self.cookie))?;
            }
            self.write_key_source(out)?;
            detection.write(out)?;
            write_features(&features, out)?;
            #[cfg(feature = "redirect")]
            common.redirect.write(out)?;
            match connection.encapsulation {
                Encapsulation::Auto => out.vendor(&PREFERS_UDP),
                Encapsulation::IfNat | Encapsulation::Always => Ok(()),
            }
        };
        let header = header(common.spis(), common.role, kind);
        let request = write_plain(&header, &mut step.shared.scratch, &build);
        self.request = request.map_err(|_| StateFault::Provider)?;
        step.send(common.path, core::slice::from_ref(&self.request));
        self.tries = 0;
        // A refusal keeps its deadline.
        if self.refused.is_none() {
            let wait = common.first_retransmission(step).wait(0, step.context.rng);
            self.due = step.context.now.after(wait);
        }
        Ok(())
    }

    /// Writes that from which the keys are derived: offers, public value and nonce, or nonce and ticket.
    fn write_key_source(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        let nonce = Nonce::parse(&self.nonce).map_err(WriteError::Invalid)?;
        #[cfg(feature = "resumption")]
        if let Some(lost) = self.presented() {
            out.nonce(&nonce)?;
            return out.notify(&Notify::new(NotifyType::TICKET_OPAQUE, &lost.ticket.bytes));
        }
        with_proposals(&self.offers, &[], |proposals| out.sa(proposals))?;
        let public = self.kex.as_ref().map_or(&[][..], |kex| kex.public());
        out.ke(&Ke { method: KeMethod(self.method.id()), data: public })?;
        out.nonce(&nonce)
    }

    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        if step.context.now < self.due {
            return State::InitSent(self);
        }
        #[cfg(feature = "redirect")]
        if let Some(waiting) = self.waiting.take() {
            return self.end_waiting(common, waiting, step);
        }
        #[cfg(feature = "external-keys")]
        if self.accepted.is_some() {
            return self.continue_authentication(common, step);
        }
        if let Some(reason) = self.refused.take() {
            return self.pause_after_refusal(common, reason, step);
        }
        self.tries = self.tries.saturating_add(1);
        if self.tries > self.max_tries(common, step) {
            return self.restart_sequence(common, step);
        }
        let wait = common.first_retransmission(step).wait(self.tries, step.context.rng);
        self.due = step.context.now.after(wait);
        step.send(common.path, core::slice::from_ref(&self.request));
        let tries = common.first_retransmission(step).tries;
        let retransmitted =
            Retransmitted { exchange: self.exchange(), message_id: 0, attempt: self.tries, tries, wait };
        step.retransmitted(common, retransmitted);
        State::InitSent(self)
    }

    /// Starts another sequence after a pause, if the connection allows one. The refusal is not authenticated
    /// and may be forged.
    fn pause_after_refusal(
        mut self: Box<Self>,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> State {
        if !common.connection.allows_another_sequence(self.sequences.saturating_add(1)) {
            return State::Closed(reason);
        }
        // As after the last retransmission.
        self.tries = common.first_retransmission(step).tries;
        self.due = retry_at(u8::try_from(self.sequences).unwrap_or(u8::MAX), step);
        State::InitSent(self)
    }

    /// Starts another sequence of retransmissions to a peer that did not respond, if the connection allows
    /// one.
    fn restart_sequence(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        #[cfg(feature = "resumption")]
        if let Some(attempt) = self.attempt.take() {
            return self.resumption_unanswered(common, attempt, step);
        }
        self.sequences = self.sequences.saturating_add(1);
        if !common.connection.allows_another_sequence(self.sequences) {
            return State::Closed(DownReason::DeadPeer);
        }
        // Another peer may answer now, and the cookie may be too old.
        self.cookie.clear();
        self.retries = 0;
        match self.send(common, step) {
            Ok(()) => State::InitSent(self),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Handles a response in clear text. The response may be forged and must not end the attempt at once (RFC
    /// 7296 section 2.21.1).
    pub(crate) fn on_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        header: &Header,
        bytes: &[u8],
        path: Path,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "external-keys")]
        if self.accepted.is_some() {
            // A repetition or a forgery.
            return State::InitSent(self);
        }
        #[cfg(feature = "redirect")]
        if self.waiting.is_some() {
            return State::InitSent(self);
        }
        #[cfg(feature = "redirect")]
        if Redirect::is_init_response(content) {
            return self.on_redirect(common, content, step);
        }
        #[cfg(feature = "resumption")]
        if self.presented().is_some() {
            return self.on_resumption_response(common, header, bytes, path, content, step);
        }
        let done = match content.error() {
            _ if content.has_notify(NotifyType::COOKIE) && content.sa.is_none() => {
                self.add_cookie(common, content, step)
            }
            Some(NotifyType::INVALID_KE_PAYLOAD) => self.change_kex(common, content, step),
            Some(refusal) => {
                self.refuse(DownReason::Refused(refusal), step);
                Ok(())
            }
            None => match self.accept(common, header, bytes, path, content, step) {
                Ok((channel, init)) => {
                    switch_to_natt_port(common, &init, step);
                    #[cfg(feature = "multiple-kex")]
                    return self.exchange_keys(common, channel, init, 0, step);
                    #[cfg(not(feature = "multiple-kex"))]
                    return self.prove(common, channel, init, step);
                }
                Err(fault) => Err(fault),
            },
        };
        if let Err(fault) = done {
            step.sa_fault(fault, path, common);
            if fault != StateFault::KeValue.into() {
                self.refuse(DownReason::Fault(fault), step);
            }
        }
        State::InitSent(self)
    }

    fn refuse(&mut self, reason: DownReason, step: &Step<'_, '_>) {
        if self.refused.is_none() {
            self.refused = Some(reason);
            self.due = step.context.now.after(step.shared.settings.refusal_wait);
        }
    }

    /// Repeats the request with the cookie in front (RFC 7296 section 2.6).
    pub(super) fn add_cookie(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let cookie = content.notify(NotifyType::COOKIE).map_or(&[][..], |notify| notify.data);
        if self.cookie == cookie {
            // The last request already had this cookie, so the response is a repetition.
            return Ok(());
        }
        self.count_retry()?;
        self.cookie = cookie.into();
        self.send(common, step).map_err(PeerFault::from)
    }

    /// Repeats the request with another key exchange method, which must be one of those offered (RFC 7296
    /// section 1.2).
    fn change_kex(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let data = content.notify(NotifyType::INVALID_KE_PAYLOAD).map_or(&[][..], |notify| notify.data);
        let wanted = data.as_array().map(|id| u16::from_be_bytes(*id)).and_then(KexMethod::from_id);
        if wanted == Some(self.method) {
            // The last request already used this method, so the response is a repetition.
            return Ok(());
        }
        self.count_retry()?;
        let offered = |method: &KexMethod| self.offers.iter().any(|offer| offer.kex().any(|m| m == *method));
        self.method = wanted.filter(offered).ok_or(StateFault::NotOffered)?;
        self.new_kex(step)?;
        self.send(common, step).map_err(PeerFault::from)
    }

    pub(super) fn new_kex(&mut self, step: &mut Step<'_, '_>) -> Result<(), StateFault> {
        let kex = step.context.providers.kex(self.method, step.context.rng);
        self.kex = Some(kex.map_err(|_| StateFault::Provider)?);
        Ok(())
    }

    pub(super) fn count_retry(&mut self) -> Result<(), StateFault> {
        self.retries = self.retries.saturating_add(1);
        if self.retries > MAX_RETRIES { Err(StateFault::TooManyRetries) } else { Ok(()) }
    }
}
