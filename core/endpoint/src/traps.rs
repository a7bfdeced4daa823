//! Policies without their own SAs: traps, which request a Child SA when a packet matches, and shunts.

mod queries;
mod shunts;
mod spec;

use crate::notice::TrapError;
use crate::policy::{DirectionActions, PolicySet, Purpose, SpdWriter, priority, protect};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::{InsertError, PolicyId, Template};
use casemate_ike::config::{ChildConfig, ChildMode, Connection};
use casemate_ike::{PacketSelectors, Routes, TrafficSelector};
use casemate_sa::table::{ByteIndex, OrderedMap, WordSet};
use casemate_sa::{AddrRange, Instant, Mode, PortRange, Protocol};
use casemate_wire::flow::FlowKey;
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;
use core::time::Duration;

pub(crate) use spec::TrapSpec;

/// Pause of a trap after its first failure. The pause doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Number of failures after which the pause no longer grows: 64 s.
const LONGEST_PAUSE: u8 = 6;

/// The traps and shunts of all connections.
#[derive(Debug, Default)]
pub(crate) struct Traps {
    /// Traps by reqid.
    traps: OrderedMap<u32, Box<Trap>>,
    /// Reqids of traps by outbound policy.
    by_policy: OrderedMap<PolicyId, u32>,
    /// Reqids of traps by the name of their connection.
    by_name: ByteIndex,
    /// End of pause, reqid.
    pauses: WordSet,
    shunts: Vec<PolicySet>,
}

#[derive(Debug)]
struct Trap {
    spec: TrapSpec,
    policies: PolicySet,
    /// Whether a Child SA was requested, and exists or is being negotiated.
    requested: bool,
    /// Number of existing Child SAs.
    child_count: usize,
    /// Reqid of the policies. No SA has it.
    reqid: u32,
    /// Number of consecutive attempts that led to no Child SA.
    failures: u8,
    /// End of the pause after a failure. Until then packets request nothing.
    paused_until: Option<Instant>,
}

/// Request for Child SAs, caused by a packet.
pub(crate) struct Acquire {
    pub(crate) connection: Arc<Connection>,
    /// The child of the matching trap is the first.
    pub(crate) children: Vec<Arc<ChildConfig>>,
    pub(crate) packet: PacketSelectors,
}

impl Traps {
    /// Adds the trap of a child. No SA ever gets its `reqid`: a Child SA has its own policies, and the peer
    /// may have narrowed them (RFC 7296 section 2.9). Other packets of the trap must not go through that SA.
    pub(crate) fn add(
        &mut self,
        spds: &mut SpdWriter<'_>,
        spec: TrapSpec,
        reqid: u32,
    ) -> Result<(), TrapError> {
        let policies = add_policies(spds, &spec, reqid)?;
        for policy in policies.outbound() {
            self.by_policy.insert(policy, reqid);
        }
        self.by_name.insert(spec.connection.name.as_bytes(), reqid_value(reqid));
        let trap =
            Trap { spec, policies, requested: false, child_count: 0, reqid, failures: 0, paused_until: None };
        self.traps.insert(reqid, Box::new(trap));
        Ok(())
    }

    /// Removes the trap of an ended Child SA, unless the child has another Child SA. Returns whether there
    /// was a trap.
    pub(crate) fn release(&mut self, spds: &mut SpdWriter<'_>, connection: &str, child: &str) -> bool {
        let trap = self
            .find_mut(connection, child)
            .filter(|trap| trap.spec.is_from_ended_child() && trap.child_count == 0);
        let Some(reqid) = trap.map(|trap| trap.reqid) else { return false };
        let Some(mut trap) = self.traps.remove(reqid).or_report("a trap found by name exists") else {
            return false;
        };
        for policy in trap.policies.outbound() {
            self.by_policy.remove(policy);
        }
        self.by_name.remove(connection.as_bytes(), reqid_value(reqid));
        trap.end_pause(&mut self.pauses);
        trap.policies.remove(spds);
        true
    }

    /// Updates the local addresses of traps. Adds the new policies before it removes the old ones. Returns
    /// the traps that could not be updated because the SPD has no room; they stay unchanged.
    pub(crate) fn update_addrs(
        &mut self,
        spds: &mut SpdWriter<'_>,
        routes: &dyn Routes,
    ) -> Vec<(TrapSpec, TrapError)> {
        let Self { traps, by_policy, .. } = self;
        let mut failures = Vec::new();
        for trap in traps.values_mut().filter(|trap| trap.spec.has_dynamic_addrs()) {
            let Some(spec) = trap.spec.moved(routes) else { continue };
            match add_policies(spds, &spec, trap.reqid) {
                Ok(policies) => {
                    let mut old = core::mem::replace(&mut trap.policies, policies);
                    for policy in old.outbound() {
                        by_policy.remove(policy);
                    }
                    old.remove(spds);
                    for policy in trap.policies.outbound() {
                        by_policy.insert(policy, trap.reqid);
                    }
                    let former = core::mem::replace(&mut trap.spec, spec);
                    spds.note_former_addrs(&former.local, &trap.spec.local);
                }
                Err(error) => failures.push((spec, error)),
            }
        }
        failures
    }

    /// Removes the policies of all traps and shunts, but keeps the traps for [`restore`](Self::restore).
    pub(crate) fn remove_policies(&mut self, spds: &mut SpdWriter<'_>) {
        self.by_policy.clear();
        self.traps.values_mut().for_each(|trap| trap.policies.remove(spds));
        self.shunts.drain(..).for_each(|mut policies| policies.remove(spds));
    }

    /// Installs the policies again after [`remove_policies`](Self::remove_policies), in their former order.
    /// The traps keep their addresses, whatever the routes and names are now, so that they need the same
    /// room.
    pub(crate) fn restore(
        &mut self,
        spds: &mut SpdWriter<'_>,
        connections: &[Arc<Connection>],
    ) -> Result<(), InsertError> {
        let ended = self.traps.values().filter(|trap| trap.spec.is_from_ended_child());
        for reqid in ended.map(|trap| trap.reqid).collect::<Vec<_>>() {
            self.restore_trap(spds, reqid)?;
        }
        for connection in connections {
            for child in connection.children.iter().filter(|child| child.start_action.on_traffic) {
                if let Some(reqid) = self.reqid_of(&connection.name, &child.name) {
                    self.restore_trap(spds, reqid)?;
                }
            }
            self.add_shunts(spds, connection)?;
        }
        Ok(())
    }

    fn restore_trap(&mut self, spds: &mut SpdWriter<'_>, reqid: u32) -> Result<(), InsertError> {
        let Some(trap) = self.traps.get_mut(reqid) else { return Ok(()) };
        trap.policies = match add_policies(spds, &trap.spec, reqid) {
            Ok(policies) => policies,
            Err(TrapError::Spd(error)) => return Err(error),
            Err(TrapError::NoTraffic | TrapError::UnknownHost | TrapError::OwnSpd) => return Ok(()),
        };
        for policy in trap.policies.outbound() {
            self.by_policy.insert(policy, reqid);
        }
        Ok(())
    }

    /// The Child SAs to request for a packet that matched a trap; `None` if they are already requested, or
    /// during a pause.
    ///
    /// If several traps have the same traffic, all packets match the first of them, and later go through the
    /// first Child SA. Traps that differ only in their DSCPs are therefore requested together.
    pub(crate) fn on_packet(&mut self, policy: PolicyId, flow: &FlowKey) -> Option<Acquire> {
        let trap = self.traps.get_mut(*self.by_policy.get(policy)?)?;
        if !trap.request() {
            return None;
        }
        let (connection, child) = (trap.spec.connection.clone(), trap.spec.child.clone());
        let mut children = Vec::from([child.clone()]);
        for reqid in self.by_name.get_all(connection.name.as_bytes()).filter_map(reqid) {
            let Some(other) = self.traps.get_mut(reqid).filter(|other| other.differs_in_dscp(&child)) else {
                continue;
            };
            if other.request() {
                children.push(other.spec.child.clone());
            }
        }
        Some(Acquire { connection, children, packet: packet_selectors(flow) })
    }

    /// Counts a new Child SA of this child.
    pub(crate) fn child_up(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.find_mut(connection, child) {
            trap.child_count = trap.child_count.saturating_add(1);
        }
        self.resume(connection, Some(child));
    }

    /// Counts an ended Child SA of this child.
    pub(crate) fn child_removed(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.find_mut(connection, child) {
            trap.child_count = trap.child_count.saturating_sub(1);
        }
    }

    fn find_mut(&mut self, connection: &str, child: &str) -> Option<&mut Trap> {
        let reqid = self.reqid_of(connection, child)?;
        self.traps.get_mut(reqid).map(|trap| &mut **trap)
    }

    /// Allows the trap to request a Child SA again, unless one exists.
    ///
    /// While a Child SA exists, the trap requests no other: a packet outside its selectors, which the peer
    /// narrowed, would only lead to another Child SA like it.
    pub(crate) fn rearm(&mut self, connection: &str, child: &str) {
        if let Some(trap) = self.find_mut(connection, child) {
            trap.requested &= trap.child_count > 0;
        }
    }

    /// Starts a pause because IKE could not initiate. The peer got no request, so the pause is always the
    /// shortest.
    pub(crate) fn initiate_failed(&mut self, connection: &str, child: &str, now: Instant) {
        let Some(reqid) = self.reqid_of(connection, child) else { return };
        if let Some(trap) = self.traps.get_mut(reqid) {
            trap.pause(FIRST_PAUSE, now, &mut self.pauses);
        }
    }

    /// Starts a pause because the request was rejected or failed. Without a pause, packets would make the
    /// host send requests as fast as the peer responds.
    pub(crate) fn failed(&mut self, connection: &str, child: &str, now: Instant) {
        let Some(reqid) = self.reqid_of(connection, child) else { return };
        if let Some(trap) = self.traps.get_mut(reqid) {
            trap.fail(now, &mut self.pauses);
        }
    }

    /// Handles the end of an IKE SA: all requests of its connection have failed, except those that are still
    /// `is_requested` in another IKE SA.
    pub(crate) fn ike_down(
        &mut self,
        connection: &Connection,
        now: Instant,
        is_requested: impl Fn(&Arc<Connection>, &ChildConfig) -> bool,
    ) {
        for reqid in self.by_name.get_all(connection.name.as_bytes()).filter_map(reqid) {
            let is_concerned =
                |trap: &&mut Box<Trap>| trap.spec.has_any_peer() || trap.requested && trap.child_count == 0;
            let Some(trap) = self.traps.get_mut(reqid).filter(is_concerned) else {
                continue;
            };
            if trap.spec.has_any_peer() || !is_requested(&trap.spec.connection, &trap.spec.child) {
                trap.fail(now, &mut self.pauses);
            }
        }
    }

    /// Resets the failures of a child, or of all children of a connection. Returns whether a pause ended.
    pub(crate) fn resume(&mut self, connection: &str, child: Option<&str>) -> bool {
        let mut any = false;
        for reqid in self.by_name.get_all(connection.as_bytes()).filter_map(reqid) {
            let Some(trap) = self.traps.get_mut(reqid) else { continue };
            if child.is_none_or(|child| trap.spec.child.name == child) {
                trap.failures = 0;
                any |= trap.end_pause(&mut self.pauses);
            }
        }
        any
    }

    /// Ends the pauses that are over. Returns whether there was one, so that packets may request Child SAs
    /// again.
    pub(crate) fn end_pauses(&mut self, now: Instant) -> bool {
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
}

impl Trap {
    /// Requests the Child SA. Returns whether IKE must initiate: there was no request before, and there is no
    /// pause.
    fn request(&mut self) -> bool {
        // The pause is only that of the peer that has failed: its packets request again when the flow cache
        // is flushed at the end.
        if self.spec.has_any_peer() {
            return true;
        }
        self.paused_until.is_none() && !core::mem::replace(&mut self.requested, true)
    }

    /// Starts a pause that grows with each failure. One attempt may fail in several ways, but counts once.
    fn fail(&mut self, now: Instant, pauses: &mut WordSet) {
        if self.may_pause() {
            let factor = 1_u32.checked_shl(self.failures.min(LONGEST_PAUSE).into()).unwrap_or(1);
            self.failures = self.failures.saturating_add(1);
            self.pause(FIRST_PAUSE.saturating_mul(factor), now, pauses);
        }
    }

    /// Whether a failure starts a pause: there is none yet, and the Child SAs that exist are of other peers.
    fn may_pause(&self) -> bool {
        (self.child_count == 0 || self.spec.has_any_peer()) && self.paused_until.is_none()
    }

    fn pause(&mut self, time: Duration, now: Instant, pauses: &mut WordSet) {
        self.requested &= self.child_count > 0;
        if self.may_pause() {
            let until = now.after(time);
            self.paused_until = Some(until);
            pauses.insert([until.as_micros(), self.reqid.into(), 0]);
        }
    }

    /// Ends the pause. Returns whether there was one.
    fn end_pause(&mut self, pauses: &mut WordSet) -> bool {
        let until = self.paused_until.take();
        until.is_some_and(|until| pauses.remove([until.as_micros(), self.reqid.into(), 0]))
    }
}

/// Value in `by_name` for the trap with this reqid.
const fn reqid_value(reqid: u32) -> [u64; 2] {
    [reqid as u64, 0]
}

/// The reqid of such a value.
fn reqid([reqid, _]: [u64; 2]) -> Option<u32> {
    u32::try_from(reqid).ok()
}

/// Adds the policies of a trap. No policies at all is an error, unless the address of the peer is not known:
/// otherwise traffic of the trap would pass in clear.
fn add_policies(spds: &mut SpdWriter<'_>, spec: &TrapSpec, reqid: u32) -> Result<PolicySet, TrapError> {
    let TrapSpec { child, local, remote, .. } = spec;
    let mode = match child.mode {
        ChildMode::Tunnel => Mode::Tunnel,
        ChildMode::Transport => Mode::Transport,
    };
    let template = Template { protocol: Protocol::Esp, mode, src: None, dst: None, reqid };
    let action = protect(template, false);
    let priority_of = |selector: &_| priority(selector, child.priority, Purpose::Trap);
    let actions = DirectionActions::both(&action);
    let pair = child.spds.pair().ok_or(TrapError::OwnSpd)?;
    let set = PolicySet::add(spds, pair, local, remote, actions, priority_of)?;
    if set.is_empty() && !spec.waits_for_addrs() { Err(TrapError::NoTraffic) } else { Ok(set) }
}

/// RFC 7296 section 2.9: the addresses of a packet as specific traffic selectors.
fn packet_selectors(flow: &FlowKey) -> PacketSelectors {
    let side = |addr: IpAddr, port: Option<u16>| TrafficSelector {
        addrs: AddrRange::single(addr),
        proto: flow.proto(),
        ports: port.map_or(PortRange::ANY, PortRange::single),
    };
    let ports = flow.ports().filter(|_| matches!(flow.proto(), Some(6 | 17)));
    PacketSelectors {
        src: side(flow.src(), ports.map(|ports| ports.src)),
        dst: side(flow.dst(), ports.map(|ports| ports.dst)),
    }
}
