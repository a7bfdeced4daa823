//! Policies without SAs of their own: traps, which have IKE make one when a packet comes, and shunts.

use crate::host::Routes;
use crate::policy::{PolicySet, Purpose, Spds, priority, protect};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, InsertError, PolicyId, Template};
use casemate_ike::config::{Child, ChildMode, Connection, Shunt};
use casemate_ike::{Traffic, TrafficTemplate};
use casemate_sa::{AddrRange, Mode, PortRange, Protocol};
use casemate_tables::{Names, Table};
use casemate_wire::flow::FlowKey;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    pub(crate) fn configured(connection: &Arc<Connection>, child: &Arc<Child>, routes: &dyn Routes) -> Self {
        let peer = connection.remote_addrs.iter().find_map(|pattern| pattern.single());
        // Without an address of the peer there can be no SA. What it might be for is held all the same.
        let remote = fill(&child.remote_ts, peer.as_ref().map_or(&ANYWHERE, core::slice::from_ref));
        let sides = Sides { local: local(connection, child, routes), remote };
        Self { connection: connection.clone(), child: child.clone(), sides }
    }

    /// The traffic of a child whose Child SA carried `remote` of the peer's side: `dynamic` selectors of that side have its single
    /// addresses.
    pub(crate) fn after(
        (connection, child): (&Arc<Connection>, &Arc<Child>),
        remote: &[Traffic],
        routes: &dyn Routes,
    ) -> Self {
        let mut ends: Vec<IpAddr> = Vec::new();
        let ranges = remote.iter().map(|traffic| traffic.addrs);
        for range in ranges.filter(|range| range.first() == range.last()) {
            if !ends.contains(&range.first()) {
                ends.push(range.first());
            }
        }
        let sides = Sides { local: local(connection, child, routes), remote: fill(&child.remote_ts, &ends) };
        Self { connection: connection.clone(), child: child.clone(), sides }
    }

    /// Whether its selectors follow the address that the host has on the way to the peer.
    fn follows_routes(&self) -> bool {
        let is_dynamic = self.child.local_ts.iter().any(|ts| ts.addrs.is_none());
        is_dynamic && self.connection.vips.is_empty() && self.connection.path(|_| None).is_err()
    }
}

/// Every address, of both IP versions: what `dynamic` means while the address is not known.
const ANYWHERE: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// Traffic of our side: `dynamic` is the address from which IKE would begin. A host that asks for virtual addresses, or has no route to
/// the peer, does not know its address: then packets from every address are held.
fn local(connection: &Connection, child: &Child, routes: &dyn Routes) -> Vec<Traffic> {
    let path = connection.path(|remote| routes.source_for(remote)).ok();
    let own = path.filter(|_| connection.vips.is_empty()).map(|path| path.local.ip());
    fill(&child.local_ts, own.as_ref().map_or(&ANYWHERE, core::slice::from_ref))
}

#[derive(Debug)]
struct Trap {
    held: Held,
    policies: PolicySet,
    /// IKE has been asked, and what came of it is there or on its way.
    asked: bool,
    /// Child SAs that there are.
    up: usize,
    /// Of its policies; no SA has it.
    reqid: u32,
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
        let policies = policies_of(spds, &held, reqid)?;
        let place = self.traps.len();
        for policy in policies.outbound() {
            self.by_policy.insert(policy, place);
        }
        self.by_name.insert(held.connection.name.as_bytes(), [place as u64, 0]);
        self.traps.push(Trap { held, policies, asked: false, up: 0, reqid });
        Ok(())
    }

    /// Whether there is a trap whose selectors follow the addresses of this host.
    pub(crate) fn follow_routes(&self) -> bool {
        self.traps.iter().any(|trap| trap.held.follows_routes())
    }

    /// Has traps follow the addresses of this host. New policies are there before old ones go. Returns the traps for which
    /// there is no room in the SPD: they stay as they are.
    pub(crate) fn follow(&mut self, spds: &mut Spds<'_>, routes: &dyn Routes) -> Vec<Held> {
        let Self { traps, by_policy, .. } = self;
        let mut refused = Vec::new();
        for (place, trap) in traps.iter_mut().enumerate().filter(|(_, trap)| trap.held.follows_routes()) {
            let now = local(&trap.held.connection, &trap.held.child, routes);
            if now == trap.held.sides.local {
                continue;
            }
            let mut held = trap.held.clone();
            held.sides.local = now;
            match policies_of(spds, &held, trap.reqid) {
                Ok(policies) => {
                    let mut old = core::mem::replace(&mut trap.policies, policies);
                    for policy in old.outbound() {
                        by_policy.remove(policy);
                    }
                    old.remove(spds);
                    for policy in trap.policies.outbound() {
                        by_policy.insert(policy, place);
                    }
                    trap.held = held;
                }
                Err(_) => refused.push(held),
            }
        }
        refused
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

fn policies_of(spds: &mut Spds<'_>, held: &Held, reqid: u32) -> Result<PolicySet, InsertError> {
    let Held { child, sides, .. } = held;
    let mode = match child.mode {
        ChildMode::Tunnel => Mode::Tunnel,
        ChildMode::Transport => Mode::Transport,
    };
    let template = Template { protocol: Protocol::Esp, mode, src: None, dst: None, reqid };
    let action = protect(template);
    let rank = |selector: &_| priority(selector, child.priority, Purpose::Trap);
    PolicySet::add(spds, (&sides.local, &sides.remote), (&action, &action), rank)
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
