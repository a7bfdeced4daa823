//! IKE SAs and their peers: no untrusted peer, no overdue reauthentication, no second IKE SA where it is not
//! allowed, and a virtual address in use. Idle nodes: both sides have the same SAs, and no other state.

use super::strength::check_ike_status;
use super::{Checked, Monitor, violated};
use crate::config::{self, LIMITS};
use crate::manual;
use crate::net::{Datagram, Payload};
use crate::node::Node;
use crate::plan::Plan;
use crate::plan::{Setup, VirtualAddrs};
use casemate::Notice;
use casemate_datapath::Direction;
use casemate_ike::config::{Identity, Unique};
use casemate_ike::{ChildState, ChildStatus, Event, IkeSaId, IkeSpis, IkeState, IkeStatus};
use casemate_wire::ike::{ExchangeType, Header, Message, PayloadType};
use std::time::Duration;

/// Time within which two IKE SAs that were initiated at once are established: half-open IKE SAs last for 30
/// seconds, and retransmissions of the last request take 15.
const AT_ONCE: Duration = Duration::from_secs(45);
/// Time that the exchange to close an IKE SA may take.
const SLACK: Duration = Duration::from_secs(40);

impl Monitor {
    /// Checks the peer of a new IKE SA.
    pub(crate) fn check_new(&mut self, plan: &Plan, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(Event::IkeUp { ike, peer, is_restored: false, .. }) = notice else { return Ok(()) };
        let name = |node| Identity::Fqdn(config::name(node));
        let untrusted = (0..plan.nodes()).find(|node| plan.is_untrusted(*node)).map(name);
        if untrusted.as_ref() == Some(peer) {
            return violated(format!("node {} authenticates the untrusted peer {peer}", node.index));
        }
        self.note_older(node, *ike, peer, plan.setup.unique);
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
            // Until IKE_AUTH, the announcement of fragmentation may have been corrupted.
            Ok(message) if is_whole(message.header()) => {
                violated(format!("node {} sends {} bytes unfragmented", node.index, datagram.ip_len()))
            }
            _ => Ok(()),
        }
    }

    /// A node has one IKE SA with a peer: it has to close the older one, or it refused the newer one. Two IKE
    /// SAs that were initiated at once may stay.
    fn note_older(&mut self, node: &Node, ike: IkeSaId, peer: &Identity, unique: Unique) {
        if matches!(unique, Unique::Never | Unique::No) {
            return;
        }
        let incarnation = node.incarnation();
        for other in
            node.ikes().into_iter().filter(|other| other.id != ike && other.peer.as_ref() == Some(peer))
        {
            let authenticated = self.authenticated.get(&(incarnation, other.id));
            let age = authenticated
                .map(|authenticated| node.simulation_time().saturating_sub(authenticated.established_at));
            if age.is_some_and(|age| age > AT_ONCE) {
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
        let incarnation = node.incarnation();
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
            let authenticated = self.authenticated.get(&(node.incarnation(), ike.id));
            let age = authenticated.map(|authenticated| node.time().since(authenticated.by_clock));
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
    let may_be_whole = matches!(header.exchange, ExchangeType::IKE_INTERMEDIATE | ExchangeType::IKE_AUTH);
    header.next_payload == PayloadType::SK && !may_be_whole
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

/// Whether no exchange is in progress at a node.
pub(crate) fn is_idle(node: &Node) -> bool {
    let settled = |ike: &IkeStatus| {
        ike.state == IkeState::Established
            && ike.children.iter().all(|child| child.state == ChildState::Installed)
    };
    node.ikes().iter().all(settled)
}

/// Description of the IKE SAs of all nodes.
pub(crate) fn describe(nodes: &[Node]) -> String {
    let child = |child: &ChildStatus| format!("{} {}", child.child.name, child.state);
    let ike = |ike: &IkeStatus| {
        let children: Vec<String> = ike.children.iter().map(child).collect();
        format!("{} {} [{}]", ike.id, ike.state, children.join(", "))
    };
    let node = |node: &Node| {
        let ikes: Vec<String> = node.ikes().iter().map(ike).collect();
        format!("node {}: {}", node.index, ikes.join(", "))
    };
    nodes.iter().map(node).collect::<Vec<_>>().join("; ")
}

/// Checks the size of the tables.
pub(crate) fn check_sizes(node: &Node, max_ike_sas: usize) -> Checked {
    let (ikes, sas) = (node.endpoint().ike().status().count(), node.endpoint().datapath().sas().count());
    if ikes > max_ike_sas || sas > LIMITS.sas {
        return violated(format!("node {} has {ikes} IKE SAs and {sas} SAs", node.index));
    }
    Ok(())
}

/// Checks that every SA exists at another node too, and that the tables contain no other SAs.
pub(crate) fn check_mirrors(plan: &Plan, nodes: &[Node], monitor: &Monitor) -> Checked {
    for node in nodes {
        let manual = usize::from(manual::is_used(plan, node.index));
        let ikes = node.ikes();
        for ike in &ikes {
            monitor.check_ike(plan, node, ike, nodes)?;
            ike.children.iter().try_for_each(|child| check_child(node, child, nodes, monitor))?;
        }
        let children: usize = ikes.iter().map(|ike| ike.children.len()).sum();
        check_tables(node, children + manual)?;
    }
    Ok(())
}

impl Monitor {
    fn check_ike(&self, plan: &Plan, node: &Node, ike: &IkeStatus, nodes: &[Node]) -> Checked {
        let is_mirror = |other: &IkeStatus| other.spis == ike.spis && other.initiator != ike.initiator;
        let others = nodes.iter().filter(|other| other.index != node.index);
        let mirror = others.flat_map(|other| other.ikes().into_iter().map(move |ike| (other, ike)));
        let Some((other, mirror)) = mirror.into_iter().find(|(_, ike)| is_mirror(ike)) else {
            let IkeSpis { initiator: spi_i, responder: spi_r } = ike.spis;
            return violated(format!("IKE SA {spi_i} {spi_r} is at node {} only", node.index));
        };
        if mirror.suite != ike.suite
            || mirror.children.len() != ike.children.len()
            || (&mirror.ppk_id, mirror.is_resumed) != (&ike.ppk_id, ike.is_resumed)
        {
            return violated(format!("two sides of one IKE SA differ: {}", describe(nodes)));
        }
        check_ike_status(plan, node, ike)?;
        self.check_ike_keys(node, other, ike.spis)
    }
}

fn check_child(node: &Node, child: &ChildStatus, nodes: &[Node], monitor: &Monitor) -> Checked {
    let others = nodes.iter().filter(|other| other.index != node.index);
    let is_mirror = |other: &ChildStatus| other.spi_in == child.spi_out && other.spi_out == child.spi_in;
    let mirror = others.flat_map(|other| other.children().into_iter().map(move |child| (other, child)));
    let Some((other, mirror)) = mirror.into_iter().find(|(_, other)| is_mirror(other)) else {
        let (spi_in, spi_out) = (child.spi_in.get(), child.spi_out.get());
        return violated(format!("Child SA {spi_in:08x} {spi_out:08x} is at node {} only", node.index));
    };
    let ups = monitor.child(node, child.id).zip(monitor.child(other, mirror.id));
    let Some((ours, theirs)) = ups else {
        return violated(format!("no notice reported Child SA {}", child.id));
    };
    if ours.inbound.transform != theirs.outbound.transform
        || ours.outbound.transform != theirs.inbound.transform
    {
        return violated(format!(
            "nodes {} and {} have different keys for a Child SA",
            node.index, other.index
        ));
    }
    if child.local != mirror.remote || child.remote != mirror.local || child.mode != mirror.mode {
        return violated(format!("two sides of one Child SA differ: {child:?} and {mirror:?}"));
    }
    Ok(())
}

/// Numbers of SAs and SPIs in the data path of a node.
#[derive(PartialEq, Eq)]
struct TableSizes {
    inbound: usize,
    outbound: usize,
    /// Reserved inbound SPIs.
    spis: usize,
}

fn table_sizes(node: &Node) -> TableSizes {
    let endpoint = node.endpoint();
    let count = |direction| endpoint.datapath().sas().filter(|sa| sa.id.direction() == direction).count();
    TableSizes {
        inbound: count(Direction::Inbound),
        outbound: count(Direction::Outbound),
        spis: endpoint.reserved_spis(),
    }
}

/// Checks the number of SAs in the data path. Inbound SAs that were replaced linger for a moment, with
/// their SPIs.
fn check_tables(node: &Node, children: usize) -> Checked {
    let TableSizes { inbound, outbound, spis } = table_sizes(node);
    if outbound != children || inbound < children || spis != inbound {
        return violated(format!(
            "node {} has {inbound} inbound SAs, {outbound} outbound SAs and {spis} SPIs instead of {children} pairs",
            node.index
        ));
    }
    Ok(())
}

/// Checks that only manual SAs are left after the configuration was removed.
pub(crate) fn check_empty(plan: &Plan, node: &Node) -> Checked {
    let manual = usize::from(manual::is_used(plan, node.index));
    let endpoint = node.endpoint();
    let (ikes, half_open) = (endpoint.ike().status().count(), endpoint.ike().half_open_count());
    if half_open != 0 {
        return violated(format!("node {} counts {half_open} half-open IKE SAs", node.index));
    }
    let both = [Direction::Inbound, Direction::Outbound];
    let policies: usize = both.map(|direction| endpoint.datapath().policies(direction).count()).iter().sum();
    if (ikes, policies) != (0, 2 * manual) {
        return violated(format!("node {} keeps {ikes} IKE SAs and {policies} policies", node.index));
    }
    let left = table_sizes(node);
    if left == (TableSizes { inbound: manual, outbound: manual, spis: manual }) {
        return Ok(());
    }
    violated(format!(
        "node {} keeps {} inbound SAs, {} outbound SAs and {} SPIs",
        node.index, left.inbound, left.outbound, left.spis
    ))
}
