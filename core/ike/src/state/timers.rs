//! Timers of an established IKE SA: retransmission, rekeying, reauthentication, expiry, liveness, NAT
//! keepalives.

use super::established::Phase;
use crate::child_sa::{ChildSa, Stage};
use crate::context::Step;
use crate::state::{Established, SaCommon, State, Task};
use crate::{DownReason, Transmit};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::time::Duration;

impl Established {
    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        if self.channel.retransmit(common, step).is_err() {
            // An IKE SA that was being closed ends for that reason. A dead peer does not restart it.
            let reason = self.closing_reason().unwrap_or(DownReason::DeadPeer);
            return self.close_or_hand_over(common, reason, step);
        }
        let now = step.context.now;
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.expires_at) {
            // Nothing has closed the IKE SA in time.
            match self.phase {
                Phase::Open => self.tasks.push_front(Task::DeleteIke(DownReason::Expired)),
                Phase::Replaced | Phase::Closing => return self.close(common, DownReason::Replaced, step),
            }
        }
        if self.runs_timers() {
            if is_due(&mut self.reauth_at) {
                self.reauthenticate(common, step);
            }
            if is_due(&mut self.rekey_at) {
                self.tasks.push_back(Task::RekeyIke);
            }
            self.check_child_timers(now);
            self.check_liveness(common, step);
        }
        self.send_keepalive(common, step);
        self.start_next_task(common, step)
    }

    /// Whether rekeying, reauthentication and liveness checks are active. They stop while another IKE SA may
    /// replace this one.
    fn runs_timers(&self) -> bool {
        self.is_open() && self.provisional.is_none()
    }

    fn check_child_timers(&mut self, now: Instant) {
        let Self { contents, tasks, .. } = self;
        for child in &mut contents.children {
            if child.rekey_at.take_if(|at| *at <= now).is_some() && child.stage == Stage::Installed {
                tasks.push_back(Task::RekeyChild(child.id));
            }
            if child.expires_at.take_if(|at| *at <= now).is_some() {
                match child.stage {
                    Stage::Installed => tasks.push_back(Task::DeleteChild(child.id, DownReason::Expired)),
                    // The peer has not closed the Child SA in time.
                    Stage::Replaced => tasks.push_back(Task::DeleteChild(child.id, DownReason::Replaced)),
                    Stage::Closing => {}
                }
            }
        }
    }

    /// Checks the liveness of a peer from which nothing was received (RFC 7296 section 2.4).
    fn check_liveness(&mut self, common: &SaCommon, step: &Step<'_, '_>) {
        let Some(delay) = common.connection.dpd_delay else { return };
        let packets = self.children().iter().filter_map(|child| step.host.last_inbound(child.agreed.spi_in));
        self.last_received = packets.chain([self.last_received]).max().unwrap_or(self.last_received);
        let has_work = self.tasks.iter().any(|task| self.is_ready(task, step.context.now));
        let idle = !has_work && !self.channel.window.has_outstanding();
        if idle && step.context.now.since(self.last_received) >= delay {
            self.tasks.push_back(Task::Liveness);
        }
    }

    /// Sends a NAT keepalive if this host is behind a NAT (RFC 3948 section 4).
    fn send_keepalive(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let interval = step.shared.settings.keepalive_interval;
        if self.contents.nat.local && step.context.now.since(self.last_sent) >= interval {
            self.last_sent = step.context.now;
            let (path, message) = (common.path, Vec::new());
            step.shared.transmits.push_back(Transmit { path, non_esp_marker: false, message });
        }
    }

    /// Time of the next timeout.
    pub(crate) fn next_timeout(&self, common: &SaCommon, keepalive: Duration) -> Option<Instant> {
        let open = self.runs_timers();
        let children = self.children().iter().filter_map(ChildSa::next_timeout).min().filter(|_| open);
        let (rekey, reauth) = (self.rekey_at.filter(|_| open), self.reauth_at.filter(|_| open));
        let idle = open && !self.channel.window.has_outstanding();
        let life = common.connection.dpd_delay.filter(|_| idle).map(|delay| self.last_received.after(delay));
        let alive = self.contents.nat.local.then(|| self.last_sent.after(keepalive));
        let tasks = self.tasks.iter().filter_map(|task| self.ready_at(task)).min().filter(|_| idle);
        let times = [
            children,
            rekey,
            reauth,
            self.channel.window.next_timeout(),
            self.expires_at,
            life,
            alive,
            tasks,
        ];
        times.into_iter().flatten().min()
    }
}
