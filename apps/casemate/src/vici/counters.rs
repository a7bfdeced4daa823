//! The counters of `get-counters`, which have the names of charon's plugin `counters`.
//!
//! IKE messages are not counted by exchange and connection, so those counters are missing.

use super::message::MessageWriter;
use casemate_ike::Event;
use casemate_ike::config::Connection;
use std::collections::BTreeMap;

/// Maximum number of connections with counters of their own.
const MAX_CONNECTIONS: usize = 65_536;

/// The counters of one connection, or of all.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    ike_rekeyed: u64,
    child_rekeyed: u64,
    invalid: u64,
}

/// The counters of the whole instance and of each connection.
#[derive(Debug, Default)]
pub(super) struct EventCounters {
    all: Counters,
    by_connection: BTreeMap<String, Counters>,
}

impl EventCounters {
    /// Counts an event. `ike` is the connection of the IKE SA that was rekeyed, if it is known.
    pub(super) fn count(&mut self, event: &Event, ike: Option<&Connection>) {
        match event {
            Event::IkeRekeyed { .. } => self.add(ike, |counters| &mut counters.ike_rekeyed),
            Event::ChildUp(up) if up.replaces.is_some() => {
                self.add(Some(&up.connection), |counters| &mut counters.child_rekeyed);
            }
            Event::Fault { .. } => self.add(None, |counters| &mut counters.invalid),
            _ => {}
        }
    }

    fn add(&mut self, connection: Option<&Connection>, counter: fn(&mut Counters) -> &mut u64) {
        let increment = |count: &mut u64| *count = count.saturating_add(1);
        increment(counter(&mut self.all));
        let Some(connection) = connection else { return };
        if self.by_connection.len() < MAX_CONNECTIONS || self.by_connection.contains_key(&connection.name) {
            increment(counter(self.by_connection.entry(connection.name.clone()).or_default()));
        }
    }

    /// Writes the counters of one connection, of `all` connections, or of the whole instance. Its section has
    /// no name in charon, and `swanctl` expects that.
    pub(super) fn write(&self, name: Option<&str>, all: bool, message: &mut MessageWriter) {
        let write = |name: &str, counters: &Counters, message: &mut MessageWriter| {
            message.section(name, |section| {
                section.display("ike-rekey-init", counters.ike_rekeyed);
                section.display("child-rekey", counters.child_rekeyed);
                section.display("invalid", counters.invalid);
            });
        };
        match name {
            Some(name) => {
                if let Some(counters) = self.by_connection.get(name) {
                    write(name, counters, message);
                }
            }
            None if all => {
                self.by_connection.iter().for_each(|(name, counters)| write(name, counters, message));
            }
            None => write("", &self.all, message),
        }
    }

    /// Sets the counters of one connection, of `all` connections, or of the whole instance to 0.
    pub(super) fn reset(&mut self, name: Option<&str>, all: bool) {
        match name {
            Some(name) => {
                self.by_connection.remove(name);
            }
            None if all => self.by_connection.clear(),
            None => self.all = Counters::default(),
        }
    }
}
