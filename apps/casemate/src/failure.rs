//! Errors of commands, with their exit status.

use crate::printable;
use std::fmt;
use std::process::ExitCode;

/// An error message for the user, with its exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Wrong input or arguments: exit status 2.
    BadInput(String),
    /// The input was valid but the operation failed: exit status 1.
    Failed(String),
}

impl Failure {
    /// Makes a failure because of wrong input.
    pub fn bad_input(reason: impl fmt::Display) -> Self {
        Self::BadInput(reason.to_string())
    }

    /// Makes a failure of an operation.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// The message without the program's name.
    pub fn reason(&self) -> &str {
        let (Self::BadInput(text) | Self::Failed(text)) = self;
        text
    }

    /// Appends a line to the message.
    #[must_use]
    pub fn with_line(self, line: &str) -> Self {
        match self {
            Self::BadInput(text) => Self::BadInput(format!("{text}\n{line}")),
            Self::Failed(text) => Self::Failed(format!("{text}\n{line}")),
        }
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::BadInput(_) => 2,
            Self::Failed(_) => 1,
        })
    }
}

impl fmt::Display for Failure {
    /// Prefixes every line with the program's name, which identifies it in a log. A message may quote a
    /// peer, a file or another process, so it is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, line) in self.reason().lines().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}casemate: {}", printable::line(line))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
