//! Tickets of established IKE SAs: requests and answers (RFC 5723 sections 4.1 and 4.2), and the end of the
//! session (section 6.2).

use crate::auth::PeerAuthenticated;
use crate::config::Connection;
use crate::context::Step;
use crate::resumption::{HeldTicket, LostSession, Ticket, TicketRequest, TicketResponse};
use crate::state::established::Phase;
use crate::state::tasks::Pending;
use crate::state::timers::Timer;
use crate::state::{Established, HalfOpen, IkeSa, SaCommon, State, Task};
use crate::transport::Content;
use crate::{DownReason, ForgottenSign, PeerFault, StateFault};
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, WriteError, Writer};
use core::time::Duration;

/// Time after which a responder that may give a ticket later is asked again.
const LATER: Duration = Duration::from_secs(60);

/// Tickets of an established IKE SA.
#[derive(Default)]
pub(crate) struct TicketState {
    /// Whether this host requests tickets.
    requests: bool,
    /// The ticket that the peer has given to this host.
    held: Option<HeldTicket>,
    /// When the last ticket that this host has given to the peer expires. `None` once they are void.
    granted_until: Option<Instant>,
    /// When the peer must have been authenticated again; `None` for never. A successor by rekeying inherits
    /// it, and attempts to reauthenticate do not change it.
    deadline: Option<Instant>,
}

impl TicketState {
    pub(in crate::state) fn with_deadline(deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// Notes an earlier deadline, which the peer has announced.
    #[cfg(feature = "eap")]
    pub(in crate::state) fn limit_deadline(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |before| before.min(at)));
    }
}

/// Whether an initiator requests tickets. A session with several rounds of authentication is not resumed.
fn requests_tickets(connection: &Connection) -> bool {
    #[cfg(feature = "eap")]
    if connection.has_further_rounds() {
        return false;
    }
    connection.resumption
}

/// Requests a ticket in the first IKE_AUTH request, if the connection wants one.
pub(crate) fn write_request(connection: &Connection, out: &mut Writer<'_>) -> Result<(), WriteError> {
    if requests_tickets(connection) {
        out.notify(&Notify::new(NotifyType::TICKET_REQUEST, &[]))
    } else {
        Ok(())
    }
}

/// The answer to a request for a ticket.
pub(crate) enum TicketAnswer {
    /// There was no request.
    None,
    Granted(Ticket),
    Refused,
}

impl TicketAnswer {
    fn new(ticket: Option<Ticket>) -> Self {
        ticket.map_or(Self::Refused, Self::Granted)
    }

    pub(in crate::state) fn write(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match self {
            Self::None => Ok(()),
            Self::Refused => out.notify(&Notify::new(NotifyType::TICKET_NACK, &[])),
            Self::Granted(Ticket { bytes, lifetime, .. }) => {
                let data = [&lifetime.to_be_bytes()[..], bytes].concat();
                out.notify(&Notify::new(NotifyType::TICKET_LT_OPAQUE, &data))
            }
        }
    }

    /// When the ticket expires, if there is one.
    pub(in crate::state) const fn expires_at(&self) -> Option<Instant> {
        match self {
            Self::Granted(ticket) => Some(ticket.expires_at),
            Self::None | Self::Refused => None,
        }
    }
}

impl HalfOpen {
    /// Answers the request for a ticket in the first IKE_AUTH request of an authenticated peer.
    pub(in crate::state) fn answer_ticket_request(
        &self,
        common: &SaCommon,
        peer: &PeerAuthenticated,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> TicketAnswer {
        if !content.has_notify(NotifyType::TICKET_REQUEST) {
            return TicketAnswer::None;
        }
        let until = common.connection.reauth.map(|time| step.context.now.after(time));
        let request = TicketRequest {
            ike: common.id,
            connection: &common.connection,
            suite: self.channel.suite,
            sk_d: &self.channel.sk_d,
            peer: peer.record(),
            reauth_at: common.resumes.map_or(until, |resumes| resumes.reauth_at),
        };
        TicketAnswer::new(step.grant_ticket(request))
    }
}

impl Established {
    /// Notes that the peer was given a ticket in IKE_AUTH.
    pub(in crate::state) fn with_granted_ticket(mut self, until: Option<Instant>) -> Self {
        self.ticket.granted_until = until;
        self
    }

    /// Reads the answer in the last IKE_AUTH response. The sessions of lost IKE SAs with the peer are
    /// forgotten.
    pub(in crate::state) fn with_requested_ticket(
        mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Self {
        let (connection, remote) = (&common.connection, common.path.remote.ip());
        step.shared.resumption.client.forget(&connection.name, Some(remote));
        self.ticket.requests = requests_tickets(connection);
        if self.ticket.requests {
            self.on_grant(TicketResponse::of(content, step.context.now), step.context.now);
        }
        self
    }

    /// Takes over from the IKE SA that this one replaces by rekeying. Its ticket is void (RFC 5723 section
    /// 6.2), so another one is requested.
    pub(in crate::state) fn request_tickets_as(&mut self, old: &Self, step: &Step<'_, '_>) {
        self.ticket.requests = old.ticket.requests;
        self.ticket.deadline = old.ticket.deadline;
        if old.ticket.requests {
            self.timers.set(Timer::Ticket, Some(step.context.now));
        }
    }

    /// Queues a request for another ticket.
    pub(in crate::state) fn renew_ticket(&mut self) {
        self.timers.set(Timer::Ticket, None);
        self.tasks.push_back(Task::RequestTicket);
    }

    pub(in crate::state) fn request_ticket(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| {
            out.notify(&Notify::new(NotifyType::TICKET_REQUEST, &[]))
        });
        sent.map(|()| Some(Pending::Ticket)).map_err(|_| StateFault::Provider)
    }

    pub(in crate::state) fn on_ticket_response(
        &mut self,
        response: &Result<Content<'_>, PeerFault>,
        step: &Step<'_, '_>,
    ) {
        if let Ok(content) = response {
            self.on_grant(TicketResponse::of(content, step.context.now), step.context.now);
        }
    }

    /// Handles the answer to a request. The ticket is renewed after half its lifetime.
    fn on_grant(&mut self, grant: TicketResponse, now: Instant) {
        match grant {
            TicketResponse::Ticket(ticket) => {
                let half = ticket.expires_at.since(now).checked_div(2).unwrap_or_default();
                self.timers.set(Timer::Ticket, Some(now.after(half)));
                self.ticket.held = Some(ticket);
            }
            TicketResponse::Later => self.timers.set(Timer::Ticket, Some(now.after(LATER))),
            // The peer has its reasons. A ticket that this host has stays valid.
            TicketResponse::Refused => self.ticket.requests = false,
        }
    }

    /// Answers the request for a ticket in an INFORMATIONAL request.
    pub(in crate::state) fn answer_ticket_request(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> TicketAnswer {
        if !content.has_notify(NotifyType::TICKET_REQUEST) || self.phase != Phase::Open {
            return TicketAnswer::None;
        }
        // RFC 5723 section 4.1: only the client requests tickets, and that is this host.
        if self.ticket.requests || self.closing_reason().is_some() {
            return TicketAnswer::Refused;
        }
        let request = TicketRequest {
            ike: common.id,
            connection: &common.connection,
            suite: self.channel.suite,
            sk_d: &self.channel.sk_d,
            peer: self.contents.peer.record(),
            reauth_at: self.ticket.deadline,
        };
        let answer = TicketAnswer::new(step.grant_ticket(request));
        self.ticket.granted_until = self.ticket.granted_until.max(answer.expires_at());
        answer
    }

    /// Ends the session for the responder as soon as it closes the IKE SA or has replaced it. The peer might
    /// otherwise resume it while it leaves the Delete payload unanswered.
    pub(in crate::state) fn end_session_if_closing(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let is_closing = self.phase != Phase::Open || self.closing_reason().is_some();
        if is_closing && let Some(until) = self.ticket.granted_until.take() {
            let peer = self.contents.peer.record();
            step.shared.resumption.gateway.end(&peer, common.id, until, step.context.now);
        }
    }

    /// Decides what becomes of the session. If the peer was silent, or a client has forgotten the IKE SA, it
    /// can be resumed; after any other end, the tickets are void.
    pub(in crate::state) fn end_session(
        &self,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) {
        // A gateway that took a sleeping client for dead says so with its crash token, as one that has
        // restarted, and the token is a proof (RFC 6290 section 7).
        let is_proved = matches!(
            reason,
            DownReason::Forgotten { sign: ForgottenSign::CrashToken, is_reauthenticated: false }
        );
        let is_lost = (reason == DownReason::DeadPeer || is_proved) && self.phase == Phase::Open;
        let now = step.context.now;
        // A client that has given up the IKE SA says so with its crash token, if it has restarted or not.
        let is_forgotten = matches!(reason, DownReason::Forgotten { is_reauthenticated: false, .. });
        let is_ended = !is_lost && !is_forgotten;
        if let Some(until) = self.ticket.granted_until.filter(|_| is_ended) {
            step.shared.resumption.gateway.end(&self.contents.peer.record(), common.id, until, now);
        }
        let client = &mut step.shared.resumption.client;
        match self.lost_session(common).filter(|lost| is_lost && lost.is_valid(now)) {
            Some(lost) => client.add(lost),
            None if self.ticket.requests => {
                client.forget(&common.connection.name, Some(common.path.remote.ip()));
            }
            None => {}
        }
    }

    /// The session of this IKE SA as another one could resume it. Not while the peer is to be authenticated
    /// again.
    fn lost_session(&self, common: &SaCommon) -> Option<LostSession> {
        let ticket = self.ticket.held.clone().filter(|_| self.reauth_attempts == 0)?;
        Some(LostSession {
            ike: common.id,
            connection: common.connection.clone(),
            ticket,
            remote: common.path.remote.ip(),
            suite: self.channel.suite,
            sk_d: self.channel.sk_d.clone(),
            peer: self.contents.peer.record(),
            reauth_at: self.ticket.deadline,
            addrs: self.assigned_addrs().into(),
            failures: 0,
        })
    }
}

impl IkeSa {
    /// The session of an IKE SA whose peer does not respond, or has proved with its crash token that it has
    /// forgotten the IKE SA (RFC 6290 section 7). Not if only a message in clear says so, which may be forged
    /// (RFC 5723 section 9.4).
    pub(crate) fn forgotten_session(&self) -> Option<LostSession> {
        let State::Established(state) = &self.state else { return None };
        let sign = state.forgotten_by()?;
        state.lost_session(&self.common).filter(|_| sign != ForgottenSign::Report)
    }
}
