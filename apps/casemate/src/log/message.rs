//! A log message: what happened, how serious it is, and which SA or connection it concerns.

use super::level::{Level, Subsystem};
use super::rate_limit::LogCategory;
use casemate_ike::{ChildId, IkeSaId};
use std::fmt;

/// A log message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How serious it is.
    pub level: Level,
    /// Category, which has a rate limit.
    pub category: LogCategory,
    /// Connection and SA that it concerns.
    pub subject: Subject,
    /// What happened, in one line.
    pub text: String,
    /// Further lines: the values that were compared, or what to check.
    pub details: Vec<String>,
}

/// Connection, Child SA and IKE SA that a message concerns, as far as known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// Name of the connection.
    pub connection: Option<String>,
    /// Name of the child.
    pub child: Option<String>,
    /// IKE SA.
    pub ike: Option<IkeSaId>,
    /// Child SA.
    pub child_sa: Option<ChildId>,
}

impl Subject {
    /// A connection.
    pub fn connection(name: &str) -> Self {
        Self { connection: Some(name.into()), ..Self::default() }
    }

    /// An IKE SA of a connection.
    pub fn ike_sa(name: &str, ike: IkeSaId) -> Self {
        Self { ike: Some(ike), ..Self::connection(name) }
    }

    /// A child of a connection.
    pub fn child(connection: &str, child: &str) -> Self {
        Self { child: Some(child.into()), ..Self::connection(connection) }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Subject {
    /// Writes `connection[IKE SA]` or `connection/child{Child SA}`, without the unknown parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.connection.iter().chain(&self.child);
        f.write_str(&names.map(String::as_str).collect::<Vec<_>>().join("/"))?;
        match (&self.connection, self.ike, self.child_sa) {
            (Some(_), _, Some(id)) => write!(f, "{{{id}}}"),
            (Some(_), Some(id), None) => write!(f, "[{id}]"),
            (None, _, Some(id)) => write!(f, "Child SA {{{id}}}"),
            (None, Some(id), None) => write!(f, "IKE SA [{id}]"),
            (_, None, None) => Ok(()),
        }
    }
}

impl Message {
    /// A message without details.
    pub fn new(level: Level, category: LogCategory, subject: Subject, text: impl Into<String>) -> Self {
        Self { level, category, subject, text: text.into(), details: Vec::new() }
    }

    /// A message of the program itself.
    pub fn program(level: Level, text: impl Into<String>) -> Self {
        Self::new(level, LogCategory::Program, Subject::default(), text)
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details.extend(details);
        self
    }

    /// Part of the program that it comes from.
    pub fn subsystem(&self) -> Subsystem {
        self.category.subsystem()
    }

    /// The subject and what happened.
    pub fn headline(&self) -> String {
        if self.subject.is_empty() { self.text.clone() } else { format!("{}: {}", self.subject, self.text) }
    }

    /// The subject, what happened, and the details, in one line.
    pub fn one_line(&self) -> String {
        let details = self.details.iter().map(|detail| format!("; {detail}"));
        [self.headline()].into_iter().chain(details).collect()
    }

    /// The lines of the message. The subject begins each of them, so that a search finds all.
    pub fn lines(&self) -> Vec<String> {
        let prefix = if self.subject.is_empty() { String::new() } else { format!("{}: ", self.subject) };
        let details = self.details.iter().map(|detail| format!("{prefix}  {detail}"));
        [self.headline()].into_iter().chain(details).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_the_subject() {
        let mut message =
            Message::new(Level::Warning, LogCategory::Sa, Subject::child("gw", "net"), "no Child SA")
                .with_details(vec!["because".into()]);
        assert_eq!(message.lines(), ["gw/net: no Child SA", "gw/net:   because"]);
        assert_eq!(message.one_line(), "gw/net: no Child SA; because");
        message.subject = Subject::default();
        assert_eq!(message.lines(), ["no Child SA", "  because"]);
    }
}
