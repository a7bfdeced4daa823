//! Rate limits of log messages.
//!
//! Each category of messages that packets or peers can cause has its own rate limit, so that a flood
//! in one category hides neither the others nor the program's own messages, which are never suppressed.
//! Suppressed messages are counted and reported. docs/decisions/0054-log-and-control-socket.md lists all
//! messages and who can cause them.

use super::level::Subsystem;
use crate::output;
use casemate_linux::SystemProblem;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// A rate limit: burst size, and messages per second after the burst.
struct Limit {
    burst: u32,
    per_second: u32,
}

/// Limit of messages that any host can cause.
const UNAUTHENTICATED: Limit = Limit { burst: 20, per_second: 1 };
/// Limit of messages that authenticated peers cause. A gateway may set up hundreds of SAs at start.
const AUTHENTICATED: Limit = Limit { burst: 1_000, per_second: 10 };
/// Interval of the reports about suppressed messages in a category.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The category of a log message. Each category except [`Program`](Self::Program) has a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogCategory {
    /// The program's own events: configuration, commands, warnings. Never suppressed.
    Program,
    /// IKE SAs and Child SAs: set up, ended, expired, or failed.
    Sa,
    /// An IKE SA that ended before the peer was authenticated.
    HalfOpen,
    /// An audited packet drop, by reason.
    Audit(&'static str),
    /// A protocol error in an IKE message, by name.
    Fault(&'static str),
    /// A packet that needs an SA that does not exist.
    Acquire,
    /// A change of a peer's address.
    Moved,
    /// A repeated request, because the peer does not respond.
    Retransmission,
    /// A policy that was added or removed.
    Policy,
    /// A refused certificate.
    Certificate,
    /// An error while saving keys.
    SavedKeys,
    /// An error of the operating system.
    System(SystemProblem),
    /// The end of an updown script.
    Updown,
    /// An application of the stack server.
    Application,
}

impl fmt::Display for LogCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("own events"),
            Self::Sa => f.write_str("IKE SAs and Child SAs"),
            Self::HalfOpen => f.write_str("IKE SA without an authenticated peer"),
            Self::Audit(reason) => write!(f, "audit: {reason}"),
            Self::Fault(name) => write!(f, "IKE fault {name}"),
            Self::Acquire => f.write_str("no SA for packets"),
            Self::Moved => f.write_str("address of a peer"),
            Self::Retransmission => f.write_str("repeated requests"),
            Self::Policy => f.write_str("policies"),
            Self::Certificate => f.write_str("certificate refused"),
            Self::SavedKeys => f.write_str("keys not saved"),
            Self::System(trouble) => write!(f, "{trouble}"),
            Self::Updown => f.write_str("updown scripts"),
            Self::Application => f.write_str("applications"),
        }
    }
}

impl LogCategory {
    /// Part of the program that its messages come from.
    pub(super) const fn subsystem(self) -> Subsystem {
        match self {
            Self::Program => Subsystem::Program,
            Self::Sa
            | Self::HalfOpen
            | Self::Fault(_)
            | Self::Moved
            | Self::Retransmission
            | Self::Certificate => Subsystem::Ike,
            Self::Audit(_) | Self::Acquire | Self::Policy => Subsystem::Datapath,
            Self::SavedKeys | Self::System(_) | Self::Updown => Subsystem::System,
            Self::Application => Subsystem::Application,
        }
    }

    /// The rate limit; `None` is unlimited.
    const fn limit(self) -> Option<&'static Limit> {
        match self {
            Self::Program => None,
            Self::Sa | Self::Retransmission | Self::Policy | Self::Updown => Some(&AUTHENTICATED),
            _ => Some(&UNAUTHENTICATED),
        }
    }
}

/// The token bucket of one category.
struct TokenBucket {
    limit: &'static Limit,
    tokens: u32,
    last_refill: Instant,
    suppressed: u64,
    last_report: Instant,
}

impl TokenBucket {
    const fn new(limit: &'static Limit, now: Instant) -> Self {
        Self { limit, tokens: limit.burst, last_refill: now, suppressed: 0, last_report: now }
    }

    /// Takes a token for a message. Returns false and counts the message if there is none.
    fn admit(&mut self, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.last_refill).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(self.limit.per_second);
            self.tokens = self.tokens.saturating_add(more).min(self.limit.burst);
            self.last_refill = now;
        }
        if self.tokens == 0 {
            if self.suppressed == 0 {
                self.last_report = now;
            }
            self.suppressed = self.suppressed.saturating_add(1);
            return false;
        }
        self.tokens = self.tokens.saturating_sub(1);
        true
    }

    /// Returns the number of suppressed messages if a report is due.
    fn report(&mut self, now: Instant) -> Option<u64> {
        if self.suppressed == 0 || now.saturating_duration_since(self.last_report) < REPORT_EVERY {
            return None;
        }
        self.last_report = now;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The token buckets of a log. Their number is bounded by that of the categories.
#[derive(Default)]
pub(crate) struct RateLimits(BTreeMap<LogCategory, TokenBucket>);

impl RateLimits {
    /// Whether a message of this category may be written now. A suppressed message is counted.
    pub(crate) fn admit(&mut self, category: LogCategory, now: Instant) -> bool {
        let Some(limit) = category.limit() else { return true };
        self.0.entry(category).or_insert_with(|| TokenBucket::new(limit, now)).admit(now)
    }

    /// Returns the reports about suppressed messages that are due.
    pub(crate) fn reports(&mut self, now: Instant) -> Vec<(LogCategory, String)> {
        let report = |(category, bucket): (&LogCategory, &mut TokenBucket)| {
            let count = bucket.report(now)?;
            let count = output::counted(count, "more message was", "more messages were");
            Some((*category, format!("{category}: {count} suppressed")))
        };
        self.0.iter_mut().filter_map(report).collect()
    }
}
