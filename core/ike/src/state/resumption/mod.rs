//! Session resumption (RFC 5723). This module is the exchange IKE_SESSION_RESUME as the initiator (section
//! 4.3.2), in place of IKE_SA_INIT; `response` is the responder's part. `auth` is the IKE_AUTH exchange after
//! it, `ticket` requests tickets and answers such requests.
//!
//! A responder that no longer supports resumption may ignore the ticket, and a lost link looks the same. So
//! the ticket is presented for a few seconds, then IKE_SA_INIT is tried for a few seconds, and then the
//! ticket is presented again for a whole sequence of retransmissions. When the link is back, the responder
//! nearly always gets the ticket first. If the attempt ends without a response, the session is kept for the
//! next one.

mod auth;
mod response;
mod ticket;

pub(crate) use response::respond_to_resumption;
pub(crate) use ticket::{TicketState, write_request};

use crate::child_sa::ChildRequest;
use crate::context::Step;
use crate::keymat::{Nonces, SaKeys};
use crate::resumption::LostSession;
use crate::state::init_accepted::{KeyedResponse, switch_to_natt_port};
use crate::state::init_exchange::InitExchange;
use crate::state::{AuthSent, InitSent, SaCommon, State};
use crate::transport::{Content, SecureChannel, required};
use crate::{DownReason, Event, IkeSpis, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, Header, IkeSpi, NotifyType};

/// Number of retransmissions in a short phase, which takes 7 seconds.
const SHORT_TRIES: u32 = 2;

/// A session that an IKE SA may resume.
pub(crate) struct Attempt {
    lost: LostSession,
    phase: Phase,
}

/// What the outstanding request of an attempt is, in this order. The last phase ends a sequence, and the
/// first one follows again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The ticket, for a short time.
    ShortTicket,
    /// IKE_SA_INIT, for a short time.
    Full,
    /// The ticket.
    Ticket,
}

impl InitSent {
    /// Presents the ticket of a session.
    pub(in crate::state) fn resuming(
        common: &SaCommon,
        lost: LostSession,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let mut state = Self::unsent(lost.suite.kex, child_requests, sequences, step);
        state.attempt = Some(Attempt { lost, phase: Phase::ShortTicket });
        state.send(common, step)?;
        Ok(state)
    }

    /// The session whose ticket the outstanding request presents.
    pub(in crate::state) fn presented(&self) -> Option<&LostSession> {
        self.attempt.as_ref().filter(|attempt| attempt.phase != Phase::Full).map(|attempt| &attempt.lost)
    }

    /// Exchange of the request.
    pub(crate) fn exchange(&self) -> ExchangeType {
        match self.presented() {
            Some(_) => ExchangeType::IKE_SESSION_RESUME,
            None => ExchangeType::IKE_SA_INIT,
        }
    }

    /// Number of retransmissions in this sequence.
    pub(in crate::state) fn max_tries(&self, common: &SaCommon, step: &Step<'_, '_>) -> u32 {
        let usual = common.first_retransmission(step).tries;
        match self.attempt.as_ref().map(|attempt| attempt.phase) {
            Some(Phase::ShortTicket | Phase::Full) => usual.min(SHORT_TRIES),
            Some(Phase::Ticket) | None => usual,
        }
    }

    /// Begins the next phase of an attempt after one without a response.
    pub(in crate::state) fn resumption_unanswered(
        self: Box<Self>,
        common: &mut SaCommon,
        Attempt { lost, phase }: Attempt,
        step: &mut Step<'_, '_>,
    ) -> State {
        let is_end = phase == Phase::Ticket;
        let sequences = self.sequences.saturating_add(is_end.into());
        if is_end && !common.connection.allows_another_sequence(sequences) {
            step.shared.resumption.client.add(lost);
            return State::Closed(DownReason::DeadPeer);
        }
        let next = match phase {
            Phase::ShortTicket => Phase::Full,
            Phase::Full => Phase::Ticket,
            Phase::Ticket => Phase::ShortTicket,
        };
        let is_valid = lost.is_valid(step.context.now);
        let begun = if next == Phase::Full || !is_valid {
            Self::restart(common, self.child_requests, sequences, step)
        } else {
            Self::reset(common, step);
            Self::resuming(common, lost.clone(), self.child_requests, sequences, step)
        };
        let attempt = is_valid.then_some(Attempt { lost, phase: next });
        match begun {
            Ok(state) => State::InitSent(Box::new(Self { attempt, ..state })),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Handles a response to the presented ticket. After a refusal, which may be forged, the peers
    /// authenticate each other anew.
    pub(in crate::state) fn on_resumption_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        header: &Header,
        bytes: &[u8],
        path: Path,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> State {
        let is_cookie = content.has_notify(NotifyType::COOKIE) && content.nonce.is_none();
        let done = if is_cookie {
            self.add_cookie(common, content, step)
        } else if content.has_notify(NotifyType::TICKET_NACK) || content.error().is_some() {
            return self.fall_back(common, step);
        } else {
            match self.accept_resumption(common, header, bytes, path, content, step) {
                Ok((channel, init)) => {
                    switch_to_natt_port(common, &init, step);
                    return self.authenticate_resumption(common, channel, init, step);
                }
                Err(fault) => Err(fault),
            }
        };
        if let Err(fault) = done {
            step.sa_fault(fault, path, common);
        }
        State::InitSent(self)
    }

    /// Begins with IKE_SA_INIT, because the peer does not accept the ticket. The refusal may be forged, so
    /// the session is kept until the full exchange has succeeded.
    fn fall_back(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        common.report_not_resumed(step);
        if let Some(Attempt { lost, .. }) = self.attempt.take() {
            step.shared.resumption.client.add_after_failure(lost);
        }
        match Self::restart(common, self.child_requests, self.sequences, step) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Derives the keys from the response. Changes nothing unless the whole response is valid.
    fn accept_resumption(
        &mut self,
        common: &mut SaCommon,
        header: &Header,
        bytes: &[u8],
        path: Path,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(SecureChannel, InitExchange), PeerFault> {
        let spi_r = header.spi_r;
        if spi_r == IkeSpi::NONE {
            return Err(StateFault::ZeroSpi.into());
        }
        let nonce = required(content.nonce)?.data();
        let lost = self.presented().ok_or(StateFault::StrayResponse)?;
        let (suite, spis) = (lost.suite, IkeSpis { initiator: common.spi_i, responder: spi_r });
        let nonces = Nonces { initiator: &self.nonce, responder: nonce };
        let keys = SaKeys::resumed(suite.prf, suite.sk, &lost.sk_d, nonces, spis, step.context.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        let response = KeyedResponse { spi_r, bytes, path, content, nonce };
        let full_transcript = lost.peer.full_transcript;
        let (channel, init) = self.keyed(common, &response, suite, keys, step)?;
        Ok((channel, InitExchange { full_transcript, ..init }))
    }

    /// Continues with IKE_AUTH. This attempt does not present the ticket again.
    fn authenticate_resumption(
        mut self: Box<Self>,
        common: &mut SaCommon,
        channel: SecureChannel,
        init: InitExchange,
        step: &mut Step<'_, '_>,
    ) -> State {
        let Some(Attempt { lost, .. }) = self.attempt.take() else { return State::InitSent(self) };
        AuthSent::begin_resumption(common, channel, init, lost, self.child_requests, self.sequences, step)
    }
}

impl SaCommon {
    /// Reports that the peer has not accepted the ticket.
    fn report_not_resumed(&self, step: &mut Step<'_, '_>) {
        step.event(Event::NotResumed { ike: self.id, connection: self.connection.clone(), path: self.path });
    }
}
