//! A run of a mix: set up, operations, quiet, checks.

use super::{Draw, Mix, Operation, Rules};
use crate::config::Variant;
use crate::dice::Dice;
use crate::mix::draw::Fate;
use crate::node::Node;
use crate::plan::Weather;
use crate::watch::{self, Checked, violated};
use crate::world::{Happening, World};
use crate::{Options, trace};
use casemate_ike::{ChildStatus, IkeStatus};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

/// After this time both endpoints are connected.
const SET_UP: Duration = Duration::from_secs(5);
/// All operations, repeated requests and late datagrams are over after this time.
const QUIET: Duration = Duration::from_secs(400);
/// Time between packets of the protected hosts.
const TRAFFIC: Duration = Duration::from_millis(250);
/// SAs in the SAD for each Child SA that is wanted, while both sides rekey it: the old one, two that both sides made in its
/// place, and inbound SAs that linger.
const MOST_SAS: usize = 10;
/// Within this time there is a moment at which no inbound SA of a Child SA that has ended lingers.
const LINGERED: Duration = Duration::from_secs(60);
/// Packets of one direction that may be lost in a row on a network that loses one of twenty.
const MOST_LOST: usize = 12;
/// Packets are sent for this time after the operations began.
const BUSY: Duration = Duration::from_secs(40);

impl World {
    /// The world of a mix. Its operations are drawn from the seed as well.
    pub(crate) fn of_mix(mix: Mix, seed: u64, options: Options) -> Self {
        let mut dice = Dice::new(seed ^ (mix as u64 + 1) << 56);
        let draw = Draw::new(mix, &mut dice);
        let mut world = Self::with_plan(draw.plan.clone(), dice, options);
        (world.rules, world.draw) = (Some(draw.rules.clone()), Some(draw));
        world
    }

    /// Runs the mix that it was made for.
    pub(crate) fn run_mix(&mut self) -> Checked {
        let draw = self.draw.take().expect("the world of a mix");
        self.trace.say(self.now(), || format!("{draw:#?}"));
        self.rough = false;
        let weather = self.weather;
        self.weather = Weather { slow: weather.fast, ..weather.calm() };
        if self.plan.one_begins {
            self.nodes[0].variant = Variant { ike: 0, ..Variant::FIRST };
        }
        for at in 0..self.nodes.len() {
            let now = self.now();
            self.nodes[at].configure(&self.plan, now);
            self.drain(at)?;
        }
        self.run_for(SET_UP)?;
        self.weather = weather.calm();
        let rules = draw.rules;
        self.check_count(rules.at_first..=rules.at_first, rules.at_first..=rules.at_first)?;
        if !self.plan.rough.is_zero() {
            self.weather = weather;
            self.soak(*rules.children.end())?;
            self.weather = weather.calm();
            return self.check_after_soak(rules.children);
        }
        self.fates.begin(draw.fates);
        for (at, node, operation) in &draw.operations {
            self.put(*at, Happening::Operation(*node, *operation));
        }
        let until = self.now() + draw.after + BUSY;
        self.put(TRAFFIC, Happening::Packets { until, must_arrive: rules.lossless });
        self.run_bounded(QUIET, *rules.children.end())?;
        self.watch.ledger.check_arrived(self.now())?;
        self.find_rest()?;
        self.check_count(rules.ikes.clone(), rules.children.clone())?;
        self.check_use(&rules)?;
        self.check_sad()?;
        self.end()
    }

    /// Time passes. At no time do SAs become more than those of so many Child SAs that are being rekeyed.
    fn run_bounded(&mut self, time: Duration, children: usize) -> Checked {
        let until = self.now() + time;
        while self.now() < until {
            self.run_for(Duration::from_secs(1))?;
            self.check_bound(children)?;
        }
        Ok(())
    }

    fn check_bound(&self, children: usize) -> Checked {
        let most = MOST_SAS * children.max(1);
        for node in &self.nodes {
            let sas = node.endpoint().datapath().sas().count();
            if sas > most {
                return violated(format!("node {} has {sas} SAs instead of {most} at most", node.index));
            }
        }
        Ok(())
    }

    /// The SAD has a pair of SAs for each Child SA and nothing else.
    fn check_sad(&mut self) -> Checked {
        let until = self.now() + LINGERED;
        let is_exact = |node: &Node| node.endpoint().datapath().sas().count() == 2 * node.children().len();
        while !self.nodes.iter().all(is_exact) {
            if self.now() > until {
                return violated(format!("SAs without a Child SA: {}", watch::describe(&self.nodes)));
            }
            self.run_for(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// All IKE SAs, and the Child SAs within a range, at both endpoints.
    fn check_count(&self, ikes: RangeInclusive<usize>, children: RangeInclusive<usize>) -> Checked {
        for node in &self.nodes {
            let has = (node.ikes().len(), node.children().len());
            if !ikes.contains(&has.0) || !children.contains(&has.1) {
                return violated(format!(
                    "node {} has {} IKE SAs instead of {ikes:?}, and {} Child SAs instead of {children:?}",
                    node.index, has.0, has.1
                ));
            }
        }
        Ok(())
    }

    /// No exchange is on its way, and in a mix there is an IKE SA: while one is set up again, there may be none.
    pub(crate) fn is_at_rest(&self, node: &Node) -> bool {
        watch::is_quiet(node) && (self.rules.is_none() || !node.ikes().is_empty())
    }

    /// The SAs carry traffic, and can be rekeyed by either side.
    fn check_use(&mut self, rules: &Rules) -> Checked {
        if self.nodes[0].children().is_empty() {
            return Ok(());
        }
        let children = self.nodes[0].children().len();
        self.check_traffic()?;
        for at in 0..self.nodes.len() {
            for operation in [Operation::RekeyChild, Operation::RekeyIke] {
                self.operate(at, operation)?;
                self.run_for(Duration::from_secs(20))?;
            }
        }
        self.find_rest()?;
        // Two IKE SAs that were begun at once may have become one.
        let is_sure = rules.ikes.start() == rules.ikes.end();
        let wanted = if is_sure { children..=children } else { rules.children.clone() };
        self.check_count(rules.ikes.clone(), wanted)?;
        self.check_traffic()
    }

    /// Timers rekey for minutes. SAs do not become more, and traffic always passes.
    fn soak(&mut self, children: usize) -> Checked {
        let until = self.now() + self.plan.rough;
        self.put(TRAFFIC, Happening::Packets { until, must_arrive: false });
        self.run_bounded(self.plan.rough, children)?;
        self.watch.ledger.check_gaps(MOST_LOST)
    }

    /// Timers go on, so there is a moment at which both sides have the same SAs, and nothing else but IKE SAs
    /// that were replaced.
    fn check_after_soak(&mut self, count: RangeInclusive<usize>) -> Checked {
        self.run_for(QUIET)?;
        for _ in 0..200 {
            self.run_for(Duration::from_millis(500))?;
            let [ours, theirs] = [0, 1].map(|at| live(&self.nodes[at]));
            let mirror: BTreeSet<_> = theirs.iter().map(|(spis, (i, o))| (*spis, (*o, *i))).collect();
            self.check_bound(*count.end())?;
            if count.contains(&ours.len()) && ours == mirror {
                return self.check_traffic();
            }
        }
        violated(format!("both sides never have the same: {}", watch::describe(&self.nodes)))
    }

    /// A packet in both directions, and again later.
    pub(crate) fn send_packets(&mut self, until: Duration, must_arrive: bool) -> Checked {
        self.offer((0, 1, 0), must_arrive)?;
        self.offer((1, 0, 0), must_arrive)?;
        if self.now() < until {
            self.put(TRAFFIC, Happening::Packets { until, must_arrive });
        }
        Ok(())
    }

    /// Carries out an operation on an SA that is not about to be replaced or closed.
    pub(crate) fn operate(&mut self, at: usize, operation: Operation) -> Checked {
        let now = self.now();
        match operation {
            Operation::Restart => return self.restart_node(at),
            Operation::CutOff(seconds) => {
                self.trace.say(now, || format!("node {at} is cut off for {seconds} s"));
                self.nodes[at].cut_off_until = now + Duration::from_secs(seconds);
                return Ok(());
            }
            Operation::Rebind => {
                self.forget_mappings();
                return Ok(());
            }
            _ => {}
        }
        let ikes: Vec<_> =
            self.nodes[at].ikes().into_iter().filter(|ike| ike.state == "established").collect();
        let is_live = |child: &ChildStatus| matches!(child.state, "installed" | "awaiting");
        let ike = (!ikes.is_empty()).then(|| self.dice.pick(&ikes));
        let children: Vec<_> = ikes.iter().flat_map(|ike| &ike.children).filter(|c| is_live(c)).collect();
        let child = (!children.is_empty()).then(|| self.dice.pick(&children).id);
        let ike = ike.map(|ike| ike.id);
        self.trace.say(now, || format!("node {at}: {operation:?}, IKE SA {ike:?}, Child SA {child:?}"));
        let node = &mut self.nodes[at];
        match (operation, ike, child) {
            (Operation::RekeyIke, Some(ike), _) => {
                node.act(now, |endpoint, means| endpoint.rekey(ike, means));
            }
            (Operation::RekeyChild, _, Some(child)) => {
                node.act(now, |endpoint, means| endpoint.rekey_child(child, means));
            }
            (Operation::Terminate, Some(ike), _) => {
                node.act(now, |endpoint, means| endpoint.terminate(ike, means));
            }
            (Operation::DeleteChild, _, Some(child)) => {
                node.act(now, |endpoint, means| endpoint.terminate_child(child, means));
            }
            (Operation::CreateChild, Some(_), _) => {
                let connection = node.endpoint().ike().connections()[0].clone();
                let child = connection.children[0].clone();
                let begun =
                    node.act(now, |endpoint, means| endpoint.initiate(&connection, Some(&child), means));
                begun.or_else(|why| violated(format!("node {at} does not create a Child SA: {why:?}")))?;
            }
            _ => {}
        }
        self.drain(at)
    }

    /// Sends an IKE datagram to its fate.
    pub(crate) fn befall(&mut self, delay: Duration, datagram: crate::net::Datagram) {
        let fate = self.fates.next();
        self.trace.say(self.now(), || {
            let fate = fate.map_or_else(|| "sent    ".into(), |fate| format!("{fate:?}"));
            format!("{fate} {}", trace::of_datagram(&datagram))
        });
        match fate {
            Some(Fate::Lost) => {}
            Some(Fate::Late(by)) => self.put(delay + by, Happening::Arrives(datagram)),
            Some(Fate::Twice(by)) => {
                self.put(delay, Happening::Arrives(datagram.clone()));
                self.put(delay + by, Happening::Arrives(datagram));
            }
            None => self.put(delay, Happening::Arrives(datagram)),
        }
    }
}

/// The SPIs of all Child SAs, with those of their IKE SAs.
fn live(node: &Node) -> BTreeSet<((u64, u64), (u32, u32))> {
    let spis = |ike: &IkeStatus| (ike.spis.0.0, ike.spis.1.0);
    let of_child = |child: &ChildStatus| (child.spi_in.get(), child.spi_out.get());
    let of =
        |ike: &IkeStatus| ike.children.iter().map(|child| (spis(ike), of_child(child))).collect::<Vec<_>>();
    node.ikes().iter().flat_map(of).collect()
}
