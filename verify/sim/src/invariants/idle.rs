//! State of idle nodes: both sides have the same SAs, and no other state.

use super::{Checked, Monitor, violated};
use crate::config::LIMITS;
use crate::manual;
use crate::node::Node;
use crate::plan::Plan;
use casemate_datapath::Direction;
use casemate_ike::{ChildState, ChildStatus, IkeState, IkeStatus};

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
            check_ike(node, ike, nodes)?;
            ike.children.iter().try_for_each(|child| check_child(node, child, nodes, monitor))?;
        }
        let children: usize = ikes.iter().map(|ike| ike.children.len()).sum();
        check_tables(node, children + manual)?;
    }
    Ok(())
}

fn check_ike(node: &Node, ike: &IkeStatus, nodes: &[Node]) -> Checked {
    let is_mirror = |other: &IkeStatus| other.spis == ike.spis && other.initiator != ike.initiator;
    let others = nodes.iter().filter(|other| other.index != node.index);
    let Some(mirror) = others.flat_map(Node::ikes).find(is_mirror) else {
        let (spi_i, spi_r) = ike.spis;
        return violated(format!("IKE SA {spi_i} {spi_r} is at node {} only", node.index));
    };
    if mirror.suite != ike.suite || mirror.children.len() != ike.children.len() {
        return violated(format!("two sides of one IKE SA differ: {}", describe(nodes)));
    }
    Ok(())
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

/// SAs in the data path: inbound, outbound, and reserved inbound SPIs.
fn tables(node: &Node) -> (usize, usize, usize) {
    let endpoint = node.endpoint();
    let count = |direction| endpoint.datapath().sas().filter(|sa| sa.id.direction() == direction).count();
    (count(Direction::Inbound), count(Direction::Outbound), endpoint.reserved_spis())
}

/// Checks the number of SAs in the data path. Inbound SAs that were replaced linger for a moment, with
/// their SPIs.
fn check_tables(node: &Node, children: usize) -> Checked {
    let (inbound, outbound, reserved) = tables(node);
    if outbound != children || inbound < children || reserved != inbound {
        return violated(format!(
            "node {} has {inbound} inbound SAs, {outbound} outbound SAs and {reserved} SPIs instead of {children} pairs",
            node.index
        ));
    }
    Ok(())
}

/// Checks that only manual SAs are left after the configuration was removed.
pub(crate) fn check_empty(plan: &Plan, node: &Node) -> Checked {
    let manual = usize::from(manual::is_used(plan, node.index));
    let endpoint = node.endpoint();
    let (ikes, half_open) = (endpoint.ike().status().count(), endpoint.ike().counts().1);
    if half_open != 0 {
        return violated(format!("node {} counts {half_open} half-open IKE SAs", node.index));
    }
    let both = [Direction::Inbound, Direction::Outbound];
    let policies: usize = both.map(|direction| endpoint.datapath().policies(direction).count()).iter().sum();
    if (ikes, policies) != (0, 2 * manual) {
        return violated(format!("node {} keeps {ikes} IKE SAs and {policies} policies", node.index));
    }
    match tables(node) {
        left if left == (manual, manual, manual) => Ok(()),
        (inbound, outbound, spis) => violated(format!(
            "node {} keeps {inbound} inbound SAs, {outbound} outbound SAs and {spis} SPIs",
            node.index
        )),
    }
}
