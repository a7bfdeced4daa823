//! Session resumption (RFC 5723): an initiator sets up an IKE SA again with a ticket that the responder gave
//! it, without a key exchange and without authenticating anew.
//!
//! This module keeps the tickets and the sessions of lost IKE SAs, for the initiator. `gateway` decides which
//! tickets the responder grants and accepts, `ended` has those that it no longer accepts, `session` is what a
//! ticket contains, and `ticket_key` encrypts it. The exchanges are in `state::resumption`.

mod ended;
mod gateway;
mod session;
mod ticket_key;

use crate::auth::resumption::PeerRecord;
use crate::config::Connection;
use crate::negotiate::IkeSuite;
use crate::transport::Content;
use crate::{IkeSaId, Path};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_sa::Instant;
use casemate_wire::ike::NotifyType;
use core::net::IpAddr;
use core::time::Duration;

pub(crate) use gateway::{Ticket, TicketRequest};
pub(crate) use session::Session;

/// The earlier IKE SA of one that resumes its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resumes {
    pub(crate) ike: IkeSaId,
    /// When the peer must have been authenticated again; `None` for never.
    pub(crate) reauth_at: Option<Instant>,
}

/// State of both roles that all IKE SAs share.
#[derive(Default)]
pub(crate) struct Resumption {
    pub(crate) gateway: gateway::Gateway,
    pub(crate) client: LostSessions,
}

impl Resumption {
    /// Adapts to new connections.
    pub(crate) fn configure(&mut self, connections: &[Arc<Connection>]) {
        self.gateway.configure(connections);
        self.client.configure(connections);
    }
}

/// Longest ticket that is kept, in bytes: the request with it must fit an IP packet of the usual size,
/// because only IP could fragment it.
const MAX_TICKET: usize = 1_200;
/// Longest lifetime of a ticket that is believed. A host that gets the ticket and SK_d could resume the
/// session for so long.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Sessions that are kept, at most.
const MAX_SESSIONS: usize = 256;
/// Attempts to resume a session that may fail before it is forgotten.
const MAX_FAILURES: u8 = 3;

/// The answer of a responder to a request for a ticket (RFC 5723 section 4.1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TicketResponse {
    Ticket(HeldTicket),
    /// The responder may give a ticket later (TICKET_ACK).
    Later,
    /// It gives none (TICKET_NACK), or does not support resumption.
    Refused,
}

/// A ticket of an established IKE SA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldTicket {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expires_at: Instant,
}

impl TicketResponse {
    /// Reads the answer in a protected message. A ticket without contents, a lifetime of zero, and a ticket
    /// that is too long are as good as none.
    pub(crate) fn of(content: &Content<'_>, now: Instant) -> Self {
        let ticket = content.notify(NotifyType::TICKET_LT_OPAQUE).and_then(|notify| {
            let (lifetime, ticket) = notify.data.split_first_chunk()?;
            let lifetime = Duration::from_secs(u32::from_be_bytes(*lifetime).into()).min(LONGEST);
            let is_usable = !lifetime.is_zero() && (1..=MAX_TICKET).contains(&ticket.len());
            is_usable.then(|| HeldTicket { bytes: ticket.into(), expires_at: now.after(lifetime) })
        });
        match ticket {
            Some(ticket) => Self::Ticket(ticket),
            None if content.has_notify(NotifyType::TICKET_ACK) => Self::Later,
            None => Self::Refused,
        }
    }
}

/// The session of an IKE SA that was lost, with all that RFC 5723 section 5 takes from the ticket.
#[derive(Debug, Clone)]
pub(crate) struct LostSession {
    pub(crate) ike: IkeSaId,
    pub(crate) connection: Arc<Connection>,
    pub(crate) ticket: HeldTicket,
    /// Address of the responder. No other one knows the ticket.
    pub(crate) remote: IpAddr,
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: SecretBytes,
    pub(crate) peer: PeerRecord,
    /// When the peer must have been authenticated again; `None` for never.
    pub(crate) reauth_at: Option<Instant>,
    /// Virtual addresses that the responder had assigned.
    pub(crate) addrs: Vec<IpAddr>,
    /// Attempts to resume the session that have failed with a message that may be forged.
    pub(crate) failures: u8,
}

impl LostSession {
    /// Whether the session may still be resumed. An expired ticket must not be presented.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        self.ticket.expires_at > now && self.reauth_at.is_none_or(|at| at > now)
    }
}

/// Sessions of lost IKE SAs, oldest first; one for each connection and responder.
#[derive(Default)]
pub(crate) struct LostSessions(Vec<LostSession>);

impl LostSessions {
    fn configure(&mut self, connections: &[Arc<Connection>]) {
        self.0.retain_mut(|lost| {
            let is_its = |new: &&Arc<Connection>| new.differs_in_children_only(&lost.connection);
            let same = connections.iter().find(is_its).cloned();
            same.map(|same| lost.connection = same).is_some()
        });
    }

    /// Keeps a session.
    pub(crate) fn add(&mut self, lost: LostSession) {
        self.forget(&lost.connection.name, Some(lost.remote));
        if self.0.len() >= MAX_SESSIONS {
            self.0.remove(0);
        }
        self.0.push(lost);
    }

    /// Keeps a session after an attempt to resume it that has failed with a message that may be forged: a
    /// refusal in clear, or a response in clear and no response to IKE_AUTH. The ticket was not used then
    /// (RFC 5723 section 4.3.1). A genuine refusal costs later attempts one round trip each.
    pub(crate) fn add_after_failure(&mut self, lost: LostSession) {
        let failures = lost.failures.saturating_add(1);
        if failures < MAX_FAILURES {
            self.add(LostSession { failures, ..lost });
        }
    }

    /// Takes the session that an IKE SA on this path may resume.
    pub(crate) fn take(&mut self, connection: &Connection, path: Path, now: Instant) -> Option<LostSession> {
        self.0.retain(|lost| lost.is_valid(now));
        let is_its = |lost: &LostSession| {
            lost.remote == path.remote.ip() && lost.connection.differs_in_children_only(connection)
        };
        self.0.iter().position(is_its).map(|at| self.0.remove(at))
    }

    /// Forgets the sessions of a connection with one responder, or with all.
    pub(crate) fn forget(&mut self, connection: &str, remote: Option<IpAddr>) {
        let is_its = |lost: &LostSession| {
            lost.connection.name == connection && remote.is_none_or(|addr| addr == lost.remote)
        };
        self.0.retain(|lost| !is_its(lost));
    }
}
