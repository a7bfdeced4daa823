//! The log of an instance: written to standard error or the journal, kept for `casemate log`, and sent to
//! `casemate log --follow`.
//!
//! `notice` formats the notices of the endpoint; `explanation` and `hints` add what was compared and what to
//! check, in the words of the configuration file (`wording`). `level` filters the messages, `rate_limit`
//! limits those of each category, and `sink` writes them.

mod established;
mod explanation;
mod hints;
pub mod level;
pub mod message;
pub(crate) mod negotiated;
pub mod notice;
pub mod rate_limit;
mod sink;
pub mod wording;

use crate::control::Reply;
use crate::printable;
use casemate_wire::invariant::OrBroken;
pub(crate) use established::UNPROVEN_USER;
pub(crate) use hints::Proof;
use level::{Level, LevelFilter};
use message::{Message, Subject};
use rate_limit::{LogCategory, RateLimits};
pub use sink::LogFormat;
pub(crate) use sink::Sink;
use std::collections::VecDeque;
use std::mem;
use std::time::{Instant, SystemTime};

/// A time as text: UTC in the format of RFC 3339, in whole seconds.
pub(crate) fn utc_text(time: SystemTime) -> String {
    let text = sink::timestamp(time);
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Maximum number of lines kept in each of the three groups.
const KEPT: usize = 1_000;
/// Maximum length of a line in bytes; longer lines are truncated.
const MAX_LINE: usize = 2_048;

/// Options of the log.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LogOptions {
    /// Format of the log on standard error [default: text, or journal fields under systemd].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Which messages are logged: error, warning, info or debug, and exceptions for program, ike, datapath,
    /// system or application, such as `info,ike=debug`.
    #[arg(
        long,
        value_name = "LEVEL[,SUBSYSTEM=LEVEL...]",
        default_value = "info",
        hide_default_value = false
    )]
    pub log_level: LevelFilter,
}

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
    sink: Sink,
    filter: LevelFilter,
    followers: Vec<Reply>,
    limits: RateLimits,
    /// The lines since the last [`take_observed`](Self::take_observed), if they are observed.
    observed: Option<Vec<(LogCategory, String)>>,
}

impl Log {
    pub(crate) fn new(sink: Sink, filter: LevelFilter) -> Self {
        let (kept, followers, limits) = Default::default();
        Self { kept, written: 0, sink, filter, followers, limits, observed: None }
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
        self.write_to_sink(&Message::program(Level::Warning, line));
    }

    /// Writes a message during start-up to standard error only.
    pub(crate) fn info(&mut self, line: &str) {
        self.write_to_sink(&Message::program(Level::Info, line));
    }

    /// Waits until all lines are written to standard error, but at most one second.
    pub(crate) fn flush(&mut self) {
        self.sink.flush();
    }

    /// Logs a message of the program itself. Such messages have no rate limit.
    pub(crate) fn program(&mut self, level: Level, text: &str) {
        self.record(Message::program(level, text));
    }

    /// Logs a message, subject to its level and to the rate limit of its category.
    pub(crate) fn record(&mut self, message: Message) {
        self.record_at(&message, Instant::now());
    }

    /// Logs due reports about suppressed messages. Must be called regularly.
    pub(crate) fn report(&mut self) {
        self.report_at(Instant::now());
        self.sink.report_lost();
    }

    /// Number of lines that were lost because the output was not read in time.
    pub(crate) const fn lost_lines(&self) -> u64 {
        self.sink.lost_lines()
    }

    fn record_at(&mut self, message: &Message, now: Instant) {
        if self.filter.admits(message.level, message.subsystem()) && self.limits.admit(message.category, now)
        {
            self.write(message);
        }
    }

    fn report_at(&mut self, now: Instant) {
        for (category, line) in self.limits.reports(now) {
            self.write(&Message::new(Level::Warning, category, Subject::default(), line));
        }
    }

    fn write(&mut self, message: &Message) {
        let at = SystemTime::now();
        // A blocked standard error does not affect clients.
        let lines = self.write_to_sink(message);
        for line in lines {
            let line = format!("{} {}: {line}", sink::timestamp(at), message.level);
            self.keep(message.category, &line);
            self.followers.retain(|follower| follower.send(line.clone()));
            if let Some(observed) = self.observed.as_mut().filter(|observed| observed.len() < KEPT) {
                observed.push((message.category, line));
            }
        }
    }

    /// Writes a message and returns its lines.
    fn write_to_sink(&mut self, message: &Message) -> Vec<String> {
        let lines: Vec<String> =
            message.lines().iter().map(|line| cut(&printable::line(line)).to_owned()).collect();
        self.sink.write(message, &lines, SystemTime::now());
        lines
    }

    fn keep(&mut self, category: LogCategory, line: &str) {
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
    use crate::output::Output;
    use casemate_linux::SystemProblem;
    use std::fs::File;
    use std::time::Duration;

    const NO_SA: LogCategory = LogCategory::Audit("no-sa");
    const REPLAY: LogCategory = LogCategory::Audit("replay");

    fn log() -> Log {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        Log::new(Sink::text(Output::start(nowhere.into()).unwrap()), LevelFilter::default())
    }

    fn record(log: &mut Log, category: LogCategory, text: &str, now: Instant) {
        log.record_at(&Message::new(Level::Info, category, Subject::default(), text), now);
    }

    /// The kept lines without their time and level.
    fn lines(log: &Log) -> Vec<&str> {
        let mut lines: Vec<_> = log.kept.iter().flatten().collect();
        lines.sort_unstable_by_key(|line| line.number);
        lines.into_iter().map(|line| line.text.split_once(": ").unwrap().1).collect()
    }

    /// 170 invalid packets per second, with a reload in between, must not hide other messages.
    #[test]
    fn flood_of_one_category_hides_no_other_and_is_counted() {
        let (mut log, start) = (log(), Instant::now());
        for n in 0..1_700u64 {
            let now = start + Duration::from_millis(n * 1_000 / 170);
            record(&mut log, NO_SA, &format!("bogus {n}"), now);
            if n % 170 == 100 {
                record(&mut log, LogCategory::Program, &format!("own {n}"), now);
                record(&mut log, REPLAY, &format!("replay {n}"), now);
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
            SystemProblem::Store,
            SystemProblem::Addresses,
            SystemProblem::Policies,
            SystemProblem::Guard,
            SystemProblem::Names,
            SystemProblem::NameServers,
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
            (0..5_000).for_each(|_| record(&mut log, category, "flood", start));
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
        record(&mut log, LogCategory::Program, "the first own event", start);
        for n in 0..5_000 {
            record(&mut log, NO_SA, "bogus", start + Duration::from_secs(n));
        }
        assert_eq!(lines(&log).len(), KEPT + 1);
        assert_eq!(lines(&log)[0], "the first own event");
        for n in 0..KEPT {
            record(&mut log, LogCategory::Program, &n.to_string(), start);
        }
        for n in 0..KEPT as u64 + 10 {
            record(&mut log, LogCategory::Sa, "an SA", start + Duration::from_secs(n));
        }
        assert_eq!(log.kept.each_ref().map(VecDeque::len), [KEPT; 3]);
        record(&mut log, LogCategory::Program, &"ä".repeat(MAX_LINE), start);
        assert_eq!(lines(&log).last().map(|line| line.len()), Some(MAX_LINE));
    }

    #[test]
    fn text_of_peers_stays_on_one_line() {
        let mut log = log();
        log.program(Level::Info, "peer \x1b[2J\ncasemate: forged");
        assert_eq!(lines(&log), ["peer \\u{1b}[2J\\u{a}casemate: forged"]);
    }
}
