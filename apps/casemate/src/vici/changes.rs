//! Changes of the configuration by clients of vici, and when they take effect.
//!
//! The thread `configuration` builds a change, and the event loop applies it. The response to the command
//! that loads a section is sent when the section has taken effect. In a burst of changes that lasts longer
//! ([`PROMPT`]), as with hundreds of connections, the response is sent at once and changes are collected. All
//! other commands wait until every change before them has taken effect.

use super::commands;
use super::loaded::Loaded;
use super::message::Section;
use super::server::ViciServer;
use super::session::SessionId;
use super::{ChangeResult, ViciContext, ViciRequest};
use crate::config_source::FileConfig;
use crate::log::level::Level;
use casemate_ike::config::Pool;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes that come this long after the first one of a burst, or after a change that took this long, are
/// collected.
const PROMPT: Duration = Duration::from_secs(1);
/// A burst ends when no change has come for this long.
const PAUSE: Duration = Duration::from_secs(1);
/// Time after the last change in which collected changes take effect, at least.
const COLLECT: Duration = Duration::from_millis(50);
/// A change waits no longer than this for the changes behind it.
const LONGEST: Duration = Duration::from_secs(3);
/// How many times longer than it takes to apply changes they are collected.
const COLLECT_FACTOR: u32 = 5;

/// A client that waits.
pub(super) enum Waiting {
    /// For a change to take effect; then for this response.
    Change(u64, Vec<u8>),
    /// For this change to take effect; then this command runs.
    Command(u64, String, Section),
    /// For the file to be read.
    Reload,
}

/// Changes of the configuration, numbered in their order.
#[derive(Default)]
pub(super) struct Changes {
    /// Number of the last change.
    pub(super) last: u64,
    /// Number of the last change that has taken effect.
    pub(super) applied: u64,
    /// Number of the last change that is being applied, and the time since which it is.
    pub(super) applying: Option<(u64, Instant)>,
    /// Time of the last change.
    pub(super) changed_at: Option<Instant>,
    /// How long the last change took to take effect.
    pub(super) cost: Duration,
    /// The changes of each client that follow each other closely.
    bursts: HashMap<SessionId, Burst>,
    /// Time of the oldest change that has not begun to take effect.
    pub(super) oldest_at: Option<Instant>,
    /// Clients whose commands have succeeded, although the changes have not taken effect yet, with the number
    /// of the last such change.
    acknowledged: HashMap<SessionId, u64>,
}

/// Times of the first and the last change of a burst.
struct Burst {
    first: Instant,
    last: Instant,
}

impl Changes {
    /// Forgets a client.
    pub(super) fn remove_client(&mut self, id: SessionId) {
        self.bursts.remove(&id);
        self.acknowledged.remove(&id);
    }

    /// Numbers a change. Returns whether it is prompt: its response is sent when it has taken effect.
    fn add(&mut self, id: SessionId, now: Instant) -> bool {
        let burst = self.bursts.entry(id).or_insert(Burst { first: now, last: now });
        if now.saturating_duration_since(burst.last) > PAUSE {
            burst.first = now;
        }
        burst.last = now;
        let is_prompt = self.cost <= PROMPT && now.saturating_duration_since(burst.first) <= PROMPT;
        self.last = self.last.saturating_add(1);
        self.changed_at = Some(now);
        self.oldest_at.get_or_insert(now);
        is_prompt
    }

    /// Notes that the client takes the last change for accepted.
    fn acknowledge(&mut self, id: SessionId) {
        self.acknowledged.insert(id, self.last);
    }

    /// Notes that the changes up to this one are in effect.
    fn apply(&mut self, number: u64) {
        self.applied = number;
        self.acknowledged.retain(|_, last| *last > number);
    }

    /// Discards all changes that are not in effect. Returns the clients that take one of them for accepted.
    fn discard(&mut self) -> Vec<SessionId> {
        self.applied = self.last;
        self.acknowledged.drain().map(|(id, _)| id).collect()
    }
}

impl ViciServer {
    /// What clients have loaded, and the part of the file to join it with.
    pub(crate) fn begin_change(&mut self) -> (Arc<FileConfig>, Loaded) {
        self.changes.applying = Some((self.changes.last, Instant::now()));
        self.changes.oldest_at = None;
        (self.base.clone(), self.loaded.clone())
    }

    /// Ends a change that has no effect, because the file has errors.
    pub(crate) fn cancel_change(&mut self) {
        self.changes.applying = None;
    }

    /// Notes a configuration that is in effect.
    pub(crate) fn set_configuration(&mut self, base: Option<Arc<FileConfig>>, pools: Vec<Pool>) {
        self.base = base.unwrap_or_default();
        self.pools = pools;
    }

    /// Processes the result of the change that [`begin_change`](Self::begin_change) began with `loaded`.
    /// Responds to the clients that wait for it. Returns what the controller has to do.
    pub(crate) fn end_change(
        &mut self,
        result: &ChangeResult,
        loaded: Loaded,
        context: &mut ViciContext<'_, '_>,
    ) -> Vec<ViciRequest> {
        let Some((number, since)) = self.changes.applying.take() else { return Vec::new() };
        self.changes.cost = since.elapsed();
        match result {
            Ok(()) => {
                self.changes.apply(number);
                self.in_effect = loaded;
                self.held.get_or_insert_default();
            }
            Err(error) => {
                // Nothing of the change is in effect, so it is forgotten, and so is what followed.
                self.loaded = self.in_effect.clone();
                let ids = self.changes.discard();
                self.discarded.extend(ids.into_iter().map(|id| (id, error.clone())));
                context.log.program(Level::Error, &format!("vici: changes were refused: {error}"));
            }
        }
        let applied = self.changes.applied;
        let mut commands = Vec::new();
        for (id, waiting) in mem::take(&mut self.waiting) {
            match (waiting, result) {
                (Waiting::Change(number, _), Err(error)) if number <= applied => {
                    self.respond(id, commands::failure(error));
                }
                (Waiting::Change(number, response), Ok(())) if number <= applied => {
                    self.respond(id, response);
                }
                (Waiting::Command(number, name, message), _) if number <= applied => {
                    commands.push((id, name, message));
                }
                (other, _) => self.waiting.push((id, other)),
            }
        }
        let mut requests = Vec::new();
        for (id, name, message) in commands {
            requests.extend(self.run(id, &name, &message, context));
        }
        requests
    }

    /// The sections of the file that were unloaded are part of the configuration again.
    pub(crate) fn show_file(&mut self) {
        self.loaded.show_file();
        self.in_effect.show_file();
    }

    /// Responds to a client that waits for the file to be read.
    pub(crate) fn end_reload(&mut self, id: SessionId, result: &ChangeResult) {
        self.waiting.retain(|(waiting, what)| *waiting != id || !matches!(what, Waiting::Reload));
        self.respond(id, commands::result(result));
    }

    /// Whether the collected changes are to be applied now. Sets an alarm otherwise.
    pub(super) fn next_change(&mut self) -> Option<ViciRequest> {
        let Changes { last, applied, applying: None, changed_at, cost, oldest_at, .. } = self.changes else {
            return None;
        };
        if last == applied {
            return None;
        }
        let needs_change = |waiting: &Waiting| matches!(waiting, Waiting::Change(..) | Waiting::Command(..));
        let is_awaited = self.waiting.iter().any(|(_, waiting)| needs_change(waiting));
        let wait = COLLECT.max(cost.saturating_mul(COLLECT_FACTOR));
        let settled = changed_at.map(|changed| changed + wait);
        let due = settled.into_iter().chain(oldest_at.map(|oldest| oldest + LONGEST.max(wait))).min();
        match due.filter(|due| !is_awaited && *due > Instant::now()) {
            None => Some(ViciRequest::Apply),
            Some(due) => {
                self.wake_at(due);
                None
            }
        }
    }

    /// Tells a client with the response to its next command that a change which it takes for accepted was
    /// refused with others. Returns whether there was one.
    pub(super) fn report_discarded(&mut self, id: SessionId) -> bool {
        let Some(error) = self.discarded.remove(&id) else { return false };
        let error = format!("this command did not run: changes before it were refused: {error}");
        self.respond(id, commands::failure(&error));
        true
    }

    /// Runs a command that changes the configuration.
    pub(super) fn change(
        &mut self,
        id: SessionId,
        name: String,
        message: Section,
        context: &mut ViciContext<'_, '_>,
    ) {
        if self.report_discarded(id) {
            return;
        }
        match commands::change(self, &name, &message, context) {
            Err(error) => self.respond(id, commands::failure(&error)),
            Ok(response) => {
                if self.changes.add(id, Instant::now()) {
                    self.waiting.push((id, Waiting::Change(self.changes.last, response)));
                } else {
                    self.changes.acknowledge(id);
                    self.respond(id, response);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_changes_of_a_burst_are_prompt() {
        let (mut changes, mut now) = (Changes::default(), Instant::now());
        let mut add = |pause: u64, cost: u64| {
            now += Duration::from_millis(pause);
            let is_prompt = changes.add(SessionId(1), now);
            changes.cost = Duration::from_millis(cost);
            is_prompt
        };
        let prompt = (0..200).take_while(|_| add(10, 10)).count();
        assert_eq!(prompt, 101, "one second at 10 ms each");
        assert!(!add(1_000, 10), "the burst goes on");
        assert!(add(1_001, 1_100), "after a pause, a change is prompt again");
        assert!(!add(2_000, 10), "the last change took 1.1 s");
        assert!(add(2_000, 10));
    }

    #[test]
    fn only_clients_whose_changes_were_discarded_are_told() {
        let (mut changes, now) = (Changes::default(), Instant::now());
        for id in [1, 2] {
            changes.add(SessionId(id), now);
            changes.acknowledge(SessionId(id));
        }
        changes.apply(1);
        assert_eq!(changes.discard(), [SessionId(2)]);
        assert_eq!((changes.applied, changes.discard()), (2, vec![]));
    }
}
