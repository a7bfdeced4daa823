//! When the routes, rules and virtual addresses of this instance are compared with those of the kernel, and
//! what the log has about those that have gone.
//!
//! Other programs may remove them, and the kernel removes routes together with an interface that is switched
//! off. Casemate sets them again at once. If they go again and again, it does so every second.

use crate::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// Comparisons that need not wait for each other.
const BURST: u32 = 10;
/// Time until a further comparison, and until a change that failed is tried again.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Whether a comparison is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    No,
    /// As the rate permits.
    Limited,
    /// Because of a change of this program.
    Now,
}

/// Why a comparison is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckReason {
    /// This program has removed an address.
    OwnAddress,
    /// Another program has removed an address, as when a host moves to another network.
    Address,
    /// A rule or a route was removed, or an interface changed.
    Routing,
}

/// The due comparison, the rate of comparisons, and the outcome of the changes.
pub(super) struct RoutingCheck {
    due: Due,
    /// What has gone is reported.
    is_reported: bool,
    tokens: u32,
    refilled_at: Instant,
    /// The log says that routes or rules go again and again.
    is_repeated: bool,
    /// The error that was reported last, if the changes still fail.
    failure: Option<String>,
    /// When to try again.
    retry_at: Option<Instant>,
    messages: Vec<String>,
}

/// Routes, rules and addresses that were set and have gone.
#[derive(Debug, Default)]
pub(super) struct Lost {
    count: usize,
    first: Option<String>,
    /// Something that this program has certainly not removed itself.
    has_foreign: bool,
}

impl Lost {
    pub(super) fn add(&mut self, what: &dyn fmt::Display) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert_with(|| what.to_string());
    }

    /// Adds what this program has certainly not removed itself.
    pub(super) fn add_foreign(&mut self, what: &dyn fmt::Display) {
        self.has_foreign = true;
        self.add(what);
    }
}

impl RoutingCheck {
    /// Nothing is due.
    pub(super) fn new() -> Self {
        Self {
            due: Due::No,
            is_reported: false,
            tokens: BURST,
            refilled_at: Instant::now(),
            is_repeated: false,
            failure: None,
            retry_at: None,
            messages: Vec::new(),
        }
    }

    /// Asks for a comparison.
    pub(super) fn request(&mut self, reason: CheckReason) {
        self.due = self.due.max(if reason == CheckReason::OwnAddress { Due::Now } else { Due::Limited });
        self.is_reported |= reason == CheckReason::Routing;
    }

    /// Returns whether to compare now. If it is too early, [`retry_at`](Self::retry_at) says when.
    pub(super) fn begin(&mut self) -> bool {
        let seconds = self.refilled_at.elapsed().as_secs();
        if seconds > 0 {
            self.tokens = self.tokens.saturating_add(u32::try_from(seconds).unwrap_or(BURST)).min(BURST);
            self.refilled_at = Instant::now();
            self.is_repeated &= self.tokens < BURST;
        }
        match self.due {
            Due::No => false,
            Due::Limited if self.tokens == 0 => {
                self.retry_at = self.refilled_at.checked_add(INTERVAL);
                false
            }
            Due::Limited | Due::Now => {
                self.tokens = self.tokens.saturating_sub(u32::from(self.due == Due::Limited));
                self.due = Due::No;
                true
            }
        }
    }

    /// Notes the result of a comparison that has begun. After an error, another one is due.
    pub(super) fn end(&mut self, lost: Lost, outcome: Result<(), Error>) -> Result<(), Error> {
        self.report_lost(lost);
        outcome.inspect_err(|_| self.due = Due::Limited)
    }

    fn report_lost(&mut self, Lost { count, first, has_foreign }: Lost) {
        let is_reported = std::mem::take(&mut self.is_reported) || has_foreign;
        let Some(first) = first.filter(|_| is_reported && !self.is_repeated) else { return };
        self.is_repeated = self.tokens == 0;
        self.messages.push(if self.is_repeated {
            format!(
                "routes or rules of Casemate are removed again and again, the last was `{first}`: they are \
                 added every second; stop the program that removes them"
            )
        } else {
            let others = match count.saturating_sub(1) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            format!(
                "`{first}`{others} had been removed, by another program or with an interface; adding it again"
            )
        });
    }

    /// Notes whether all changes have succeeded. An error is reported once, and tried again every second.
    pub(super) fn note_outcome(&mut self, outcome: Result<(), Error>, report: &mut dyn FnMut(Error)) {
        match outcome {
            Ok(()) => {
                if self.failure.take().is_some() {
                    self.messages.push("the system follows the policies again".into());
                }
            }
            Err(error) => {
                self.retry_at = Instant::now().checked_add(INTERVAL);
                let text = error.to_string();
                if self.failure.as_ref() != Some(&text) {
                    self.failure = Some(text);
                    report(error);
                }
            }
        }
    }

    /// When to compare, or to try a change again.
    pub(super) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns whether it is time for that.
    pub(super) fn take_retry(&mut self) -> bool {
        self.retry_at.take_if(|retry_at| *retry_at <= Instant::now()).is_some()
    }

    /// Takes the messages for the log.
    pub(super) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }
}
