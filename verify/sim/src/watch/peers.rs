//! Who has an IKE SA with whom: nobody without the right keys, nobody for too long without a proof, nobody twice where
//! that is not allowed; and somebody has the virtual address.

use super::{Checked, Watch, violated};
use crate::config;
use crate::net::{Carries, Datagram};
use crate::node::Node;
use crate::plan::Plan;
use crate::style::{Style, VirtualAddrs};
use casemate::Notice;
use casemate_ike::config::{Identity, Unique};
use casemate_ike::{Event, IkeSaId};
use casemate_wire::ike::{ExchangeType, Header, Message, PayloadType};
use std::time::Duration;

/// How long two IKE SAs may be begun at once: half-open ones last no longer.
const HALF_OPEN: Duration = Duration::from_secs(30);
/// What an exchange may take that closes an IKE SA.
const SLACK: Duration = Duration::from_secs(40);

impl Watch {
    /// Looks at a new IKE SA: nobody believes a stranger.
    pub(crate) fn check_new(&mut self, plan: &Plan, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(Event::IkeUp { ike, peer, .. }) = notice else { return Ok(()) };
        let name = |node| Identity::Fqdn(config::name(node));
        let stranger = (0..plan.nodes()).find(|node| plan.is_stranger(*node)).map(name);
        if stranger.as_ref() == Some(peer) {
            return violated(format!("node {} believes the stranger {peer}", node.index));
        }
        self.note_older(node, (*ike, peer), plan.style.unique);
        Ok(())
    }

    /// RFC 7383 section 2.5: what the peer takes in fragments is cut to the length that is configured.
    pub(crate) fn check_len(&self, style: &Style, node: &Node, datagram: &Datagram) -> Checked {
        let Carries::Udp(payload) = &datagram.carries else { return Ok(()) };
        if datagram.ip_len() <= style.fragment_bytes {
            return Ok(());
        }
        match Message::parse(payload.strip_prefix(&[0; 4]).unwrap_or(payload)) {
            // That the peer takes fragments is known for sure only behind IKE_AUTH.
            Ok(message) if is_whole(message.header()) => {
                violated(format!("node {} sends {} bytes whole", node.index, datagram.ip_len()))
            }
            _ => Ok(()),
        }
    }

    /// Whoever has one IKE SA with a peer gets no other: the older one is to be closed, or the younger one was refused. Two that
    /// were begun at once may stay.
    fn note_older(&mut self, node: &Node, (ike, peer): (IkeSaId, &Identity), unique: Unique) {
        if matches!(unique, Unique::Never | Unique::No) {
            return;
        }
        let life = (node.index, node.lives);
        for other in
            node.ikes().into_iter().filter(|other| other.id != ike && other.peer.as_ref() == Some(peer))
        {
            let proved = self.proved.get(&(life, other.id));
            if proved.is_some_and(|proved| node.time().since(*proved) > HALF_OPEN) {
                self.doomed.insert((life, other.id));
            }
        }
    }

    /// When all is at rest.
    pub(crate) fn check_peers(&self, plan: &Plan, nodes: &[Node]) -> Checked {
        nodes.iter().try_for_each(|node| {
            self.check_proofs(plan, node)?;
            self.check_unique(node)
        })?;
        check_addresses(plan, nodes)
    }

    fn check_unique(&self, node: &Node) -> Checked {
        let life = (node.index, node.lives);
        match node.ikes().iter().find(|ike| self.doomed.contains(&(life, ike.id))) {
            Some(ike) => {
                violated(format!("node {} keeps {}, whose peer has another one", node.index, ike.id))
            }
            None => Ok(()),
        }
    }

    /// RFC 7296 section 2.8.3: whoever is to authenticate anew has done so.
    fn check_proofs(&self, plan: &Plan, node: &Node) -> Checked {
        let Some(reauth) = plan.style.reauth_of(node.index) else { return Ok(()) };
        for ike in node.ikes() {
            let proved = self.proved.get(&((node.index, node.lives), ike.id));
            let age = proved.map(|proved| node.time().since(*proved));
            if age.is_none_or(|age| age > reauth + SLACK) {
                return violated(format!(
                    "node {}: the peer of {} proved itself {age:?} ago",
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

/// Somebody has the address, if there is only one.
fn check_addresses(plan: &Plan, nodes: &[Node]) -> Checked {
    // Where a client may have two IKE SAs, its older one may keep the address from the younger one.
    let twice = matches!(plan.style.unique, Unique::Never | Unique::No);
    if plan.style.virtual_addrs == VirtualAddrs::No || twice {
        return Ok(());
    }
    let mut clients = (1..nodes.len()).filter(|node| !plan.is_stranger(*node)).peekable();
    let has_one = |node: usize| nodes[node].ikes().iter().any(|ike| !ike.virtual_addrs.is_empty());
    if clients.peek().is_some() && !clients.any(has_one) {
        return violated("nobody has a virtual address".into());
    }
    Ok(())
}
