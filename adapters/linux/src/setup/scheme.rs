//! What policies ask of the system: routes and a packet filter. [`Plan`](super::Plan) lists it, [`Live`](super::Live) keeps the
//! system in step with it.

use super::Wanted;
use super::ways::Ways;
use crate::guard::{Frame, Guard, Update};
use crate::rank::{Demand, Rank};
use crate::route::Route;
use casemate_datapath::Direction;
use casemate_datapath::spd::{Policy, PolicyId};
use std::collections::HashMap;
use std::net::IpAddr;

/// What all policies together ask for. A change costs no more with many policies than with few.
#[derive(Debug)]
pub(super) struct Scheme {
    policies: HashMap<(Direction, PolicyId), (Rank, Demand)>,
    last_serial: u64,
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
            ways: Ways::new(wanted.tun, addresses),
            guard: Guard::new(frame),
        };
        for (direction, policies) in
            [(Direction::Outbound, wanted.outbound), (Direction::Inbound, wanted.inbound)]
        {
            policies.iter().for_each(|(id, policy)| scheme.add(direction, *id, policy));
        }
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
    }

    /// A policy goes.
    pub(super) fn remove(&mut self, direction: Direction, id: PolicyId) {
        let Some((rank, demand)) = self.policies.remove(&(direction, id)) else { return };
        if direction == Direction::Outbound {
            self.ways.remove(rank, &demand);
        }
        self.guard.remove(direction, rank, &demand);
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
        self.guard.again(policies.map(|((direction, _), (rank, demand))| (*direction, *rank, demand)));
    }

    /// All routes of `table`.
    pub(super) fn routes(&self, table: u32) -> impl Iterator<Item = Route> {
        let ways = self.ways.destinations().into_iter().filter_map(|dst| Some((dst, self.ways.way(dst)?)));
        ways.map(move |(dst, way)| Route { dst, table, way })
    }
}
