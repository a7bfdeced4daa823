//! How a command ends when it does not succeed.

use crate::printable;
use std::fmt;
use std::process::ExitCode;

/// A message for the user, and the exit status that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// What the user gave is wrong: exit status 2, as for wrong arguments.
    BadInput(String),
    /// The input was right but the work failed: exit status 1.
    Failed(String),
}

impl Failure {
    /// Wrong input, with the reason in words.
    pub fn bad_input(reason: impl fmt::Display) -> Self {
        Self::BadInput(reason.to_string())
    }

    /// Failed work, with the reason in words.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// The reason in words, without the program's name.
    pub fn reason(&self) -> &str {
        let (Self::BadInput(text) | Self::Failed(text)) = self;
        text
    }

    /// The same with one more line.
    #[must_use]
    pub fn and(self, line: &str) -> Self {
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
    /// Every line with the program's name in front, so that it is known whose it is in a log. A reason may quote what a peer, a file or
    /// another process says, so it is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, line) in self.reason().lines().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}casemate: {}", printable::line(line))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
