//! What the operating system refused.

use std::{fmt, io};

/// An error of the operating system, and what it was about.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
}

impl Error {
    /// `what` failed for this reason.
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source }
    }

    /// `what` failed, for a reason in words.
    pub fn other(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(reason.into()))
    }

    /// The kernel's number for it, if the kernel said it.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
