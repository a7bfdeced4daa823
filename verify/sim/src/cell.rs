//! A node whose state belongs to a cell: a process on each of several machines, of which one owns the state
//! (docs/decisions/0140-cells.md).
//!
//! The owner is the node of the simulation that its peers reach. The other processes wait, or have not
//! noticed yet that they are not the owner any more. Each acts in place of the owner for the time of a call.

use crate::addresses::HostPair;
use crate::invariants::{Checked, violated};
use crate::mix::CellPlan;
use crate::net::Datagram;
use crate::node::{Node, Queued};
use crate::simulation::Simulation;
use crate::situation::Situation;
use crate::state_store::StateStore;
use casemate_cell::KeeperRole;
use casemate_store::{MemoryHub, Snapshot};
use std::time::Duration;

/// Time from the end of a process that has lost the state to the next one.
const RESTART: Duration = Duration::from_secs(1);
/// Incarnations of the processes of a machine.
const INCARNATIONS: u32 = 1_000_000;

/// The machines of a cell, except for that of the owner.
pub(crate) struct Cell {
    pub(crate) plan: CellPlan,
    pub(crate) hub: MemoryHub,
    /// The processes on the other machines.
    pub(crate) others: Vec<Node>,
    /// Whether the process that acts in place of the owner has just become the owner.
    has_new_owner: bool,
    /// Whether a former owner has stopped for the next one, which has not begun.
    is_handed_over: bool,
    stale: Option<StaleRoute>,
    /// The store to which an administrator will return.
    pub(crate) snapshot: Option<Snapshot>,
    /// Whether the store has lost confirmed writes, and is in use.
    pub(crate) is_set_back: bool,
    /// Whether the store was replaced by an empty one, and all SAs are lost.
    pub(crate) is_replaced: bool,
}

/// A former owner that packets still reach, because a router has not noticed the new one.
#[derive(Clone, Copy)]
struct StaleRoute {
    /// Position among the other processes.
    position: usize,
    until: Duration,
    /// Whether packets reach the owner, too.
    is_copy: bool,
}

impl Simulation {
    /// Makes a node the owner of a cell, with other machines.
    pub(crate) fn set_up_cell(&mut self, plan: &CellPlan) {
        let index = plan.node;
        let hub = MemoryHub::new();
        let mut others: Vec<Node> =
            (1..plan.machines).map(|_| self.nodes[index].successor(&self.plan)).collect();
        let nodes = std::iter::once(&mut self.nodes[index]).chain(&mut others);
        for (number, node) in nodes.enumerate() {
            node.store = Some(StateStore::of_cell(&hub, plan.machine(number)));
            node.restarts = number as u32 * INCARNATIONS;
            node.clock_offset += Duration::from_secs(1_000) * number as u32;
            node.is_replaced = number > 0;
            node.keep_records();
        }
        self.cell = Some(Cell {
            plan: plan.clone(),
            hub,
            others,
            has_new_owner: false,
            is_handed_over: false,
            stale: None,
            snapshot: None,
            is_set_back: false,
            is_replaced: false,
        });
    }

    /// Whether a node belongs to the cell.
    pub(crate) fn is_cell(&self, index: usize) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.plan.node == index)
    }

    /// Times at which the other machines of the cell have something to do, with the number of their node.
    pub(crate) fn cell_due(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.cell.iter().flat_map(|cell| {
            let due = cell.others.iter().filter_map(Node::due).chain(cell.hub.next_timeout());
            due.map(|due| (due.max(self.now), cell.plan.node))
        })
    }

    /// Lets each other machine of the cell act in place of the owner.
    pub(crate) fn with_machines(
        &mut self,
        index: usize,
        mut act: impl FnMut(&mut Self) -> Checked,
    ) -> Checked {
        if !self.is_cell(index) {
            return Ok(());
        }
        let count = self.cell.as_ref().map_or(0, |cell| cell.others.len());
        (0..count).try_for_each(|position| self.with_machine(position, &mut act))
    }

    /// Lets one other machine act. If it becomes the owner, it stays in that place.
    pub(crate) fn with_machine(
        &mut self,
        position: usize,
        act: &mut impl FnMut(&mut Self) -> Checked,
    ) -> Checked {
        self.exchange_machine(position);
        let done = act(self);
        let cell = self.cell.as_mut().expect("the node belongs to a cell");
        if std::mem::take(&mut cell.has_new_owner) {
            self.announce(position);
        } else {
            self.exchange_machine(position);
        }
        done
    }

    /// Exchanges an other machine and the owner. A NAT is in front of all machines.
    fn exchange_machine(&mut self, position: usize) {
        let Some(cell) = &mut self.cell else { return };
        let (other, owner) = (&mut cell.others[position], &mut self.nodes[cell.plan.node]);
        std::mem::swap(other, owner);
        std::mem::swap(&mut other.nat, &mut owner.nat);
    }

    /// Notes that a former owner stops, because the next one is ready.
    pub(crate) fn note_handover(&mut self, index: usize) {
        self.trace.log(self.now, || format!("{} has handed over", self.nodes[index].name()));
        self.cell.iter_mut().for_each(|cell| cell.is_handed_over = true);
    }

    /// Notes that the process that acts has become the owner of the cell, and that its SAs go on.
    pub(crate) fn note_owner(&mut self, index: usize) {
        self.cut_new_owner(index);
        let node = &mut self.nodes[index];
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.plan.node == index) else { return };
        cell.has_new_owner = std::mem::take(&mut node.is_replaced);
        let has_numbers = node.store.as_ref().is_some_and(StateStore::has_last_numbers);
        if std::mem::take(&mut cell.is_handed_over) && has_numbers {
            self.counter.coverage.count(Situation::HandedOver);
        }
    }

    /// Lets packets reach the new owner, and some of them the former one, which is now at this position.
    fn announce(&mut self, position: usize) {
        self.counter.coverage.count(Situation::CellTakeOver);
        let time = self.rng.pick(&[0, 0, 100, 2_000, 10_000]);
        let is_copy = self.rng.coin();
        let until = self.now + Duration::from_millis(time);
        let Some(cell) = &mut self.cell else { return };
        cell.others[position].is_replaced = true;
        cell.stale = Some(StaleRoute { position, until, is_copy });
        self.trace.log(self.now, || {
            format!("the former owner gets packets until {:.3} s, copies: {is_copy}", until.as_secs_f64())
        });
    }

    /// Serves all machines of the cell, and checks that at most one is the owner and sure of it.
    pub(crate) fn serve_cell(&mut self, index: usize) -> Checked {
        self.with_machines(index, |simulation| simulation.serve_process(index))?;
        self.serve_process(index)?;
        self.check_owners(index)
    }

    fn check_owners(&mut self, index: usize) -> Checked {
        let Some(cell) = self.cell.as_ref().filter(|cell| cell.plan.node == index) else { return Ok(()) };
        let roles: Vec<KeeperRole> = cell
            .others
            .iter()
            .chain([&self.nodes[index]])
            .filter(|node| node.stopped_until.is_none())
            .filter_map(|node| node.role(self.now))
            .collect();
        let count = |wanted| roles.iter().filter(|role| **role == wanted).count();
        self.counter.coverage.add(Situation::Fenced, count(KeeperRole::Fenced));
        if count(KeeperRole::Owner) > 1 && !cell.is_set_back {
            return violated(format!("machines of node {index} are owners at once: {roles:?}"));
        }
        Ok(())
    }

    /// Checks that a machine that sends an IKE message is the one that the store names as the owner.
    pub(crate) fn check_sender(&self, index: usize) -> Checked {
        let Some(cell) = self.cell.as_ref().filter(|cell| cell.plan.node == index) else { return Ok(()) };
        let Some(store) = &self.nodes[index].store else { return Ok(()) };
        if !cell.is_set_back && !store.is_entered() {
            return violated(format!(
                "machine {} of node {index} sends an IKE message without owning the state",
                store.machine.number
            ));
        }
        Ok(())
    }

    /// Delivers a datagram to the owner, to the former one, or to both.
    pub(crate) fn arrive_at_cell(&mut self, index: usize, datagram: &Datagram) -> Checked {
        let stale = self.cell.as_ref().and_then(|cell| cell.stale).filter(|stale| stale.until > self.now);
        if let Some(StaleRoute { position, is_copy, .. }) = stale {
            self.with_machine(position, &mut |simulation| simulation.arrive_at(index, datagram.clone()))?;
            if !is_copy {
                return Ok(());
            }
        }
        self.arrive_at(index, datagram.clone())
    }

    /// Ends a process that has lost the state. The next one waits for the end of the owner.
    pub(crate) fn end_lost(&mut self, index: usize) {
        self.crash(index, RESTART);
    }

    /// Stops the process of a machine. Packets wait meanwhile.
    pub(crate) fn stop(&mut self, index: usize, time: Duration) {
        self.counter.coverage.count(Situation::Stopped);
        let node = &mut self.nodes[index];
        node.stopped_until = Some(node.stopped_until.unwrap_or_default().max(self.now + time));
    }

    /// Continues a stopped process. It processes packets before it looks at its store, or after that.
    pub(crate) fn resume_process(&mut self, index: usize) -> Checked {
        let node = &mut self.nodes[index];
        node.stopped_until = None;
        let queued = std::mem::take(&mut node.queued);
        let name = self.nodes[index].name();
        self.trace.log(self.now, || format!("{name} continues with {} packets", queued.len()));
        if self.rng.coin() {
            self.serve_process(index)?;
        }
        for packet in queued {
            match packet {
                Queued::Arrival(datagram) => self.arrive_at(index, datagram)?,
                Queued::Packet { number, packet, spec } => self.protect(number, &packet, spec)?,
            }
        }
        Ok(())
    }

    /// Sends a packet through a process that has the state, although it is not the last owner.
    pub(crate) fn send_as_former(&mut self, pair: HostPair) -> Checked {
        if self.nodes[pair.from].moves_packets() { self.send_packet(pair, false) } else { Ok(()) }
    }

    /// Checks that one machine owns the state and the others wait.
    pub(crate) fn check_cell(&self) -> Checked {
        let Some(cell) = &self.cell else { return Ok(()) };
        let index = cell.plan.node;
        let owner = self.nodes[index].role(self.now);
        let others: Vec<_> = cell.others.iter().map(|node| node.role(self.now)).collect();
        if owner != Some(KeeperRole::Owner) || others.iter().any(|role| *role != Some(KeeperRole::Standby)) {
            return violated(format!("node {index}: {owner:?} and {others:?} instead of one owner"));
        }
        Ok(())
    }
}
