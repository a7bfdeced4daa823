//! How many messages of each kind are written to a log.
//!
//! Each line that packets or a peer can cause belongs to a kind with a budget, so that a flood of one kind hides
//! neither the others nor the program's own events, which are never left out. What is left out is counted and
//! reported. docs/decisions/0054-log-and-control-socket.md lists all lines and who can cause them.

use casemate_linux::Trouble;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The rate of one kind: messages that may come at once, and messages per second after that.
struct Rate {
    burst: u32,
    per_second: u32,
}

/// What any host can cause.
const OF_STRANGERS: Rate = Rate { burst: 20, per_second: 1 };
/// What authenticated peers cause. A gateway may set up hundreds of SAs at its start.
const OF_PEERS: Rate = Rate { burst: 1_000, per_second: 10 };
/// How often the number of messages left out is reported for each kind.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// What a message is about. Each kind but the first has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The program's own events: configuration, commands, warnings. Always written.
    Own,
    /// IKE SAs and Child SAs: they come and go, their lifetimes end, or they could not be set up.
    Sa,
    /// An IKE SA that a peer began and that ended before the peer was authenticated.
    HalfOpen,
    /// An audited drop, by reason.
    Audit(&'static str),
    /// A fault of an IKE message, by name.
    Fault(&'static str),
    /// A packet that needs an SA that is not there.
    Acquire,
    /// A peer whose address has changed.
    Moved,
    /// A certificate that was refused.
    Certificate,
    /// Keys that could not be saved.
    SavedKeys,
    /// The operating system refused something.
    System(Trouble),
    /// What an application of the stack server does.
    Application,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own events"),
            Self::Sa => f.write_str("IKE SAs and Child SAs"),
            Self::HalfOpen => f.write_str("IKE SA without an authenticated peer"),
            Self::Audit(reason) => write!(f, "audit: {reason}"),
            Self::Fault(name) => write!(f, "IKE fault {name}"),
            Self::Acquire => f.write_str("no SA for packets"),
            Self::Moved => f.write_str("address of a peer"),
            Self::Certificate => f.write_str("certificate refused"),
            Self::SavedKeys => f.write_str("keys not saved"),
            Self::System(trouble) => write!(f, "{trouble}"),
            Self::Application => f.write_str("applications"),
        }
    }
}

impl Kind {
    /// How often messages of this kind are written; `None` is always.
    const fn rate(self) -> Option<&'static Rate> {
        match self {
            Self::Own => None,
            Self::Sa => Some(&OF_PEERS),
            _ => Some(&OF_STRANGERS),
        }
    }
}

/// How many messages of one kind may still be written.
struct Budget {
    rate: &'static Rate,
    left: u32,
    refilled: Instant,
    left_out: u64,
    reported: Instant,
}

impl Budget {
    const fn new(rate: &'static Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, refilled: now, left_out: 0, reported: now }
    }

    /// Whether another message may be written now; if not, it is counted.
    fn admit(&mut self, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.refilled).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(self.rate.per_second);
            self.left = self.left.saturating_add(more).min(self.rate.burst);
            self.refilled = now;
        }
        if self.left == 0 {
            if self.left_out == 0 {
                self.reported = now;
            }
            self.left_out = self.left_out.saturating_add(1);
            return false;
        }
        self.left = self.left.saturating_sub(1);
        true
    }

    /// How many were left out, if it is time to report that.
    fn report(&mut self, now: Instant) -> Option<u64> {
        if self.left_out == 0 || now.saturating_duration_since(self.reported) < REPORT_EVERY {
            return None;
        }
        self.reported = now;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The budgets of a log: as many as there are kinds, whose names are the program's own.
#[derive(Default)]
pub(crate) struct Budgets(BTreeMap<Kind, Budget>);

impl Budgets {
    /// Whether a message of this kind may be written now; if not, it is counted.
    pub(crate) fn admit(&mut self, kind: Kind, now: Instant) -> bool {
        let Some(rate) = kind.rate() else { return true };
        self.0.entry(kind).or_insert_with(|| Budget::new(rate, now)).admit(now)
    }

    /// Lines about messages that were left out, each with its kind, where it is time for one.
    pub(crate) fn reports(&mut self, now: Instant) -> Vec<(Kind, String)> {
        let due = |(kind, budget): (&Kind, &mut Budget)| {
            let count = budget.report(now)?;
            Some((*kind, format!("{kind}: {count} more messages were left out")))
        };
        self.0.iter_mut().filter_map(due).collect()
    }
}
