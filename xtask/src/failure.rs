//! Why a task failed: one message for a person.

use std::fmt;

/// Shorthand for the tasks.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// What went wrong, in words that say what to do about it.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// From the message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// From a list of findings, one a line. Success when the list is empty.
    pub(crate) fn unless_empty(findings: &[String], headline: &str) -> Result {
        if findings.is_empty() {
            return Ok(());
        }
        Err(Self(format!("{headline}:\n  {}", findings.join("\n  "))))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
