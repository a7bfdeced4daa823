//! Where log messages go: lines of text or JSON on standard error, or entries of the systemd journal.
//!
//! If standard error is the journal (`JOURNAL_STREAM`, systemd.exec(5)) and no format was requested, entries
//! are sent with the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), so that each has its
//! priority and the fields `CASEMATE_CONNECTION`, `CASEMATE_CHILD` and `CASEMATE_SUBSYSTEM`. Values have no
//! line breaks, because they were escaped.
//!
//! Times are UTC in the format of RFC 3339, with milliseconds. UTC needs no time zone file, which an instance
//! without privileges might not be able to read, and lines of hosts in different time zones can be compared.

use super::cut;
use super::level::Level;
use super::message::{Message, Subject};
use crate::output::Output;
use crate::printable;
use serde_json::{Map, Value, json};
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

/// Socket of the journal.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// Format of the log, as `--log-format` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object for each message.
    Json,
}

/// The destination of log messages.
#[derive(Debug)]
pub(crate) struct Sink {
    output: Output,
    format: SinkFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkFormat {
    Text,
    Json,
    Journal,
}

impl Sink {
    /// Standard error in the requested format. Without one, the journal if standard error is the journal, or
    /// else text.
    pub(crate) fn standard_error(format: Option<LogFormat>) -> io::Result<Self> {
        let format = match format {
            Some(LogFormat::Json) => SinkFormat::Json,
            Some(LogFormat::Text) => SinkFormat::Text,
            None => {
                if let Some(journal) = journal() {
                    let output = Output::start(journal)?.with_notes_as(journal_note);
                    return Ok(Self { output, format: SinkFormat::Journal });
                }
                SinkFormat::Text
            }
        };
        let output = Output::standard_error()?;
        let output = if format == SinkFormat::Json { output.with_notes_as(json_note) } else { output };
        Ok(Self { output, format })
    }

    /// Text on any output.
    #[cfg(test)]
    pub(crate) fn text(output: Output) -> Self {
        Self { output, format: SinkFormat::Text }
    }

    /// Writes a message. Never blocks.
    pub(crate) fn write(&mut self, message: &Message, lines: &[String], at: SystemTime) {
        match self.format {
            SinkFormat::Text => {
                for line in lines {
                    let time = timestamp(at);
                    self.output.write(&format!("{time} casemate: {}: {line}", message.level));
                }
            }
            SinkFormat::Json => self.output.write(&printable::json(&to_json(message, at))),
            SinkFormat::Journal => lines.iter().for_each(|line| self.output.write(&entry(message, line))),
        }
    }

    pub(crate) fn flush(&mut self) {
        self.output.flush();
    }

    pub(crate) const fn lost_lines(&self) -> u64 {
        self.output.lost_lines()
    }

    pub(crate) fn report_lost(&mut self) {
        self.output.report_lost();
    }
}

/// A socket of the journal, if standard error is the journal.
fn journal() -> Option<OwnedFd> {
    let stream = env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    if device.parse() != Ok(stderr.dev()) || inode.parse() != Ok(stderr.ino()) {
        return None;
    }
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(JOURNAL_SOCKET).ok()?;
    Some(socket.into())
}

/// A note about lost lines as JSON.
fn json_note(text: &str) -> String {
    to_json(&Message::program(Level::Warning, text), SystemTime::now()).to_string()
}

/// A note about lost lines as an entry of the journal.
fn journal_note(text: &str) -> String {
    entry(&Message::program(Level::Warning, text), text)
}

/// A message as JSON. Fields without a value are omitted.
fn to_json(message: &Message, at: SystemTime) -> Value {
    let Message { level, subject, text, details, .. } = message;
    let Subject { connection, child, ike, child_sa } = subject;
    let mut fields = Map::new();
    fields.insert("time".into(), json!(timestamp(at)));
    fields.insert("level".into(), json!(level.name()));
    fields.insert("subsystem".into(), json!(message.subsystem().name()));
    let optional = [
        ("connection", connection.clone()),
        ("child", child.clone()),
        ("ike_sa", ike.map(|id| id.to_string())),
        ("child_sa", child_sa.map(|id| id.to_string())),
    ];
    let known = optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    fields.extend(known);
    fields.insert("message".into(), json!(cut(text)));
    if !details.is_empty() {
        fields.insert("details".into(), details.iter().map(|detail| cut(detail)).collect());
    }
    Value::Object(fields)
}

/// A line as an entry of the journal: fields separated by line breaks. The output adds the last one.
fn entry(message: &Message, line: &str) -> String {
    let Subject { connection, child, .. } = &message.subject;
    let mut entry = format!(
        "PRIORITY={}\nSYSLOG_IDENTIFIER=casemate\nCASEMATE_SUBSYSTEM={}\nMESSAGE={line}",
        message.level.priority(),
        message.subsystem().name(),
    );
    for (field, value) in [("CASEMATE_CONNECTION", connection), ("CASEMATE_CHILD", child)] {
        if let Some(value) = value {
            entry.push_str(&format!("\n{field}={}", printable::line(value)));
        }
    }
    entry
}

const SECONDS_PER_DAY: u64 = 86_400;

/// Formats a time, such as `2026-11-26T06:31:11.042Z`. A time before 1970 is written as the beginning of
/// 1970.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / SECONDS_PER_DAY, since.as_secs() % SECONDS_PER_DAY);
    let Date { year, month, day } = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// A day of the Gregorian calendar.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// The date of a day, counted from 1 January 1970. Years begin in March here, so that the leap day is the
/// last day of a year.
fn date(days_since_1970: u64) -> Date {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // 1 March 0000 is 719,468 days before 1 January 1970.
    let days = days_since_1970.saturating_add(719_468);
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leap_days = day_of_era / 1_460 + day_of_era / (DAYS_OF_400_YEARS - 1);
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era + year_of_era / 100 - (365 * year_of_era + year_of_era / 4);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Date { year, month, day }
}

#[cfg(test)]
mod tests {
    use super::super::rate_limit::LogCategory;
    use super::*;
    use std::time::Duration;

    fn message() -> Message {
        Message::new(Level::Warning, LogCategory::Sa, Subject::child("gw", "net\n"), "no Child SA")
            .with_details(vec!["configured: \u{1b}[2J".into()])
    }

    #[test]
    fn json_has_the_fields_that_are_known() {
        let at = UNIX_EPOCH + Duration::from_millis(1_500);
        let value = to_json(&message(), at);
        assert_eq!(
            value,
            json!({
                "time": "1970-01-01T00:00:01.500Z", "level": "warning", "subsystem": "ike",
                "connection": "gw", "child": "net\n", "message": "no Child SA",
                "details": ["configured: \u{1b}[2J"],
            })
        );
        let own = to_json(&Message::program(Level::Info, "ready"), at);
        assert_eq!(own.as_object().map(Map::len), Some(4), "{own}");
    }

    #[test]
    fn a_field_of_the_journal_is_one_line() {
        let entry = entry(&message(), "gw/net: no Child SA");
        let fields: Vec<&str> = entry.lines().collect();
        assert_eq!(
            fields,
            [
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=casemate",
                "CASEMATE_SUBSYSTEM=ike",
                "MESSAGE=gw/net: no Child SA",
                "CASEMATE_CONNECTION=gw",
                "CASEMATE_CHILD=net\\u{a}",
            ]
        );
    }

    /// Values of `date --utc --rfc-3339=seconds --date @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn days_follow_one_another() {
        let mut last = date(0);
        for day in 1..=50_000 {
            let next = date(day);
            let follows = match (next.day, next.month) {
                (1, 1) => (next.year, last.month, last.day) == (last.year + 1, 12, 31),
                (1, month) => month == last.month + 1 && last.day >= 28 && next.year == last.year,
                (day, month) => (day, month, next.year) == (last.day + 1, last.month, last.year),
            };
            assert!(follows, "day {day}");
            last = next;
        }
    }
}
