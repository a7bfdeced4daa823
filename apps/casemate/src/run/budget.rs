//! How many messages of each kind are written to a log.
//!
//! What packets from the network cause has a budget for each kind, so that a flood of one kind hides neither
//! the others nor the program's own events, which are never left out. What is left out is counted and
//! reported.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Messages of one kind that may come at once.
const BURST: u32 = 20;
/// How long one kind waits for another message when these are used up.
const REFILL: Duration = Duration::from_secs(1);
/// How often the number of messages left out is reported for each kind.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// What a message is about. Each kind but the first has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The program's own events: configuration, IKE SAs and Child SAs, lifetimes, errors. Always written.
    Own,
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
    /// A packet or message that the system did not send.
    Sending,
    /// What an application of the stack server does.
    Application,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own events"),
            Self::Audit(reason) => write!(f, "audit: {reason}"),
            Self::Fault(name) => write!(f, "IKE fault {name}"),
            Self::Acquire => f.write_str("no SA for packets"),
            Self::Moved => f.write_str("address of a peer"),
            Self::Certificate => f.write_str("certificate refused"),
            Self::Sending => f.write_str("sending failed"),
            Self::Application => f.write_str("applications"),
        }
    }
}

/// How many messages of one kind may still be written.
struct Budget {
    left: u32,
    refilled: Instant,
    left_out: u64,
    reported: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, refilled: now, left_out: 0, reported: now }
    }

    /// Whether another message may be written now; if not, it is counted.
    fn admit(&mut self, now: Instant) -> bool {
        let periods = now.saturating_duration_since(self.refilled).as_secs() / REFILL.as_secs().max(1);
        let more = u32::try_from(periods).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
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
        kind == Kind::Own || self.0.entry(kind).or_insert_with(|| Budget::new(now)).admit(now)
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
