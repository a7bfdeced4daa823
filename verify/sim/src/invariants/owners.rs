//! Processes that continue the state of others: what they inherit, and that no message has left whose record
//! was not written.

use super::{Checked, Monitor, violated};
use crate::node::{Incarnation, Node};
use casemate::Notice;
use casemate_ike::{ChildState, Event, IkeSaId, IkeSpis};
use std::collections::{BTreeMap, HashMap, HashSet};

/// SPIs of a Child SA: those of the packets to node 0, and from it.
type ChildSpis = (u32, u32);
/// A node and the SPIs of one of its IKE SAs.
type IkeSaName = (usize, IkeSpis);

/// SAs by their SPIs, which are the same for all processes of a node.
#[derive(Default)]
pub(super) struct Owners {
    /// The last process and identifier of each IKE SA.
    ikes: BTreeMap<IkeSaName, (Incarnation, IkeSaId)>,
    /// The node that had a Child SA first: the responder of the exchange that created it.
    responders: HashMap<ChildSpis, usize>,
    /// Child SAs that a node has closed.
    closed: HashSet<(usize, ChildSpis)>,
    /// Keys and sequence numbers of ESP packets.
    pub(super) numbers: HashSet<(Vec<u8>, [u8; 4])>,
}

fn child_spis(node: usize, spi_in: u32, spi_out: u32) -> ChildSpis {
    if node == 0 { (spi_in, spi_out) } else { (spi_out, spi_in) }
}

impl Monitor {
    /// Lets the next process of a node use the keys of IKE SAs of its predecessors.
    pub(crate) fn inherit_keys(&mut self, node: &Node) {
        let incarnation = node.incarnation();
        let of_node = self.ike_keys.iter().filter(|((former, _), _)| former.node == node.index);
        let inherited: Vec<_> =
            of_node.map(|((_, spis), keys)| ((incarnation, *spis), keys.clone())).collect();
        self.ike_keys.extend(inherited);
    }

    /// Notes what processes of a node have in common.
    pub(super) fn note_owner(&mut self, node: &Node, notice: &Notice) {
        if node.index > 1 {
            return;
        }
        match notice {
            Notice::Ike(Event::IkeUp { ike, is_restored, .. }) => self.note_ike(node, *ike, *is_restored),
            Notice::Ike(Event::IkeRekeyed { new, .. }) => self.note_ike(node, *new, false),
            Notice::Ike(Event::ChildUp(up)) if !up.is_restored && !node.is_replaced => {
                let spis = child_spis(node.index, up.inbound.spi.get(), up.outbound.spi.get());
                self.owners.responders.entry(spis).or_insert(node.index);
            }
            Notice::Ike(Event::ChildDown { id, .. } | Event::ChildClosing(id)) if !node.is_replaced => {
                let child = self.children.get(&(node.incarnation(), *id));
                let spis =
                    child.map(|up| child_spis(node.index, up.inbound.spi.get(), up.outbound.spi.get()));
                self.owners.closed.extend(spis.map(|spis| (node.index, spis)));
            }
            _ => {}
        }
    }

    fn note_ike(&mut self, node: &Node, id: IkeSaId, is_restored: bool) {
        let Some(ike) = node.ikes().into_iter().find(|ike| ike.id == id) else { return };
        let now = (node.incarnation(), id);
        let former = self.owners.ikes.insert((node.index, ike.spis), now).filter(|_| is_restored);
        if let Some(former) = former {
            let authenticated = self.authenticated.get(&former).copied();
            self.authenticated.extend(authenticated.map(|authenticated| (now, authenticated)));
            if self.must_close.contains(&former) {
                self.must_close.insert(now);
            }
        }
    }

    /// Checks that a node that has just been restored knows the Child SAs that it has granted to its peer,
    /// unless it has closed them: the peer has them only if their records were written.
    pub(crate) fn check_known(&self, node: &Node, peer: &Node) -> Checked {
        let own: HashSet<ChildSpis> = node
            .children()
            .iter()
            .map(|child| child_spis(node.index, child.spi_in.get(), child.spi_out.get()))
            .collect();
        let is_used = |state| matches!(state, ChildState::Installed | ChildState::Awaiting);
        for child in peer.children().iter().filter(|child| is_used(child.state)) {
            let spis = child_spis(peer.index, child.spi_in.get(), child.spi_out.get());
            let is_granted = self.owners.responders.get(&spis) == Some(&node.index);
            if is_granted && !own.contains(&spis) && !self.owners.closed.contains(&(node.index, spis)) {
                return violated(format!(
                    "node {} does not know Child SA {:08x} {:08x}, which it has granted to its peer",
                    node.index, spis.0, spis.1
                ));
            }
        }
        Ok(())
    }
}
