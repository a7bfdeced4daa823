//! The log of an instance: on standard error, kept for `casemate log`, and sent to `casemate log --follow`.
//!
//! `budget` says how many messages of each kind are written.

use super::budget::{Budgets, Kind};
use super::control::Reply;
use crate::output::Output;
use crate::printable;
use std::collections::VecDeque;
use std::time::Instant;

/// Lines that are kept of the program's own events, of SAs, and of all other kinds.
const KEPT: usize = 1_000;
/// Longer lines are cut, in bytes.
const MAX_LINE: usize = 2_048;

/// Lines with their numbers in the order in which they were written.
type Lines = VecDeque<(u64, String)>;

/// The log of an instance.
pub(super) struct Logbook {
    /// The program's own events, those of SAs, and all others. No group pushes another one out.
    kept: [Lines; 3],
    written: u64,
    standard_error: Output,
    listeners: Vec<Reply>,
    budgets: Budgets,
}

impl Logbook {
    pub(super) fn new(standard_error: Output) -> Self {
        let (kept, listeners, budgets) = Default::default();
        Self { kept, written: 0, standard_error, listeners, budgets }
    }

    /// Writes a warning of the start to standard error alone.
    pub(super) fn warn(&mut self, line: &str) {
        self.say(&format!("warning: {line}"));
    }

    /// Writes a message of the start to standard error alone.
    pub(super) fn say(&mut self, line: &str) {
        self.standard_error.write(&format!("casemate: {}", printable::line(line)));
    }

    /// Waits until standard error has every line, but at most one second.
    pub(super) fn flush(&mut self) {
        self.standard_error.flush();
    }

    /// Notes a message.
    pub(super) fn note(&mut self, kind: Kind, line: &str) {
        self.note_at(kind, line, Instant::now());
    }

    /// Reports what was left out, where it is time. To be called from time to time.
    pub(super) fn report(&mut self) {
        self.report_at(Instant::now());
        self.standard_error.report_lost();
    }

    fn note_at(&mut self, kind: Kind, line: &str, now: Instant) {
        if self.budgets.admit(kind, now) {
            self.write(kind, line);
        }
    }

    fn report_at(&mut self, now: Instant) {
        for (kind, line) in self.budgets.reports(now) {
            self.write(kind, &line);
        }
    }

    fn write(&mut self, kind: Kind, line: &str) {
        let line = printable::line(line);
        let line = cut(&line);
        // If nobody reads standard error any more, the log still goes to clients.
        self.standard_error.write(&format!("casemate: {line}"));
        let [own, sas, others] = &mut self.kept;
        let kept = match kind {
            Kind::Own => own,
            Kind::Sa => sas,
            _ => others,
        };
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        self.written = self.written.saturating_add(1);
        kept.push_back((self.written, line.into()));
        self.listeners.retain(|listener| listener.send(line.into()));
    }

    /// Sends a client everything that is kept, and what comes if it wants that too.
    pub(super) fn tell(&mut self, client: Reply, follow: bool) {
        let mut lines: Vec<&(u64, String)> = self.kept.iter().flatten().collect();
        lines.sort_unstable_by_key(|(number, _)| *number);
        let told = lines.iter().all(|(_, line)| client.send(line.clone()));
        // Those who have left are still among them if nothing was written since.
        self.listeners.retain(Reply::is_open);
        if told && follow {
            self.listeners.push(client);
        }
    }
}

/// The first [`MAX_LINE`] bytes, or a few less so that no character is cut.
fn cut(line: &str) -> &str {
    let end = (0..=MAX_LINE).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    if line.len() > MAX_LINE { line.get(..end).unwrap_or_default() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_linux::Trouble;
    use std::fs::File;
    use std::time::Duration;

    const NO_SA: Kind = Kind::Audit("no-sa");
    const REPLAY: Kind = Kind::Audit("replay");

    fn log() -> Logbook {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        Logbook::new(Output::start(nowhere.into()).unwrap())
    }

    fn lines(log: &Logbook) -> Vec<&str> {
        let mut lines: Vec<_> = log.kept.iter().flatten().collect();
        lines.sort_unstable();
        lines.into_iter().map(|(_, line)| &**line).collect()
    }

    /// The audit's case: 170 bogus packets a second, and a reload meanwhile.
    #[test]
    fn a_flood_of_one_kind_hides_no_other_and_is_counted() {
        let (mut log, start) = (log(), Instant::now());
        for n in 0..1_700u64 {
            let now = start + Duration::from_millis(n * 1_000 / 170);
            log.note_at(NO_SA, &format!("bogus {n}"), now);
            if n % 170 == 100 {
                log.note_at(Kind::Own, &format!("own {n}"), now);
                log.note_at(REPLAY, &format!("replay {n}"), now);
            }
            log.report_at(now);
        }
        log.report_at(start + Duration::from_secs(20));
        let count = |what: &str| lines(&log).iter().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("own"), count("replay")), (10, 10));
        let written = count("bogus");
        assert!((20..=30).contains(&written), "{written}");
        let left_out: usize = lines(&log)
            .iter()
            .filter_map(|line| {
                line.strip_prefix("audit: no-sa: ")?.strip_suffix(" more messages were left out")
            })
            .map(|count| count.parse::<usize>().unwrap())
            .sum();
        assert_eq!(written + left_out, 1_700);
    }

    /// Everything but the program's own events can be caused by packets or by peers.
    #[test]
    fn every_kind_but_own_events_has_a_budget() {
        let system = [Trouble::Sending, Trouble::Link, Trouble::Counters, Trouble::Policies, Trouble::Guard];
        let kinds = [
            Kind::Sa,
            Kind::HalfOpen,
            NO_SA,
            Kind::Fault("auth-mismatch"),
            Kind::Acquire,
            Kind::Moved,
            Kind::Certificate,
            Kind::SavedKeys,
            Kind::Application,
        ];
        for kind in kinds.into_iter().chain(system.map(Kind::System)) {
            let (mut log, start) = (log(), Instant::now());
            (0..5_000).for_each(|_| log.note_at(kind, "flood", start));
            let written = lines(&log).len();
            assert!((20..=1_000).contains(&written), "{kind}: {written}");
            log.report_at(start + Duration::from_secs(11));
            let report = format!("{kind}: {} more messages were left out", 5_000 - written);
            assert!(lines(&log).contains(&&*report), "{kind}");
        }
    }

    #[test]
    fn memory_is_bounded_and_own_events_are_not_pushed_out() {
        let (mut log, start) = (log(), Instant::now());
        log.note_at(Kind::Own, "the first own event", start);
        for n in 0..5_000 {
            log.note_at(NO_SA, "bogus", start + Duration::from_secs(n));
        }
        assert_eq!(lines(&log).len(), KEPT + 1);
        assert_eq!(lines(&log)[0], "the first own event");
        for n in 0..KEPT {
            log.note_at(Kind::Own, &n.to_string(), start);
        }
        for n in 0..KEPT as u64 + 10 {
            log.note_at(Kind::Sa, "an SA", start + Duration::from_secs(n));
        }
        assert_eq!(log.kept.each_ref().map(VecDeque::len), [KEPT; 3]);
        log.note_at(Kind::Own, &"ä".repeat(MAX_LINE), start);
        assert_eq!(lines(&log).last().map(|line| line.len()), Some(MAX_LINE));
    }

    #[test]
    fn what_peers_say_stays_on_its_line() {
        let mut log = log();
        log.note(Kind::Own, "peer \x1b[2J\ncasemate: forged");
        assert_eq!(lines(&log), ["peer \\u{1b}[2J\\u{a}casemate: forged"]);
    }
}
