//! What is wrong with a capture, and at which byte.

use std::fmt;
use std::io;

/// Why a capture cannot be read (on).
#[derive(Debug)]
pub enum CaptureError {
    /// The operating system says so.
    Io(io::Error),
    /// The file has no byte.
    Empty,
    /// It is no capture; its first bytes.
    Alien([u8; 4]),
    /// The file ends inside something that began at this offset.
    Truncated {
        /// Where it begins.
        offset: u64,
        /// What it is.
        what: &'static str,
    },
    /// Something that began at this offset breaks a rule of the format.
    Malformed {
        /// Where it begins.
        offset: u64,
        /// Which rule.
        rule: &'static str,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the file is empty: a pcap or pcapng capture was expected"),
            Self::Alien([a, b, c, d]) => write!(
                f,
                "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}: a pcap or pcapng capture was expected, which begins \
                 with d4 c3 b2 a1, a1 b2 c3 d4, 4d 3c b2 a1, a1 b2 3c 4d or 0a 0d 0d 0a"
            ),
            Self::Truncated { offset, what } => {
                write!(f, "the capture is truncated: it ends inside the {what} that begins at byte {offset}")
            }
            Self::Malformed { offset, rule } => write!(f, "the capture is broken at byte {offset}: {rule}"),
        }
    }
}

impl std::error::Error for CaptureError {}

impl From<io::Error> for CaptureError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
