//! What a report is about: a connection, or one of its peers.

use crate::command::ike_sas_of_peer;
use crate::history::{History, PastEvent};
use crate::log::wording;
use casemate::Endpoint;
use casemate_ike::config::Connection;
use casemate_ike::{IkeSaId, IkeStatus};
use std::sync::Arc;

/// What a report is about.
pub(super) struct Subject {
    pub(super) connection: Arc<Connection>,
    /// The peer, if the report is about one and not about all.
    peer: Option<Peer>,
}

/// A peer by its EAP identity or the name of its IKE SA, such as `users[9]`.
struct Peer {
    name: String,
    /// Its IKE SAs; none if the last one has ended, or its last attempt has failed.
    ikes: Vec<IkeSaId>,
}

impl Subject {
    /// A connection, a child, an IKE SA, an EAP identity that is connected, or one that an event names.
    pub(super) fn find(name: &str, endpoint: &Endpoint, history: &History) -> Option<Self> {
        if let Some((connection, _)) = endpoint.config_by_name(name) {
            return Some(Self { connection, peer: None });
        }
        let mut ikes = ike_sas_of_peer(name, endpoint);
        if ikes.is_empty() {
            let is_peer = |sa: &IkeStatus| sa.peer.as_ref().is_some_and(|peer| peer.to_string() == name);
            ikes = endpoint.ike().status().filter(is_peer).map(|sa| sa.id).collect();
        }
        let connection = endpoint.ike().status().find(|sa| ikes.contains(&sa.id)).map(|sa| sa.connection);
        let connection = connection.or_else(|| {
            let of_event = history.connection_naming(&quoted(name))?;
            endpoint.ike().connections().iter().find(|connection| connection.name == of_event).cloned()
        });
        Some(Self { connection: connection?, peer: Some(Peer { name: name.into(), ikes }) })
    }

    /// The IKE SAs that the report is about.
    pub(super) fn ikes(&self, endpoint: &Endpoint) -> Vec<IkeStatus> {
        let is_meant = |sa: &IkeStatus| match &self.peer {
            None => sa.connection.name == self.connection.name,
            Some(peer) => peer.ikes.contains(&sa.id),
        };
        endpoint.ike().status().filter(is_meant).collect()
    }

    /// Whether an event concerns the peer: it names the peer, or the report is about all.
    pub(super) fn concerns(&self, event: &PastEvent) -> bool {
        let Some(peer) = &self.peer else { return true };
        let quoted = quoted(&peer.name);
        event.lines.iter().any(|line| line.contains(&quoted))
    }

    /// Facts about the peer: where it is, or that it is not connected.
    pub(super) fn facts(&self, ikes: &[IkeStatus]) -> Vec<String> {
        let Some(peer) = &self.peer else { return Vec::new() };
        let fact = |sa: &IkeStatus| {
            let addrs = match &*sa.virtual_addrs {
                [] => String::new(),
                addrs => format!(", virtual address {}", wording::list(addrs)),
            };
            let (connection, id) = (&sa.connection.name, sa.id);
            format!("{} is the peer of {connection}[{id}], at {}{addrs}", peer.name, sa.path.remote)
        };
        match ikes {
            [] => vec![format!("{} is not connected", peer.name)],
            ikes => ikes.iter().map(fact).collect(),
        }
    }
}

/// An identity as messages contain it.
fn quoted(identity: &str) -> String {
    wording::eap_identity(identity.as_bytes())
}
