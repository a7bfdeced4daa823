//! Timers of an established IKE SA.
//!
//! The table contains the deadline of each timer. A timer whose deadline is set may be paused by the state of
//! the IKE SA; it runs again with the same deadline when the state allows it.

use super::established::Phase;
use crate::child_sa::{ChildSa, Stage};
use crate::context::Step;
#[cfg(feature = "records")]
use crate::engine::effects::Effect;
use crate::state::{Established, SaCommon, State, Task};
use crate::{DownReason, Transmit};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::fmt;

/// Timer of an established IKE SA. Timers that are due at the same time fire in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Repeats the outstanding request, or drops the stored response (RFC 7296 section 2.1).
    Retransmit,
    /// Ends the lifetime of the IKE SA, or the wait for the peer to close it.
    Expire,
    /// Reauthenticates the peer (RFC 7296 section 2.8.3).
    Reauthenticate,
    /// Rekeys the IKE SA (RFC 7296 section 2.8).
    Rekey,
    /// Rekeys or ends a Child SA.
    Child,
    /// Checks the liveness of the peer (RFC 7296 section 2.4).
    Liveness,
    /// Compares sent and received packets, and checks the liveness of a peer that sends nothing (RFC 7296
    /// section 2.4). Closes Child SAs without traffic.
    Traffic,
    /// Sends a NAT keepalive (RFC 3948 section 4).
    Keepalive,
    /// Starts a task that was postponed.
    Task,
    /// Probes the path MTU (RFC 8899).
    ProbePath,
    /// Requests another ticket (RFC 5723 section 4.1).
    #[cfg(feature = "resumption")]
    Ticket,
    /// Ends the wait for the peer's next additional key exchange (RFC 9370 section 2.2.4).
    #[cfg(feature = "multiple-kex")]
    Series,
    /// Closes the IKE SA if the peer has set up another one at the same time.
    #[cfg(feature = "records")]
    Duplicate,
}

impl Timer {
    const ALL: [Self;
        10 + cfg!(feature = "resumption") as usize
            + cfg!(feature = "multiple-kex") as usize
            + cfg!(feature = "records") as usize] = [
        Self::Retransmit,
        Self::Expire,
        Self::Reauthenticate,
        Self::Rekey,
        Self::Child,
        Self::Liveness,
        Self::Traffic,
        Self::Keepalive,
        Self::Task,
        Self::ProbePath,
        #[cfg(feature = "resumption")]
        Self::Ticket,
        #[cfg(feature = "multiple-kex")]
        Self::Series,
        #[cfg(feature = "records")]
        Self::Duplicate,
    ];
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retransmit => "retransmit",
            Self::Expire => "expire",
            Self::Reauthenticate => "reauth",
            Self::Rekey => "rekey",
            Self::Child => "child",
            Self::Liveness => "dpd",
            Self::Traffic => "traffic",
            Self::Keepalive => "keepalive",
            Self::Task => "task",
            Self::ProbePath => "path-mtu",
            #[cfg(feature = "resumption")]
            Self::Ticket => "ticket",
            #[cfg(feature = "multiple-kex")]
            Self::Series => "series",
            #[cfg(feature = "records")]
            Self::Duplicate => "duplicate",
        })
    }
}

/// Deadlines of the timers of an IKE SA, [`NEVER`] for one that is not set: an `Option` would double them.
pub(crate) struct Timers([Instant; Timer::ALL.len()]);

/// A time that does not come.
const NEVER: Instant = Instant::from_micros(u64::MAX);

impl Default for Timers {
    fn default() -> Self {
        Self([NEVER; Timer::ALL.len()])
    }
}

impl Timers {
    /// Deadline of a timer; `None` if it is not set.
    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.0.get(timer as usize).copied().filter(|deadline| *deadline < NEVER)
    }

    /// Sets the deadline of a timer; `None` clears the timer.
    pub(crate) fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        if let Some(slot) = self.0.get_mut(timer as usize) {
            *slot = deadline.unwrap_or(NEVER);
        }
    }

    /// Sets the deadline of a timer, unless it is set to a later time.
    pub(crate) fn postpone(&mut self, timer: Timer, deadline: Instant) {
        self.set(timer, self.get(timer).max(Some(deadline)));
    }

    /// Whether the deadline of a timer has passed.
    pub(crate) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.get(timer).is_some_and(|deadline| deadline <= now)
    }

    /// Earliest deadline of the timers that run.
    pub(crate) fn next(&self, is_running: impl Fn(Timer) -> bool) -> Option<Instant> {
        Timer::ALL.into_iter().filter(|timer| is_running(*timer)).filter_map(|timer| self.get(timer)).min()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for timer in Timer::ALL {
            if let Some(deadline) = self.get(timer) {
                map.entry(&format_args!("{timer}"), &deadline);
            }
        }
        map.finish()
    }
}

impl Established {
    /// Handles the timers that are due.
    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, step: &mut Step<'_, '_>) -> State {
        let now = step.context.now;
        self.note_inbound_packets(common, step);
        for timer in Timer::ALL {
            if !self.is_running(timer) || !self.timers.is_due(timer, now) {
                continue;
            }
            match timer {
                Timer::Retransmit => {
                    if self.channel.retransmit(common, step).is_err() {
                        // An IKE SA that was being closed ends for that reason. A dead peer does not
                        // restart it.
                        let reason = self.closing_reason().unwrap_or(DownReason::DeadPeer);
                        return self.close_or_hand_over(common, reason, step);
                    }
                    #[cfg(feature = "mobike")]
                    self.try_other_paths(common, step);
                    self.replace_if_forgotten(common, step);
                }
                Timer::Expire => {
                    self.timers.set(timer, None);
                    // Nothing has closed the IKE SA in time.
                    match self.phase {
                        Phase::Open if self.is_forgotten() => {
                            return self.close_or_hand_over(common, crate::state::traffic::PROVED, step);
                        }
                        Phase::Open => {
                            let is_set_up_anew = self.is_reauth_refused;
                            let reason =
                                if is_set_up_anew { DownReason::Reauth } else { DownReason::Expired };
                            self.tasks.push_front(Task::DeleteIke(reason));
                            if is_set_up_anew {
                                // The peer may leave the Delete unanswered, as after any other expiry.
                                self.stop_children(reason, step);
                            }
                        }
                        Phase::Replaced | Phase::Closing => {
                            return self.close(common, DownReason::Replaced, step);
                        }
                    }
                }
                Timer::Reauthenticate => {
                    self.timers.set(timer, None);
                    self.reauthenticate(common, step);
                }
                Timer::Rekey => {
                    self.timers.set(timer, None);
                    self.tasks.push_back(Task::RekeyIke);
                }
                Timer::Child => self.check_child_timers(step),
                Timer::Liveness => self.check_liveness(now),
                Timer::Traffic => self.compare_traffic(step),
                Timer::Keepalive => self.send_keepalive(common, step),
                Timer::Task => {}
                Timer::ProbePath => self.probe_path(common, step),
                #[cfg(feature = "resumption")]
                Timer::Ticket => self.renew_ticket(),
                #[cfg(feature = "multiple-kex")]
                Timer::Series => self.expire_series(step),
                #[cfg(feature = "records")]
                Timer::Duplicate => {
                    self.timers.set(timer, None);
                    step.effect(Effect::CloseDuplicate(common.id));
                }
            }
        }
        self.start_next_task(common, step)
    }

    /// Whether another IKE SA neither has replaced this one nor may do so soon. Otherwise most timers pause.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_open() && self.provisional.is_none()
    }

    /// Whether a timer runs in the present state. Liveness checks and tasks wait for an outstanding request.
    fn is_running(&self, timer: Timer) -> bool {
        match timer {
            Timer::Retransmit | Timer::Expire => true,
            #[cfg(feature = "multiple-kex")]
            Timer::Series => true,
            Timer::Keepalive => self.contents.nat.local,
            Timer::Reauthenticate | Timer::Rekey | Timer::Child | Timer::Traffic => self.is_in_use(),
            #[cfg(feature = "records")]
            Timer::Duplicate => self.is_in_use(),
            #[cfg(feature = "resumption")]
            Timer::Ticket => self.may_begin_request(),
            // Tasks that wait for a key exchange of the peer have no time.
            Timer::Task => self.is_in_use() && !self.channel.window.has_outstanding(),
            Timer::Liveness | Timer::ProbePath => self.may_begin_request(),
        }
    }

    /// Whether a queued request could be sent: none is outstanding, and no key exchange of the peer is
    /// awaited.
    fn may_begin_request(&self) -> bool {
        #[cfg(feature = "multiple-kex")]
        if self.series.is_some() {
            return false;
        }
        self.is_in_use() && !self.channel.window.has_outstanding()
    }

    /// Sets the timers whose deadlines are those of other objects: the window, Child SAs and tasks.
    pub(crate) fn update_timers(&mut self) {
        let child = self.children().iter().filter_map(ChildSa::next_timeout).min();
        let task = self.tasks.iter().filter_map(|task| self.ready_at(task)).min();
        self.timers.set(Timer::Retransmit, self.channel.window.next_timeout());
        self.timers.set(Timer::Child, child);
        self.timers.set(Timer::Task, task);
        self.timers.set(Timer::ProbePath, self.path_probe.due().or(self.contents.path_search.next_at()));
    }

    /// Time of the next timeout.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.next(|timer| self.is_running(timer))
    }

    /// Rekeys and ends Child SAs whose times have come. One that has reached its hard lifetime carries no
    /// more traffic, whatever the peer does (RFC 4301 section 4.4.2.1).
    fn check_child_timers(&mut self, step: &mut Step<'_, '_>) {
        let now = step.context.now;
        let mut expired = Vec::new();
        let Self { contents, tasks, .. } = self;
        for child in &mut contents.children {
            if child.rekey_at.take_if(|at| *at <= now).is_some() && child.is_installed() {
                tasks.push_back(Task::RekeyChild(child.id));
            }
            if child.expires_at.take_if(|at| *at <= now).is_some() {
                match child.stage {
                    Stage::Installed => {
                        expired.push((child.id, DownReason::Expired));
                        tasks.push_back(Task::DeleteChild(child.id, DownReason::Expired));
                    }
                    // The peer has not closed the Child SA in time.
                    Stage::Replaced => {
                        expired.push((child.id, DownReason::Replaced));
                        tasks.push_back(Task::DeleteChild(child.id, DownReason::Replaced));
                    }
                    Stage::Closing => {}
                }
            }
        }
        expired.into_iter().for_each(|(id, reason)| self.stop_child(id, reason, step));
    }

    /// Postpones the liveness check: packets that Child SAs have received show that the peer is alive.
    fn note_inbound_packets(&mut self, common: &SaCommon, step: &Step<'_, '_>) {
        let Some(delay) = common.connection.dpd_delay.filter(|_| self.is_in_use()) else { return };
        if let Some(last) = self.last_inbound(step) {
            self.timers.postpone(Timer::Liveness, last.after(delay));
        }
    }

    /// Checks the liveness of a peer from which nothing was received, unless another request does (RFC 7296
    /// section 2.4).
    pub(super) fn check_liveness(&mut self, now: Instant) {
        if !self.tasks.iter().any(|task| self.is_ready(task, now)) {
            self.tasks.push_back(Task::Liveness);
        }
    }

    /// Repeats a probe of the path MTU, or queues the next one after the tasks that are ready.
    fn probe_path(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let Some(prober) = step.shared.path_prober else { return };
        prober.on_timeout(self, common, step);
        let now = step.context.now;
        if self.path_probe.due().is_none() && !self.tasks.iter().any(|task| self.is_ready(task, now)) {
            self.tasks.push_back(Task::ProbePath);
        }
    }

    fn send_keepalive(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let interval = step.shared.settings.keepalive_interval;
        self.timers.set(Timer::Keepalive, Some(step.context.now.after(interval)));
        let (path, message) = (common.path, Vec::new());
        step.shared.transmits.push_back(Transmit { path, non_esp_marker: false, probe_len: None, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const EARLY: Instant = Instant::from_secs(1);
    const LATE: Instant = Instant::from_secs(2);

    #[test]
    fn the_next_timer_is_the_earliest_one_that_runs() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(|_| true), None);
        timers.set(Timer::Rekey, Some(EARLY));
        timers.set(Timer::Expire, Some(LATE));
        assert_eq!(timers.next(|_| true), Some(EARLY));
        assert_eq!(timers.next(|timer| timer != Timer::Rekey), Some(LATE));
        timers.set(Timer::Rekey, None);
        assert_eq!(timers.next(|_| true), Some(LATE));
    }

    #[test]
    fn a_timer_is_due_from_its_deadline_on() {
        let mut timers = Timers::default();
        timers.set(Timer::Liveness, Some(LATE));
        assert_eq!([EARLY, LATE].map(|now| timers.is_due(Timer::Liveness, now)), [false, true]);
        assert!(!timers.is_due(Timer::Rekey, LATE));
    }

    #[test]
    fn a_timer_is_not_postponed_to_an_earlier_time() {
        let mut timers = Timers::default();
        timers.postpone(Timer::Keepalive, LATE);
        timers.postpone(Timer::Keepalive, EARLY);
        assert_eq!(timers.get(Timer::Keepalive), Some(LATE));
    }

    #[test]
    fn each_timer_has_its_own_slot_and_name() {
        for timer in Timer::ALL {
            let mut timers = Timers::default();
            timers.set(timer, Some(EARLY));
            let set: Vec<_> = Timer::ALL.into_iter().filter(|other| timers.get(*other).is_some()).collect();
            assert_eq!(set, [timer]);
            assert_eq!(format!("{timers:?}"), format!("{{{timer}: {EARLY:?}}}"));
        }
    }
}
