//! Installation of traps, and changes of the addresses of this host: a `dynamic` local selector is the source
//! address towards the peer, and IKE SAs with MOBIKE move.

use super::Endpoint;
use crate::policy::SpdWriter;
use crate::traps::TrapSpec;
use crate::{Notice, TrapError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::InsertError;
use casemate_ike::config::Connection;
use casemate_ike::{Context, Routes};
use casemate_wire::invariant::OrBroken;
use core::mem;
use core::time::Duration;

/// Interval of the check whether local addresses may have changed.
const ADDR_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of unconditional address updates, because a host may miss notifications.
const ADDR_UPDATE_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest time between two moves of SAs. A router may change many routes in a second.
const ADDR_FOLLOW_PAUSE: Duration = Duration::from_millis(100);

impl Endpoint {
    /// Reports that addresses or routes of the host have changed. The next call of
    /// [`handle_timeouts`](Self::handle_timeouts) updates the traps and moves the SAs. Without this report it
    /// happens within a second of [`Routes::may_have_changed`].
    pub fn routes_changed(&mut self) {
        self.next_addr_check = self.next_addr_check.map(|_| casemate_sa::Instant::ZERO);
        self.last_addr_update = None;
    }

    /// Reports that a look-up of host names has ended, whatever its result. Attempts that waited for it
    /// begin, and traps follow the addresses.
    pub fn hosts_resolved(&mut self, context: &mut Context<'_>) {
        self.named_peers.configure(self.ike.connections(), context.routes);
        self.ike.hosts_resolved(context.now);
        self.routes_changed();
        self.handle_timeouts(context);
    }

    /// Updates the traps and moves the SAs if it is time.
    pub(super) fn follow_addrs(&mut self, context: &mut Context<'_>) {
        if self.next_addr_check.is_none_or(|at| at > context.now) {
            return;
        }
        self.next_addr_check = Some(context.now.after(ADDR_CHECK_INTERVAL));
        // Read before the look-ups, so that changes during the look-ups count for the next time.
        let has_changed = context.routes.may_have_changed();
        let is_recent = self.last_addr_update.is_some_and(|at| context.now.since(at) < ADDR_UPDATE_INTERVAL);
        if is_recent && !has_changed {
            return;
        }
        let Self { traps, datapath, notices, .. } = self;
        let failures = traps.update_addrs(&mut SpdWriter { datapath, notices }, context.routes);
        // A rejected trap is tried again the next time.
        self.last_addr_update = failures.is_empty().then_some(context.now);
        for (TrapSpec { connection, child, .. }, error) in failures {
            self.notices.push_back(Notice::TrapNotInstalled { connection, child, error });
        }
        // Traps are never late, because they keep packets from leaving in clear.
        match self.addrs_followed_at.map(|at| at.after(ADDR_FOLLOW_PAUSE)).filter(|at| *at > context.now) {
            Some(at) => (self.next_addr_check, self.last_addr_update) = (Some(at), None),
            None => {
                self.addrs_followed_at = Some(context.now);
                self.with_ike(|ike, host| ike.addresses_changed(host, context));
            }
        }
    }

    /// Begins the checks if an SA may have to move.
    pub(super) fn schedule_addr_check(&mut self, context: &Context<'_>) {
        if self.ike.may_move() {
            let at = context.now.after(ADDR_CHECK_INTERVAL);
            self.next_addr_check = Some(self.next_addr_check.unwrap_or(at));
        }
    }

    /// Replaces all traps and shunts by `specs` and those of these connections. Keeps the former ones, which
    /// are those of `before`, if the SPD has no room.
    pub(super) fn replace_traps(
        &mut self,
        before: &[Arc<Connection>],
        connections: &[Arc<Connection>],
        specs: Vec<TrapSpec>,
        context: &Context<'_>,
    ) -> Result<(), InsertError> {
        let Self { traps, datapath, notices, .. } = self;
        let mut former = mem::take(traps);
        former.remove_policies(&mut SpdWriter { datapath, notices });
        if let Err(full) = self.add_traps(connections, specs, context.routes) {
            let Self { traps, datapath, notices, .. } = self;
            let spds = &mut SpdWriter { datapath, notices };
            traps.remove_policies(spds);
            former.restore(spds, before).or_report("the former traps have room");
            *traps = former;
            return Err(full);
        }
        for (connection, child) in self.children.configs() {
            self.traps.child_up(&connection.name, &child.name);
        }
        self.next_addr_check =
            self.traps.have_dynamic_addrs().then(|| context.now.after(ADDR_CHECK_INTERVAL));
        Ok(())
    }

    fn add_traps(
        &mut self,
        connections: &[Arc<Connection>],
        specs: Vec<TrapSpec>,
        routes: &dyn Routes,
    ) -> Result<(), InsertError> {
        for spec in specs {
            self.add_trap(spec)?;
        }
        for connection in connections {
            for child in connection.children.iter().filter(|child| child.start_action.on_traffic) {
                self.add_trap(TrapSpec::from_config(connection, child, routes))?;
            }
            let Self { traps, datapath, notices, .. } = self;
            traps.add_shunts(&mut SpdWriter { datapath, notices }, connection)?;
        }
        Ok(())
    }

    /// Adds a trap. Reports a trap that no packet can match, but continues.
    fn add_trap(&mut self, spec: TrapSpec) -> Result<(), InsertError> {
        let Self { traps, datapath, notices, reqids, .. } = self;
        let (connection, child) = (spec.connection.clone(), spec.child.clone());
        let waits_for_addrs = spec.waits_for_addrs();
        match traps.add(&mut SpdWriter { datapath, notices }, spec, reqids.next()) {
            Ok(()) if waits_for_addrs => {
                let error = TrapError::UnknownHost;
                self.notices.push_back(Notice::TrapNotInstalled { connection, child, error });
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(TrapError::Spd(error)) => Err(error),
            Err(error @ (TrapError::NoTraffic | TrapError::UnknownHost | TrapError::OwnSpd)) => {
                self.notices.push_back(Notice::TrapNotInstalled { connection, child, error });
                Ok(())
            }
        }
    }
}
