//! Messages in clear about SAs that one side does not know (RFC 7296 sections 1.5 and 2.21.4, RFC 6290).
//!
//! Anyone can send such messages, so a received one is a hint at most: it causes a check of the peer's
//! liveness. Only the token of RFC 6290 proves that the peer has forgotten an IKE SA. The number of messages
//! sent and searches done because of such messages is limited.

use super::Ike;
use crate::context::Step;
use crate::crash_token::{Token, TokenMaker};
use crate::state::{Hint, IkeSa, State, by_address};
use crate::transport::{Content, MessageKind, header, write_plain};
use crate::{Context, Host, IkeSaId, IkeSpis, Path, PeerFault, Role, StateFault};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_sa::{Instant, RateLimiter};
use casemate_wire::ike::{ExchangeType, Header, IkeSpi, Message, Notify, NotifyType};
use core::iter::once;
use core::net::IpAddr;
use core::time::Duration;

/// Messages per second that may be sent in clear, and at once.
const SENT_PER_SECOND: u32 = 100;
/// Received messages per second that are processed, and at once. Each may search all IKE SAs.
const RECEIVED_PER_SECOND: u32 = 50;
/// ESP and AH packets per second, and at once, for which connections are searched.
const PACKETS_PER_SECOND: u32 = 500;
/// Shortest time between two messages about ESP and AH packets to the same address.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of addresses whose last message is remembered.
const MAX_REPORTED: usize = 64;

/// Time in which the peer confirms a half-open IKE SA with a protected request, even if messages are lost.
const CONFIRMATION_TIME: Duration = Duration::from_secs(10);

/// Limits of messages in clear.
#[derive(Debug)]
pub(crate) struct UnprotectedLimits {
    sent: RateLimiter,
    received: RateLimiter,
    packets: RateLimiter,
    /// Last messages about ESP and AH packets, the oldest first.
    reported: VecDeque<(IpAddr, Instant)>,
}

impl Default for UnprotectedLimits {
    fn default() -> Self {
        Self {
            sent: RateLimiter::new(SENT_PER_SECOND, SENT_PER_SECOND),
            received: RateLimiter::new(RECEIVED_PER_SECOND, RECEIVED_PER_SECOND),
            packets: RateLimiter::new(PACKETS_PER_SECOND, PACKETS_PER_SECOND),
            reported: VecDeque::new(),
        }
    }
}

impl UnprotectedLimits {
    /// Whether a packet may be reported to its source now. If so, it counts as reported.
    fn allow_report(&mut self, to: IpAddr, now: Instant) -> bool {
        while self.reported.front().is_some_and(|(_, at)| now.since(*at) >= REPORT_INTERVAL) {
            self.reported.pop_front();
        }
        let is_free =
            self.reported.len() < MAX_REPORTED && !self.reported.iter().any(|(addr, _)| *addr == to);
        let is_allowed = is_free && self.sent.allow(now);
        if is_allowed {
            self.reported.push_back((to, now));
        }
        is_allowed
    }
}

impl Ike {
    /// Sets the secret for the tokens of quick crash detection (RFC 6290): 32 random bytes that are the same
    /// after a restart and that no other host has. With `None`, new IKE SAs and unknown requests get no
    /// tokens.
    pub fn set_crash_secret(&mut self, secret: Option<SecretBytes>) {
        self.shared.tokens = TokenMaker::new(secret);
    }

    /// Reports an ESP or AH packet with an unknown SPI to its source, if a connection accepts the addresses
    /// and this host cannot initiate it: the peer may check whether this host has forgotten its SAs (RFC 7296
    /// section 1.5). Sends nothing if an IKE SA with the peer exists, or if the limits are reached.
    pub fn report_unknown_spi(
        &mut self,
        path: Path,
        spi: u32,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let (remote, now) = (path.remote.ip(), context.now);
        if !self.shared.unprotected.packets.allow(now) {
            return;
        }
        let is_accepted = by_address(&self.shared.connections, path, context.routes).next().is_some();
        if !is_accepted
            || !self.shared.unprotected.allow_report(remote, now)
            || self.has_ike_sa_with(remote, now)
        {
            return;
        }
        // RFC 7296 section 1.5: the SPIs may be zero. The message is no exchange and has no response.
        let spis = IkeSpis { initiator: IkeSpi::NONE, responder: IkeSpi::NONE };
        let kind = MessageKind { exchange: ExchangeType::INFORMATIONAL, message_id: 0, response: false };
        let data = spi.to_be_bytes();
        let notifies = [Notify::new(NotifyType::INVALID_SPI, &data)];
        send_clear(&header(spis, Role::Initiator, kind), &notifies, path, &mut self.step(host, context));
    }

    /// Whether an IKE SA with the peer at this address is being set up, established or being closed. Takes
    /// time in proportion to the number of IKE SAs.
    ///
    /// A request with a forged source address also leaves a half-open IKE SA. Those that the peer has not
    /// confirmed with a protected request count for ten seconds, and not at all if one has been there for
    /// longer.
    pub fn has_ike_sa_with(&self, peer: IpAddr, now: Instant) -> bool {
        self.any_with(peer, now, |sa| sa.is_alive() || sa.authenticated_at().is_some())
    }

    /// Whether one of the IKE SAs with the peer at this address is as `counts` says. Half-open ones are
    /// treated as in [`has_ike_sa_with`](Self::has_ike_sa_with).
    pub(super) fn any_with(&self, peer: IpAddr, now: Instant, counts: impl Fn(&IkeSa) -> bool) -> bool {
        let mut unconfirmed: Option<Instant> = None;
        for sa in self.sas.values().filter(|sa| sa.common.path.remote.ip() == peer && counts(sa)) {
            let Some(since) = unconfirmed_since(sa) else { return true };
            unconfirmed = Some(unconfirmed.map_or(since, |other| other.min(since)));
        }
        unconfirmed.is_some_and(|since| now.since(since) < CONFIRMATION_TIME)
    }

    /// Responds to a protected request of an IKE SA that does not exist here (RFC 7296 section 2.21.4, RFC
    /// 6290 section 4.5).
    pub(super) fn respond_to_unknown(
        &mut self,
        request: &Header,
        datagram: &[u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        // RFC 6290 section 9.2: no token of an existing IKE SA. Neither SPI may be one of ours, because a
        // sender can exchange the SPIs or change the flags.
        let spis = [request.spi_i, request.spi_r];
        let is_known = spis.into_iter().any(|spi| self.sas.get_by_spi(spi).is_some());
        if !is_protected_request(request, datagram)
            || is_known
            || !self.shared.unprotected.sent.allow(context.now)
        {
            return;
        }
        // A request on a successor may overtake the response that creates the successor here.
        // From an IKE SA that this host is setting up, the peer learns more than from a report. A half-open
        // one may come from a late copy of IKE_SA_INIT, or be forged.
        let is_ours = |sa: &IkeSa| sa.common.path.remote.ip() == path.remote.ip() && sa.is_attempt();
        if self.sas.values().any(|sa| is_ours(sa) || spis.into_iter().any(|spi| sa.reserves_spi(spi))) {
            return;
        }
        let spis = IkeSpis { initiator: request.spi_i, responder: request.spi_r };
        let token = self.shared.tokens.make(spis, context.providers);
        let notifies: Vec<Notify<'_>> = once(Notify::new(NotifyType::INVALID_IKE_SPI, &[]))
            .chain(token.as_ref().map(Token::notify))
            .collect();
        respond_in_clear(request, &notifies, path, &mut self.step(host, context));
    }

    /// Handles a message in clear that reports an unknown SPI. Returns whether it is one.
    pub(super) fn on_unprotected(
        &mut self,
        header: &Header,
        datagram: &[u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<bool, PeerFault> {
        let is_other = header.exchange == ExchangeType::IKE_SA_INIT || header.next_payload.is_encrypted();
        if is_other || !self.shared.unprotected.received.allow(context.now) {
            return Ok(false);
        }
        let Ok(content) = Content::parse(Message::parse(datagram)?.payloads()) else { return Ok(false) };
        let ike = if header.flags.response {
            let is_report = content.has_notify(NotifyType::INVALID_IKE_SPI)
                || content.has_notify(NotifyType::QUICK_CRASH_DETECTION);
            is_report.then(|| self.find_sa(header)).transpose()?
        } else {
            let spi =
                content.notify(NotifyType::INVALID_SPI).and_then(|notify| notify.data.as_array().copied());
            spi.map(|spi| self.sender_on(spi, path.remote.ip()).ok_or(StateFault::UnknownSpi)).transpose()?
        };
        let Some(ike) = ike else { return Ok(false) };
        let presents_token = content.has_notify(NotifyType::QUICK_CRASH_DETECTION);
        let is_proven = presents_token && self.sas.get(ike).is_some_and(|sa| sa.is_token_valid(&content));
        let expects_token = self.sas.get(ike).is_some_and(|sa| !sa.is_connecting());
        if presents_token && !is_proven && expects_token {
            // Its secret may be lost. The message is still a hint.
            self.step(host, context).fault(StateFault::CrashToken.into(), path);
        }
        let hint = if header.flags.response { Hint::IkeSpi } else { Hint::ChildSpi };
        self.update_sa(ike, host, context, |sa, step| match is_proven {
            true => sa.on_crash(step),
            false => sa.on_hint(hint, path, step),
        });
        Ok(true)
    }

    /// The IKE SA with the peer at this address that has a Child SA with this SPI for outbound packets.
    fn sender_on(&self, spi: [u8; 4], peer: IpAddr) -> Option<IkeSaId> {
        let is_it = |sa: &&IkeSa| match &sa.state {
            State::Established(state) if sa.common.path.remote.ip() == peer => {
                state.children().iter().any(|child| child.agreed.outbound_spi().spi == spi)
            }
            _ => false,
        };
        self.sas.values().find(is_it).map(|sa| sa.common.id)
    }
}

/// Since when an IKE SA is half-open, if the peer has not sent a protected request on it yet.
fn unconfirmed_since(sa: &IkeSa) -> Option<Instant> {
    match &sa.state {
        State::HalfOpen(state) if state.channel.window.expected_id() <= 1 => Some(state.started_at),
        _ => None,
    }
}

/// Whether a message of which only the header was read is a request of an existing IKE SA.
fn is_protected_request(header: &Header, datagram: &[u8]) -> bool {
    !header.flags.response
        && header.spi_r != IkeSpi::NONE
        && header.next_payload.is_encrypted()
        && datagram.len() >= SHORTEST_REQUEST
}

/// Shortest encrypted request in bytes: header, Encrypted payload with an IV and an ICV of 8 bytes each, and
/// the length of the padding. A shorter message would get a response that is much longer.
const SHORTEST_REQUEST: usize = 28 + 4 + 8 + 1 + 8;

/// Responds to a request in clear.
pub(super) fn respond_in_clear(
    request: &Header,
    notifies: &[Notify<'_>],
    path: Path,
    step: &mut Step<'_, '_>,
) {
    let role = if request.flags.initiator { Role::Responder } else { Role::Initiator };
    let Header { exchange, message_id, .. } = *request;
    let spis = IkeSpis { initiator: request.spi_i, responder: request.spi_r };
    send_clear(
        &header(spis, role, MessageKind { exchange, message_id, response: true }),
        notifies,
        path,
        step,
    );
}

/// Sends a message in clear.
fn send_clear(header: &Header, notifies: &[Notify<'_>], path: Path, step: &mut Step<'_, '_>) {
    let built = write_plain(header, &mut step.shared.scratch, &|out| {
        notifies.iter().try_for_each(|notify| out.notify(notify))
    });
    if let Ok(message) = built {
        step.send(path, &[message]);
    }
}
