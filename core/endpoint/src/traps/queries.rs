//! Queries about traps.

use super::spec::TrapSpec;
use super::{Trap, Traps, reqid};
use casemate_datapath::spd::PolicyId;
use casemate_ike::PendingRetry;
use casemate_ike::config::ChildConfig;
use casemate_sa::Instant;

impl Traps {
    /// Whether there is a trap for this child of this connection.
    pub(crate) fn has(&self, connection: &str, child: &str) -> bool {
        self.reqid_of(connection, child).is_some()
    }

    /// Whether some trap follows the addresses of this host.
    pub(crate) fn have_dynamic_addrs(&self) -> bool {
        self.traps.values().any(|trap| trap.spec.has_dynamic_addrs())
    }

    /// Traps of ended Child SAs, without those of `start_action`.
    pub(crate) fn ended_child_specs(&self) -> impl Iterator<Item = TrapSpec> {
        self.traps.values().map(|trap| &trap.spec).filter(|spec| spec.is_from_ended_child()).cloned()
    }

    /// When the first pause ends.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.pauses.first().map(|[until, ..]| Instant::from_micros(until))
    }

    /// What the trap with this outbound policy was made from.
    pub(crate) fn of_policy(&self, policy: PolicyId) -> Option<&TrapSpec> {
        let reqid = self.by_policy.get(policy)?;
        Some(&self.traps.get(*reqid)?.spec)
    }

    /// The traps in a pause, in the order of its end.
    pub(crate) fn paused(&self) -> impl Iterator<Item = PendingRetry> {
        self.pauses.iter().filter_map(|[until, id, _]| {
            let trap = self.traps.get(reqid([id, 0])?)?;
            let TrapSpec { connection, child, .. } = &trap.spec;
            Some(PendingRetry {
                connection: connection.clone(),
                child: Some(child.clone()),
                at: Instant::from_micros(until),
                attempts: trap.failures,
            })
        })
    }

    /// The reqid of the trap of a child.
    pub(super) fn reqid_of(&self, connection: &str, child: &str) -> Option<u32> {
        let is_named = |reqid: &u32| self.traps.get(*reqid).is_some_and(|trap| trap.spec.child.name == child);
        self.by_name.get_all(connection.as_bytes()).filter_map(reqid).find(is_named)
    }
}

impl Trap {
    /// Whether the trap has the same traffic as `child` but other DSCPs, and no Child SA.
    pub(super) fn differs_in_dscp(&self, child: &ChildConfig) -> bool {
        let own = &self.spec.child;
        let same_traffic = own.local_ts == child.local_ts && own.remote_ts == child.remote_ts;
        self.child_count == 0 && same_traffic && own.dscp != child.dscp
    }
}
