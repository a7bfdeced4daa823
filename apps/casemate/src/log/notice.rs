//! Log messages for notices of the endpoint.

use super::established::{Established, established};
use super::explanation;
use super::hints;
use super::level::Level;
use super::message::{Message, Subject};
pub use super::rate_limit::LogCategory;
use super::wording;
use casemate::{Notice, NoticeSa, PolicyChange};
use casemate_datapath::{Audit, AuditedHeader, Direction, Event as DatapathEvent, SaId};
use casemate_ike::{AssignedConfig, ChildUp, DownReason, Event, PeerFault, StateFault};
use casemate_strongswan::notation;
use std::fmt::Write as _;

/// Formats a notice in one line; `sa` is the SA that it is about. Returns the category and the line, or
/// `None` for a notice that is not logged.
pub fn log_line(notice: &Notice, sa: Option<&NoticeSa>) -> Option<(LogCategory, String)> {
    let message = message(notice, sa).filter(|message| message.level < Level::Debug)?;
    Some((message.category, message.one_line()))
}

/// The category of a notice. Packets or peers cause every notice, so each category is rate-limited.
pub fn category(notice: &Notice) -> LogCategory {
    match notice {
        Notice::Datapath(DatapathEvent::Audit(audit)) => LogCategory::Audit(audit.reason.name()),
        Notice::Datapath(DatapathEvent::Acquire { .. }) => LogCategory::Acquire,
        Notice::Ike(Event::Fault { fault, .. }) => LogCategory::Fault(fault.name()),
        // An attacker on the path can change the source address of every message.
        Notice::Ike(Event::PathChanged { .. }) => LogCategory::Moved,
        Notice::Ike(Event::IkeDown { half_open: true, .. }) => LogCategory::HalfOpen,
        Notice::Ike(Event::Retransmitted { .. }) => LogCategory::Retransmission,
        Notice::Policy(_) => LogCategory::Policy,
        Notice::Datapath(_)
        | Notice::Ike(_)
        | Notice::SaCounters { .. }
        | Notice::PeerUsesUnknownSpi { .. }
        | Notice::TrapNotInstalled { .. }
        | Notice::ChildNotInstalled { .. } => LogCategory::Sa,
    }
}

/// Whether a notice reports that a certificate or the algorithm of a signature was refused.
pub(crate) fn is_refused_certificate(notice: &Notice) -> bool {
    let refusals = [StateFault::Certificate, StateFault::SignatureAlgorithm, StateFault::EapFailed]
        .map(PeerFault::State);
    matches!(notice, Notice::Ike(Event::Fault { fault, .. }) if refusals.contains(fault))
}

/// Formats a notice; `sa` is the SA that it is about. `None` if it is not logged at any level.
pub fn message(notice: &Notice, sa: Option<&NoticeSa>) -> Option<Message> {
    let category = category(notice);
    let (level, subject, text) = match notice {
        Notice::Datapath(event) => {
            let (level, text) = datapath_line(event, sa);
            (level, Subject::default(), text)
        }
        Notice::Ike(event) => return ike_message(event, sa, category),
        Notice::Policy(change) => (Level::Debug, Subject::default(), policy_line(change)),
        Notice::SaCounters { .. } => return None,
        Notice::PeerUsesUnknownSpi { connection } => (
            Level::Info,
            Subject::connection(&connection.name),
            "initiated: the peer sends on an SA that does not exist here, perhaps after a restart".into(),
        ),
        Notice::TrapNotInstalled { connection, child, error } => (
            Level::Error,
            Subject::child(&connection.name, &child.name),
            format!("the traffic is not blocked and passes in clear: {error}"),
        ),
        Notice::ChildNotInstalled { connection, child, error } => (
            Level::Error,
            Subject::child(&connection.name, &child.name),
            format!("the Child SA could not be installed: {error}"),
        ),
    };
    Some(Message::new(level, category, subject, text))
}

fn datapath_line(event: &DatapathEvent, sa: Option<&NoticeSa>) -> (Level, String) {
    match event {
        DatapathEvent::Audit(audit) => (Level::Warning, audit_line(audit)),
        DatapathEvent::SoftLifetime(id) => {
            (Level::Info, format!("{}: soft lifetime reached, rekeying is due", name(sa, *id)))
        }
        DatapathEvent::HardLifetime(id) => (
            Level::Warning,
            format!("{}: hard lifetime reached, the SA processes no more packets", name(sa, *id)),
        ),
        DatapathEvent::Acquire { flow, .. } => (
            Level::Info,
            format!("no SA for packets from {} to {} that a policy protects", flow.src(), flow.dst()),
        ),
    }
}

fn policy_line(change: &PolicyChange) -> String {
    match change {
        PolicyChange::Added { direction, policy, id, .. } => {
            format!("{} policy {id} added: {}, {}", words_of(*direction), policy.selector, policy.action)
        }
        PolicyChange::SpdAdded { spd } => format!("SPD added: {spd}"),
        PolicyChange::SpdRemoved { spd } => format!("SPD removed: {spd}"),
        PolicyChange::Removed { direction, id } => format!("{} policy {id} removed", words_of(*direction)),
    }
}

const fn words_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Outbound => "outbound",
        Direction::Inbound => "inbound",
    }
}

fn ike_message(event: &Event, sa: Option<&NoticeSa>, category: LogCategory) -> Option<Message> {
    let ike_sa = |ike: &casemate_ike::IkeSaId| Subject { ike: Some(*ike), ..Subject::default() };
    let child_sa = |id: &casemate_ike::ChildId| Subject { child_sa: Some(*id), ..Subject::default() };
    let (level, subject, text, details) = match event {
        Event::IkeUp { ike, connection, .. } => {
            let Established { level, text, details } = established(event, sa)?;
            (level, Subject::ike_sa(&connection.name, *ike), text, details)
        }
        Event::Redirected { ike, connection, from, to } => (
            Level::Info,
            Subject::ike_sa(&connection.name, *ike),
            format!("redirected by {from} to {to}"),
            Vec::new(),
        ),
        Event::NotResumed { ike, connection, path } => (
            Level::Info,
            Subject::ike_sa(&connection.name, *ike),
            format!(
                "{} does not resume the session: the hosts authenticate each other again",
                path.remote.ip()
            ),
            Vec::new(),
        ),
        Event::IkeRekeyed { old, new } => {
            (Level::Info, ike_sa(old), format!("was replaced by [{new}]"), Vec::new())
        }
        Event::IkeDown { ike, connection, reason, half_open, path } => {
            let mut details: Vec<String> = ended_by_fault(*reason).into_iter().collect();
            details.extend(match reason {
                DownReason::DeadPeer => vec![hints::dead_peer(connection, path.remote, *half_open)],
                reason => hints::ike_refused(connection, *reason),
            });
            (level_of(*reason), Subject::ike_sa(&connection.name, *ike), format!("ended: {reason}"), details)
        }
        Event::InitiateFailed { connection, error } => (
            Level::Warning,
            Subject::connection(&connection.name),
            format!("not initiated: {error}"),
            hints::not_initiated(connection, *error),
        ),
        Event::ChildUp(up) => {
            let subject = Subject::child(&up.connection.name, &up.child.name);
            let subject = Subject { child_sa: Some(up.id), ..subject };
            let hints = hints::all_traffic_narrowed(up);
            let level = if hints.is_empty() { Level::Info } else { Level::Warning };
            (level, subject, child_up(up), hints)
        }
        Event::ChildActive(id) => {
            (Level::Debug, child_sa(id), "the outbound SA is in use".into(), Vec::new())
        }
        Event::ChildClosing(id) => {
            (Level::Debug, child_sa(id), "this host has asked the peer to close it".into(), Vec::new())
        }
        Event::Keys(_) => return None,
        Event::ChildDown { id, reason, .. } => {
            (level_of(*reason), child_sa(id), format!("ended: {reason}"), Vec::new())
        }
        Event::IkeRekeyFailed { ike, connection, reason } => (
            level_of(*reason),
            Subject::ike_sa(&connection.name, *ike),
            format!("rekeying failed, and the IKE SA stays until its lifetime ends: {reason}"),
            hints::ike_rekeying_refused(connection, *reason),
        ),
        Event::ChildFailed { connection, child, replaces, reason } => (
            level_of(*reason),
            Subject::child(&connection.name, &child.name),
            match replaces {
                None => format!("no Child SA: {reason}"),
                Some(old) => {
                    format!("rekeying failed, and {{{old}}} stays until its lifetime ends: {reason}")
                }
            },
            hints::child_refused(connection, child, replaces.is_some(), *reason),
        ),
        Event::ConfigAssigned { ike, connection, config, .. } => {
            let level = if config.refused_addrs.is_empty() { Level::Info } else { Level::Warning };
            (level, Subject::ike_sa(&connection.name, *ike), assigned(config), Vec::new())
        }
        Event::AddrsReleased { ike, addrs } => {
            (Level::Info, ike_sa(ike), format!("virtual addresses {} were removed", words(addrs)), Vec::new())
        }
        Event::NumbersSkipped { ike, connection, count, .. } => (
            Level::Info,
            Subject::ike_sa(&connection.name, *ike),
            format!(
                "the peer goes on at another host: {count} sequence numbers of each Child SA are left out \
                 (RFC 6311)"
            ),
            Vec::new(),
        ),
        Event::PathMtu { is_final: false, .. } => return None,
        Event::PathMtu { ike, path, mtu, link, .. } => {
            (Level::Info, ike_sa(ike), path_mtu(path.remote.ip(), *mtu, *link), Vec::new())
        }
        Event::PathChanged { ike, path, .. } => {
            let text = format!("the peer is now at {}, this host at {}", path.remote, path.local);
            (Level::Info, ike_sa(ike), text, Vec::new())
        }
        Event::Fault { fault, path, connection, explanation } => {
            let subject = connection.as_ref().map(|connection| Subject::connection(&connection.name));
            let details = match (fault, explanation) {
                (PeerFault::State(fault), Some(explanation)) => {
                    explanation::lines(explanation, *fault, connection.as_deref(), *path)
                }
                (PeerFault::State(fault), None) => hints::fault(*fault, connection.as_deref()),
                (PeerFault::Wire(_), _) => Vec::new(),
            };
            (fault_level(*fault), subject.unwrap_or_default(), fault_line(*fault, path.remote), details)
        }
        Event::Retransmitted { ike, connection, .. } => {
            let hints::Retransmission { text, hint } = hints::retransmission(event)?;
            (Level::Info, Subject::ike_sa(&connection.name, *ike), text, hint.into_iter().collect())
        }
    };
    Some(Message::new(level, category, subject, text).with_details(details))
}

fn words<T: ToString>(values: &[T]) -> String {
    match values {
        [] => "none".to_owned(),
        values => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// What a peer has assigned to this host.
fn assigned(config: &AssignedConfig) -> String {
    let AssignedConfig { addrs, dns, domains, refused, refused_addrs, .. } = config;
    let mut text = format!("virtual addresses {}; name servers {}", words(addrs), words(dns));
    if !domains.is_empty() {
        let _ = write!(text, " for {}", words(domains));
    }
    if !refused_addrs.is_empty() {
        let _ = write!(text, "; {} cannot be a virtual address of this host", words(refused_addrs));
    }
    if *refused > 0 {
        let _ = write!(text, "; {refused} name servers or domains were refused");
    }
    text
}

/// What probes have found.
fn path_mtu(peer: std::net::IpAddr, mtu: Option<u16>, link: u16) -> String {
    match mtu {
        Some(mtu) => format!("path MTU to {peer} is {mtu} bytes: longer packets are lost (link MTU {link})"),
        None => format!("path MTU to {peer} is {link} bytes, as that of the link"),
    }
}

/// What the fault means, the peer, and the name under which it is counted.
fn fault_line(fault: PeerFault, peer: std::net::SocketAddr) -> String {
    format!("{peer}: {} ({})", meaning(fault), fault.name())
}

/// Makes the first character of a sentence lower-case, unless its first word is an abbreviation.
fn lower_first(text: &str) -> std::borrow::Cow<'_, str> {
    let mut rest = text.chars();
    match (rest.next(), rest.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            format!("{}{}", first.to_lowercase(), rest.as_str()).into()
        }
        _ => text.into(),
    }
}

/// What a fault means that ends an SA, if its own message is not a warning.
fn ended_by_fault(reason: DownReason) -> Option<String> {
    match reason {
        DownReason::Fault(fault) if fault_level(fault) > Level::Warning => Some(meaning(fault)),
        _ => None,
    }
}

/// What a fault means, as a part of a sentence.
fn meaning(fault: PeerFault) -> String {
    match fault {
        PeerFault::State(fault) => lower_first(fault.description().trim().trim_end_matches('.')).into_owned(),
        PeerFault::Wire(fault) => fault.to_string(),
    }
}

/// The level of a fault. Corrections and repetitions are part of ordinary exchanges, unless they end the SA:
/// then its end is a warning.
pub(crate) fn fault_level(fault: PeerFault) -> Level {
    use StateFault::{Busy, Cookie, KeMethod, MessageId, StrayResponse, UnknownSpi};
    match fault {
        PeerFault::State(Busy | Cookie | KeMethod | MessageId | StrayResponse | UnknownSpi) => Level::Info,
        PeerFault::State(_) | PeerFault::Wire(_) => Level::Warning,
    }
}

/// The level of the end of an SA.
const fn level_of(reason: DownReason) -> Level {
    match reason {
        DownReason::Local
        | DownReason::Inactive
        | DownReason::Peer
        | DownReason::Replaced
        | DownReason::InitialContact
        | DownReason::NotUnique
        | DownReason::Reauth
        | DownReason::Forgotten { .. }
        | DownReason::Unconfigured => Level::Info,
        DownReason::DeadPeer | DownReason::Expired | DownReason::Refused(_) | DownReason::Fault(_) => {
            Level::Warning
        }
    }
}

fn child_up(up: &ChildUp) -> String {
    let mut line = format!(
        "{} {} {}, SPIs {} in and {} out, {} === {}",
        up.suite.protocol(),
        notation::child_suite(&up.suite),
        up.inbound.mode,
        up.inbound.spi,
        up.outbound.spi,
        wording::traffic(&up.local),
        wording::traffic(&up.remote),
    );
    if let Some(old) = up.replaces {
        let _ = write!(line, ", replaces {{{old}}}");
    }
    if up.is_restored {
        line.push_str(", continued");
    }
    match (&up.child.rohc, &up.outbound.rohc) {
        (_, Some(_)) => line.push_str(", with header compression"),
        (Some(_), None) => line.push_str(", without header compression: the peer did not agree to `rohc`"),
        (None, None) => {}
    }
    line
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

fn name(sa: Option<&NoticeSa>, id: SaId) -> String {
    match sa {
        Some(NoticeSa::Datapath(sa)) => {
            format!("SA {} > {} {} spi {}", sa.src, sa.dst, sa.protocol, sa.spi)
        }
        Some(NoticeSa::Ike(_)) | None => id.to_string(),
    }
}
