//! Why a test could not be set up: one message for a person.

use std::fmt;

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in words that say where.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// From the message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// A function that puts `context` in front of another error.
    pub fn in_front<E: fmt::Display>(context: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{context}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
