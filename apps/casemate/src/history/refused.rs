//! Requests of peers that are not authenticated: those that no connection accepted, and attempts that the
//! peer did not complete. Any host can cause them.

use super::PastEvent;
use crate::log::wording;
use casemate_ike::config::Identity;
use casemate_ike::diagnosis::{Considered, Explanation};
use casemate_ike::{DownReason, Event, UserIdentity};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Maximum number of requests, for all connections.
pub(super) const MAX_REFUSED: usize = 64;

/// A request of a peer that was not authenticated.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) event: PastEvent,
    /// Names of the connections that were considered.
    considered: Vec<String>,
    /// Address of the peer.
    remote: IpAddr,
    /// Whether the request has an identity, which its lines contain.
    names_peer: bool,
    /// Whether the same peer has been authenticated since.
    pub(crate) is_over: bool,
}

impl RefusedRequest {
    /// The request that an event reports, if it reports one. The other half-open IKE SAs that end have a
    /// fault that is reported before.
    pub(super) fn of(event: &Event, past: &PastEvent) -> Option<Self> {
        let (considered, path, names_peer) = match event {
            Event::Fault { explanation: Some(explanation), path, .. } => match &**explanation {
                Explanation::FirstRequest { considered, .. } => (names(considered), path, false),
                Explanation::Initiator { considered, .. } => (names(considered), path, true),
                _ => return None,
            },
            Event::IkeDown { half_open: true, reason: DownReason::DeadPeer, connection, path, .. } => {
                (vec![connection.name.clone()], path, false)
            }
            _ => return None,
        };
        let remote = path.remote.ip();
        Some(Self { event: past.clone(), considered, remote, names_peer, is_over: false })
    }

    /// Whether the peer that is authenticated now has sent this request: by its identity, or by its address
    /// if the request has no identity, because users behind a NAT have one address.
    fn is_from(&self, peer: &Authenticated<'_>) -> bool {
        match self.names_peer {
            true => self.event.lines.iter().any(|line| peer.names.iter().any(|name| line.contains(name))),
            false => self.remote == peer.remote,
        }
    }
}

fn names(considered: &[Considered]) -> Vec<String> {
    considered.iter().map(|Considered { connection, .. }| connection.name.clone()).collect()
}

/// A peer that was authenticated.
struct Authenticated<'e> {
    connection: &'e str,
    remote: IpAddr,
    /// Its identities as messages contain them.
    names: Vec<String>,
}

impl<'e> Authenticated<'e> {
    fn of(event: &'e Event) -> Option<Self> {
        let Event::IkeUp { connection, peer, eap_identity, path, .. } = event else { return None };
        let id = |peer: &Identity| wording::received_id(Some(peer));
        let eap = eap_identity.as_ref().and_then(UserIdentity::proven).map(wording::eap_identity);
        let names = std::iter::once(id(peer)).chain(eap).collect();
        Some(Self { connection: &connection.name, remote: path.remote.ip(), names })
    }
}

/// The last requests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RefusedRequests(VecDeque<RefusedRequest>);

impl RefusedRequests {
    pub(super) fn push(&mut self, request: RefusedRequest) {
        super::push(&mut self.0, request, MAX_REFUSED);
    }

    /// Notes that a peer was authenticated, if the event says so: what was refused before is over.
    pub(super) fn note(&mut self, event: &Event) {
        let Some(peer) = Authenticated::of(event) else { return };
        let of_connection =
            |one: &&mut RefusedRequest| one.considered.iter().any(|name| name == peer.connection);
        for request in self.0.iter_mut().filter(of_connection) {
            request.is_over |= request.is_from(&peer);
        }
    }

    /// Requests for which this connection was considered.
    pub(super) fn of(&self, connection: &str) -> impl Iterator<Item = &RefusedRequest> {
        self.0.iter().filter(move |one| one.considered.iter().any(|name| name == connection))
    }
}
