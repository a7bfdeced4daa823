//! Queries about traps.

use super::spec::TrapSpec;
use super::{Traps, reqid};
use casemate_datapath::spd::PolicyId;
use casemate_ike::PendingRetry;
use casemate_sa::Instant;

impl Traps {
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
}
