//! Where log messages go: lines of text or JSON on standard error, or entries of the systemd journal.
//!
//! If standard error is the journal (`JOURNAL_STREAM`, systemd.exec(5)) and no format was requested, entries
//! are sent with the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), so that each has its
//! priority and the fields `CASEMATE_CONNECTION`, `CASEMATE_CHILD` and `CASEMATE_SUBSYSTEM`. Values have no
//! line breaks, because they were escaped.

use super::cut;
use super::level::Level;
use super::message::{Message, Subject};
use super::timestamp::timestamp;
use crate::output::Output;
use crate::printable;
use serde_json::{Map, Value, json};
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::time::SystemTime;

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

#[cfg(test)]
mod tests {
    use super::super::rate_limit::LogCategory;
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

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
}
