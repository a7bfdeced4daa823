//! Liveness checks that one-way traffic or a hint causes (RFC 7296 sections 2.4 and 2.21.4), whatever
//! `dpd_delay` is.
//!
//! A timer compares when Child SAs last sent and when anything authentic last arrived. If packets have left
//! and nothing has arrived for a whole interval, the liveness of the peer is checked. Traffic that needs no
//! answer looks the same; so once the peer has answered, the pause until the next check grows as long as its
//! Child SAs send nothing (docs/decisions/0080-liveness-when-needed.md).

use super::timers::Timer;
use crate::child_sa::{ChildSa, Stage};
use crate::config::AddrPattern;
use crate::context::Step;
use crate::engine::effects::Effect;
#[cfg(feature = "inactivity")]
use crate::state::Task;
use crate::state::{Established, SaCommon, State};
use crate::{DownReason, ForgottenSign};
use alloc::boxed::Box;
use casemate_sa::Instant;
use core::time::Duration;

/// Interval of the comparison. Packets that nothing answers are noticed after one to two intervals.
const INTERVAL: Duration = Duration::from_secs(3);
/// Time after which an unanswered packet causes no check any more, unless others have followed it.
const RECENT: Duration = INTERVAL.saturating_mul(3);
/// The comparisons of all IKE SAs are due at multiples of this time, so that many of them share one wake-up,
/// and no single moment has to handle all.
const GRID_MICROS: u64 = 1_000_000 / 16;
/// Pause after the first check that one-way traffic caused. Each further check doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(80);
/// Shortest time between two checks that hints caused: anyone may have forged them.
const HINT_PAUSE: Duration = Duration::from_secs(10);
/// Number of retransmissions without any response after which a new IKE SA is started beside the suspected
/// one. Fewer would happen too often on a bad link.
const RETRANSMISSIONS_IN_SILENCE: u32 = 3;
/// The same if the peer has reported that it does not know the SPIs of the IKE SA. Such a report may be
/// forged.
pub(super) const RETRANSMISSIONS_AFTER_REPORT: u32 = 1;

/// The end of an IKE SA that the peer has proved to have forgotten.
pub(super) const PROVED: DownReason =
    DownReason::Forgotten { sign: ForgottenSign::CrashToken, is_reauthenticated: false };
/// Time for which an IKE SA that the peer has forgotten waits for its replacement.
const REPLACEMENT_TIME: Duration = Duration::from_secs(5);

/// Kind of a message in clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The sender does not know the SPIs of the IKE SA.
    IkeSpi,
    /// The sender does not know the SPI of a Child SA.
    ChildSpi,
}

/// What is known about the traffic of an IKE SA and its Child SAs.
#[derive(Debug)]
pub(super) struct TrafficWatch {
    /// When the last authentic IKE message arrived.
    message_at: Instant,
    /// The comparison that first found unanswered packets; `None` if the last one found none.
    unanswered_since: Option<Instant>,
    /// When one-way traffic last caused a check.
    checked_at: Option<Instant>,
    /// Pause after the next such check.
    pause: Duration,
    /// No such check before this time.
    quiet_until: Instant,
    /// No check because of a hint before this time.
    hints_ignored_until: Instant,
    /// The peer has proved that it has forgotten the IKE SA.
    is_forgotten: bool,
    /// The peer seems to have reported that it does not know the SPIs, since the last authentic message.
    is_reported: bool,
    /// When traffic or a hint last suggested that the peer has forgotten the IKE SA; `None` after an
    /// authentic message or packet.
    suspected_at: Option<Instant>,
}

impl TrafficWatch {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            message_at: now,
            unanswered_since: None,
            checked_at: None,
            pause: FIRST_PAUSE,
            quiet_until: Instant::ZERO,
            hints_ignored_until: Instant::ZERO,
            is_forgotten: false,
            is_reported: false,
            suspected_at: None,
        }
    }

    /// Handles the arrival of an authentic message.
    pub(super) const fn message_at(&self) -> Instant {
        self.message_at
    }

    pub(super) const fn note_message(&mut self, now: Instant) {
        self.message_at = now;
        self.unanswered_since = None;
        self.trust();
    }

    /// The peer knows the IKE SA.
    const fn trust(&mut self) {
        self.suspected_at = None;
        self.is_reported = false;
    }

    /// Compares the times at which Child SAs last sent and received. Returns whether the liveness of the peer
    /// is to be checked.
    fn compare(&mut self, sent: Option<Instant>, received: Option<Instant>, now: Instant) -> bool {
        if received > self.checked_at {
            self.pause = FIRST_PAUSE;
        }
        let received = received.max(Some(self.message_at));
        let is_recent = sent.is_some_and(|sent| now.since(sent) <= RECENT);
        if sent <= received || !is_recent {
            self.unanswered_since = None;
            return false;
        }
        let since = self.unanswered_since.filter(|since| received < Some(*since)).unwrap_or(now);
        self.unanswered_since = Some(since);
        if now.since(since) < INTERVAL || now < self.quiet_until {
            return false;
        }
        self.checked_at = Some(now);
        self.quiet_until = now.after(self.pause);
        self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        true
    }

    /// Whether a hint may cause a check. If so, further hints are ignored for a while.
    fn accept_hint(&mut self, now: Instant) -> bool {
        let is_accepted = self.hints_ignored_until <= now;
        if is_accepted {
            self.hints_ignored_until = now.after(HINT_PAUSE);
        }
        is_accepted
    }
}

/// Time of the next comparison.
pub(super) fn next_comparison(now: Instant) -> Instant {
    let at = now.after(INTERVAL).as_micros();
    Instant::from_micros(at.checked_next_multiple_of(GRID_MICROS).unwrap_or(at))
}

impl Established {
    /// Checks the liveness of the peer if packets leave and nothing arrives.
    pub(super) fn compare_traffic(&mut self, step: &Step<'_, '_>) {
        let now = step.context.now;
        self.timers.set(Timer::Traffic, Some(next_comparison(now)));
        // The peer may have closed a Child SA that this host is closing, and its response was lost. Packets
        // on it then have no answer, although the peer knows the IKE SA.
        let open = self.children().iter().filter(|child| child.stage != Stage::Closing && !child.is_stopped);
        let sent = open.filter_map(|child| step.host.last_outbound(child.id)).max();
        let received = self.last_inbound(step);
        if self.traffic.compare(sent, received, now) {
            self.suspect(now);
        }
        #[cfg(feature = "inactivity")]
        self.close_inactive_children(step);
    }

    /// Closes the Child SAs that have carried no packet for the time that their configuration allows. The
    /// next comparison is at the end of that time, if that is earlier.
    #[cfg(feature = "inactivity")]
    fn close_inactive_children(&mut self, step: &Step<'_, '_>) {
        let now = step.context.now;
        let mut next = self.timers.get(Timer::Traffic);
        let Self { contents, tasks, .. } = self;
        for child in contents.children.iter().filter(|child| child.is_installed()) {
            let Some(limit) = child.config.inactivity else { continue };
            let (sent, received) =
                (step.host.last_outbound(child.id), step.host.last_inbound(child.agreed.spi_in));
            let used_at = sent.max(received).max(Some(child.installed_at)).unwrap_or(now);
            let end = used_at.after(limit);
            if end > now {
                next = next.min(Some(end)).or(Some(end));
            } else if !tasks.iter().any(|task| matches!(task, Task::DeleteChild(id, _) if *id == child.id)) {
                tasks.push_back(Task::DeleteChild(child.id, DownReason::Inactive));
            }
        }
        self.timers.set(Timer::Traffic, next);
    }

    /// When a Child SA last received an authentic packet.
    pub(super) fn last_inbound(&self, step: &Step<'_, '_>) -> Option<Instant> {
        let of_child = |child: &ChildSa| step.host.last_inbound(child.agreed.spi_in);
        self.children().iter().filter_map(of_child).max()
    }

    /// Handles an unprotected message that suggests that the peer has forgotten the IKE SA or one of its
    /// Child SAs. Only a check of the liveness can show whether that is so (RFC 7296 section 2.21.4).
    pub(super) fn on_hint(&mut self, hint: Hint, now: Instant) {
        self.traffic.is_reported |= hint == Hint::IkeSpi && self.channel.window.has_outstanding();
        if self.is_in_use() && self.traffic.accept_hint(now) {
            self.suspect(now);
        }
    }

    /// Checks the liveness of the peer, unless an outstanding request does.
    fn suspect(&mut self, now: Instant) {
        self.traffic.suspected_at = Some(now);
        self.contents.path_search.suspect(now);
        if !self.channel.window.has_outstanding() {
            self.check_liveness(now);
        }
    }

    /// Starts a new IKE SA beside one whose peer is suspected of having forgotten it and does not respond: a
    /// peer that has restarted responds to IKE_SA_INIT only. An IKE SA that is to be closed is not replaced.
    pub(super) fn replace_if_forgotten(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        if self.last_inbound(step) > self.traffic.suspected_at {
            self.traffic.trust();
        }
        if self.forgotten_by().is_some() && self.is_in_use() && self.closing_reason().is_none() {
            step.effect(Effect::ReplaceForgotten(common.id));
        }
    }

    /// What shows that the peer has forgotten the IKE SA: it has proved that, or is suspected of that and has
    /// not responded to several transmissions of the outstanding request.
    pub(crate) fn forgotten_by(&self) -> Option<ForgottenSign> {
        if self.is_forgotten() {
            return Some(ForgottenSign::CrashToken);
        }
        let (needed, sign) = match self.traffic.is_reported {
            true => (RETRANSMISSIONS_AFTER_REPORT, ForgottenSign::Report),
            false => (RETRANSMISSIONS_IN_SILENCE, ForgottenSign::Silence),
        };
        let is_silent = self.channel.window.retransmissions() >= needed;
        (self.traffic.suspected_at.is_some() && is_silent).then_some(sign)
    }

    /// Whether the peer has proved or reported that it has forgotten the IKE SA.
    pub(crate) const fn is_reported_forgotten(&self) -> bool {
        self.traffic.is_forgotten || self.traffic.is_reported
    }

    /// Whether the peer has proved that it has forgotten the IKE SA.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.traffic.is_forgotten
    }

    /// Handles the proof that the peer has forgotten the IKE SA (RFC 6290 section 3). If this host can
    /// initiate, it sets up a new IKE SA first, so that no packet of the Child SAs leaves in clear between.
    pub(crate) fn on_crash(mut self: Box<Self>, common: &SaCommon, step: &mut Step<'_, '_>) -> State {
        let can_initiate = common.connection.remote_addrs.iter().any(AddrPattern::is_single);
        let closing = self.closing_reason();
        if !self.is_in_use() || !can_initiate || closing.is_some() {
            return self.close_or_hand_over(common, closing.unwrap_or(PROVED), step);
        }
        if !core::mem::replace(&mut self.traffic.is_forgotten, true) {
            self.timers.set(Timer::Expire, Some(step.context.now.after(REPLACEMENT_TIME)));
            step.effect(Effect::ReplaceForgotten(common.id));
        }
        State::Established(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    /// Seconds of the first hour at which the liveness is checked, if the peer answers each check at once.
    /// `sent` and `received` return when the Child SAs last sent and received.
    fn checks(sent: impl Fn(u64) -> Option<u64>, received: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        let mut watch = TrafficWatch::new(at(0));
        let mut checks = Vec::new();
        for now in (3..3_600).step_by(3) {
            if watch.compare(sent(now).map(at), received(now).map(at), at(now)) {
                checks.push(now);
                watch.note_message(at(now));
            }
        }
        checks
    }

    #[test]
    fn traffic_in_both_directions_causes_no_check() {
        assert_eq!(checks(Some, Some), [0; 0]);
        assert_eq!(checks(Some, |now| Some(now - 1)), [0; 0], "the answer is on its way");
    }

    #[test]
    fn an_idle_sa_or_one_that_only_receives_causes_no_check() {
        assert_eq!(checks(|_| None, |_| None), [0; 0]);
        assert_eq!(checks(|_| None, Some), [0; 0]);
        assert_eq!(checks(|_| Some(0), |_| None), [0; 0]);
    }

    #[test]
    fn one_way_traffic_is_checked_soon_and_then_ever_more_rarely() {
        let checks = checks(|now| Some(now - 1), |_| None);
        assert_eq!(checks[..5], [6, 18, 39, 81, 162]);
        assert_eq!(checks.len(), 47, "one check in 81 seconds");
    }

    #[test]
    fn a_packet_of_the_peer_ends_the_pauses() {
        let checks = checks(|now| Some(now - 1), |now| (now >= 600).then_some(600));
        let next = checks.iter().find(|at| **at > 600).copied();
        let pauses: Vec<u64> = checks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let at = checks.iter().position(|at| Some(*at) == next).unwrap();
        assert!(pauses[at] < 15 && pauses[at + 1] < 30, "{checks:?}");
    }

    #[test]
    fn an_unanswered_check_is_not_repeated_within_its_pause() {
        let mut watch = TrafficWatch::new(at(0));
        let unanswered = |watch: &mut TrafficWatch, now| watch.compare(Some(at(now)), None, at(now));
        assert_eq!(
            [1, 4, 7, 10, 13].map(|now| unanswered(&mut watch, now)),
            [false, true, false, false, false]
        );
    }

    #[test]
    fn hints_are_accepted_once_in_ten_seconds() {
        let mut watch = TrafficWatch::new(at(0));
        let accepted = (0..100).filter(|now| watch.accept_hint(at(*now))).count();
        assert_eq!(accepted, 10);
    }

    #[test]
    fn comparisons_are_due_on_the_grid() {
        let next = next_comparison(Instant::from_micros(1_234_567));
        assert_eq!(next.as_micros() % GRID_MICROS, 0);
        assert!(next >= Instant::from_micros(4_234_567) && next <= Instant::from_micros(4_297_067));
    }
}
