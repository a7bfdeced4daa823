//! A log of what happens, for people.

use crate::net::{Carries, Datagram};
use casemate::Notice;
use casemate_ike::Event;
use casemate_wire::ike::{Header, Message};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Says what happens, if somebody wants to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace {
    /// Whether somebody wants to know.
    pub(crate) on: bool,
}

impl Trace {
    /// Says what happens.
    pub(crate) fn say(&self, now: Duration, what: impl FnOnce() -> String) {
        if self.on {
            // Whoever reads may stop reading.
            let _ = writeln!(std::io::stdout(), "{:>10.3}  {}", now.as_secs_f64(), what());
        }
    }
}

/// A datagram in one line.
pub(crate) fn of_datagram(datagram: &Datagram) -> String {
    let (from, to) = (datagram.from, datagram.to);
    match &datagram.carries {
        Carries::Udp(payload) => format!("{from} -> {to}  {}", of_payload(payload)),
        Carries::Ip(packet) => {
            format!("{from} -> {to}  IP protocol {:?}, {} bytes", packet.get(9), packet.len())
        }
    }
}

fn of_payload(payload: &[u8]) -> String {
    match payload {
        [0xff] => "keepalive".into(),
        [0, 0, 0, 0, message @ ..] => of_message(message),
        _ if Message::parse(payload).is_ok() => of_message(payload),
        [a, b, c, d, ..] => format!("ESP {a:02x}{b:02x}{c:02x}{d:02x}, {} bytes", payload.len()),
        _ => format!("{} bytes", payload.len()),
    }
}

fn of_message(message: &[u8]) -> String {
    let Ok(header) = Header::parse(message) else { return format!("{} bytes of IKE", message.len()) };
    let kind = if header.flags.response { "response" } else { "request" };
    let side = if header.flags.initiator { "I" } else { "R" };
    let mut text = format!("{} {kind} {} by {side}", header.exchange, header.message_id);
    let _ = write!(text, ", {:08x}/{:08x}", header.spi_i.0 >> 32, header.spi_r.0 >> 32);
    if let Ok(parsed) = Message::parse(message) {
        let kinds = parsed.payloads().filter_map(Result::ok).map(|payload| payload.kind.to_string());
        let _ = write!(text, ": {}", kinds.collect::<Vec<_>>().join(" "));
    }
    text
}

/// A notice in one line.
pub(crate) fn of_notice(notice: &Notice) -> String {
    match notice {
        Notice::Ike(Event::ChildUp(up)) => format!(
            "ChildUp {} {} of IKE {}: in {:08x} out {:08x}, replaces {:?}, active {}",
            up.id,
            up.child.name,
            up.ike,
            up.inbound.spi.get(),
            up.outbound.spi.get(),
            up.replaces.map(|id| id.to_string()),
            up.active
        ),
        Notice::Ike(Event::IkeUp { ike, connection, path, .. }) => {
            format!("IkeUp {ike} {} at {}", connection.name, path.remote)
        }
        Notice::Ike(Event::IkeDown { ike, connection, why, .. }) => {
            format!("IkeDown {ike} {}: {why}", connection.name)
        }
        Notice::Ike(Event::ChildFailed { child, why, .. }) => format!("ChildFailed {}: {why}", child.name),
        Notice::Ike(Event::NotBegun { connection, error }) => {
            format!("NotBegun {}: {error}", connection.name)
        }
        Notice::Ike(Event::ChildDown { id, why, .. }) => format!("ChildDown {id}: {why}"),
        Notice::Ike(Event::Fault { fault, path }) => format!("Fault from {}: {fault}", path.remote),
        Notice::Ike(Event::Keys(keys)) => format!("Keys of {:08x}", keys.spis.0.0 >> 32),
        other => format!("{other:?}"),
    }
}
