//! Detects changes of the guard: other programs may change or remove it, as `nft flush ruleset` does.
//!
//! The kernel reports every transaction on the table. Transactions of our own connection are known by its
//! port, and a script of `nft` is one transaction. If there are more transactions, the guard is written
//! again. The same happens if messages were lost that may have been about transactions of others: the kernel
//! numbers all transactions, so the number of unreported ones is known.

use crate::Error;
use crate::leak_guard::SetChange;
use crate::netfilter::{Netfilter, TableEvents, TableMonitor};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Shortest time between two reinstallations of the guard.
const MIN_REINSTALL_INTERVAL: Duration = Duration::from_millis(100);

/// State of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardState {
    /// The guard is installed: no other program has changed or removed it, or it was installed again since.
    pub stands: bool,
    /// How often the guard was installed again.
    pub restored: u64,
}

/// What a script of `nft` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptExtent {
    /// It installs the whole guard.
    Whole,
    /// It changes a part of the guard.
    Part,
}

/// A connection to nftables, and the known state of the guard.
pub(crate) struct GuardMonitor {
    table: String,
    netfilter: Netfilter,
    table_monitor: TableMonitor,
    events: TableEvents,
    /// When the whole guard was installed last.
    installed_at: Option<Instant>,
    /// When a change by another program was detected.
    tampered_at: Option<Instant>,
    restored: u64,
    messages: Vec<String>,
}

impl GuardMonitor {
    /// Opens the monitor of an installed guard.
    pub(super) fn open(table: String) -> Result<Self, Error> {
        let open = || {
            let mut netfilter = Netfilter::open()?;
            let mut table_monitor = TableMonitor::open(table.clone(), netfilter.port())?;
            table_monitor.set_generation(netfilter.generation()?);
            let stands = netfilter.has_table(&table)?;
            Ok((netfilter, table_monitor, stands))
        };
        let (netfilter, table_monitor, stands) = open().map_err(|error| Error::new("nftables", error))?;
        // A missing table counts as a transaction that removed it.
        let events = TableEvents { transactions: u32::from(!stands), ..TableEvents::default() };
        Ok(Self {
            table,
            netfilter,
            table_monitor,
            events,
            installed_at: None,
            tampered_at: None,
            restored: 0,
            messages: Vec::new(),
        })
    }

    pub(crate) const fn state(&self) -> GuardState {
        GuardState { stands: self.tampered_at.is_none(), restored: self.restored }
    }

    /// Whether the guard is installed and unchanged, as of the last
    /// [`detect_tampering`](Self::detect_tampering). An error if the kernel does not reply.
    pub(super) fn guard_stands(&mut self) -> Result<bool, Error> {
        let has_table = self.netfilter.has_table(&self.table);
        let failed = |error| Error::new(format!("nftables table {}", self.table), error);
        Ok(self.tampered_at.is_none() && has_table.map_err(failed)?)
    }

    /// Takes the messages for the log, in their order.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Changes elements of sets in one transaction.
    pub(super) fn change_elements(&mut self, changes: &[SetChange]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let failed = |error| Error::new(format!("elements of nftables table {}", self.table), error);
        self.netfilter.change(&self.table, changes).map_err(failed)
    }

    /// Whether there are events for [`detect_tampering`](Self::detect_tampering).
    pub(super) fn has_events(&mut self) -> bool {
        self.table_monitor.read_events(&mut self.events);
        self.events.transactions > 0 || self.events.lost
    }

    /// Returns whether another program has changed the guard, or may have. `script` is a script of this
    /// program that has just succeeded, which is one transaction.
    pub(super) fn detect_tampering(&mut self, script: Option<ScriptExtent>) -> bool {
        if script == Some(ScriptExtent::Whole) {
            self.installed_at = Some(Instant::now());
        }
        self.has_events();
        let TableEvents { transactions, program, lost } = std::mem::take(&mut self.events);
        let own = u32::from(script.is_some());
        let is_unknown = lost && self.unreported_transactions().is_none_or(|unreported| unreported > own);
        let is_tampered = transactions > own || is_unknown;
        if is_tampered && self.tampered_at.is_none() {
            self.tampered_at = Some(Instant::now());
            self.messages.push(if transactions > own {
                let program = program.map(|name| format!(" ({name})")).unwrap_or_default();
                format!("the guard was changed or removed by another program{program}; installing it again")
            } else {
                "another program may have changed the guard, because messages of the kernel about changes \
                 were lost; installing it again"
                    .into()
            });
        } else if !is_tampered && script == Some(ScriptExtent::Whole) {
            self.report_restored();
        }
        is_tampered
    }

    /// When the guard may be installed again: another program that keeps removing it must not keep us busy.
    pub(super) fn next_reinstall(&self) -> Option<Instant> {
        self.installed_at?.checked_add(MIN_REINSTALL_INTERVAL)
    }

    /// Number of unreported transactions of all programs since messages were lost; `None` if it is unknown.
    fn unreported_transactions(&mut self) -> Option<u32> {
        let known = self.table_monitor.generation();
        let generation = self.netfilter.generation().ok()?;
        self.table_monitor.set_generation(generation);
        Some(generation.wrapping_sub(known?))
    }

    /// Reports why a part of the guard could not be changed, unless another program is known to have changed
    /// the guard.
    pub(super) fn report_failed_change(&mut self, error: &Error) {
        if self.tampered_at.is_none() {
            self.messages.push(format!("a change of the guard failed: {error}; installing the whole guard"));
        }
    }

    /// Reports that the whole guard was installed again.
    fn report_restored(&mut self) {
        let Some(since) = self.tampered_at.take() else { return };
        self.restored = self.restored.saturating_add(1);
        let after = since.elapsed().as_millis();
        self.messages.push(format!("the guard was restored {after} ms after the change was detected"));
    }
}

impl AsFd for GuardMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table_monitor.as_fd()
    }
}
