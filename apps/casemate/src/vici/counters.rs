//! The counters of `get-counters`, which have the names of charon's plugin `counters`.
//!
//! IKE messages are counted for the whole instance only, not for each connection.

use super::message::MessageWriter;
use casemate::MessageCounters;
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

impl Counters {
    fn write(&self, section: &mut MessageWriter) {
        section.display("ike-rekey-init", self.ike_rekeyed);
        section.display("child-rekey", self.child_rekeyed);
        section.display("invalid", self.invalid);
    }
}

/// The counters of the whole instance and of each connection.
#[derive(Debug, Default)]
pub(super) struct EventCounters {
    all: Counters,
    by_connection: BTreeMap<String, Counters>,
    /// Numbers of messages at the last reset.
    messages_at_reset: MessageCounters,
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

    /// Writes the counters of one connection, of `all` connections, or of the whole instance with its IKE
    /// `messages`. The section of the instance has no name in charon, and `swanctl` expects that.
    pub(super) fn write(
        &self,
        name: Option<&str>,
        all: bool,
        messages: &MessageCounters,
        message: &mut MessageWriter,
    ) {
        match name {
            Some(name) => {
                if let Some(counters) = self.by_connection.get(name) {
                    message.section(name, |section| counters.write(section));
                }
            }
            None if all => {
                for (name, counters) in &self.by_connection {
                    message.section(name, |section| counters.write(section));
                }
            }
            None => message.section("", |section| {
                self.all.write(section);
                self.write_messages(messages, section);
            }),
        }
    }

    /// Writes the numbers of messages since the last reset.
    fn write_messages(&self, messages: &MessageCounters, section: &mut MessageWriter) {
        let received = messages.received.since(self.messages_at_reset.received);
        let sent = messages.sent.since(self.messages_at_reset.sent);
        for (name, received, sent) in [
            ("ike-init", received.init, sent.init),
            ("ike-auth", received.auth, sent.auth),
            ("create-child", received.create_child, sent.create_child),
            ("info", received.informational, sent.informational),
        ] {
            for (way, count) in [("in", received), ("out", sent)] {
                section.display(&format!("{name}-{way}-req"), count.requests);
                section.display(&format!("{name}-{way}-resp"), count.responses);
            }
        }
    }

    /// Sets the counters of one connection, of `all` connections, or of the whole instance to 0.
    pub(super) fn reset(&mut self, name: Option<&str>, all: bool, messages: &MessageCounters) {
        match name {
            Some(name) => {
                self.by_connection.remove(name);
            }
            None if all => self.by_connection.clear(),
            None => (self.all, self.messages_at_reset) = (Counters::default(), *messages),
        }
    }
}
