//! What befalls the nodes: commands, restarts, jumps of clocks, other configurations, forgetful NATs, and the attacker.

use crate::attacker::Deed;
use crate::config::Variant;
use crate::dice::Dice;
use crate::manual;
use crate::sabotage::Sabotage;
use crate::tally::Seen;
use crate::watch::{Checked, is_quiet};
use crate::world::{Happening, World};
use casemate::{Endpoint, Means};
use casemate_ike::{ChildId, IkeSaId, IkeStatus};
use std::time::Duration;

/// A command that an administrator may give.
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

/// Numbers of SAs with manual keys jump so often in a thousand seconds.
const NUMBER_JUMPS: u32 = 50;

const REKEYS: [Command; 4] =
    [Command::RekeyIke, Command::RekeyIkeAtBoth, Command::RekeyChild, Command::RekeyChildAtBoth];
const ENDS: [Command; 3] = [Command::Terminate, Command::TerminateChild, Command::Initiate];

impl World {
    /// Everything that may happen in one second.
    pub(crate) fn make_trouble(&mut self) -> Checked {
        let trouble = self.plan.trouble;
        if self.dice.per_mille(trouble.commands) {
            self.command(trouble.only_rekeys)?;
        }
        if self.dice.per_mille(trouble.restarts) {
            self.restart()?;
        }
        if self.dice.per_mille(trouble.jumps) {
            self.jump()?;
        }
        if self.dice.per_mille(trouble.reloads) {
            self.reload()?;
        }
        if self.dice.per_mille(trouble.forgotten) {
            self.forget_mappings();
        }
        if self.dice.per_mille(trouble.outages) {
            self.cut_off();
        }
        if self.dice.per_mille(NUMBER_JUMPS) {
            self.jump_numbers();
        }
        for _ in 0..count(trouble.attacks, &mut self.dice) {
            self.attack();
        }
        Ok(())
    }

    fn jump_numbers(&mut self) {
        let at = self.dice.below(2);
        if !manual::has(&self.plan, at) || self.number_jumps == manual::MOST_JUMPS {
            return;
        }
        self.number_jumps += 1;
        let by = 1 << self.dice.below(30);
        self.trace.say(self.now(), || format!("the numbers of node {at} jump by {by}"));
        self.counter.tally.count(Seen::NumberJump);
        let now = self.now();
        manual::jump(&self.plan, &mut self.nodes[at], by, now);
    }

    fn attack(&mut self) {
        let Deed { what, seen, datagrams } = self.attacker.act();
        self.trace.say(self.now(), || format!("the attacker {what}"));
        for what in seen.into_iter().chain([Seen::Attack]) {
            self.counter.tally.add(what, datagrams.len());
        }
        self.inject(datagrams);
    }

    /// All NATs give the same senders other ports from now on.
    pub(crate) fn forget_mappings(&mut self) {
        if !self.plan.style.nat {
            return;
        }
        self.trace.say(self.now(), || "the NATs forget".into());
        self.counter.tally.count(Seen::Forgotten);
        if !self.nodes.iter().all(is_quiet) {
            self.counter.tally.count(Seen::ForgottenMidway);
        }
        self.nodes.iter_mut().filter_map(|node| node.nat.as_mut()).for_each(|nat| nat.forget());
    }

    /// Nothing reaches a node for a while; it is as if it were dead, and lives again.
    fn cut_off(&mut self) {
        let at = self.some_node();
        let time = Duration::from_secs(1 + self.dice.below(60) as u64);
        self.trace.say(self.now(), || format!("node {at} is cut off for {time:?}"));
        self.counter.tally.count(Seen::Outage);
        self.nodes[at].cut_off_until = self.now() + time;
    }

    fn some_node(&mut self) -> usize {
        let count = self.nodes.len();
        self.dice.below(count)
    }

    fn restart(&mut self) -> Checked {
        let at = self.some_node();
        let all = self.sabotage == Some(Sabotage::FrozenDice);
        let nodes: Vec<usize> = if all { (0..self.nodes.len()).collect() } else { vec![at] };
        nodes.into_iter().try_for_each(|at| self.restart_node(at))
    }

    /// A node loses its memory.
    pub(crate) fn restart_node(&mut self, at: usize) -> Checked {
        let now = self.now();
        self.trace.say(now, || format!("node {at} restarts"));
        self.counter.tally.count(Seen::Restart);
        let forgets = self.sabotage == Some(Sabotage::NumbersAgain);
        let written_down = if forgets { manual::FRESH } else { manual::written_down(&self.nodes[at]) };
        self.nodes[at].restart(&self.plan, now);
        self.drain(at)?;
        self.install_manual(at, written_down);
        Ok(())
    }

    fn jump(&mut self) -> Checked {
        let at = self.some_node();
        let far = self.dice.pick(&[10, 100, 10_000, 10_000_000]);
        let by = Duration::from_secs(self.dice.below(far) as u64);
        self.trace.say(self.now(), || format!("the clock of node {at} jumps by {by:?}"));
        self.counter.tally.count(Seen::Jump);
        self.nodes[at].ahead += by;
        let now = self.now();
        self.nodes[at].serve(now);
        self.drain(at)
    }

    /// A node gets another configuration: for its IKE SAs, for its Child SAs, or for both.
    fn reload(&mut self) -> Checked {
        let at = self.some_node();
        let known = self.nodes[at].variant;
        let dice = &mut self.dice;
        let ike = if dice.coin() { known.ike } else { dice.below(6) as u32 };
        let without_last = self.plan.style.children > 1 && dice.below(4) == 0;
        let variant = Variant { ike, child: dice.below(6) as u32, without_last };
        self.trace.say(self.now(), || format!("node {at} gets configuration {variant:?}"));
        self.counter.tally.count(Seen::Reload);
        let now = self.now();
        self.nodes[at].variant = variant;
        self.nodes[at].configure(&self.plan, now);
        self.drain(at)
    }

    fn command(&mut self, only_rekeys: bool) -> Checked {
        let at = self.some_node();
        let ends = if only_rekeys { &[][..] } else { &ENDS };
        let command = self.dice.pick(&[&REKEYS, ends].concat());
        let ikes = self.nodes[at].ikes();
        if matches!(command, Command::Initiate) {
            return self.connect_at(at);
        }
        if ikes.is_empty() {
            return Ok(());
        }
        let ike = self.dice.pick(&ikes);
        let child = (!ike.children.is_empty()).then(|| self.dice.pick(&ike.children));
        let child_id = child.as_ref().map(|child| child.id);
        self.trace.say(self.now(), || format!("node {at} is told: {command:?} {} {child_id:?}", ike.id));
        if self.plan.trouble.forgotten > 0 && self.dice.coin() {
            let soon = Duration::from_millis(self.dice.below(100) as u64);
            self.put(soon, Happening::Forget);
        }
        match (command, child) {
            (Command::RekeyIke, _) => self.rekey(at, ike.id),
            (Command::RekeyIkeAtBoth, _) => {
                self.rekey(at, ike.id)?;
                let mirror = self.find(at, |other| (other.spis == ike.spis).then_some(other.id));
                mirror.map_or(Ok(()), |(other, id)| self.rekey(other, id))
            }
            (Command::RekeyChild, Some(child)) => self.rekey_child(at, child.id),
            (Command::RekeyChildAtBoth, Some(child)) => {
                self.rekey_child(at, child.id)?;
                let mirror = self.find(at, |other| {
                    other.children.iter().find(|other| other.spi_in == child.spi_out).map(|child| child.id)
                });
                mirror.map_or(Ok(()), |(other, id)| self.rekey_child(other, id))
            }
            (Command::Terminate, _) => {
                let now = self.now();
                self.nodes[at].act(now, |endpoint, means| endpoint.terminate(ike.id, means));
                self.drain(at)
            }
            (Command::TerminateChild, Some(child)) => {
                let now = self.now();
                self.nodes[at].act(now, |endpoint, means| endpoint.terminate_child(child.id, means));
                self.drain(at)
            }
            _ => Ok(()),
        }
    }

    /// Something of an IKE SA at another node.
    fn find<T>(&self, at: usize, what: impl Fn(&IkeStatus) -> Option<T>) -> Option<(usize, T)> {
        let others = self.nodes.iter().filter(|node| node.index != at);
        others.into_iter().find_map(|node| Some((node.index, node.ikes().iter().find_map(&what)?)))
    }

    fn rekey(&mut self, at: usize, ike: IkeSaId) -> Checked {
        let now = self.now();
        self.nodes[at].act(now, |endpoint, means| endpoint.rekey(ike, means));
        self.drain(at)
    }

    fn rekey_child(&mut self, at: usize, child: ChildId) -> Checked {
        let now = self.now();
        self.nodes[at].act(now, |endpoint, means| endpoint.rekey_child(child, means));
        self.drain(at)
    }

    /// What an administrator does when something is not connected: has it begun.
    pub(crate) fn connect(&mut self) -> Checked {
        (1..self.nodes.len()).try_for_each(|at| self.connect_at(at))
    }

    fn connect_at(&mut self, at: usize) -> Checked {
        let connections = self.nodes[at].endpoint().ike().connections().to_vec();
        for connection in connections {
            let is_its = |ike: &IkeStatus| ike.connection.name == connection.name;
            let ikes: Vec<_> = self.nodes[at].ikes().into_iter().filter(is_its).collect();
            if ikes.iter().any(|ike| ike.state == "connecting") {
                continue;
            }
            let is_up =
                |name: &str| ikes.iter().flat_map(|ike| &ike.children).any(|child| child.child.name == name);
            for child in connection.children.iter().filter(|child| !is_up(&child.name)) {
                let now = self.now();
                self.trace.say(now, || format!("node {at}: {} is not up", child.name));
                let begin = |endpoint: &mut Endpoint, means: &mut Means<'_>| {
                    endpoint.initiate(&connection, Some(child), means)
                };
                // A gateway cannot begin with a client whose address it does not know.
                let _ = self.nodes[at].act(now, begin);
                self.drain(at)?;
            }
        }
        Ok(())
    }
}

/// How often something happens in a second that happens `rate` times in a thousand seconds.
fn count(rate: u32, dice: &mut Dice) -> u32 {
    rate / 1_000 + u32::from(dice.per_mille(rate % 1_000))
}
