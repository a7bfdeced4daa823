//! The counters of `get-counters`, which have the names of charon's plugin `counters`.
//!
//! IKE messages are counted for the whole instance only, not for each connection.

use super::message::MessageWriter;
use casemate::{ExchangeCounters, MessageCount, MessageCounters};
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

    fn write_messages(&self, messages: &MessageCounters, section: &mut MessageWriter) {
        let exchanges = |counters: &ExchangeCounters| {
            [
                ("ike-init", counters.init),
                ("ike-auth", counters.auth),
                ("create-child", counters.create_child),
                ("info", counters.informational),
            ]
        };
        let MessageCounters { received, sent } = self.messages_at_reset;
        let before = exchanges(&received).into_iter().zip(exchanges(&sent));
        let now = exchanges(&messages.received).into_iter().zip(exchanges(&messages.sent));
        for (((name, received), (_, sent)), ((_, received_before), (_, sent_before))) in now.zip(before) {
            for (way, now, before) in [("in", received, received_before), ("out", sent, sent_before)] {
                let MessageCount { requests, responses } = now;
                section.display(&format!("{name}-{way}-req"), requests.saturating_sub(before.requests));
                section.display(&format!("{name}-{way}-resp"), responses.saturating_sub(before.responses));
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
