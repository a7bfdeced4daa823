//! A run of a mix: set up, operations, quiet, checks.

use super::{Draw, Mix, Operation};
use crate::dice::Dice;
use crate::mix::draw::Fate;
use crate::node::Node;
use crate::plan::{Shape, Weather};
use crate::watch::{self, Checked, violated};
use crate::world::{Happening, World};
use crate::{Options, trace};
use casemate::Notice;
use casemate_ike::{ChildStatus, Down, Event, IkeStatus};
use std::collections::BTreeSet;
use std::time::Duration;

/// After this time both endpoints are connected.
const SET_UP: Duration = Duration::from_secs(5);
/// All operations, repeated requests and late datagrams are over after this time.
const QUIET: Duration = Duration::from_secs(400);
/// Time between packets of the protected hosts.
const TRAFFIC: Duration = Duration::from_millis(250);
/// SAs of one IKE SA with one Child SA that is being rekeyed.
const MOST_SAS: usize = 10;
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
        (world.in_mix, world.draw) = (true, Some(draw));
        world
    }

    /// Runs the mix that it was made for.
    pub(crate) fn run_mix(&mut self) -> Checked {
        let draw = self.draw.take().expect("the world of a mix");
        self.trace.say(self.now(), || format!("{draw:#?}"));
        self.rough = false;
        let weather = self.weather;
        self.weather = Weather { slow: weather.fast, ..weather.calm() };
        for at in 0..self.nodes.len() {
            let now = self.now();
            self.nodes[at].configure(&self.plan, now);
            self.drain(at)?;
        }
        self.run_for(SET_UP)?;
        self.weather = weather.calm();
        let parallel = if self.plan.shape == Shape::Sites { 2 } else { 1 };
        self.check_count(parallel, parallel..=parallel)?;
        if !self.plan.rough.is_zero() {
            self.weather = weather;
            self.soak()?;
            self.weather = weather.calm();
            return self.check_after_soak(parallel);
        }
        self.fates.begin(draw.fates);
        for (at, node, operation) in &draw.operations {
            self.put(*at, Happening::Operation(*node, *operation));
        }
        // Without a Delete, the new SA is always there before the old one goes: no packet is lost.
        let must_arrive = draw.operations.iter().all(|(.., operation)| *operation != Operation::DeleteChild);
        self.put(TRAFFIC, Happening::Packets { until: self.now() + BUSY, must_arrive });
        self.run_for(QUIET)?;
        self.watch.ledger.check_arrived(self.now())?;
        self.find_rest()?;
        let count = |wanted| draw.operations.iter().filter(|(.., operation)| *operation == wanted).count();
        let (created, deleted) = (count(Operation::CreateChild), count(Operation::DeleteChild));
        self.check_count(parallel, (parallel + created).saturating_sub(deleted)..=parallel + created)?;
        self.check_use()?;
        self.end()
    }

    /// All IKE SAs, and the Child SAs within a range, at both endpoints.
    fn check_count(&self, ikes: usize, children: std::ops::RangeInclusive<usize>) -> Checked {
        for node in &self.nodes {
            let has = (node.ikes().len(), node.children().len());
            if has.0 != ikes || !children.contains(&has.1) {
                return violated(format!(
                    "node {} has {} IKE SAs instead of {ikes}, and {} Child SAs instead of {children:?}",
                    node.index, has.0, has.1
                ));
            }
        }
        Ok(())
    }

    /// The SAs carry traffic, and can be rekeyed by either side.
    fn check_use(&mut self) -> Checked {
        if self.nodes[0].children().is_empty() {
            return Ok(());
        }
        self.check_traffic()?;
        let children = self.nodes[0].children().len();
        for at in 0..self.nodes.len() {
            for operation in [Operation::RekeyChild, Operation::RekeyIke] {
                self.operate(at, operation)?;
                self.run_for(Duration::from_secs(20))?;
            }
        }
        self.find_rest()?;
        self.check_count(self.nodes[0].ikes().len(), children..=children)?;
        self.check_traffic()
    }

    /// Timers rekey for minutes. SAs do not become more, and traffic always passes.
    fn soak(&mut self) -> Checked {
        let until = self.now() + self.plan.rough;
        self.put(TRAFFIC, Happening::Packets { until, must_arrive: false });
        while self.now() < until {
            self.run_for(Duration::from_secs(1))?;
            let most = MOST_SAS * self.nodes[0].endpoint().ike().counts().0.clamp(1, 2);
            for node in &self.nodes {
                let sas = node.endpoint().datapath().sas().count();
                if sas > most {
                    return violated(format!("node {} has {sas} SAs", node.index));
                }
            }
        }
        self.watch.ledger.check_gaps(MOST_LOST)
    }

    /// Timers go on, so there is a moment at which both sides have the same SAs, and nothing else but IKE SAs
    /// that were replaced.
    fn check_after_soak(&mut self, count: usize) -> Checked {
        self.run_for(QUIET)?;
        for _ in 0..200 {
            self.run_for(Duration::from_millis(500))?;
            let [ours, theirs] = [0, 1].map(|at| live(&self.nodes[at]));
            let mirror: BTreeSet<_> = theirs.iter().map(|(spis, (i, o))| (*spis, (*o, *i))).collect();
            if ours.len() == count && ours == mirror {
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

/// Nobody gives up a peer that lives, or finds fault with a peer that follows the rules.
pub(crate) fn check_notice(node: &Node, notice: &Notice) -> Checked {
    let Notice::Ike(event) = notice else { return Ok(()) };
    match event {
        Event::IkeDown { why, .. } if !matches!(why, Down::Replaced | Down::Unconfigured | Down::Peer) => {
            violated(format!("node {}: an IKE SA ended: {why}", node.index))
        }
        Event::ChildDown { why, .. } if matches!(why, Down::Fault(_) | Down::Dead | Down::Expired) => {
            violated(format!("node {}: a Child SA ended: {why}", node.index))
        }
        _ => Ok(()),
    }
}
