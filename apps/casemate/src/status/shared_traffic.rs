//! Child SAs of different peers with the same traffic selectors. A packet matches the policies of one of
//! them, so the other peers get nothing.

use crate::log::wording;
use casemate::Endpoint;
use casemate_ike::{ChildState, IkeStatus};
use casemate_sa::Mode;
use std::collections::BTreeMap;

/// Maximum number of other peers in a text.
const MAX_SHOWN: usize = 4;

/// A Child SA and the peer whose traffic it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Carrier {
    connection: String,
    /// Connection, child and number of the Child SA.
    name: String,
    /// Identity of the peer.
    peer: String,
    /// Address and port of the peer.
    at: String,
}

/// Peers that have the same traffic as one of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedTraffic {
    traffic: String,
    first: Carrier,
    others: Vec<Carrier>,
}

impl SharedTraffic {
    /// The traffic that the Child SAs of a connection share with those of other peers, of any connection.
    pub(crate) fn of(endpoint: &Endpoint, connection: &str) -> Vec<Self> {
        let mut by_traffic: BTreeMap<String, Vec<Carrier>> = BTreeMap::new();
        for sa in endpoint.ike().status() {
            for (spd, traffic, carrier) in carriers(&sa, endpoint) {
                by_traffic.entry(format!("{spd}{traffic}")).or_default().push(carrier);
            }
        }
        by_traffic.into_iter().filter_map(|(traffic, all)| Self::new(connection, traffic, &all)).collect()
    }

    fn new(connection: &str, traffic: String, all: &[Carrier]) -> Option<Self> {
        let first = all.iter().find(|carrier| carrier.connection == connection)?.clone();
        let others: Vec<Carrier> = all.iter().filter(|other| other.peer != first.peer).cloned().collect();
        (!others.is_empty()).then_some(Self { traffic, first, others })
    }

    /// The fact.
    pub(crate) fn cause(&self) -> String {
        let shown = |Carrier { name, peer, at, .. }: &Carrier| format!("{name} with {peer} at {at}");
        let others: Vec<String> = self.others.iter().take(MAX_SHOWN).map(shown).collect();
        let more = match self.others.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!(
            "{} has the same traffic {} as {}{more}: only one of these peers gets the packets to it",
            shown(&self.first),
            self.traffic,
            others.join(", ")
        )
    }

    /// What to change so that each peer gets its packets.
    pub(crate) const fn advice() -> [&'static str; 2] {
        [
            "give each client addresses of its own: another remote_ts, or a virtual address from `pools` \
             with remote_ts = dynamic",
            "if the clients must have the same addresses: if_id_in = if_id_out = %unique, see \
             docs/manual/route-based.md",
        ]
    }
}

/// The Child SAs of an IKE SA in tunnel mode, each with its SPD unless that is the main one, and its traffic.
fn carriers(sa: &IkeStatus, endpoint: &Endpoint) -> Vec<(String, String, Carrier)> {
    let Some(peer) = &sa.peer else { return Vec::new() };
    let peer = match &sa.eap_identity {
        Some(user) => wording::user(user),
        None => peer.to_string(),
    };
    let is_used = |state| state != ChildState::Closing;
    let children = sa.children.iter().filter(|child| child.mode == Mode::Tunnel && is_used(child.state));
    let carrier = |child: &casemate_ike::ChildStatus| {
        let spd = endpoint.spds_of(child.id)?.outbound;
        let spd = if spd == casemate_sa::SpdPair::MAIN.outbound { String::new() } else { format!("{spd}: ") };
        let traffic = format!("{} === {}", wording::traffic(&child.local), wording::traffic(&child.remote));
        let carrier = Carrier {
            connection: sa.connection.name.clone(),
            name: format!("{}/{}{{{}}}", sa.connection.name, child.child.name, child.id),
            peer: peer.clone(),
            at: sa.path.remote.to_string(),
        };
        Some((spd, traffic, carrier))
    };
    children.filter_map(carrier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrier(connection: &str, number: u32, peer: &str) -> Carrier {
        Carrier {
            connection: connection.into(),
            name: format!("{connection}/net{{{number}}}"),
            peer: peer.into(),
            at: format!("192.0.2.{number}:500"),
        }
    }

    #[test]
    fn another_peer_with_the_same_traffic_is_named() {
        let traffic = "10.1.0.0/16 === 10.2.0.0/16".to_owned();
        let all = [carrier("gw", 1, "left"), carrier("gw", 2, "left"), carrier("other", 3, "right")];
        let shared = SharedTraffic::new("gw", traffic.clone(), &all).unwrap();
        assert_eq!(
            shared.cause(),
            "gw/net{1} with left at 192.0.2.1:500 has the same traffic 10.1.0.0/16 === 10.2.0.0/16 as \
             other/net{3} with right at 192.0.2.3:500: only one of these peers gets the packets to it"
        );
        assert_eq!(SharedTraffic::new("none", traffic.clone(), &all), None, "it has no Child SA");
        // Rekeying and a reauthentication in progress: the same peer has two Child SAs.
        assert_eq!(SharedTraffic::new("gw", traffic, &all[..2]), None);
    }
}
