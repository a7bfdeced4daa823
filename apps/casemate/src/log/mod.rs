//! The log of an instance: written to standard error, kept for `casemate log`, and sent to `casemate log
//! --follow`.
//!
//! `rate_limit` limits the messages of each category.

pub mod format;
pub mod rate_limit;

use crate::control::Reply;
use crate::output::Output;
use crate::printable;
use casemate_wire::invariant::OrBroken;
use rate_limit::{LogCategory, RateLimits};
use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

/// Maximum number of lines kept in each of the three groups.
const KEPT: usize = 1_000;
/// Maximum length of a line in bytes; longer lines are truncated.
const MAX_LINE: usize = 2_048;

/// A line that is kept.
struct KeptLine {
    /// Sequence number in the order of writing.
    number: u64,
    text: String,
}

/// The log of an instance.
pub(crate) struct Log {
    /// Kept lines of three groups: the program's own events, SAs, and all others. No group displaces
    /// lines of another.
    kept: [VecDeque<KeptLine>; 3],
    written: u64,
    standard_error: Output,
    followers: Vec<Reply>,
    limits: RateLimits,
    /// The lines since the last [`take_observed`](Self::take_observed), if they are observed.
    observed: Option<Vec<(LogCategory, String)>>,
}

impl Log {
    pub(crate) fn new(standard_error: Output) -> Self {
        let (kept, followers, limits) = Default::default();
        Self { kept, written: 0, standard_error, followers, limits, observed: None }
    }

    /// Keeps lines from now on until [`take_observed`](Self::take_observed) returns them.
    pub(crate) fn observe(&mut self) {
        self.observed.get_or_insert_default();
    }

    /// Returns the lines since the last call.
    pub(crate) fn take_observed(&mut self) -> Vec<(LogCategory, String)> {
        self.observed.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Writes a warning during start-up to standard error only.
    pub(crate) fn warn(&mut self, line: &str) {
        self.info(&format!("warning: {line}"));
    }

    /// Writes a message during start-up to standard error only.
    pub(crate) fn info(&mut self, line: &str) {
        self.standard_error.write(&format!("casemate: {}", printable::line(line)));
    }

    /// Waits until all lines are written to standard error, but at most one second.
    pub(crate) fn flush(&mut self) {
        self.standard_error.flush();
    }

    /// Logs a message, subject to the rate limit of its category.
    pub(crate) fn record(&mut self, category: LogCategory, line: &str) {
        self.record_at(category, line, Instant::now());
    }

    /// Logs due reports about suppressed messages. Must be called regularly.
    pub(crate) fn report(&mut self) {
        self.report_at(Instant::now());
        self.standard_error.report_lost();
    }

    fn record_at(&mut self, category: LogCategory, line: &str, now: Instant) {
        if self.limits.admit(category, now) {
            self.write(category, line);
        }
    }

    fn report_at(&mut self, now: Instant) {
        for (category, line) in self.limits.reports(now) {
            self.write(category, &line);
        }
    }

    fn write(&mut self, category: LogCategory, line: &str) {
        let line = printable::line(line);
        let line = cut(&line);
        // A blocked standard error does not affect clients.
        self.standard_error.write(&format!("casemate: {line}"));
        let [own, sas, others] = &mut self.kept;
        let kept = match category {
            LogCategory::Program => own,
            LogCategory::Sa => sas,
            _ => others,
        };
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        self.written = self.written.saturating_add(1);
        kept.push_back(KeptLine { number: self.written, text: line.into() });
        self.followers.retain(|follower| follower.send(line.into()));
        if let Some(observed) = self.observed.as_mut().filter(|observed| observed.len() < KEPT) {
            observed.push((category, line.into()));
        }
    }

    /// Sends a client all kept lines and, if `follow` is set, all later ones.
    pub(crate) fn send_to(&mut self, client: Reply, follow: bool) {
        let mut lines: Vec<&KeptLine> = self.kept.iter().flatten().collect();
        lines.sort_unstable_by_key(|line| line.number);
        let is_sent = lines.iter().all(|line| client.send(line.text.clone()));
        // Removes clients that disconnected since the last message.
        self.followers.retain(Reply::is_open);
        if is_sent && follow {
            self.followers.push(client);
        }
    }
}

/// Truncates a line to [`MAX_LINE`] bytes, at a character boundary.
fn cut(line: &str) -> &str {
    line.get(..line.floor_char_boundary(MAX_LINE)).or_broken("the end is a boundary in the line", line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_linux::SystemProblem;
    use std::fs::File;
    use std::time::Duration;

    const NO_SA: LogCategory = LogCategory::Audit("no-sa");
    const REPLAY: LogCategory = LogCategory::Audit("replay");

    fn log() -> Log {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        Log::new(Output::start(nowhere.into()).unwrap())
    }

    fn lines(log: &Log) -> Vec<&str> {
        let mut lines: Vec<_> = log.kept.iter().flatten().collect();
        lines.sort_unstable_by_key(|line| line.number);
        lines.into_iter().map(|line| &*line.text).collect()
    }

    /// 170 invalid packets per second, with a reload in between, must not hide other messages.
    #[test]
    fn flood_of_one_category_hides_no_other_and_is_counted() {
        let (mut log, start) = (log(), Instant::now());
        for n in 0..1_700u64 {
            let now = start + Duration::from_millis(n * 1_000 / 170);
            log.record_at(NO_SA, &format!("bogus {n}"), now);
            if n % 170 == 100 {
                log.record_at(LogCategory::Program, &format!("own {n}"), now);
                log.record_at(REPLAY, &format!("replay {n}"), now);
            }
            log.report_at(now);
        }
        log.report_at(start + Duration::from_secs(20));
        let count = |what: &str| lines(&log).iter().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("own"), count("replay")), (10, 10));
        let written = count("bogus");
        assert!((20..=30).contains(&written), "{written}");
        let suppressed: usize = lines(&log)
            .iter()
            .filter_map(|line| {
                line.strip_prefix("audit: no-sa: ")?.strip_suffix(" more messages were suppressed")
            })
            .map(|count| count.parse::<usize>().unwrap())
            .sum();
        assert_eq!(written + suppressed, 1_700);
    }

    /// Packets or peers can cause everything except the program's own events.
    #[test]
    fn every_category_except_own_events_is_rate_limited() {
        let system = [
            SystemProblem::Sending,
            SystemProblem::LinkFull,
            SystemProblem::Counters,
            SystemProblem::Policies,
            SystemProblem::Guard,
        ];
        let categories = [
            LogCategory::Sa,
            LogCategory::HalfOpen,
            NO_SA,
            LogCategory::Fault("auth-mismatch"),
            LogCategory::Acquire,
            LogCategory::Moved,
            LogCategory::Certificate,
            LogCategory::SavedKeys,
            LogCategory::Application,
        ];
        for category in categories.into_iter().chain(system.map(LogCategory::System)) {
            let (mut log, start) = (log(), Instant::now());
            (0..5_000).for_each(|_| log.record_at(category, "flood", start));
            let written = lines(&log).len();
            assert!((20..=1_000).contains(&written), "{category}: {written}");
            log.report_at(start + Duration::from_secs(11));
            let report = format!("{category}: {} more messages were suppressed", 5_000 - written);
            assert!(lines(&log).contains(&&*report), "{category}");
        }
    }

    #[test]
    fn memory_is_bounded_and_own_events_are_kept() {
        let (mut log, start) = (log(), Instant::now());
        log.record_at(LogCategory::Program, "the first own event", start);
        for n in 0..5_000 {
            log.record_at(NO_SA, "bogus", start + Duration::from_secs(n));
        }
        assert_eq!(lines(&log).len(), KEPT + 1);
        assert_eq!(lines(&log)[0], "the first own event");
        for n in 0..KEPT {
            log.record_at(LogCategory::Program, &n.to_string(), start);
        }
        for n in 0..KEPT as u64 + 10 {
            log.record_at(LogCategory::Sa, "an SA", start + Duration::from_secs(n));
        }
        assert_eq!(log.kept.each_ref().map(VecDeque::len), [KEPT; 3]);
        log.record_at(LogCategory::Program, &"ä".repeat(MAX_LINE), start);
        assert_eq!(lines(&log).last().map(|line| line.len()), Some(MAX_LINE));
    }

    #[test]
    fn text_of_peers_stays_on_one_line() {
        let mut log = log();
        log.record(LogCategory::Program, "peer \x1b[2J\ncasemate: forged");
        assert_eq!(lines(&log), ["peer \\u{1b}[2J\\u{a}casemate: forged"]);
    }
}
