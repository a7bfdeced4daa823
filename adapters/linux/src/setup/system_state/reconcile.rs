//! Changes the system to the desired state: addresses, the guard, reverse path filters, routes and rules.

use super::SystemState;
use crate::Error;
use crate::journal::{Undo, ignore_missing};
use crate::leak_guard::GuardUpdate;
use crate::nft::ScriptJob;
use crate::route::{Prefix, Route, RouteTarget, Rule};
use crate::setup::guard_monitor::ScriptExtent;
use crate::setup::rp_filter::rp_filter_change;
use crate::setup::{SystemChange, ignore_existing, set_parameter};
use casemate_wire::invariant::OrBroken;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time until a filter that could not be installed is tried again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time during which a start installs the guard again and again while another program changes it.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts to install the guard while another program changes it.
const INSTALL_TRIES: usize = 3;

/// A script at which `nft` works.
pub(super) struct GuardJob {
    pub(super) job: ScriptJob,
    extent: ScriptExtent,
}

/// A route to add, replace or remove.
struct RouteChange {
    dst: Prefix,
    /// Desired target; `None` to remove the route.
    target: Option<RouteTarget>,
}

impl SystemState {
    /// Changes the system to the desired state and waits for that. A change that failed is tried again with
    /// the next one. Also an error if another program keeps changing the guard.
    pub(crate) fn reconcile_blocking(&mut self) -> Result<(), Error> {
        self.reconcile_within(START_TIMEOUT)
    }

    pub(super) fn reconcile_within(&mut self, limit: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let mut outcome = Ok(());
        self.retry_at = None;
        while !self.reconcile(&mut |error| outcome = Err(error)) {
            if !self.guard_monitor.state().stands && start.elapsed() >= limit {
                return Err(self.tampering_error());
            }
            match &mut self.guard_job {
                Some(guard_job) => guard_job.job.wait()?,
                None if outcome.is_err() => return outcome,
                None => {
                    let retry = self.time_to_retry();
                    std::thread::sleep(retry.or_broken_default("without a script, a retry is due"));
                }
            }
        }
        outcome
    }

    fn tampering_error(&self) -> Error {
        let what = format!("nftables table {}, the guard against cleartext", self.desired.guard.table());
        Error::other(what, "another program changes or removes it again and again: stop that program")
    }

    /// Changes the system to the desired state. Returns whether that is done, apart from failed routes and
    /// the like: these are reported to `report` once, and tried again every second. Returns `false` if the
    /// filter is not installed yet; then the caller calls again when [`nft_done`](Self::nft_done) is
    /// signalled, or after a second.
    pub(crate) fn reconcile(&mut self, report: &mut dyn FnMut(Error)) -> bool {
        self.is_stale |= self.guard_monitor.has_events() | self.routing_check.take_retry();
        while self.guard_job.is_some() || self.is_stale {
            let addressed = self.reconcile_addresses();
            let found = self.restore_lost_routes();
            // Before the guard: packets with a mark may have been protected by another policy so far.
            let marked = self.mark_routes.set_missing(&mut self.journal, &mut self.netlink);
            match self.reconcile_guard() {
                Ok(true) => self.is_stale = false,
                Ok(false) => {
                    self.guard_job
                        .as_mut()
                        .and_then(|guard_job| guard_job.job.take_overdue())
                        .into_iter()
                        .for_each(report);
                    return false;
                }
                Err(error) => {
                    report(error);
                    self.retry_at = Instant::now().checked_add(RETRY_INTERVAL);
                    return false;
                }
            }
            let changed = self.changed_routes();
            let loosened = self.loosen_rp_filters(&changed);
            let routed = self.reconcile_routes(changed);
            let ruled = self.reconcile_rules();
            let marked =
                marked.and_then(|()| self.mark_routes.remove_others(&self.journal, &mut self.netlink));
            let outcome = addressed.and(found).and(loosened).and(routed).and(ruled).and(marked);
            self.routing_check.note_outcome(outcome, report);
        }
        true
    }

    pub(super) fn reconcile_addresses(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.addresses_changed) {
            let addresses = self.netlink.addresses().inspect_err(|_| self.addresses_changed = true)?;
            self.desired.routes.set_addresses(addresses);
        }
        Ok(())
    }

    /// Returns whether the filter of the kernel is as desired. If not, `nft` is at work, or it is too early
    /// to try again.
    fn reconcile_guard(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(mut guard_job) = self.guard_job.take() {
                let Some(result) = guard_job.job.result() else {
                    self.guard_job = Some(guard_job);
                    return Ok(false);
                };
                self.check_for_tampering(result.is_ok().then_some(guard_job.extent));
                match result {
                    Ok(()) => self.journal.record_guard()?,
                    Err(error) if guard_job.extent == ScriptExtent::Whole => {
                        self.desired.guard.mark_unknown();
                        return Err(error);
                    }
                    Err(error) => self.rewrite_guard_after(&error),
                }
            } else {
                self.check_for_tampering(None);
            }
            if self.retry_at.is_some_and(|retry_at| Instant::now() < retry_at) {
                return Ok(false);
            }
            self.retry_at = None;
            let is_rebuilt = self.desired.guard.needs_rebuild();
            let extent = if is_rebuilt { ScriptExtent::Whole } else { ScriptExtent::Part };
            self.desired.write_protected_traffic(&mut self.journal)?;
            match self.desired.guard_update() {
                GuardUpdate::Elements(changes) => match self.guard_monitor.change_elements(&changes) {
                    Ok(()) => return Ok(true),
                    Err(error) => self.rewrite_guard_after(&error),
                },
                GuardUpdate::Script(script) => {
                    let nft_done = self.nft_done.clone();
                    let job = ScriptJob::start(self.journal.nft(), script, move || nft_done.signal());
                    self.guard_job = Some(GuardJob { job, extent });
                }
            }
        }
    }

    /// Marks the guard for a rewrite, because a change of a part of it has failed. Usually another program
    /// has changed or removed the table.
    fn rewrite_guard_after(&mut self, error: &Error) {
        self.desired.guard.mark_unknown();
        self.check_for_tampering(None);
        self.guard_monitor.report_failed_change(error);
    }

    /// Marks the guard for a rewrite if another program has changed it. `script` is a script of this program
    /// that has just succeeded.
    fn check_for_tampering(&mut self, script: Option<ScriptExtent>) {
        if self.guard_monitor.detect_tampering(script) {
            self.desired.guard.mark_unknown();
            self.retry_at = self.retry_at.max(self.guard_monitor.next_reinstall());
        }
    }

    /// The routes that are not as desired.
    fn changed_routes(&mut self) -> Vec<RouteChange> {
        let changed = self.desired.routes.take_changed().into_iter();
        let changes = changed.map(|dst| RouteChange { dst, target: self.desired.routes.target(dst) });
        changes.filter(|change| self.routes.get(&change.dst) != change.target.as_ref()).collect()
    }

    /// Loosens reverse path filters for peers that are new, or have become protected destinations.
    fn loosen_rp_filters(&mut self, changed: &[RouteChange]) -> Result<(), Error> {
        let mut peers = std::mem::take(&mut self.new_peers);
        peers.retain(|peer| peer.is_ipv4() && self.desired.routes.routes_into_tun(*peer));
        let is_tun_route = |change: &&RouteChange| matches!(change.target, Some(RouteTarget::Tun(..)));
        let tun_routes = changed.iter().filter(|change| change.dst.is_ipv4()).filter(is_tun_route);
        let ranges = tun_routes.map(|change| change.dst.range());
        peers.extend(ranges.flat_map(|range| self.peers.within(range.first()..=range.last())));
        let mut outcome = Ok(());
        for peer in peers {
            let done = self.loosen_rp_filter_to(peer);
            if done.is_err() {
                self.new_peers.insert(peer);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    fn loosen_rp_filter_to(&mut self, peer: IpAddr) -> Result<(), Error> {
        let index = self.netlink.interface_to(peer, self.numbers.mark)?;
        let Some(index) = index.filter(|index| !self.loosened_links.contains(index)) else { return Ok(()) };
        let name = self.netlink.link_at(index)?.name;
        if let Some(SystemChange::Sysctl { name, value }) = rp_filter_change(&name, &name)? {
            set_parameter(&name, value, &mut self.journal)?;
        }
        self.loosened_links.insert(index);
        Ok(())
    }

    /// Adds new routes before it removes old ones. A failure does not prevent the other changes.
    fn reconcile_routes(&mut self, changed: Vec<RouteChange>) -> Result<(), Error> {
        let (added, removed): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|change| change.target.is_some());
        let mut outcome = Ok(());
        for change in added.into_iter().chain(removed) {
            let dst = change.dst;
            let done = self.reconcile_route(change);
            if done.is_err() {
                self.desired.routes.mark_changed(dst);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    fn reconcile_route(&mut self, RouteChange { dst, target }: RouteChange) -> Result<(), Error> {
        let table = self.numbers.table;
        if let Some(target) = target {
            let route = Route { dst, table, target };
            route
                .set(self.tun, &mut self.netlink)
                .map_err(|error| Error::new(format!("`{route}`"), error))?;
            self.routes.insert(dst, route.target);
        } else if let Some(target) = self.routes.get(&dst).cloned() {
            let route = Route { dst, table, target };
            let failed = |error| Error::new(format!("removal of `{route}`"), error);
            route.remove(self.tun, &mut self.netlink).or_else(ignore_missing).map_err(failed)?;
            self.routes.remove(&dst);
        }
        Ok(())
    }

    /// Adds rules that are needed. A rule is not removed before the end.
    fn reconcile_rules(&mut self) -> Result<(), Error> {
        for v4 in [true, false] {
            let rule = Rule { v4, numbers: self.numbers };
            if self.desired.routes.has_tun_routes(v4) && !self.rules.contains(&rule) {
                self.journal.record(Undo::Rule(rule))?;
                let failed = |error| Error::new(format!("`{rule}`"), error);
                rule.add(&mut self.netlink).or_else(ignore_existing).map_err(failed)?;
                self.rules.push(rule);
            }
        }
        Ok(())
    }

    /// Leaves the guard in place after an error. If the guard may be missing, installs it once more, without
    /// waiting for [`RETRY_INTERVAL`]; if that fails, the journal reports it. Waits for `nft` no longer than
    /// usual.
    pub(crate) fn leave_guard(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) || !self.journal.leaves_guard() {
            return;
        }
        if let Err(error) = self.ensure_guard() {
            self.journal.set_guard_missing(error.to_string());
        }
    }

    fn ensure_guard(&mut self) -> Result<(), Error> {
        if let Some(GuardJob { job, extent }) = self.guard_job.take() {
            // This script may install the guard. If it fails, the kernel has the former guard.
            let done = job.finish();
            self.check_for_tampering(done.is_ok().then_some(extent));
        }
        for _ in 0..INSTALL_TRIES {
            self.check_for_tampering(None);
            if self.guard_monitor.guard_stands()? {
                return Ok(());
            }
            // Without this file the next start may block less than it should. That is no reason to leave the
            // traffic unprotected until then.
            let _ = self.desired.write_protected_traffic(&mut self.journal);
            self.desired.guard.mark_unknown();
            if let GuardUpdate::Script(script) = self.desired.guard_update() {
                self.journal.nft().run(&script)?;
            }
            self.check_for_tampering(Some(ScriptExtent::Whole));
        }
        if self.guard_monitor.guard_stands()? { Ok(()) } else { Err(self.tampering_error()) }
    }
}

impl Drop for SystemState {
    fn drop(&mut self) {
        self.leave_guard();
    }
}
