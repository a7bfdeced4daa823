//! Echo requests at a steady pace, beside other orders: did the tunnel stay open all the time? `probe flow` does the same.

use super::echo::Echo;
use super::{Job, address};
use crate::stack::Stack;
use smoltcp::time::{Duration, Instant};
use std::collections::BTreeSet;

const IDENT: u16 = 0xF10E;
const DATA: [u8; 64] = [0xA7; 64];
const PACE: Duration = Duration::from_millis(10);
/// How long to wait for the last answers.
const LAST: Duration = Duration::from_secs(1);

pub(crate) struct Flow {
    echo: Echo,
    next: Instant,
    sent: u16,
    missing: BTreeSet<u16>,
}

impl Flow {
    pub(crate) fn new(from: &str, to: &str, stack: &mut Stack, now: Instant) -> Result<Self, String> {
        let echo = Echo::new(IDENT, (address(from)?, address(to)?), stack)?;
        Ok(Self { echo, next: now, sent: 0, missing: BTreeSet::new() })
    }

    /// Takes answers, and sends a request if it is time for one.
    pub(crate) fn step(&mut self, stack: &mut Stack, now: Instant) {
        self.take(stack);
        if now < self.next {
            return;
        }
        self.next = now + PACE;
        // A request that cannot be sent is not answered either.
        let _ = self.echo.request(self.sent, &DATA, stack);
        self.missing.insert(self.sent);
        self.sent = self.sent.saturating_add(1);
    }

    fn take(&mut self, stack: &mut Stack) {
        let missing = &mut self.missing;
        self.echo.answers(stack, |number, data| {
            if data == DATA {
                missing.remove(&number);
            }
        });
    }

    /// Sends no more.
    pub(crate) fn ending(self, now: Instant) -> Ending {
        Ending { flow: self, since: now }
    }
}

/// A flow that waits for its last answers.
pub(crate) struct Ending {
    flow: Flow,
    since: Instant,
}

impl Job for Ending {
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>> {
        self.flow.take(stack);
        if !self.flow.missing.is_empty() && now - self.since <= LAST {
            return None;
        }
        self.flow.echo.close(stack);
        Some(Ok(format!("{} sent, {} lost", self.flow.sent, self.flow.missing.len())))
    }
}
