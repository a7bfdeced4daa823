//! Disruptions: commands, restarts, clock jumps, reloads, NAT rebinds, outages, and attacks.

use crate::attacker::Attack;
use crate::config::Variant;
use crate::defect::Defect;
use crate::invariants::{Checked, is_idle};
use crate::manual::{self, SavedNumbers};
use crate::simulation::{SimEvent, Simulation};
use crate::situation::Situation;
use casemate::{Context, Endpoint};
use casemate_ike::{ChildId, IkeSaId, IkeState, IkeStatus};
use casemate_test_support::TestRng;
use std::time::Duration;

/// Command of an administrator.
#[derive(Debug, Clone, Copy)]
enum Command {
    RekeyIke,
    RekeyIkeAtBoth,
    RekeyChild,
    RekeyChildAtBoth,
    Terminate,
    TerminateChild,
    Initiate,
}

/// Rate of jumps of the sequence numbers of manual SAs, per thousand seconds.
const NUMBER_JUMPS: u32 = 50;

const REKEYS: [Command; 4] =
    [Command::RekeyIke, Command::RekeyIkeAtBoth, Command::RekeyChild, Command::RekeyChildAtBoth];
const ENDS: [Command; 3] = [Command::Terminate, Command::TerminateChild, Command::Initiate];

impl Simulation {
    /// Draws the disruptions of one second.
    pub(crate) fn disrupt(&mut self) -> Checked {
        let disruptions = self.plan.disruptions;
        if self.rng.per_mille(disruptions.commands) {
            self.command(disruptions.only_rekeys)?;
        }
        if self.rng.per_mille(disruptions.restarts) {
            self.restart()?;
        }
        if self.rng.per_mille(disruptions.clock_jumps) {
            self.jump()?;
        }
        if self.rng.per_mille(disruptions.reloads) {
            self.reload()?;
        }
        if self.rng.per_mille(disruptions.nat_rebinds) {
            self.forget_mappings();
        }
        if self.rng.per_mille(disruptions.outages) {
            self.cut_off();
        }
        if self.rng.per_mille(NUMBER_JUMPS) {
            self.jump_numbers();
        }
        for _ in 0..occurrences(disruptions.attacks, &mut self.rng) {
            self.attack();
        }
        Ok(())
    }

    fn jump_numbers(&mut self) {
        let index = self.rng.below(2);
        if !manual::is_used(&self.plan, index) || self.number_jumps == manual::MAX_JUMPS {
            return;
        }
        self.number_jumps += 1;
        let by = 1 << self.rng.below(30);
        self.trace.log(self.now(), || format!("the sequence number of node {index} jumps by {by}"));
        self.counter.coverage.count(Situation::NumberJump);
        let now = self.now();
        manual::jump(&self.plan, &mut self.nodes[index], by, now);
    }

    fn attack(&mut self) {
        let Attack { name, situation, datagrams } = self.attacker.act();
        self.trace.log(self.now(), || format!("the attacker {name}"));
        for what in situation.into_iter().chain([Situation::Attack]) {
            self.counter.coverage.add(what, datagrams.len());
        }
        self.inject(datagrams);
    }

    /// Removes all NAT mappings: each sender gets another port for its next datagram.
    pub(crate) fn forget_mappings(&mut self) {
        if !self.plan.setup.nat {
            return;
        }
        self.trace.log(self.now(), || "the NATs lose their mappings".into());
        self.counter.coverage.count(Situation::NatRebind);
        if !self.nodes.iter().all(is_idle) {
            self.counter.coverage.count(Situation::NatRebindMidExchange);
        }
        self.nodes.iter_mut().filter_map(|node| node.nat.as_mut()).for_each(|nat| nat.forget());
    }

    /// Cuts a node off for a while.
    fn cut_off(&mut self) {
        let index = self.random_node();
        let time = Duration::from_secs(1 + self.rng.below(60) as u64);
        self.trace.log(self.now(), || format!("node {index} is cut off for {time:?}"));
        self.counter.coverage.count(Situation::Outage);
        self.nodes[index].cut_off_until = self.now() + time;
    }

    fn random_node(&mut self) -> usize {
        let count = self.nodes.len();
        self.rng.below(count)
    }

    fn restart(&mut self) -> Checked {
        let index = self.random_node();
        let all = self.defect == Some(Defect::RepeatedRandomness);
        let nodes: Vec<usize> = if all { (0..self.nodes.len()).collect() } else { vec![index] };
        nodes.into_iter().try_for_each(|index| self.restart_node(index))
    }

    /// Restarts a node, which loses its state.
    pub(crate) fn restart_node(&mut self, index: usize) -> Checked {
        let now = self.now();
        self.trace.log(now, || format!("node {index} restarts"));
        self.counter.coverage.count(Situation::Restart);
        let forgets = self.defect == Some(Defect::RepeatedSequenceNumbers);
        let saved_numbers =
            if forgets { SavedNumbers::INITIAL } else { SavedNumbers::of(&self.nodes[index]) };
        self.nodes[index].restart(&self.plan, now);
        self.drain(index)?;
        self.install_manual(index, saved_numbers);
        Ok(())
    }

    fn jump(&mut self) -> Checked {
        let index = self.random_node();
        let far = self.rng.pick(&[10, 100, 10_000, 10_000_000]);
        let by = Duration::from_secs(self.rng.below(far) as u64);
        self.trace.log(self.now(), || format!("the clock of node {index} jumps by {by:?}"));
        self.counter.coverage.count(Situation::ClockJump);
        self.nodes[index].clock_offset += by;
        let now = self.now();
        self.nodes[index].serve(now);
        self.drain(index)
    }

    /// Loads another configuration on a node: new settings for IKE SAs, for Child SAs, or for both.
    fn reload(&mut self) -> Checked {
        let index = self.random_node();
        let known = self.nodes[index].variant;
        let rng = &mut self.rng;
        let ike = if rng.coin() { known.ike } else { rng.below(6) as u32 };
        let without_last = self.plan.setup.children > 1 && rng.below(4) == 0;
        let variant = Variant { ike, child: rng.below(6) as u32, without_last };
        self.trace.log(self.now(), || format!("node {index} gets configuration {variant:?}"));
        self.counter.coverage.count(Situation::Reload);
        let now = self.now();
        self.nodes[index].variant = variant;
        self.nodes[index].configure(&self.plan, now);
        self.drain(index)
    }

    fn command(&mut self, only_rekeys: bool) -> Checked {
        let index = self.random_node();
        let ends = if only_rekeys { &[][..] } else { &ENDS };
        let command = self.rng.pick(&[&REKEYS, ends].concat());
        let ikes = self.nodes[index].ikes();
        if matches!(command, Command::Initiate) {
            return self.connect_at(index);
        }
        if ikes.is_empty() {
            return Ok(());
        }
        let ike = self.rng.pick(&ikes);
        let child = (!ike.children.is_empty()).then(|| self.rng.pick(&ike.children));
        let child_id = child.as_ref().map(|child| child.id);
        self.trace
            .log(self.now(), || format!("node {index} gets command {command:?} {} {child_id:?}", ike.id));
        if self.plan.disruptions.nat_rebinds > 0 && self.rng.coin() {
            let soon = Duration::from_millis(self.rng.below(100) as u64);
            self.schedule(soon, SimEvent::ForgetMappings);
        }
        match (command, child) {
            (Command::RekeyIke, _) => self.rekey(index, ike.id),
            (Command::RekeyIkeAtBoth, _) => {
                self.rekey(index, ike.id)?;
                let mirror = self.find(index, |other| (other.spis == ike.spis).then_some(other.id));
                mirror.map_or(Ok(()), |(other, id)| self.rekey(other, id))
            }
            (Command::RekeyChild, Some(child)) => self.rekey_child(index, child.id),
            (Command::RekeyChildAtBoth, Some(child)) => {
                self.rekey_child(index, child.id)?;
                let mirror = self.find(index, |other| {
                    other.children.iter().find(|other| other.spi_in == child.spi_out).map(|child| child.id)
                });
                mirror.map_or(Ok(()), |(other, id)| self.rekey_child(other, id))
            }
            (Command::Terminate, _) => {
                let now = self.now();
                self.nodes[index].act(now, |endpoint, context| endpoint.terminate(ike.id, context));
                self.drain(index)
            }
            (Command::TerminateChild, Some(child)) => {
                let now = self.now();
                self.nodes[index].act(now, |endpoint, context| endpoint.terminate_child(child.id, context));
                self.drain(index)
            }
            _ => Ok(()),
        }
    }

    /// Item of an IKE SA at a node other than `index`.
    fn find<T>(&self, index: usize, what: impl Fn(&IkeStatus) -> Option<T>) -> Option<(usize, T)> {
        let others = self.nodes.iter().filter(|node| node.index != index);
        others.into_iter().find_map(|node| Some((node.index, node.ikes().iter().find_map(&what)?)))
    }

    fn rekey(&mut self, index: usize, ike: IkeSaId) -> Checked {
        let now = self.now();
        self.nodes[index].act(now, |endpoint, context| endpoint.rekey(ike, context));
        self.drain(index)
    }

    fn rekey_child(&mut self, index: usize, child: ChildId) -> Checked {
        let now = self.now();
        self.nodes[index].act(now, |endpoint, context| endpoint.rekey_child(child, context));
        self.drain(index)
    }

    /// Initiates what is not established, as an administrator does.
    pub(crate) fn connect(&mut self) -> Checked {
        (1..self.nodes.len()).try_for_each(|index| self.connect_at(index))
    }

    fn connect_at(&mut self, index: usize) -> Checked {
        let connections = self.nodes[index].endpoint().ike().connections().to_vec();
        for connection in connections {
            let is_its = |ike: &IkeStatus| ike.connection.name == connection.name;
            let ikes: Vec<_> = self.nodes[index].ikes().into_iter().filter(is_its).collect();
            if ikes.iter().any(|ike| ike.state == IkeState::Connecting) {
                continue;
            }
            let is_up =
                |name: &str| ikes.iter().flat_map(|ike| &ike.children).any(|child| child.child.name == name);
            for child in connection.children.iter().filter(|child| !is_up(&child.name)) {
                let now = self.now();
                self.trace.log(now, || format!("node {index}: {} is not up", child.name));
                let begin = |endpoint: &mut Endpoint, context: &mut Context<'_>| {
                    endpoint.initiate(&connection, Some(child), context)
                };
                // A gateway does not know the address of its clients and cannot initiate.
                let _ = self.nodes[index].act(now, begin);
                self.drain(index)?;
            }
        }
        Ok(())
    }
}

/// Number of occurrences in one second, for a rate per thousand seconds.
fn occurrences(rate: u32, rng: &mut TestRng) -> u32 {
    rate / 1_000 + u32::from(rng.per_mille(rate % 1_000))
}
