//! What happens, as lines for the console.

use alloc::format;
use alloc::string::{String, ToString};
use casemate::Notice;
use casemate_datapath::Event as DatapathEvent;
use casemate_ike::Event;

/// The line for a notice; some are not worth one.
pub(crate) fn of(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Datapath(event) => Some(of_datapath(event)),
        Notice::Ike(event) => of_ike(event),
        // Routes and filters of a host would follow it; here nothing does.
        Notice::Policy(_) => None,
        Notice::NotHeld { child, why, .. } => Some(format!("{}: the traffic is not held: {why}", child.name)),
        Notice::NotInstalled { why, .. } => Some(format!("the Child SA could not be installed: {why}")),
    }
}

/// The line for an event of the data path.
pub(crate) fn of_datapath(event: &DatapathEvent) -> String {
    match event {
        DatapathEvent::Audit(audit) => {
            let end =
                |addr: Option<core::net::IpAddr>| addr.map_or_else(|| "?".into(), |addr| addr.to_string());
            format!("dropped: {}, {} > {}", audit.reason, end(audit.src), end(audit.dst))
        }
        DatapathEvent::SoftLifetime(id) => format!("SA {id}: time for new keys"),
        DatapathEvent::HardLifetime(id) => format!("SA {id}: its time is over, it passes no more packets"),
        DatapathEvent::Acquire { flow, .. } => format!("no SA from {} to {} yet", flow.src(), flow.dst()),
    }
}

fn of_ike(event: &Event) -> Option<String> {
    Some(match event {
        Event::IkeUp { peer, path, .. } => format!("ike: established with {peer} at {}", path.remote),
        Event::IkeRekeyed { .. } => "ike: the IKE SA has new keys".into(),
        Event::IkeDown { why, .. } => format!("ike: ended: {why}"),
        Event::NotBegun { error, .. } => format!("ike: not begun: {error}"),
        Event::ChildUp(up) => format!(
            "ike: Child SA with {} {}, SPIs {} in and {} out",
            up.suite, up.inbound.mode, up.inbound.spi, up.outbound.spi
        ),
        Event::ChildDown { why, .. } => format!("ike: Child SA ended: {why}"),
        Event::ChildFailed { why, .. } => format!("ike: no Child SA: {why}"),
        Event::Moved { path, .. } => format!("ike: the peer is now at {}", path.remote),
        Event::Fault { fault, path } => format!("ike: {}: {fault}", path.remote),
        Event::ChildActive(_)
        | Event::ChildClosing(_)
        | Event::Keys(_)
        | Event::Assigned { .. }
        | Event::Unassigned { .. } => {
            return None;
        }
    })
}
