//! Session resumption (RFC 5723): an initiator sets up an IKE SA again with a ticket that the responder gave
//! it, without a key exchange and without authenticating anew.
//!
//! `session` is what a ticket contains, `ticket_key` encrypts it. `gateway` decides which tickets are granted
//! and accepted, `client` keeps the tickets of lost IKE SAs. The exchanges are in `state::resumption`.

mod client;
mod gateway;
mod session;
mod ticket_key;

use crate::IkeSaId;
use crate::config::Connection;
use alloc::sync::Arc;
use casemate_sa::Instant;

pub(crate) use client::{Grant, HeldTicket, LostSession};
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
    pub(crate) client: client::LostSessions,
}

impl Resumption {
    /// Adapts to new connections.
    pub(crate) fn configure(&mut self, connections: &[Arc<Connection>]) {
        self.gateway.configure(connections);
        self.client.configure(connections);
    }
}
