//! What happened to each connection lately, for `casemate status` and `casemate why`.
//!
//! The controller passes each notice with its log message. A connection keeps its last [`MAX_EVENTS`] events,
//! its last error, and when the peer was last heard. Requests of unauthenticated peers, and packets that were
//! dropped, are kept apart, because any host can cause them: they displace nothing else.

mod names;
mod past_event;

pub(crate) use past_event::{Cause, PastEvent};

use crate::log::level::Level;
use crate::log::message::Message;
use crate::log::notice::fault_level;
use casemate::Notice;
use casemate_datapath::Event as DatapathEvent;
use casemate_ike::config::Connection;
use casemate_ike::diagnosis::{Considered, Explanation};
use casemate_ike::{DownReason, Event, IkeSaId};
use casemate_wire::ike::ExchangeType;
use names::SaNames;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of events of a connection.
const MAX_EVENTS: usize = 16;
/// Maximum number of refused requests of unauthenticated peers, for all connections.
const MAX_REFUSED: usize = 64;
/// Maximum number of dropped packets.
const MAX_DROPS: usize = 64;

/// The recent history of all connections.
#[derive(Debug, Default)]
pub(crate) struct History {
    connections: HashMap<String, ConnectionHistory>,
    refused: VecDeque<RefusedRequest>,
    drops: VecDeque<DroppedPacket>,
    names: SaNames,
}

/// The recent history of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionHistory {
    pub(crate) events: VecDeque<PastEvent>,
    /// The last failure that was not only a consequence of the one before.
    pub(crate) last_error: Option<LastError>,
    /// When the peer last sent something that belongs to an exchange of this connection.
    pub(crate) last_heard: Option<Instant>,
    /// The outstanding request that was sent again last.
    pub(crate) repeated: Option<RepeatedRequest>,
}

/// A request that was sent again. No event says when it is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepeatedRequest {
    pub(crate) ike: IkeSaId,
    /// When it was sent again.
    pub(crate) at: Instant,
    /// When the next repetition follows.
    pub(crate) next: Option<Instant>,
}

/// The last failure of a connection.
#[derive(Debug, Clone)]
pub(crate) struct LastError {
    pub(crate) event: PastEvent,
    /// The child that failed; `None` for the IKE SA, and if the child is not known.
    child: Option<String>,
    /// The IKE SA whose request has had no response.
    pub(crate) silent: Option<IkeSaId>,
    /// Whether the SA that failed has come up since.
    pub(crate) is_over: bool,
}

/// A request of a peer that no connection accepted.
#[derive(Debug)]
struct RefusedRequest {
    event: PastEvent,
    /// Names of the connections that were considered.
    considered: Vec<String>,
}

/// A packet that was dropped and audited.
#[derive(Debug)]
struct DroppedPacket {
    event: PastEvent,
    addrs: [IpAddr; 2],
}

impl History {
    /// Completes the subject of a message about a notice, and keeps the message.
    pub(crate) fn note(&mut self, notice: &Notice, message: &mut Message) {
        self.names.learn(notice);
        self.names.complete(&mut message.subject);
        self.names.forget(notice);
        let event = PastEvent::of(notice, message);
        match notice {
            Notice::Datapath(DatapathEvent::Audit(audit)) => {
                if let (Some(src), Some(dst)) = (audit.src, audit.dst) {
                    push(&mut self.drops, DroppedPacket { event, addrs: [src, dst] }, MAX_DROPS);
                }
            }
            Notice::Ike(Event::IkeDown { half_open: true, .. }) => {}
            Notice::Ike(Event::Fault { explanation: Some(explanation), .. })
                if is_unauthenticated(explanation) =>
            {
                let considered = considered(explanation);
                push(&mut self.refused, RefusedRequest { event, considered }, MAX_REFUSED);
            }
            _ => {
                if let Some(name) = &message.subject.connection {
                    self.connections.entry(name.clone()).or_default().note(
                        notice,
                        event,
                        message.subject.child.clone(),
                    );
                }
            }
        }
    }

    /// Forgets connections that are no longer configured.
    pub(crate) fn reconfigure(&mut self, connections: &[Arc<Connection>]) {
        self.connections.retain(|name, _| connections.iter().any(|connection| connection.name == *name));
    }

    /// The history of a connection.
    pub(crate) fn of(&self, connection: &str) -> Option<&ConnectionHistory> {
        self.connections.get(connection)
    }

    /// The connection whose last event with this text in a line is the newest.
    pub(crate) fn connection_naming(&self, text: &str) -> Option<&str> {
        let names = |event: &&PastEvent| event.lines.iter().any(|line| line.contains(text));
        let newest = self.connections.iter().filter_map(|(name, record)| {
            let event = record.events.iter().rev().find(names)?;
            Some((event.at, name))
        });
        newest.max_by_key(|(at, _)| *at).map(|(_, name)| name.as_str())
    }

    /// Requests that this connection and all others refused, the oldest first.
    pub(crate) fn refused(&self, connection: &str) -> impl Iterator<Item = &PastEvent> {
        let concerns = move |one: &&RefusedRequest| one.considered.iter().any(|name| name == connection);
        self.refused.iter().filter(concerns).map(|one| &one.event)
    }

    /// Dropped packets from or to one of these addresses, the oldest first.
    pub(crate) fn drops<'h>(&'h self, addrs: &'h [IpAddr]) -> impl Iterator<Item = &'h PastEvent> {
        let concerns = |one: &&DroppedPacket| one.addrs.iter().any(|addr| addrs.contains(addr));
        self.drops.iter().filter(concerns).map(|one| &one.event)
    }
}

impl ConnectionHistory {
    /// The part of the history with these events.
    pub(crate) fn only(&self, concerns: impl Fn(&PastEvent) -> bool) -> Self {
        let events: VecDeque<PastEvent> =
            self.events.iter().filter(|event| concerns(event)).cloned().collect();
        let last_error = match &self.last_error {
            None => None,
            Some(error) if concerns(&error.event) => Some(error.clone()),
            // The last error of the connection is that of another peer.
            Some(_) => last_failure(&events),
        };
        Self { events, last_error, ..self.clone() }
    }

    /// Keeps an event, which concerns this child if it is known.
    fn note(&mut self, notice: &Notice, event: PastEvent, child: Option<String>) {
        if is_from_peer(notice) {
            self.last_heard = Some(event.at);
            self.repeated = None;
        }
        match notice {
            Notice::Ike(Event::Retransmitted { ike, wait, exchange, .. }) => {
                let next = event.at.checked_add(*wait);
                self.repeated = Some(RepeatedRequest { ike: *ike, at: event.at, next });
                if *exchange != ExchangeType::IKE_SA_INIT {
                    // The peer has responded to IKE_SA_INIT, which no event reports.
                    self.last_heard.get_or_insert(event.at);
                }
                // One line for each request, and not one for each repetition.
                self.events.pop_back_if(|last| matches!(last.cause, Some(Cause::NoResponse { .. })));
                let silent = Some(*ike);
                self.last_error =
                    Some(LastError { event: event.clone(), child: None, silent, is_over: false });
            }
            Notice::Ike(Event::IkeUp { .. }) => self.error_is_over(|_| true),
            Notice::Ike(Event::IkeRekeyed { .. }) => self.error_is_over(|failed| failed.is_none()),
            Notice::Ike(Event::ChildUp(up)) => {
                self.error_is_over(|failed| failed.is_none_or(|failed| *failed == up.child.name));
            }
            Notice::Ike(Event::IkeDown { .. }) => self.repeated = None,
            _ => {}
        }
        if event.level <= Level::Warning && !is_consequence(notice) {
            self.last_error = Some(LastError { event: event.clone(), child, silent: None, is_over: false });
        }
        push(&mut self.events, event, MAX_EVENTS);
    }

    /// Notes that an SA has come up. `concerns` decides by the child that failed, if one is known, whether
    /// this ends the failure.
    fn error_is_over(&mut self, concerns: impl FnOnce(Option<&String>) -> bool) {
        if let Some(error) = self.last_error.as_mut().filter(|error| concerns(error.child.as_ref())) {
            error.is_over = true;
        }
    }
}

/// The last failure among these events. It is over if an IKE SA has come up since.
fn last_failure(events: &VecDeque<PastEvent>) -> Option<LastError> {
    let at = events.iter().rposition(|event| event.level <= Level::Warning)?;
    let event = events.get(at)?.clone();
    let is_over = events.iter().skip(at).any(|later| later.is_up);
    Some(LastError { event, child: None, silent: None, is_over })
}

/// Whether the notice is no failure itself: it follows a fault that has been reported already, or it warns of
/// an SA that is up.
fn is_consequence(notice: &Notice) -> bool {
    match notice {
        Notice::Ike(
            Event::IkeDown { reason: DownReason::Fault(fault), .. }
            | Event::ChildFailed { reason: DownReason::Fault(fault), .. },
        ) => fault_level(*fault) <= Level::Warning,
        Notice::Ike(Event::ChildUp(_)) => true,
        _ => false,
    }
}

/// Whether the notice proves that the peer responds.
fn is_from_peer(notice: &Notice) -> bool {
    match notice {
        Notice::Ike(Event::IkeUp { .. } | Event::ChildUp(_) | Event::Fault { .. }) => true,
        Notice::Ike(
            Event::IkeDown { reason, .. }
            | Event::IkeRekeyFailed { reason, .. }
            | Event::ChildFailed { reason, .. },
        ) => {
            matches!(reason, DownReason::Refused(_) | DownReason::Peer)
        }
        _ => false,
    }
}

fn is_unauthenticated(explanation: &Explanation) -> bool {
    matches!(explanation, Explanation::FirstRequest { .. } | Explanation::Initiator { .. })
}

fn considered(explanation: &Explanation) -> Vec<String> {
    let (Explanation::FirstRequest { considered, .. } | Explanation::Initiator { considered, .. }) =
        explanation
    else {
        return Vec::new();
    };
    considered.iter().map(|Considered { connection, .. }| connection.name.clone()).collect()
}

fn push<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() >= limit {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::negotiated::tests::established;
    use crate::log::notice::message;
    use casemate_eap::EapFault;
    use casemate_ike::config::Identity;
    use casemate_ike::{Path, PeerFault, StateFault};
    use casemate_wire::ike::NotifyType;
    use std::time::Duration;

    fn connection(name: &str) -> Arc<Connection> {
        let id = |name: &str| Identity::Fqdn(name.into());
        Arc::new(Connection::with_shared_key(name, id("left"), id("right")))
    }

    fn path() -> Path {
        Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() }
    }

    fn note(history: &mut History, event: Event) -> Message {
        let notice = Notice::Ike(event);
        let mut message = message(&notice, None).unwrap();
        history.note(&notice, &mut message);
        message
    }

    /// The identifier of the first IKE SA of an endpoint.
    fn ike_id() -> IkeSaId {
        established(Connection::clone(&connection("gw")), None).id
    }

    fn retransmitted(ike: IkeSaId, connection: &Arc<Connection>, attempt: u32) -> Event {
        Event::Retransmitted {
            ike,
            connection: connection.clone(),
            path: path(),
            exchange: ExchangeType::IKE_SA_INIT,
            message_id: 0,
            attempt,
            tries: 6,
            wait: Duration::from_secs(2),
        }
    }

    #[test]
    fn repetitions_take_one_place_and_a_consequence_does_not_hide_its_cause() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        (1..=6).for_each(|attempt| drop(note(&mut history, retransmitted(ike, &gw, attempt))));
        let known = history.of("gw").unwrap();
        assert_eq!((known.events.len(), known.last_heard), (1, None));
        assert!(known.repeated.is_some());
        let fault = PeerFault::State(StateFault::WrongIdentity);
        let explained = Event::Fault { fault, path: path(), connection: Some(gw.clone()), explanation: None };
        note(&mut history, explained);
        let down = Event::IkeDown { ike, connection: gw, reason: DownReason::Fault(fault), half_open: false };
        note(&mut history, down);
        let known = history.of("gw").unwrap();
        assert_eq!(
            known.last_error.as_ref().unwrap().event.cause,
            Some(Cause::Fault(StateFault::WrongIdentity))
        );
        assert_eq!((known.events.len(), known.repeated.is_none()), (3, true));
        assert!(known.last_heard.is_some());
    }

    /// A public value of a wrong method is corrected in IKE_SA_INIT, and ends the IKE SA in IKE_INTERMEDIATE.
    #[test]
    fn a_fault_of_ordinary_exchanges_is_an_error_if_it_ends_the_ike_sa() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        note(&mut history, retransmitted(ike, &gw, 1));
        let fault = PeerFault::State(StateFault::KeMethod);
        let explained = Event::Fault { fault, path: path(), connection: Some(gw.clone()), explanation: None };
        assert_eq!(note(&mut history, explained).level, Level::Info);
        let down = Event::IkeDown { ike, connection: gw, reason: DownReason::Fault(fault), half_open: false };
        let message = note(&mut history, down);
        assert_eq!((message.level, &*message.text), (Level::Warning, "ended: ke-method"));
        assert_eq!(message.details, ["the public value is of another method than the chosen proposal"]);
        let error = history.of("gw").unwrap().last_error.clone().unwrap().event;
        assert_eq!(error.cause, Some(Cause::Fault(StateFault::KeMethod)));
        assert_eq!(error.lines[0], "ended: ke-method");
    }

    #[test]
    fn a_refused_rekeying_is_an_error_until_the_ike_sa_is_replaced() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        let reason = DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN);
        let up = Event::IkeUp {
            ike,
            connection: gw.clone(),
            peer: Identity::Fqdn("right".into()),
            eap_identity: None,
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
        };
        note(&mut history, up);
        let message = note(&mut history, Event::IkeRekeyFailed { ike, connection: gw, reason });
        let text = "rekeying failed, and the IKE SA stays until its lifetime ends: refused by the peer: \
                    NO_PROPOSAL_CHOSEN";
        assert_eq!(message.headline(), format!("gw[{ike}]: {text}"));
        assert!(message.details[0].starts_with("offered by this host: proposals = "), "{message:?}");
        let error = |history: &History| history.of("gw").unwrap().last_error.clone().unwrap();
        let cause = Some(Cause::RekeyRefused(NotifyType::NO_PROPOSAL_CHOSEN));
        assert_eq!((error(&history).event.cause, error(&history).is_over), (cause, false));
        note(&mut history, Event::IkeRekeyed { old: ike, new: ike });
        assert!(error(&history).is_over);
    }

    #[test]
    fn an_error_of_a_user_is_over_after_a_success_of_this_user() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        let failed = |user: &str| {
            let identity = Some(user.as_bytes().to_vec());
            let peer = Identity::Fqdn("laptop".into());
            let explanation = Explanation::Eap { fault: EapFault::WrongPassword, identity, peer };
            let fault = PeerFault::State(StateFault::EapFailed);
            let (connection, explanation) = (Some(gw.clone()), Some(explanation.into()));
            Event::Fault { fault, path: path(), connection, explanation }
        };
        let up = || Event::IkeUp {
            ike,
            connection: gw.clone(),
            peer: Identity::Fqdn("laptop".into()),
            eap_identity: Some(casemate_ike::UserIdentity::Proven(b"carol".to_vec())),
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
        };
        let of_carol = |history: &History| {
            let names = |event: &PastEvent| event.lines.iter().any(|line| line.contains("`carol`"));
            history.of("gw").unwrap().only(names).last_error.unwrap().is_over
        };
        note(&mut history, failed("carol"));
        note(&mut history, failed("dave"));
        assert!(!of_carol(&history));
        note(&mut history, up());
        note(&mut history, failed("dave"));
        assert!(of_carol(&history));
        note(&mut history, failed("carol"));
        note(&mut history, failed("dave"));
        assert!(!of_carol(&history));
    }

    #[test]
    fn requests_of_strangers_displace_no_event_and_are_bounded() {
        let (mut history, gw) = (History::default(), connection("gw"));
        note(&mut history, retransmitted(ike_id(), &gw, 1));
        let considered =
            Considered { connection: gw.clone(), mismatch: casemate_ike::diagnosis::Mismatch::RemoteAddress };
        for _ in 0..1_000 {
            let explanation =
                Explanation::FirstRequest { offered: Vec::new(), considered: vec![considered.clone()] };
            note(
                &mut history,
                Event::Fault {
                    fault: PeerFault::State(StateFault::NoConnection),
                    path: path(),
                    connection: None,
                    explanation: Some(explanation.into()),
                },
            );
        }
        assert_eq!(history.of("gw").unwrap().events.len(), 1);
        assert_eq!((history.refused("gw").count(), history.refused("other").count()), (MAX_REFUSED, 0));
        history.reconfigure(&[]);
        assert!(history.of("gw").is_none());
    }

    #[test]
    fn the_end_of_a_child_sa_names_its_connection() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        note(
            &mut history,
            Event::IkeUp {
                ike,
                connection: gw,
                peer: Identity::Fqdn("right".into()),
                eap_identity: None,
                earlier_rounds: Vec::new(),
                resumes: None,
                ppk_id: None,
                path: path(),
            },
        );
        let released = Event::AddrsReleased { ike, addrs: vec![[10, 0, 0, 1].into()] };
        let message = note(&mut history, released);
        assert_eq!(message.headline(), format!("gw[{ike}]: virtual addresses 10.0.0.1 were removed"));
    }
}
