//! What policies ask of the system: routes and a packet filter. [`Plan`](super::Plan) lists it, [`Live`](super::Live) keeps the
//! system in step with it.

use super::Wanted;
use super::held::covers;
use super::ways::Ways;
use crate::Error;
use crate::guard::{Frame, Guard, Update};
use crate::journal::Journal;
use crate::promises::Promise;
use crate::rank::{Demand, Purpose, Rank};
use crate::route::Route;
use casemate_datapath::Direction;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_sa::Selector;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// What all policies together ask for. A change costs no more with many policies than with few.
#[derive(Debug)]
pub(super) struct Scheme {
    policies: HashMap<(Direction, PolicyId), (Rank, Demand)>,
    last_serial: u64,
    /// Promises that came or went and are not written down.
    changed: Vec<(bool, Promise)>,
    /// What a former run protected and no policy covers, the last of all.
    held: Vec<Promise>,
    /// `held` has changed since the data path was told.
    held_changed: bool,
    pub(super) ways: Ways,
    pub(super) guard: Guard,
}

impl Scheme {
    /// What is wanted on a host with these addresses. Nothing of it stands yet.
    pub(super) fn new(wanted: &Wanted<'_>, addresses: Vec<IpAddr>) -> Self {
        let frame = Frame {
            tun: wanted.tun.into(),
            mark: wanted.numbers.mark,
            encap_ports: wanted.encap_ports.into(),
        };
        let mut scheme = Self {
            policies: HashMap::new(),
            last_serial: 0,
            changed: Vec::new(),
            held: wanted.held.to_vec(),
            held_changed: !wanted.held.is_empty(),
            ways: Ways::new(wanted.tun, addresses),
            guard: Guard::new(frame),
        };
        for (direction, policies) in
            [(Direction::Outbound, wanted.outbound), (Direction::Inbound, wanted.inbound)]
        {
            policies.iter().for_each(|(id, policy)| scheme.add(direction, *id, policy));
        }
        // Those of the plan are written down together.
        scheme.changed.clear();
        scheme.guard_again();
        scheme
    }

    /// A policy comes, after all others of its direction and priority.
    pub(super) fn add(&mut self, direction: Direction, id: PolicyId, policy: &Policy) {
        // 64 bits outlast any machine.
        self.last_serial = self.last_serial.wrapping_add(1);
        let rank = Rank { priority: policy.priority, serial: self.last_serial };
        let demand = Demand::of(policy);
        if self.policies.insert((direction, id), (rank, demand)).is_some() {
            return;
        }
        if direction == Direction::Outbound {
            self.ways.add(rank, &demand);
        }
        self.guard.add(direction, rank, &demand);
        self.promise(true, direction, &demand);
        self.release(|(held_in, held)| *held_in == direction && covers(&policy.selector, held));
    }

    /// Whether anything is held for a former run.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// What is held of the packets that leave; nothing if that is as it was at the last call.
    pub(super) fn take_held(&mut self) -> Option<HashSet<Selector>> {
        let leave = |(direction, _): &&Promise| *direction == Direction::Outbound;
        std::mem::take(&mut self.held_changed)
            .then(|| self.held.iter().filter(leave).map(|(_, selector)| *selector).collect())
    }

    /// Holds only what `wanted` makes of each selector that is held.
    pub(super) fn hold_only(&mut self, wanted: impl Fn(&Promise) -> Vec<Promise>) {
        let before = std::mem::take(&mut self.held);
        let mut after: Vec<Promise> = Vec::new();
        for promise in before.iter().flat_map(&wanted) {
            if !after.contains(&promise) {
                after.push(promise);
            }
        }
        // What is new comes before what is gone goes: parts are smaller than what they are parts of.
        for (direction, selector) in after.iter().filter(|promise| !before.contains(promise)) {
            self.guard.add(*direction, Rank::LAST, &held(*selector));
            self.changed.push((true, (*direction, *selector)));
        }
        for (direction, selector) in before.iter().filter(|promise| !after.contains(promise)) {
            self.guard.remove(*direction, Rank::LAST, &held(*selector));
            self.changed.push((false, (*direction, *selector)));
        }
        (self.held, self.held_changed) = (after, true);
    }

    fn release(&mut self, is_covered: impl Fn(&Promise) -> bool) {
        let (guard, changed) = (&mut self.guard, &mut self.changed);
        let before = self.held.len();
        self.held.retain(|promise| {
            let stays = !is_covered(promise);
            if !stays {
                guard.remove(promise.0, Rank::LAST, &held(promise.1));
                changed.push((false, *promise));
            }
            stays
        });
        self.held_changed |= self.held.len() != before;
    }

    /// Everything that must not be seen in clear, each as often as it is asked for.
    pub(super) fn promises(&self) -> impl Iterator<Item = Promise> {
        let inside = |demand: &Demand| matches!(demand.purpose, Purpose::Inside { .. });
        let policies = self.policies.iter().filter(move |(_, (_, demand))| inside(demand));
        let promises = policies.map(|((direction, _), (_, demand))| (*direction, demand.selector));
        promises.chain(self.held.iter().copied())
    }

    /// A policy goes.
    pub(super) fn remove(&mut self, direction: Direction, id: PolicyId) {
        let Some((rank, demand)) = self.policies.remove(&(direction, id)) else { return };
        if direction == Direction::Outbound {
            self.ways.remove(rank, &demand);
        }
        self.guard.remove(direction, rank, &demand);
        self.promise(false, direction, &demand);
    }

    fn promise(&mut self, comes: bool, direction: Direction, demand: &Demand) {
        if demand.purpose != Purpose::Bypass {
            self.changed.push((comes, (direction, demand.selector)));
        }
    }

    /// Writes down what came and went, what came first.
    pub(super) fn write_promises(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let Some(promises) = journal.promises() else { return Ok(()) };
        for (comes, promise) in std::mem::take(&mut self.changed) {
            if comes { promises.add(promise) } else { promises.remove(&promise) }
        }
        promises.write()
    }

    /// What the packet filter lacks. It counts as done.
    pub(super) fn guard_update(&mut self) -> Update {
        if self.guard.is_other() {
            self.guard_again();
        }
        self.guard.update()
    }

    fn guard_again(&mut self) {
        let policies = self.policies.iter();
        let policies = policies.map(|((direction, _), (rank, demand))| (*direction, *rank, *demand));
        let held = self.held.iter().map(|(direction, selector)| (*direction, Rank::LAST, held(*selector)));
        self.guard.again(policies.chain(held));
    }

    /// All routes of `table`.
    pub(super) fn routes(&self, table: u32) -> impl Iterator<Item = Route> {
        let ways = self.ways.destinations().into_iter().filter_map(|dst| Some((dst, self.ways.way(dst)?)));
        ways.map(move |(dst, way)| Route { dst, table, way })
    }
}

/// What is held is for no interface.
const fn held(selector: Selector) -> Demand {
    Demand { selector, purpose: Purpose::Inside { end: None } }
}
