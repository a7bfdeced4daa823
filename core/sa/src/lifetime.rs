//! Lifetimes of an SA (RFC 4301 section 4.4.2.1): in bytes, packets and time, each with a soft and a hard bound.

use core::time::Duration;

/// One set of bounds; `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Bytes of the packets that the SA protected or opened.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Time since the SA was added.
    pub since_added: Option<Duration>,
    /// Time since the SA was first used.
    pub since_used: Option<Duration>,
}

impl Bounds {
    /// No bound at all.
    pub const NONE: Self = Self { bytes: None, packets: None, since_added: None, since_used: None };
}

/// Soft bounds warn, hard bounds end the SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Reaching one of these raises an event, once: time to rekey.
    pub soft: Bounds,
    /// Reaching one of these stops the SA: every further packet is dropped.
    pub hard: Bounds,
}

impl Lifetime {
    /// An SA that lives until it is removed or its sequence numbers end.
    pub const UNBOUNDED: Self = Self { soft: Bounds::NONE, hard: Bounds::NONE };
}
