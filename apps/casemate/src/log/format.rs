//! Log lines for notices of the endpoint.

pub use super::rate_limit::LogCategory;
use casemate::Notice;
use casemate_datapath::{Audit, AuditedHeader, Event as DatapathEvent, SaId, SaStatus};
use casemate_ike::{ChildUp, Event, TrafficSelector};
use std::fmt::Write as _;

/// Formats a notice; `sa` is the SA that it is about. Returns the category and the line, or `None` for a
/// notice that is not logged.
pub fn log_line(notice: &Notice, sa: Option<&SaStatus>) -> Option<(LogCategory, String)> {
    text(notice, sa).map(|line| (category(notice), line))
}

/// The category of a notice. Packets or peers cause every notice, so each category is rate-limited.
fn category(notice: &Notice) -> LogCategory {
    match notice {
        Notice::Datapath(DatapathEvent::Audit(audit)) => LogCategory::Audit(audit.reason.name()),
        Notice::Datapath(DatapathEvent::Acquire { .. }) => LogCategory::Acquire,
        Notice::Ike(Event::Fault { fault, .. }) => LogCategory::Fault(fault.name()),
        // An attacker on the path can change the source address of every message.
        Notice::Ike(Event::PathChanged { .. }) => LogCategory::Moved,
        Notice::Ike(Event::IkeDown { half_open: true, .. }) => LogCategory::HalfOpen,
        Notice::Datapath(_)
        | Notice::Ike(_)
        | Notice::Policy(_)
        | Notice::TrapNotInstalled { .. }
        | Notice::ChildNotInstalled { .. } => LogCategory::Sa,
    }
}

fn text(notice: &Notice, sa: Option<&SaStatus>) -> Option<String> {
    match notice {
        Notice::Datapath(event) => Some(datapath_line(event, sa)),
        Notice::Ike(event) => ike_line(event),
        Notice::Policy(_) => None,
        Notice::TrapNotInstalled { connection, child, error } => Some(format!(
            "{}/{}: the traffic is not blocked and passes in clear: {error}",
            connection.name, child.name
        )),
        Notice::ChildNotInstalled { connection, child, error } => {
            Some(format!("{}/{}: the Child SA could not be installed: {error}", connection.name, child.name))
        }
    }
}

fn datapath_line(event: &DatapathEvent, sa: Option<&SaStatus>) -> String {
    match event {
        DatapathEvent::Audit(audit) => audit_line(audit),
        DatapathEvent::SoftLifetime(id) => {
            format!("{}: soft lifetime reached, rekeying is due", name(sa, *id))
        }
        DatapathEvent::HardLifetime(id) => {
            format!("{}: hard lifetime reached, the SA processes no more packets", name(sa, *id))
        }
        DatapathEvent::Acquire { flow, .. } => {
            format!("no SA for packets from {} to {} that a policy protects", flow.src(), flow.dst())
        }
    }
}

fn ike_line(event: &Event) -> Option<String> {
    Some(match event {
        Event::IkeUp { ike, connection, peer, path } => {
            format!("{}[{ike}]: established with {peer} at {}", connection.name, path.remote)
        }
        Event::IkeRekeyed { old, new } => format!("IKE SA [{old}] was replaced by [{new}]"),
        Event::IkeDown { ike, connection, reason: why, .. } => {
            format!("{}[{ike}]: ended: {why}", connection.name)
        }
        Event::InitiateFailed { connection, error } => format!("{}: not initiated: {error}", connection.name),
        Event::ChildUp(up) => child_up(up),
        Event::ChildActive(_) | Event::ChildClosing(_) | Event::Keys(_) => return None,
        Event::Retransmitted { .. } => return None,
        Event::ChildDown { id, reason: why, .. } => format!("Child SA {{{id}}}: ended: {why}"),
        Event::ChildFailed { connection, child, reason: why } => {
            format!("{}/{}: no Child SA: {why}", connection.name, child.name)
        }
        Event::ConfigAssigned { ike, config: what, .. } => {
            let addrs: Vec<String> = what.addrs.iter().map(ToString::to_string).collect();
            let dns: Vec<String> = what.dns.iter().map(ToString::to_string).collect();
            format!("IKE SA [{ike}]: virtual addresses {}; name servers {}", list(&addrs), list(&dns))
        }
        Event::AddrsReleased { ike, addrs } => {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            format!("IKE SA [{ike}]: virtual addresses {} were removed", list(&addrs))
        }
        Event::PathChanged { ike, path, .. } => format!("IKE SA [{ike}]: the peer is now at {}", path.remote),
        Event::Fault { fault, path, .. } => format!("{}: {}: {fault}", path.remote, fault.name()),
    })
}

fn child_up(up: &ChildUp) -> String {
    let traffic =
        |parts: &[TrafficSelector]| list(&parts.iter().map(ToString::to_string).collect::<Vec<_>>());
    let mut line = format!(
        "{}/{}{{{}}}: {} {}, SPIs {} in and {} out, {} === {}",
        up.connection.name,
        up.child.name,
        up.id,
        up.suite,
        up.inbound.mode,
        up.inbound.spi,
        up.outbound.spi,
        traffic(&up.local),
        traffic(&up.remote),
    );
    if let Some(old) = up.replaces {
        let _ = write!(line, ", replaces {{{old}}}");
    }
    match (&up.child.rohc, &up.outbound.rohc) {
        (_, Some(_)) => line.push_str(", with header compression"),
        (Some(_), None) => line.push_str(", without header compression: the peer did not agree to `rohc`"),
        (None, None) => {}
    }
    line
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".into() } else { items.join(" ") }
}

/// The fields that RFC 4303 section 3.4 requires in the audit log: reason, addresses, SPI, sequence
/// number, flow label.
fn audit_line(audit: &Audit) -> String {
    let mut line = format!("audit: {}", audit.reason);
    if let (Some(src), Some(dst)) = (audit.src, audit.dst) {
        let _ = write!(line, ", {src} > {dst}");
    }
    if let Some(AuditedHeader { protocol, spi, seq }) = audit.header {
        let _ = write!(line, ", {protocol} spi {spi:#010x} seq {seq}");
    }
    if let Some(label) = audit.flow_label {
        let _ = write!(line, ", flow label {label:#x}");
    }
    let _ = write!(line, " ({})", audit.reason.source());
    line
}

fn name(sa: Option<&SaStatus>, id: SaId) -> String {
    sa.map_or_else(
        || id.to_string(),
        |sa| format!("SA {} > {} {} spi {}", sa.src, sa.dst, sa.protocol, sa.spi),
    )
}
