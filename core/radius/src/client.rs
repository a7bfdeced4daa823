//! The client: outstanding requests, retransmission, and the choice of the server.

use crate::access::{AccessRequest, AccessResponse};
use crate::accounting::AccountingRequest;
use crate::packet::{Code, Packet};
use crate::proof::{verify_digest, verify_message};
use crate::server::{Retransmission, Server, ServerId, Service};
use crate::writer::Writer;
use crate::{Algorithms, RadiusFault};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Maximum number of servers.
pub const MAX_SERVERS: usize = 16;
/// Maximum number of reports of silent servers that wait.
const MAX_SILENCES: usize = 16;
/// Time for which a server that has not answered comes behind the others.
const AVOIDED: Duration = Duration::from_secs(60);

/// Identifies a request of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Address of the server.
    pub to: SocketAddr,
    /// Packet.
    pub packet: Vec<u8>,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Request.
    pub request: RequestId,
    /// Answer.
    pub answer: Answer,
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Response to an Access-Request, and the server that knows the conversation.
    Access(ServerId, Box<AccessResponse>),
    /// An Accounting-Request was recorded.
    Accounted,
    /// No server has answered.
    NoServer,
}

/// A server that has not answered any transmission of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Name of the server in the configuration.
    pub server: String,
    /// Where the request was sent.
    pub addr: SocketAddr,
    /// Time since its first transmission to this server.
    pub after: Duration,
}

/// What is sent again, perhaps to another server.
#[derive(Debug)]
enum Body {
    Access(Box<AccessRequest>),
    Accounting(Box<AccountingRequest>),
}

impl Body {
    const fn service(&self) -> Service {
        match self {
            Self::Access(_) => Service::Authentication,
            Self::Accounting(_) => Service::Accounting,
        }
    }
}

/// A request that awaits its answer.
#[derive(Debug)]
struct Outstanding {
    id: RequestId,
    body: Body,
    /// The server that was asked last.
    server: usize,
    /// Servers that were asked.
    asked: Vec<usize>,
    /// Whether no other server may be asked, because this one knows the conversation.
    is_bound: bool,
    packet: Vec<u8>,
    identifier: u8,
    authenticator: [u8; 16],
    sent: u32,
    /// When the server got the first transmission.
    first_sent: Duration,
    due: Duration,
}

struct ServerState {
    server: Server,
    /// Until when other servers are preferred.
    avoided_until: Duration,
    next_identifier: u8,
}

/// A RADIUS client.
pub struct Client {
    servers: Vec<ServerState>,
    retransmission: Retransmission,
    outstanding: Vec<Outstanding>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    silences: VecDeque<Silence>,
    last_id: u64,
}

impl Client {
    /// Uses these servers, the preferred one first, at most [`MAX_SERVERS`]; further ones are ignored.
    pub fn new(servers: Vec<Server>, retransmission: Retransmission) -> Self {
        let state = |server| ServerState { server, avoided_until: Duration::ZERO, next_identifier: 0 };
        Self {
            servers: servers.into_iter().take(MAX_SERVERS).map(state).collect(),
            retransmission,
            outstanding: Vec::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            silences: VecDeque::new(),
            last_id: 0,
        }
    }

    /// Sends an Access-Request. `server` is that of the last challenge of the conversation, which alone knows
    /// the State.
    pub fn authenticate(
        &mut self,
        request: AccessRequest,
        server: Option<ServerId>,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<RequestId, RadiusFault> {
        self.begin(Body::Access(Box::new(request)), server, now, algorithms)
    }

    /// Sends an Accounting-Request.
    pub fn account(
        &mut self,
        request: AccountingRequest,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<RequestId, RadiusFault> {
        self.begin(Body::Accounting(Box::new(request)), None, now, algorithms)
    }

    /// Forgets a request. Its identifier may be used again.
    pub fn cancel(&mut self, request: RequestId) {
        self.outstanding.retain(|outstanding| outstanding.id != request);
    }

    fn begin(
        &mut self,
        body: Body,
        bound: Option<ServerId>,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<RequestId, RadiusFault> {
        let server = bound.map(|server| server.0).or_else(|| self.next_server(&[], now));
        self.last_id = self.last_id.saturating_add(1);
        let id = RequestId(self.last_id);
        match server {
            Some(at) => self.send_first(id, body, at, Vec::new(), bound.is_some(), now, algorithms)?,
            None => self.events.push_back(Event { request: id, answer: Answer::NoServer }),
        }
        Ok(id)
    }

    /// The next server that was not asked: one that is not avoided, if there is one.
    fn next_server(&self, asked: &[usize], now: Duration) -> Option<usize> {
        let candidates = || self.servers.iter().enumerate().filter(|(at, _)| !asked.contains(at));
        let preferred = candidates().find(|(_, state)| state.avoided_until <= now);
        preferred.or_else(|| candidates().next()).map(|(at, _)| at)
    }

    /// Sends a request to a server for the first time.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of a new entry")]
    fn send_first(
        &mut self,
        id: RequestId,
        body: Body,
        server: usize,
        mut asked: Vec<usize>,
        is_bound: bool,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<(), RadiusFault> {
        let identifier = self.free_identifier(server, body.service()).ok_or(RadiusFault::Full)?;
        let state = self.servers.get_mut(server).ok_or(RadiusFault::Full)?;
        state.next_identifier = identifier.wrapping_add(1);
        let (packet, authenticator) = encode(&body, identifier, &state.server, algorithms)?;
        asked.push(server);
        let due = now.saturating_add(self.retransmission.wait(1));
        let to = state.server.addr(body.service());
        self.transmits.push_back(Transmit { to, packet: packet.clone() });
        self.outstanding.push(Outstanding {
            id,
            body,
            server,
            asked,
            is_bound,
            packet,
            identifier,
            authenticator,
            sent: 1,
            first_sent: now,
            due,
        });
        Ok(())
    }

    /// An identifier that no outstanding request to this port has.
    fn free_identifier(&self, server: usize, service: Service) -> Option<u8> {
        let next = self.servers.get(server)?.next_identifier;
        let is_here = |one: &&Outstanding| one.server == server && one.body.service() == service;
        let used: BTreeSet<u8> = self.outstanding.iter().filter(is_here).map(|one| one.identifier).collect();
        (0..=u8::MAX).map(|step| next.wrapping_add(step)).find(|identifier| !used.contains(identifier))
    }

    /// Handles a datagram. Discards it if it is no valid answer of the server at `from`.
    pub fn receive(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        algorithms: &Algorithms<'_>,
    ) -> Result<(), RadiusFault> {
        let packet = Packet::parse(datagram)?;
        let is_answered = |outstanding: &Outstanding| {
            let state = self.servers.get(outstanding.server);
            state.is_some_and(|state| state.server.addr(outstanding.body.service()) == from)
                && outstanding.identifier == packet.identifier
        };
        let at = self.outstanding.iter().position(is_answered).ok_or(RadiusFault::Unexpected)?;
        let (outstanding, state) = self
            .outstanding
            .get(at)
            .and_then(|outstanding| Some((outstanding, self.servers.get(outstanding.server)?)))
            .ok_or(RadiusFault::Unexpected)?;
        let (authenticator, secret) = (&outstanding.authenticator, &state.server.secret);
        let answer = match outstanding.body {
            Body::Access(_) => {
                let response = AccessResponse::read(&packet, authenticator, algorithms, secret)?;
                Answer::Access(ServerId(outstanding.server), Box::new(response))
            }
            Body::Accounting(_) => {
                if packet.code != Code::ACCOUNTING_RESPONSE {
                    return Err(RadiusFault::Unexpected);
                }
                // Servers need not send a Message-Authenticator here. The forgery of CVE-2024-3596 needs a
                // request that repeats what the attacker chooses, and gains nothing from this response.
                verify_message(algorithms.md5, &packet, authenticator, secret)?;
                verify_digest(algorithms.md5, &packet, authenticator, secret)?;
                Answer::Accounted
            }
        };
        let (request, server) = (outstanding.id, outstanding.server);
        self.outstanding.swap_remove(at);
        if let Some(state) = self.servers.get_mut(server) {
            state.avoided_until = Duration::ZERO;
        }
        self.events.push_back(Event { request, answer });
        Ok(())
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) must be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.outstanding.iter().map(|outstanding| outstanding.due).min()
    }

    /// Sends requests again whose answer is overdue, or asks the next server.
    pub fn handle_timeouts(&mut self, now: Duration, algorithms: &mut Algorithms<'_>) {
        let mut failed = Vec::new();
        let (servers, retransmission) = (&self.servers, &self.retransmission);
        for outstanding in self.outstanding.iter_mut().filter(|outstanding| outstanding.due <= now) {
            let Some(state) = servers.get(outstanding.server) else { continue };
            if outstanding.sent >= retransmission.tries {
                failed.push(outstanding.id);
                continue;
            }
            outstanding.sent = outstanding.sent.saturating_add(1);
            outstanding.due = now.saturating_add(retransmission.wait(outstanding.sent));
            let (to, packet) = (state.server.addr(outstanding.body.service()), outstanding.packet.clone());
            self.transmits.push_back(Transmit { to, packet });
        }
        for id in failed {
            self.fail_over(id, now, algorithms);
        }
    }

    /// Asks the next server, if there is one.
    fn fail_over(&mut self, id: RequestId, now: Duration, algorithms: &mut Algorithms<'_>) {
        let Some(at) = self.outstanding.iter().position(|outstanding| outstanding.id == id) else { return };
        let Outstanding { body, server, asked, is_bound, first_sent, .. } = self.outstanding.swap_remove(at);
        if let Some(state) = self.servers.get_mut(server) {
            state.avoided_until = now.saturating_add(AVOIDED);
            if self.silences.len() < MAX_SILENCES {
                self.silences.push_back(Silence {
                    server: state.server.name.clone(),
                    addr: state.server.addr(body.service()),
                    after: now.saturating_sub(first_sent),
                });
            }
        }
        let next = if is_bound { None } else { self.next_server(&asked, now) };
        let sent = next.map(|next| self.send_first(id, body, next, asked, false, now, algorithms));
        if !matches!(sent, Some(Ok(()))) {
            self.events.push_back(Event { request: id, answer: Answer::NoServer });
        }
    }

    /// Takes the next datagram to send.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Takes the next answer.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the next report of a server that has not answered. If nobody takes them, further ones are lost.
    pub fn next_silence(&mut self) -> Option<Silence> {
        self.silences.pop_front()
    }

    /// Whether a request awaits an answer.
    pub fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }
}

/// Encodes a request. Returns it with its authenticator.
fn encode(
    body: &Body,
    identifier: u8,
    server: &Server,
    algorithms: &mut Algorithms<'_>,
) -> Result<(Vec<u8>, [u8; 16]), RadiusFault> {
    let packet = match body {
        Body::Access(request) => {
            let mut out = Writer::new(Code::ACCESS_REQUEST, identifier);
            request.write(&server.nas_identifier, &mut out);
            let mut authenticator = [0; 16];
            algorithms.rng.public(&mut authenticator);
            out.finish_access(authenticator, algorithms.md5, &server.secret)?
        }
        Body::Accounting(request) => {
            let mut out = Writer::new(Code::ACCOUNTING_REQUEST, identifier);
            request.write(&server.nas_identifier, &mut out);
            out.finish_digest(&[0; 16], algorithms.md5, &server.secret)?
        }
    };
    let authenticator = Packet::parse(&packet)?.authenticator;
    Ok((packet, authenticator))
}
