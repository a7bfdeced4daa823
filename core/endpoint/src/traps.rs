//! Policies without SAs of their own: traps, which have IKE make one when a packet comes, and shunts.

use crate::policy::{PolicySet, Purpose, Spds, priority, protect};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, InsertError, PolicyId, Template};
use casemate_ike::config::{AddrPattern, Child, ChildMode, Connection, Shunt};
use casemate_ike::{Traffic, TrafficTemplate};
use casemate_sa::{AddrRange, Mode, PortRange, Protocol};
use casemate_tables::{Names, Table};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;

/// The traps and shunts of all connections.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    traps: Vec<Trap>,
    /// Places in `traps`, by the policies that packets meet.
    by_policy: Table<PolicyId, usize>,
    /// Places in `traps`, by the name of the connection.
    by_name: Names,
    shunts: Vec<PolicySet>,
}

/// Which traffic is held, and what a packet of it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) connection: Arc<Connection>,
    pub(crate) child: Arc<Child>,
    pub(crate) sides: Sides,
}

/// Traffic of our side and of the peer's.
#[derive(Debug, Clone)]
pub(crate) struct Sides {
    local: Vec<Traffic>,
    remote: Vec<Traffic>,
}

impl Held {
    /// The traffic of a child that waits for its first packet.
    pub(crate) fn configured(connection: &Arc<Connection>, child: &Arc<Child>) -> Self {
        let ends = |patterns: &[AddrPattern]| -> Vec<IpAddr> {
            patterns.iter().find_map(|pattern| pattern.single()).into_iter().collect()
        };
        let local = fill(&child.local_ts, &ends(&connection.local_addrs));
        let remote = fill(&child.remote_ts, &ends(&connection.remote_addrs));
        Self { connection: connection.clone(), child: child.clone(), sides: Sides { local, remote } }
    }
}

impl Sides {
    /// The traffic of a child whose Child SA carried `local` and `remote`: what is `dynamic` has the single
    /// addresses of these.
    pub(crate) fn after(child: &Child, local: &[Traffic], remote: &[Traffic]) -> Self {
        let ends = |side: &[Traffic]| -> Vec<IpAddr> {
            let mut addrs: Vec<IpAddr> = Vec::new();
            for range in
                side.iter().map(|traffic| traffic.addrs).filter(|range| range.first() == range.last())
            {
                if !addrs.contains(&range.first()) {
                    addrs.push(range.first());
                }
            }
            addrs
        };
        Self { local: fill(&child.local_ts, &ends(local)), remote: fill(&child.remote_ts, &ends(remote)) }
    }
}

#[derive(Debug)]
struct Trap {
    held: Held,
    policies: PolicySet,
    /// IKE has been asked, and what came of it is there or on its way.
    asked: bool,
    /// Child SAs that there are.
    up: usize,
}

/// What a packet asks for.
pub(crate) struct Sprung {
    pub(crate) connection: Arc<Connection>,
    /// That of the trap that the packet met is the first.
    pub(crate) children: Vec<Arc<Child>>,
    pub(crate) packet: (Traffic, Traffic),
}

impl Traps {
    /// Adds the trap of a child. No SA ever has its `reqid`: what a Child SA carries is said by policies of its own, and the
    /// peer may have narrowed them (RFC 7296 section 2.9). The rest of the trap must not go through it.
    pub(crate) fn add(&mut self, spds: &mut Spds<'_>, held: Held, reqid: u32) -> Result<(), InsertError> {
        let Held { connection, child, sides } = &held;
        let mode = match child.mode {
            ChildMode::Tunnel => Mode::Tunnel,
            ChildMode::Transport => Mode::Transport,
        };
        let template = Template { protocol: Protocol::Esp, mode, src: None, dst: None, reqid };
        let action = protect(template);
        let rank = |selector: &_| priority(selector, child.priority, Purpose::Trap);
        let policies = PolicySet::add(spds, (&sides.local, &sides.remote), (&action, &action), rank)?;
        let place = self.traps.len();
        for policy in policies.outbound() {
            self.by_policy.insert(policy, place);
        }
        self.by_name.insert(connection.name.as_bytes(), [place as u64, 0]);
        self.traps.push(Trap { held, policies, asked: false, up: 0 });
        Ok(())
    }

    /// Whether there is a trap for this child of this connection.
    pub(crate) fn has(&self, connection: &str, child: &str) -> bool {
        self.place_of(connection, child).is_some()
    }

    /// What is held because a Child SA has ended, and not by `start_action`.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held> {
        let held = self.traps.iter().map(|trap| &trap.held);
        held.filter(|held| !held.child.start.on_traffic).cloned()
    }

    /// Adds what passes or is dropped.
    pub(crate) fn add_shunt(&mut self, spds: &mut Spds<'_>, shunt: &Shunt) -> Result<(), InsertError> {
        let every = [AddrRange::ANY_V4, AddrRange::ANY_V6];
        let fill = |templates: &[TrafficTemplate]| -> Vec<Traffic> {
            let each = |ts: &TrafficTemplate| match ts.addrs {
                Some(_) => ts.fill(&[]).collect::<Vec<_>>(),
                None => every.map(|addrs| Traffic { addrs, proto: ts.proto, ports: ts.ports }).into(),
            };
            templates.iter().flat_map(each).collect()
        };
        let action = if shunt.passes { Action::Bypass } else { Action::Discard };
        let rank = |selector: &_| priority(selector, shunt.priority, Purpose::Child);
        let sides = (&*fill(&shunt.local_ts), &*fill(&shunt.remote_ts));
        self.shunts.push(PolicySet::add(spds, sides, (&action, &action), rank)?);
        Ok(())
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self, spds: &mut Spds<'_>) {
        self.by_policy.clear();
        self.by_name.clear();
        let traps = self.traps.drain(..).map(|trap| trap.policies);
        traps.chain(self.shunts.drain(..)).for_each(|mut policies| policies.remove(spds));
    }

    /// What a packet asks for that met a trap, the first time.
    ///
    /// All packets meet the first of several traps for the same traffic, and once there is one Child SA they go through that. So
    /// those that are told apart by the DSCP are sprung together.
    pub(crate) fn spring(&mut self, policy: PolicyId, flow: &FlowKey) -> Option<Sprung> {
        let trap = self.traps.get_mut(*self.by_policy.get(policy)?)?;
        if core::mem::replace(&mut trap.asked, true) {
            return None;
        }
        let (connection, child) = (trap.held.connection.clone(), trap.held.child.clone());
        let mut children = Vec::from([child.clone()]);
        for place in self.by_name.of(connection.name.as_bytes()).map(place) {
            let Some(other) = self.traps.get_mut(place).filter(|other| other.is_beside(&child)) else {
                continue;
            };
            if !core::mem::replace(&mut other.asked, true) {
                children.push(other.held.child.clone());
            }
        }
        Some(Sprung { connection, children, packet: packet(flow) })
    }

    /// There is one Child SA more of this child of this connection.
    pub(crate) fn came_up(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.named(connection, child) {
            trap.up = trap.up.saturating_add(1);
        }
    }

    /// There is one less.
    pub(crate) fn went_down(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.named(connection, child) {
            trap.up = trap.up.saturating_sub(1);
        }
    }

    fn named(&mut self, connection: &str, child: &str) -> Option<&mut Trap> {
        let place = self.place_of(connection, child)?;
        self.traps.get_mut(place)
    }

    fn place_of(&self, connection: &str, child: &str) -> Option<usize> {
        let is_its = |place: &usize| self.traps.get(*place).is_some_and(|trap| trap.held.child.name == child);
        self.by_name.of(connection.as_bytes()).map(place).find(is_its)
    }

    /// What was asked for is not there, or no more, unless a Child SA of this name is up.
    ///
    /// While it is there, nothing else is asked for: a packet that the Child SA does not take, because the peer narrowed it,
    /// would only make another one like it.
    pub(crate) fn rearm(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.named(connection, child) {
            trap.asked &= trap.up > 0;
        }
    }

    /// The same for every child of a connection.
    pub(crate) fn rearm_all(&mut self, connection: &str) {
        for place in self.by_name.of(connection.as_bytes()).map(place) {
            if let Some(trap) = self.traps.get_mut(place) {
                trap.asked &= trap.up > 0;
            }
        }
    }
}

impl Trap {
    /// Whether it is for the same traffic as `child`, but for packets of another DSCP, and has no Child SA.
    fn is_beside(&self, child: &Child) -> bool {
        let own = &self.held.child;
        let same_traffic = own.local_ts == child.local_ts && own.remote_ts == child.remote_ts;
        self.up == 0 && same_traffic && own.dscp != child.dscp
    }
}

/// What stands behind a name.
fn place([place, _]: [u64; 2]) -> usize {
    place as usize
}

fn fill(templates: &[TrafficTemplate], ends: &[IpAddr]) -> Vec<Traffic> {
    templates.iter().flat_map(|ts| ts.fill(ends)).collect()
}

/// RFC 7296 section 2.9: a packet as a pair of very specific selectors.
fn packet(flow: &FlowKey) -> (Traffic, Traffic) {
    let side = |addr: IpAddr, port: Option<u16>| Traffic {
        addrs: AddrRange::single(addr),
        proto: flow.proto(),
        ports: port.map_or(PortRange::ANY, PortRange::single),
    };
    let with_ports = flow.ports().filter(|_| matches!(flow.proto(), Some(6 | 17)));
    (side(flow.src(), with_ports.map(|ports| ports.0)), side(flow.dst(), with_ports.map(|ports| ports.1)))
}
