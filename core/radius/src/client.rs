//! The client: outstanding requests, retransmission, and the choice of the server.

mod request;
mod waiting;

use crate::access::{AccessRequest, AccessResponse};
use crate::accounting::AccountingRequest;
use crate::packet::{Code, Packet};
use crate::proof::{verify_digest, verify_message};
use crate::server::{Retransmission, Server, ServerId, Service};
use crate::{Algorithms, RadiusFault};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use request::{Body, Slot};
use waiting::{WaitingRecord, WaitingRecords};

pub use request::SOURCE_PORTS;

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
    /// Which source port sends it, less than [`SOURCE_PORTS`].
    pub source_port: u16,
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
    /// No server has answered an Access-Request.
    NoServer,
    /// No server has recorded an Accounting-Request.
    NotAccounted,
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

/// A request that awaits its answer.
#[derive(Debug)]
struct Outstanding {
    id: RequestId,
    body: Body,
    /// Servers that were asked.
    asked: Vec<usize>,
    /// Whether no other server may be asked, because this one knows the conversation.
    is_bound: bool,
    packet: Vec<u8>,
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
    /// Where the search for an identifier begins.
    next_slot: u16,
}

/// A RADIUS client.
pub struct Client {
    servers: Vec<ServerState>,
    retransmission: Retransmission,
    outstanding: BTreeMap<Slot, Outstanding>,
    waiting: WaitingRecords,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    silences: VecDeque<Silence>,
    last_id: u64,
}

impl Client {
    /// Uses these servers, the preferred one first, at most [`MAX_SERVERS`]; further ones are ignored.
    pub fn new(servers: Vec<Server>, retransmission: Retransmission) -> Self {
        let state = |server| ServerState { server, avoided_until: Duration::ZERO, next_slot: 0 };
        Self {
            servers: servers.into_iter().take(MAX_SERVERS).map(state).collect(),
            retransmission,
            outstanding: BTreeMap::new(),
            waiting: WaitingRecords::default(),
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
        let is_bound = server.is_some();
        let server = server.map(|server| server.0).or_else(|| self.next_server(&[], now));
        let (id, body) = (self.next_id(), Body::Access(Box::new(request)));
        match server {
            Some(server) => {
                let slot = self.free_slot(server, body.service()).ok_or(RadiusFault::Full)?;
                self.send_first(id, body, slot, Vec::new(), is_bound, now, algorithms)?;
            }
            None => self.events.push_back(Event { request: id, answer: body.unanswered() }),
        }
        Ok(id)
    }

    /// Sends an Accounting-Request, or lets it wait for an identifier: the requests are sent in the order in
    /// which they arrive. [`RadiusFault::Full`] if too many wait.
    pub fn account(
        &mut self,
        request: AccountingRequest,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<RequestId, RadiusFault> {
        let id = self.next_id();
        self.waiting.add(id, Box::new(request))?;
        // Behind others there is nothing to try.
        if self.waiting.len() == 1 {
            self.send_waiting(now, algorithms);
        }
        Ok(id)
    }

    /// Forgets an outstanding request. Its identifier may be used again.
    pub fn cancel(&mut self, request: RequestId) {
        self.outstanding.retain(|_, outstanding| outstanding.id != request);
    }

    fn next_id(&mut self) -> RequestId {
        self.last_id = self.last_id.saturating_add(1);
        RequestId(self.last_id)
    }

    /// Sends records that wait, as long as there are identifiers.
    fn send_waiting(&mut self, now: Duration, algorithms: &mut Algorithms<'_>) {
        while let Some(asked) = self.waiting.first_asked() {
            let server = self.next_server(asked, now);
            let slot = server.map(|server| self.free_slot(server, Service::Accounting));
            if slot == Some(None) {
                return;
            }
            let Some(WaitingRecord { id, request, asked }) = self.waiting.take_first() else { return };
            let body = Body::Accounting(request);
            let answer = body.unanswered();
            let sent =
                slot.flatten().map(|slot| self.send_first(id, body, slot, asked, false, now, algorithms));
            if !matches!(sent, Some(Ok(()))) {
                self.events.push_back(Event { request: id, answer });
            }
        }
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
        slot: Slot,
        mut asked: Vec<usize>,
        is_bound: bool,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Result<(), RadiusFault> {
        let Slot { server, service, source_port, identifier } = slot;
        let state = self.servers.get_mut(server).ok_or(RadiusFault::Full)?;
        state.next_slot = slot.number().wrapping_add(1);
        let (packet, authenticator) = body.encode(identifier, &state.server, algorithms)?;
        asked.push(server);
        let due = now.saturating_add(self.retransmission.wait(1));
        let to = state.server.addr(service);
        self.transmits.push_back(Transmit { source_port, to, packet: packet.clone() });
        let outstanding =
            Outstanding { id, body, asked, is_bound, packet, authenticator, sent: 1, first_sent: now, due };
        self.outstanding.insert(slot, outstanding);
        Ok(())
    }

    fn free_slot(&self, server: usize, service: Service) -> Option<Slot> {
        let next = self.servers.get(server)?.next_slot;
        Slot::all(server, service, next).find(|slot| !self.outstanding.contains_key(slot))
    }

    /// Handles a datagram that a source port has received. Discards it if it is no valid answer of the server
    /// at `from`. Call [`handle_timeouts`](Self::handle_timeouts) after the datagrams that are at hand.
    pub fn receive(
        &mut self,
        source_port: u16,
        from: SocketAddr,
        datagram: &[u8],
        algorithms: &Algorithms<'_>,
    ) -> Result<(), RadiusFault> {
        let packet = Packet::parse(datagram)?;
        let identifier = packet.identifier;
        let (slot, outstanding, state) = self
            .servers
            .iter()
            .enumerate()
            .flat_map(|(server, state)| Service::ALL.map(|service| (server, service, state)))
            .filter(|(_, service, state)| state.server.addr(*service) == from)
            .find_map(|(server, service, state)| {
                let slot = Slot { server, service, source_port, identifier };
                Some((slot, self.outstanding.get(&slot)?, state))
            })
            .ok_or(RadiusFault::Unexpected)?;
        let (authenticator, secret) = (&outstanding.authenticator, &state.server.secret);
        let answer = match outstanding.body {
            Body::Access(_) => {
                let response = AccessResponse::read(&packet, authenticator, algorithms, secret)?;
                Answer::Access(ServerId(slot.server), Box::new(response))
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
        let request = outstanding.id;
        self.outstanding.remove(&slot);
        if let Some(state) = self.servers.get_mut(slot.server) {
            state.avoided_until = Duration::ZERO;
        }
        self.events.push_back(Event { request, answer });
        Ok(())
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) must be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.outstanding.values().map(|outstanding| outstanding.due).min()
    }

    /// Sends requests again whose answer is overdue, or asks the next server. Sends records that have waited
    /// for an identifier.
    pub fn handle_timeouts(&mut self, now: Duration, algorithms: &mut Algorithms<'_>) {
        let mut failed = Vec::new();
        let (servers, retransmission) = (&self.servers, &self.retransmission);
        for (slot, outstanding) in
            self.outstanding.iter_mut().filter(|(_, outstanding)| outstanding.due <= now)
        {
            let Some(state) = servers.get(slot.server) else { continue };
            if outstanding.sent >= retransmission.tries {
                failed.push((outstanding.id, *slot));
                continue;
            }
            outstanding.sent = outstanding.sent.saturating_add(1);
            outstanding.due = now.saturating_add(retransmission.wait(outstanding.sent));
            let (to, packet) = (state.server.addr(slot.service), outstanding.packet.clone());
            self.transmits.push_back(Transmit { source_port: slot.source_port, to, packet });
        }
        // The oldest first, so that records keep their order.
        failed.sort_unstable();
        let retried =
            failed.into_iter().filter_map(|(_, slot)| self.fail_over(slot, now, algorithms)).collect();
        self.waiting.put_back(retried);
        self.send_waiting(now, algorithms);
    }

    /// Asks the next server, if there is one. Returns a record that has to wait for that.
    fn fail_over(
        &mut self,
        slot: Slot,
        now: Duration,
        algorithms: &mut Algorithms<'_>,
    ) -> Option<WaitingRecord> {
        let Outstanding { id, body, asked, is_bound, first_sent, .. } = self.outstanding.remove(&slot)?;
        if let Some(state) = self.servers.get_mut(slot.server) {
            state.avoided_until = now.saturating_add(AVOIDED);
            if self.silences.len() < MAX_SILENCES {
                self.silences.push_back(Silence {
                    server: state.server.name.clone(),
                    addr: state.server.addr(slot.service),
                    after: now.saturating_sub(first_sent),
                });
            }
        }
        let next = if is_bound { None } else { self.next_server(&asked, now) };
        let answer = body.unanswered();
        let sent = match (next, body) {
            (Some(_), Body::Accounting(request)) => return Some(WaitingRecord { id, request, asked }),
            (Some(next), body @ Body::Access(_)) => self
                .free_slot(next, body.service())
                .map(|slot| self.send_first(id, body, slot, asked, false, now, algorithms)),
            (None, _) => None,
        };
        if !matches!(sent, Some(Ok(()))) {
            self.events.push_back(Event { request: id, answer });
        }
        None
    }

    /// Takes the next datagram to send.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Takes the next answer.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the next report of a server that has not answered. If they are not taken, further ones are lost.
    pub fn next_silence(&mut self) -> Option<Silence> {
        self.silences.pop_front()
    }

    /// Number of Accounting-Requests that no server has answered yet, those included that wait.
    pub fn records(&self) -> usize {
        let is_record = |slot: &&Slot| slot.service == Service::Accounting;
        self.outstanding.keys().filter(is_record).count().saturating_add(self.waiting.len())
    }
}
