//! The work of the event loop that depends on time alone.

use super::event_loop::EventLoop;
use super::shared::Shared;
use super::{EngineHandler, SystemProblem};
use casemate_sa::Instant;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// Interval of this work.
pub(super) const TICK: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Does the work if it is due.
    pub(super) fn run_timers(&mut self, shared: &Shared, handler: &mut dyn EngineHandler, now: Instant) {
        if now.since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = now;
        handler.on_tick();
        self.host_rules.check(now);
        self.update_early_drop(shared);
        self.update_ike_addrs(shared);
        self.expire_packets(shared, now);
        let messages = self.raw_sender.review_peer_sockets(now);
        messages.into_iter().for_each(|what| handler.on_problem(SystemProblem::LinkFull, what));
    }

    /// Lets the kernel drop received ESP and AH packets to the local addresses of inbound SAs early, while no
    /// other program needs them.
    fn update_early_drop(&mut self, shared: &Shared) {
        let Self { early_drop: Some(early_drop), host_rules, system, .. } = self else { return };
        let mut addrs = BTreeSet::new();
        if host_rules.received_are_ours() {
            let with_sas = &shared.protected_addrs().with_sas;
            addrs.extend(system.addresses().iter().filter(|addr| with_sas.contains(addr)).copied());
        }
        if early_drop.set(addrs).is_err() {
            // Closes the connection, which removes the table.
            self.early_drop = None;
        }
    }

    /// Passes protected packets to all local addresses to the data path, while no other program needs them: a
    /// peer may use SAs of a former run.
    pub(super) fn update_ike_addrs(&mut self, shared: &Shared) {
        let mut addrs = HashSet::new();
        if self.ike.is_some() && !self.host_rules.others_receive() {
            addrs.extend(self.system.addresses().iter().copied());
        }
        shared.set_ike_addrs(addrs);
    }

    /// Drops packets that have waited too long, and sends keepalives.
    fn expire_packets(&mut self, shared: &Shared, now: Instant) {
        shared.outbound.with_consumer(|stage| stage.expire(now, shared));
        shared.inbound.with_consumer(|stage| stage.expire(now, shared));
        shared.drop_expired_held(now);
        let mut context = shared.lock_endpoint();
        let datapath = context.endpoint.datapath_mut();
        self.keepalives.send_due(datapath, now, &mut |what| shared.reports.report_error(what));
    }
}
