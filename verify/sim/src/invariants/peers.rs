//! IKE SAs and their peers: no untrusted peer, no overdue reauthentication, no second IKE SA where it
//! is not allowed, and
//! a virtual address in use.

use super::{Checked, Monitor, violated};
use crate::config;
use crate::net::{Datagram, Payload};
use crate::node::Node;
use crate::plan::Plan;
use crate::setup::{Setup, VirtualAddrs};
use casemate::Notice;
use casemate_ike::config::{Identity, Unique};
use casemate_ike::{Event, IkeSaId};
use casemate_wire::ike::{ExchangeType, Header, Message, PayloadType};
use std::time::Duration;

/// Time within which two IKE SAs may be initiated at once. Half-open IKE SAs last no longer.
const HALF_OPEN: Duration = Duration::from_secs(30);
/// Time that the exchange to close an IKE SA may take.
const SLACK: Duration = Duration::from_secs(40);

impl Monitor {
    /// Checks the peer of a new IKE SA.
    pub(crate) fn check_new(&mut self, plan: &Plan, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(Event::IkeUp { ike, peer, .. }) = notice else { return Ok(()) };
        let name = |node| Identity::Fqdn(config::name(node));
        let untrusted = (0..plan.nodes()).find(|node| plan.is_untrusted(*node)).map(name);
        if untrusted.as_ref() == Some(peer) {
            return violated(format!("node {} authenticates the untrusted peer {peer}", node.index));
        }
        self.note_older(node, (*ike, peer), plan.setup.unique);
        Ok(())
    }

    /// RFC 7383 section 2.5: messages to a peer that supports fragmentation are fragmented to the
    /// configured length.
    pub(crate) fn check_len(&self, setup: &Setup, node: &Node, datagram: &Datagram) -> Checked {
        let Payload::Udp(payload) = &datagram.payload else { return Ok(()) };
        if datagram.ip_len() <= setup.fragment_bytes {
            return Ok(());
        }
        match Message::parse(payload.strip_prefix(&[0; 4]).unwrap_or(payload)) {
            // Only after IKE_AUTH, the peer is sure to support fragmentation.
            Ok(message) if is_whole(message.header()) => {
                violated(format!("node {} sends {} bytes unfragmented", node.index, datagram.ip_len()))
            }
            _ => Ok(()),
        }
    }

    /// A node has one IKE SA with a peer: it has to close the older one, or it refused the newer one. Two
    /// IKE SAs that were
    /// initiated at once may stay.
    fn note_older(&mut self, node: &Node, (ike, peer): (IkeSaId, &Identity), unique: Unique) {
        if matches!(unique, Unique::Never | Unique::No) {
            return;
        }
        let incarnation = (node.index, node.restarts);
        for other in
            node.ikes().into_iter().filter(|other| other.id != ike && other.peer.as_ref() == Some(peer))
        {
            let authenticated = self.authenticated.get(&(incarnation, other.id));
            if authenticated.is_some_and(|authenticated| node.time().since(*authenticated) > HALF_OPEN) {
                self.must_close.insert((incarnation, other.id));
            }
        }
    }

    /// Checks the peers of all nodes that are idle.
    pub(crate) fn check_peers(&self, plan: &Plan, nodes: &[Node]) -> Checked {
        nodes.iter().try_for_each(|node| {
            self.check_reauthenticated(plan, node)?;
            self.check_unique(node)
        })?;
        check_addresses(plan, nodes)
    }

    fn check_unique(&self, node: &Node) -> Checked {
        let incarnation = (node.index, node.restarts);
        match node.ikes().iter().find(|ike| self.must_close.contains(&(incarnation, ike.id))) {
            Some(ike) => violated(format!(
                "node {} keeps {}, although a newer IKE SA has the same peer",
                node.index, ike.id
            )),
            None => Ok(()),
        }
    }

    /// RFC 7296 section 2.8.3: a peer that has to reauthenticate has done so.
    fn check_reauthenticated(&self, plan: &Plan, node: &Node) -> Checked {
        let Some(reauth) = plan.setup.reauth_of(node.index) else { return Ok(()) };
        for ike in node.ikes() {
            let authenticated = self.authenticated.get(&((node.index, node.restarts), ike.id));
            let age = authenticated.map(|authenticated| node.time().since(*authenticated));
            if age.is_none_or(|age| age > reauth + SLACK) {
                return violated(format!(
                    "node {}: the peer of {} authenticated {age:?} ago",
                    node.index, ike.id
                ));
            }
        }
        Ok(())
    }
}

fn is_whole(header: &Header) -> bool {
    header.next_payload == PayloadType::SK && header.exchange != ExchangeType::IKE_AUTH
}

/// Checks that at least one client has a virtual address.
fn check_addresses(plan: &Plan, nodes: &[Node]) -> Checked {
    // If a client may have two IKE SAs, the older one may hold the address that the newer one requests.
    let may_have_two = matches!(plan.setup.unique, Unique::Never | Unique::No);
    if plan.setup.virtual_addrs == VirtualAddrs::No || may_have_two {
        return Ok(());
    }
    let mut clients = (1..nodes.len()).filter(|node| !plan.is_untrusted(*node)).peekable();
    let has_one = |node: usize| nodes[node].ikes().iter().any(|ike| !ike.virtual_addrs.is_empty());
    if clients.peek().is_some() && !clients.any(has_one) {
        return violated("no client has a virtual address".into());
    }
    Ok(())
}
