//! Whether the guard still stands as it was made: other programs may change or remove it, as `nft flush ruleset`
//! does.
//!
//! The kernel tells of every transaction about the table. Those of our own connection are known by its port,
//! and of a script that `nft` has made for us there is one. If there are more, the guard is written anew, and
//! also if messages were lost that may have been about others: the kernel numbers all transactions, so the
//! number of those that were not told is known.

use crate::Error;
use crate::guard::SetChange;
use crate::netfilter::{Netfilter, Seen, TableWatch};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The least time between two times that it is put up again.
const REST: Duration = Duration::from_millis(100);

/// How the guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardState {
    /// No other program has changed or removed it, or it was put up again since.
    pub stands: bool,
    /// How often it was put up again.
    pub restored: u64,
}

/// A connection to nftables, and what is known of the guard.
pub(crate) struct Sentry {
    table: String,
    netfilter: Netfilter,
    watch: TableWatch,
    seen: Seen,
    /// When all of it was last put up.
    put_up: Option<Instant>,
    /// When it was noticed that another program has changed it.
    disturbed: Option<Instant>,
    restored: u64,
    lines: Vec<String>,
}

impl Sentry {
    /// For a guard that stands.
    pub(super) fn open(table: String) -> Result<Self, Error> {
        let open = || {
            let mut netfilter = Netfilter::open()?;
            let mut watch = TableWatch::open(table.clone(), netfilter.port())?;
            watch.catch_up(netfilter.generation()?);
            let stands = netfilter.has_table(&table)?;
            Ok((netfilter, watch, stands))
        };
        let (netfilter, watch, stands) = open().map_err(|error| Error::new("nftables", error))?;
        // Without the table it is as if it were told that it went.
        let seen = Seen { transactions: u32::from(!stands), ..Seen::default() };
        let (put_up, disturbed, lines) = (None, None, Vec::new());
        Ok(Self { table, netfilter, watch, seen, put_up, disturbed, restored: 0, lines })
    }

    pub(crate) const fn state(&self) -> GuardState {
        GuardState { stands: self.disturbed.is_none(), restored: self.restored }
    }

    /// Whether it is there as it was made, as far as its [changes](Self::is_disturbed) were judged. An error if
    /// the kernel does not say it.
    pub(super) fn guard_stands(&mut self) -> Result<bool, Error> {
        let has_table = self.netfilter.has_table(&self.table);
        let failed = |error| Error::new(format!("nftables table {}", self.table), error);
        Ok(self.disturbed.is_none() && has_table.map_err(failed)?)
    }

    /// What is to be told, in its order.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Changes elements in one transaction.
    pub(super) fn change(&mut self, changes: &[SetChange]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let failed = |error| Error::new(format!("elements of nftables table {}", self.table), error);
        self.netfilter.change(&self.table, changes).map_err(failed)
    }

    /// Whether there is something to [judge](Self::is_disturbed).
    pub(super) fn has_news(&mut self) -> bool {
        self.watch.hear(&mut self.seen);
        self.seen.transactions > 0 || self.seen.lost
    }

    /// Whether another program has changed the guard, or may have. A `script` of ours that has just succeeded
    /// is one transaction; `true` if it made all of the guard.
    pub(super) fn is_disturbed(&mut self, script: Option<bool>) -> bool {
        if script == Some(true) {
            self.put_up = Some(Instant::now());
        }
        self.has_news();
        let Seen { transactions, program, lost } = std::mem::take(&mut self.seen);
        let ours = u32::from(script.is_some());
        let is_unknown = lost && self.untold().is_none_or(|untold| untold > ours);
        let is_so = transactions > ours || is_unknown;
        if is_so && self.disturbed.is_none() {
            self.disturbed = Some(Instant::now());
            self.lines.push(if transactions > ours {
                let program = program.map(|name| format!(" ({name})")).unwrap_or_default();
                format!("the guard was changed or removed by another program{program}: it is put up again")
            } else {
                "another program may have changed the guard, because word of changes was lost: it is put up again"
                    .into()
            });
        } else if !is_so && script == Some(true) {
            self.report();
        }
        is_so
    }

    /// When it may be put up again: another program that removes it all the time is not to keep us busy.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.put_up?.checked_add(REST)
    }

    /// How many transactions of all programs were not told since messages were lost; `None` if that cannot be
    /// known.
    fn untold(&mut self) -> Option<u32> {
        let known = self.watch.generation();
        let generation = self.netfilter.generation().ok()?;
        self.watch.catch_up(generation);
        Some(generation.wrapping_sub(known?))
    }

    /// All of it was put up.
    fn report(&mut self) {
        let Some(since) = self.disturbed.take() else { return };
        self.restored = self.restored.saturating_add(1);
        let after = since.elapsed().as_millis();
        self.lines.push(format!("the guard stands again, {after} ms after that was noticed"));
    }
}

impl AsFd for Sentry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
