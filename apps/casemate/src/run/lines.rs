//! What happens, as lines of a log.

pub use super::budget::Kind;
use casemate::Notice;
use casemate_datapath::{Audit, Event as DatapathEvent, SaId, SaStatus};
use casemate_ike::{ChildUp, Event, Traffic};
use std::fmt::Write as _;

/// The line for a notice about this SA, with the budget that it belongs to; some are not worth one.
pub fn of(notice: &Notice, sa: Option<&SaStatus>) -> Option<(Kind, String)> {
    text(notice, sa).map(|line| (kind(notice), line))
}

/// The budget of a notice. Each notice is caused by packets, or by a peer.
fn kind(notice: &Notice) -> Kind {
    match notice {
        Notice::Datapath(DatapathEvent::Audit(audit)) => Kind::Audit(audit.reason.name()),
        Notice::Datapath(DatapathEvent::Acquire { .. }) => Kind::Acquire,
        Notice::Ike(Event::Fault { fault, .. }) => Kind::Fault(fault.name()),
        // Someone on the way can change the source address of every message.
        Notice::Ike(Event::Moved { .. }) => Kind::Moved,
        Notice::Ike(Event::IkeDown { half_open: true, .. }) => Kind::HalfOpen,
        Notice::Datapath(_)
        | Notice::Ike(_)
        | Notice::Policy(_)
        | Notice::NotHeld { .. }
        | Notice::NotInstalled { .. } => Kind::Sa,
    }
}

fn text(notice: &Notice, sa: Option<&SaStatus>) -> Option<String> {
    match notice {
        Notice::Datapath(event) => Some(of_datapath(event, sa)),
        Notice::Ike(event) => of_ike(event),
        Notice::Policy(_) => None,
        Notice::NotHeld { connection, child, why } => Some(format!(
            "{}/{}: the traffic is not held and passes in clear: {why}",
            connection.name, child.name
        )),
        Notice::NotInstalled { connection, child, why } => {
            Some(format!("{}/{}: the Child SA could not be installed: {why}", connection.name, child.name))
        }
    }
}

fn of_datapath(event: &DatapathEvent, sa: Option<&SaStatus>) -> String {
    match event {
        DatapathEvent::Audit(audit) => audit_line(audit),
        DatapathEvent::SoftLifetime(id) => {
            format!("{}: the soft lifetime is reached, time for new keys", name(sa, *id))
        }
        DatapathEvent::HardLifetime(id) => {
            format!("{}: the hard lifetime is over, it passes no more packets", name(sa, *id))
        }
        DatapathEvent::Acquire { flow, .. } => {
            format!("no SA for packets from {} to {}, which a policy protects", flow.src(), flow.dst())
        }
    }
}

fn of_ike(event: &Event) -> Option<String> {
    Some(match event {
        Event::IkeUp { ike, connection, peer, path } => {
            format!("{}[{ike}]: established with {peer} at {}", connection.name, path.remote)
        }
        Event::IkeRekeyed { old, new } => format!("IKE SA [{old}] is replaced by [{new}]"),
        Event::IkeDown { ike, connection, why, .. } => format!("{}[{ike}]: ended: {why}", connection.name),
        Event::NotBegun { connection, error } => format!("{}: not begun: {error}", connection.name),
        Event::ChildUp(up) => child_up(up),
        Event::ChildActive(_) | Event::ChildClosing(_) | Event::Keys(_) => return None,
        Event::ChildDown { id, why, .. } => format!("Child SA {{{id}}}: ended: {why}"),
        Event::ChildFailed { connection, child, why } => {
            format!("{}/{}: no Child SA: {why}", connection.name, child.name)
        }
        Event::Assigned { ike, what, .. } => {
            let addrs: Vec<String> = what.addrs.iter().map(ToString::to_string).collect();
            let dns: Vec<String> = what.dns.iter().map(ToString::to_string).collect();
            format!("IKE SA [{ike}]: virtual addresses {}; name servers {}", list(&addrs), list(&dns))
        }
        Event::Unassigned { ike, addrs } => {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            format!("IKE SA [{ike}]: virtual addresses {} are gone", list(&addrs))
        }
        Event::Moved { ike, path, .. } => format!("IKE SA [{ike}]: the peer is now at {}", path.remote),
        Event::Fault { fault, path } => format!("{}: {}: {fault}", path.remote, fault.name()),
    })
}

fn child_up(up: &ChildUp) -> String {
    let traffic = |parts: &[Traffic]| list(&parts.iter().map(ToString::to_string).collect::<Vec<_>>());
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
        let _ = write!(line, ", in the place of {{{old}}}");
    }
    line
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".into() } else { items.join(" ") }
}

/// What RFC 4303 section 3.4 wants in the log: reason, addresses, SPI, sequence number, flow label.
fn audit_line(audit: &Audit) -> String {
    let mut line = format!("audit: {}", audit.reason);
    if let (Some(src), Some(dst)) = (audit.src, audit.dst) {
        let _ = write!(line, ", {src} > {dst}");
    }
    if let Some((protocol, spi, seq)) = audit.header {
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
