//! Trace of a run, for people.

use crate::net::{Datagram, Payload};
use casemate::Notice;
use casemate_ike::Event;
use casemate_wire::ike::{Header, Message};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Writes the trace if it is enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace {
    /// Whether to write the trace.
    pub(crate) enabled: bool,
}

impl Trace {
    /// Writes one line.
    pub(crate) fn log(&self, now: Duration, what: impl FnOnce() -> String) {
        if self.enabled {
            // The reader may have closed the pipe.
            let _ = writeln!(std::io::stdout(), "{:>10.3}  {}", now.as_secs_f64(), what());
        }
    }
}

/// One line about a datagram.
pub(crate) fn format_datagram(datagram: &Datagram) -> String {
    let (from, to) = (datagram.from, datagram.to);
    match &datagram.payload {
        Payload::Udp(payload) => format!("{from} -> {to}  {}", format_payload(payload)),
        Payload::Ip(packet) => {
            format!("{from} -> {to}  IP protocol {:?}, {} bytes", packet.get(9), packet.len())
        }
    }
}

fn format_payload(payload: &[u8]) -> String {
    match payload {
        [0xff] => "keepalive".into(),
        [0, 0, 0, 0, message @ ..] => format_message(message),
        _ if Message::parse(payload).is_ok() => format_message(payload),
        [a, b, c, d, ..] => format!("ESP {a:02x}{b:02x}{c:02x}{d:02x}, {} bytes", payload.len()),
        _ => format!("{} bytes", payload.len()),
    }
}

fn format_message(message: &[u8]) -> String {
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

/// One line about a notice.
pub(crate) fn format_notice(notice: &Notice) -> String {
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
        Notice::Ike(Event::IkeDown { ike, connection, reason: why, .. }) => {
            format!("IkeDown {ike} {}: {why}", connection.name)
        }
        Notice::Ike(Event::ChildFailed { child, reason: why, .. }) => {
            format!("ChildFailed {}: {why}", child.name)
        }
        Notice::Ike(Event::InitiateFailed { connection, error }) => {
            format!("NotBegun {}: {error}", connection.name)
        }
        Notice::Ike(Event::ChildDown { id, reason: why, .. }) => format!("ChildDown {id}: {why}"),
        Notice::Ike(Event::Fault { fault, path, .. }) => format!("Fault from {}: {fault}", path.remote),
        Notice::Ike(Event::Retransmitted { connection, exchange, attempt, .. }) => {
            format!("Retransmitted {} {exchange}: {attempt}", connection.name)
        }
        Notice::Ike(Event::Keys(keys)) => format!("Keys of {:08x}", keys.spis.initiator.0 >> 32),
        other => format!("{other:?}"),
    }
}
