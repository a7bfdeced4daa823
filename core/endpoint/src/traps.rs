//! Policies without SAs of their own: traps, which have IKE make one when a packet comes, and shunts.

mod held;

use crate::host::Routes;
use crate::notice::HoldError;
use crate::policy::{PolicySet, Purpose, Spds, priority, protect};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::{Action, InsertError, PolicyId, Template};
use casemate_ike::config::{Child, ChildMode, Connection, Shunt};
use casemate_ike::{Traffic, TrafficTemplate, Waiting};
use casemate_sa::{AddrRange, Instant, Mode, PortRange, Protocol};
use casemate_tables::{Index, Names, Table};
use casemate_wire::flow::FlowKey;
use core::net::IpAddr;
use core::time::Duration;

pub(crate) use held::Held;

/// The pause of a trap after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The failure from which on the pause grows no more: 64 s.
const LONGEST_PAUSE: u8 = 6;

/// The traps and shunts of all connections.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    /// By their reqids.
    traps: Table<u32, Box<Trap>>,
    /// Reqids of traps, by the policies that packets meet.
    by_policy: Table<PolicyId, u32>,
    /// Reqids of traps, by the name of the connection.
    by_name: Names,
    /// Ends of pauses, each with the reqid of its trap.
    pauses: Index,
    shunts: Vec<PolicySet>,
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
    /// Attempts in a row after which there was no Child SA.
    failures: u8,
    /// The end of the pause after a failure. Until then packets ask for nothing.
    paused_until: Option<Instant>,
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
    pub(crate) fn add(&mut self, spds: &mut Spds<'_>, held: Held, reqid: u32) -> Result<(), HoldError> {
        let policies = policies_of(spds, &held, reqid)?;
        for policy in policies.outbound() {
            self.by_policy.insert(policy, reqid);
        }
        self.by_name.insert(held.connection.name.as_bytes(), behind(reqid));
        let trap = Trap { held, policies, asked: false, up: 0, reqid, failures: 0, paused_until: None };
        self.traps.insert(reqid, Box::new(trap));
        Ok(())
    }

    /// Removes a trap that is there because a Child SA ended, unless there is another Child SA. Returns whether there was one.
    pub(crate) fn release(&mut self, spds: &mut Spds<'_>, connection: &str, child: &str) -> bool {
        let trap = self.named(connection, child).filter(|trap| trap.held.is_after_end() && trap.up == 0);
        let Some(reqid) = trap.map(|trap| trap.reqid) else { return false };
        let Some(mut trap) = self.traps.remove(reqid) else { return false };
        for policy in trap.policies.outbound() {
            self.by_policy.remove(policy);
        }
        self.by_name.remove(connection.as_bytes(), behind(reqid));
        trap.end_pause(&mut self.pauses);
        trap.policies.remove(spds);
        true
    }

    /// Whether there is a trap whose selectors follow the addresses of this host.
    pub(crate) fn follow_routes(&self) -> bool {
        self.traps.values().any(|trap| trap.held.follows_routes())
    }

    /// Has traps follow the addresses of this host. New policies are there before old ones go. Returns the traps that could
    /// not follow, because there is no room in the SPD: they stay as they are.
    pub(crate) fn follow(&mut self, spds: &mut Spds<'_>, routes: &dyn Routes) -> Vec<(Held, HoldError)> {
        let Self { traps, by_policy, .. } = self;
        let mut refused = Vec::new();
        for trap in traps.values_mut().filter(|trap| trap.held.follows_routes()) {
            let Some(held) = trap.held.moved(routes) else { continue };
            match policies_of(spds, &held, trap.reqid) {
                Ok(policies) => {
                    let mut old = core::mem::replace(&mut trap.policies, policies);
                    for policy in old.outbound() {
                        by_policy.remove(policy);
                    }
                    old.remove(spds);
                    for policy in trap.policies.outbound() {
                        by_policy.insert(policy, trap.reqid);
                    }
                    trap.held = held;
                }
                Err(why) => refused.push((held, why)),
            }
        }
        refused
    }

    /// Whether there is a trap for this child of this connection.
    pub(crate) fn has(&self, connection: &str, child: &str) -> bool {
        self.reqid_of(connection, child).is_some()
    }

    /// What is held because a Child SA has ended, and not by `start_action`.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held> {
        self.traps.values().map(|trap| &trap.held).filter(|held| held.is_after_end()).cloned()
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
        self.pauses.clear();
        self.traps.values_mut().for_each(|trap| trap.policies.remove(spds));
        self.traps.clear();
        self.shunts.drain(..).for_each(|mut policies| policies.remove(spds));
    }

    /// What a packet asks for that met a trap, the first time; nothing while the trap pauses after a failure.
    ///
    /// All packets meet the first of several traps for the same traffic, and once there is one Child SA they go through that. So
    /// those that are told apart by the DSCP are sprung together.
    pub(crate) fn spring(&mut self, policy: PolicyId, flow: &FlowKey) -> Option<Sprung> {
        let trap = self.traps.get_mut(*self.by_policy.get(policy)?)?;
        if !trap.ask() {
            return None;
        }
        let (connection, child) = (trap.held.connection.clone(), trap.held.child.clone());
        let mut children = Vec::from([child.clone()]);
        for reqid in self.by_name.of(connection.name.as_bytes()).filter_map(reqid) {
            let Some(other) = self.traps.get_mut(reqid).filter(|other| other.is_beside(&child)) else {
                continue;
            };
            if other.ask() {
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
        self.resume(connection, Some(child));
    }

    /// There is one less.
    pub(crate) fn went_down(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.named(connection, child) {
            trap.up = trap.up.saturating_sub(1);
        }
    }

    fn named(&mut self, connection: &str, child: &str) -> Option<&mut Trap> {
        let reqid = self.reqid_of(connection, child)?;
        self.traps.get_mut(reqid).map(|trap| &mut **trap)
    }

    fn reqid_of(&self, connection: &str, child: &str) -> Option<u32> {
        let is_its = |reqid: &u32| self.traps.get(*reqid).is_some_and(|trap| trap.held.child.name == child);
        self.by_name.of(connection.as_bytes()).filter_map(reqid).find(is_its)
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

    /// IKE could not begin with what was asked for. Nothing was sent to the peer, so the pause is always the shortest.
    pub(crate) fn not_begun(&mut self, connection: &str, child: &str, now: Instant) {
        let Some(reqid) = self.reqid_of(connection, child) else { return };
        if let Some(trap) = self.traps.get_mut(reqid) {
            trap.pause(FIRST_PAUSE, now, &mut self.pauses);
        }
    }

    /// What was asked for was refused or went wrong: it is asked for again after a pause, or packets would make the host
    /// send requests as fast as the peer responds to them.
    pub(crate) fn failed(&mut self, connection: &str, child: &str, now: Instant) {
        let Some(reqid) = self.reqid_of(connection, child) else { return };
        if let Some(trap) = self.traps.get_mut(reqid) {
            trap.fail(now, &mut self.pauses);
        }
    }

    /// An IKE SA of a connection ended: all that was asked for failed, except what is still `sought` in another IKE SA.
    pub(crate) fn ike_down(
        &mut self,
        connection: &Connection,
        now: Instant,
        sought: impl Fn(&Arc<Connection>, &Child) -> bool,
    ) {
        for reqid in self.by_name.of(connection.name.as_bytes()).filter_map(reqid) {
            let Some(trap) = self.traps.get_mut(reqid).filter(|trap| trap.asked && trap.up == 0) else {
                continue;
            };
            if !sought(&trap.held.connection, &trap.held.child) {
                trap.fail(now, &mut self.pauses);
            }
        }
    }

    /// Forgets the failures of a child, or of all children of a connection. Returns whether a pause ended.
    pub(crate) fn resume(&mut self, connection: &str, child: Option<&str>) -> bool {
        let mut any = false;
        for reqid in self.by_name.of(connection.as_bytes()).filter_map(reqid) {
            let Some(trap) = self.traps.get_mut(reqid) else { continue };
            if child.is_none_or(|child| trap.held.child.name == child) {
                trap.failures = 0;
                any |= trap.end_pause(&mut self.pauses);
            }
        }
        any
    }

    /// When the first pause ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pauses.first().map(|[until, ..]| Instant::from_micros(until))
    }

    /// Ends the pauses that are over. Returns whether there was one: then packets may ask again.
    pub(crate) fn wake(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(first @ [until, id, _]) = self.pauses.first()
            && until <= now.as_micros()
        {
            self.pauses.remove(first);
            if let Some(trap) = reqid([id, 0]).and_then(|reqid| self.traps.get_mut(reqid)) {
                trap.paused_until = None;
            }
            any = true;
        }
        any
    }

    /// The traps that pause after a failure, the first to be over first.
    pub(crate) fn paused(&self) -> impl Iterator<Item = Waiting> {
        self.pauses.iter().filter_map(|[until, id, _]| {
            let trap = self.traps.get(reqid([id, 0])?)?;
            let Held { connection, child, .. } = &trap.held;
            Some(Waiting {
                connection: connection.clone(),
                child: Some(child.clone()),
                at: Instant::from_micros(until),
                attempts: trap.failures,
            })
        })
    }
}

impl Trap {
    /// A packet asks for the Child SA. Returns whether IKE is to be asked: it has not been, and there is no pause.
    fn ask(&mut self) -> bool {
        self.paused_until.is_none() && !core::mem::replace(&mut self.asked, true)
    }

    /// Whether it is for the same traffic as `child`, but for packets of another DSCP, and has no Child SA.
    fn is_beside(&self, child: &Child) -> bool {
        let own = &self.held.child;
        let same_traffic = own.local_ts == child.local_ts && own.remote_ts == child.remote_ts;
        self.up == 0 && same_traffic && own.dscp != child.dscp
    }

    /// There is no Child SA: the longer that is so, the longer is the pause. One attempt may fail in several ways, and counts once.
    fn fail(&mut self, now: Instant, pauses: &mut Index) {
        if self.up == 0 && self.paused_until.is_none() {
            let factor = 1_u32.checked_shl(self.failures.min(LONGEST_PAUSE).into()).unwrap_or(1);
            self.failures = self.failures.saturating_add(1);
            self.pause(FIRST_PAUSE.saturating_mul(factor), now, pauses);
        }
    }

    fn pause(&mut self, time: Duration, now: Instant, pauses: &mut Index) {
        self.asked &= self.up > 0;
        if self.up == 0 && self.paused_until.is_none() {
            let until = now.after(time);
            self.paused_until = Some(until);
            pauses.insert([until.as_micros(), self.reqid.into(), 0]);
        }
    }

    /// Returns whether there was a pause.
    fn end_pause(&mut self, pauses: &mut Index) -> bool {
        let until = self.paused_until.take();
        until.is_some_and(|until| pauses.remove([until.as_micros(), self.reqid.into(), 0]))
    }
}

/// What stands behind the name of a connection, for a trap with this reqid.
const fn behind(reqid: u32) -> [u64; 2] {
    [reqid as u64, 0]
}

/// The reqid that stands behind a name.
fn reqid([reqid, _]: [u64; 2]) -> Option<u32> {
    u32::try_from(reqid).ok()
}

/// Adds the policies. A set without policies is refused: without an error, traffic that should be held would pass in clear.
fn policies_of(spds: &mut Spds<'_>, held: &Held, reqid: u32) -> Result<PolicySet, HoldError> {
    let Held { child, local, remote, .. } = held;
    let mode = match child.mode {
        ChildMode::Tunnel => Mode::Tunnel,
        ChildMode::Transport => Mode::Transport,
    };
    let template = Template { protocol: Protocol::Esp, mode, src: None, dst: None, reqid };
    let action = protect(template);
    let rank = |selector: &_| priority(selector, child.priority, Purpose::Trap);
    let set = PolicySet::add(spds, (local, remote), (&action, &action), rank)?;
    if set.is_empty() { Err(HoldError::NoTraffic) } else { Ok(set) }
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
