//! Console messages for events, and their rate limit.

use alloc::format;
use alloc::string::{String, ToString};
use casemate::Notice;
use casemate_datapath::Event as DatapathEvent;
use casemate_ike::Event;
use smoltcp::time::Instant;

/// Returns the message for a notice, or `None` if it is not logged.
pub(crate) fn describe(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Datapath(event) => Some(describe_datapath(event)),
        Notice::Ike(event) => describe_ike(event),
        // For routes and filters of a host operating system, which the machine does not have, and accounting.
        Notice::Policy(_) | Notice::SaCounters { .. } => None,
        Notice::PeerUsesUnknownSpi { .. } => {
            Some("ike: initiated: the peer sends on an SA that does not exist here".into())
        }
        Notice::TrapNotInstalled { child, error, .. } => {
            Some(format!("{}: the traffic is not blocked and passes in clear: {error}", child.name))
        }
        Notice::ChildNotInstalled { error, .. } => {
            Some(format!("the Child SA could not be installed: {error}"))
        }
    }
}

/// Returns the message for an event of the data path.
pub(crate) fn describe_datapath(event: &DatapathEvent) -> String {
    match event {
        DatapathEvent::Audit(audit) => {
            let end =
                |addr: Option<core::net::IpAddr>| addr.map_or_else(|| "?".into(), |addr| addr.to_string());
            format!("dropped: {}, {} > {}", audit.reason, end(audit.src), end(audit.dst))
        }
        DatapathEvent::SoftLifetime(id) => format!("SA {id}: soft lifetime reached, rekey it"),
        DatapathEvent::HardLifetime(id) => format!("SA {id}: hard lifetime reached, packets are dropped"),
        DatapathEvent::Acquire { flow, .. } => format!("no SA from {} to {} yet", flow.src(), flow.dst()),
    }
}

fn describe_ike(event: &Event) -> Option<String> {
    Some(match event {
        Event::IkeUp { peer, path, .. } => format!("ike: established with {peer} at {}", path.remote),
        Event::IkeRekeyed { .. } => "ike: the IKE SA has new keys".into(),
        Event::IkeRekeyFailed { reason, .. } => format!("ike: the IKE SA has no new keys yet: {reason}"),
        Event::IkeDown { reason, .. } => format!("ike: ended: {reason}"),
        Event::InitiateFailed { error, .. } => format!("ike: the negotiation was not started: {error}"),
        Event::ChildUp(up) => format!(
            "ike: Child SA with {} {}, SPIs {} in and {} out",
            up.suite, up.inbound.mode, up.inbound.spi, up.outbound.spi
        ),
        Event::ChildDown { reason, .. } => format!("ike: Child SA ended: {reason}"),
        Event::ChildFailed { replaces: Some(_), reason, .. } => {
            format!("ike: the Child SA has no new keys yet: {reason}")
        }
        Event::ChildFailed { reason, .. } => format!("ike: no Child SA was established: {reason}"),
        Event::PathChanged { path, .. } => format!("ike: the peer is now at {}", path.remote),
        Event::Fault { fault, path, .. } => format!("ike: {}: {fault}", path.remote),
        Event::ChildActive(_)
        | Event::ChildClosing(_)
        | Event::Keys(_)
        | Event::Retransmitted { .. }
        | Event::Redirected { .. }
        | Event::NotResumed { .. }
        | Event::NumbersSkipped { .. }
        | Event::PathMtu { .. }
        | Event::ConfigAssigned { .. }
        | Event::AddrsReleased { .. } => {
            return None;
        }
    })
}

/// Maximum number of lines per second.
const LINES_PER_SECOND: u32 = 20;

/// Log with a maximum number of lines per second: other hosts can cause events at any rate, and the serial
/// line is slow. The fields count the lines of the current second.
#[derive(Debug, Default)]
pub struct RateLimitedLog {
    second: i64,
    written: u32,
    omitted: u32,
}

impl RateLimitedLog {
    /// Logs a line, unless the limit of this second is reached. Omitted lines are counted and reported
    /// with the next line.
    pub fn write(&mut self, now: Instant, line: String, mut print: impl FnMut(&str)) {
        if now.secs() != self.second {
            let omitted = self.omitted;
            *self = Self { second: now.secs(), ..Self::default() };
            if omitted > 0 {
                print(&format!("{omitted} lines were omitted"));
            }
        }
        if self.written < LINES_PER_SECOND {
            self.written = self.written.saturating_add(1);
            print(&line);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn the_number_of_lines_per_second_is_limited() {
        let (mut log, mut lines) = (RateLimitedLog::default(), Vec::new());
        for at in [100, 1_100] {
            for number in 0..50 {
                let now = Instant::from_millis(at + number);
                log.write(now, number.to_string(), |line| lines.push(line.to_string()));
            }
        }
        assert_eq!(lines.len(), 41);
        assert_eq!((lines[0].as_str(), lines[19].as_str()), ("0", "19"));
        assert_eq!((lines[20].as_str(), lines[21].as_str()), ("30 lines were omitted", "0"));
    }
}
