//! What happened to each connection lately, for `casemate status` and `casemate why`.
//!
//! The controller passes each notice with its log message. A connection keeps its last [`MAX_EVENTS`] events,
//! its last error, and when the peer was last heard. Requests of unauthenticated peers, and packets that were
//! dropped, are kept apart, because any host can cause them: they displace nothing else.

mod names;
mod past_event;
mod refused;

pub(crate) use past_event::{Cause, PastEvent, SaChange};
pub(crate) use refused::RefusedRequest;

use crate::log::level::Level;
use crate::log::message::Message;
use crate::log::notice::fault_level;
use casemate::Notice;
use casemate_datapath::Event as DatapathEvent;
use casemate_ike::config::Connection;
use casemate_ike::diagnosis::Explanation;
use casemate_ike::{DownReason, Event, IkeSaId, PeerFault, StateFault};
use casemate_wire::ike::ExchangeType;
use names::SaNames;
use refused::RefusedRequests;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of events of a connection.
const MAX_EVENTS: usize = 16;
/// Maximum number of dropped packets.
const MAX_DROPS: usize = 64;

/// The recent history of all connections.
#[derive(Debug, Default)]
pub(crate) struct History {
    connections: HashMap<String, ConnectionHistory>,
    refused: RefusedRequests,
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
    /// What has failed.
    failed: FailedSa,
    /// The IKE SA whose request has had no response.
    pub(crate) silent: Option<IkeSaId>,
    /// Whether the SA that failed has come up since.
    pub(crate) is_over: bool,
}

/// The SA that a failure prevents.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FailedSa {
    Ike,
    /// A Child SA, of this child if it is known.
    Child(Option<String>),
}

impl FailedSa {
    /// `child` is that of the message, if it has one.
    fn of(notice: &Notice, child: Option<String>) -> Self {
        use StateFault::{AddressNotRequested, NoAddress, TsNotOffered, TsUnacceptable};
        let is_of_child = child.is_some()
            || match notice {
                Notice::Ike(Event::Fault { fault: PeerFault::State(fault), explanation, .. }) => {
                    matches!(fault, AddressNotRequested | NoAddress | TsNotOffered | TsUnacceptable)
                        || explanation.as_deref().is_some_and(|explanation| {
                            matches!(
                                explanation,
                                Explanation::ChildRequest { .. } | Explanation::ChildResponse { .. }
                            )
                        })
                }
                _ => false,
            };
        if is_of_child { Self::Child(child) } else { Self::Ike }
    }
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
        if let Notice::Ike(ike_event) = notice {
            self.refused.note(ike_event);
            if let Some(request) = RefusedRequest::of(ike_event, &event) {
                return self.refused.push(request);
            }
        }
        match notice {
            Notice::Datapath(DatapathEvent::Audit(audit)) => {
                if let (Some(src), Some(dst)) = (audit.src, audit.dst) {
                    push(&mut self.drops, DroppedPacket { event, addrs: [src, dst] }, MAX_DROPS);
                }
            }
            Notice::Ike(Event::IkeDown { half_open: true, .. }) => {}
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
    pub(crate) fn refused(&self, connection: &str) -> impl Iterator<Item = &RefusedRequest> {
        self.refused.of(connection)
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
        if event.is_from_peer {
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
                    Some(LastError { event: event.clone(), failed: FailedSa::Ike, silent, is_over: false });
            }
            Notice::Ike(Event::IkeUp { .. } | Event::IkeRekeyed { .. }) => {
                self.error_is_over(|failed| *failed == FailedSa::Ike);
            }
            Notice::Ike(Event::ChildUp(up)) => {
                self.error_is_over(|failed| match failed {
                    FailedSa::Ike | FailedSa::Child(None) => true,
                    FailedSa::Child(Some(failed)) => *failed == up.child.name,
                });
            }
            Notice::Ike(Event::IkeDown { .. }) => self.repeated = None,
            _ => {}
        }
        if event.level <= Level::Warning && !is_consequence(notice) && !self.is_end_without_child(notice) {
            let failed = FailedSa::of(notice, child);
            self.last_error = Some(LastError { event: event.clone(), failed, silent: None, is_over: false });
        }
        push(&mut self.events, event, MAX_EVENTS);
    }

    /// Whether the notice is the end of an IKE SA because of the refused Child SA that is the last error,
    /// which says more: without a virtual address, for example, this host has no use for the IKE SA.
    fn is_end_without_child(&self, notice: &Notice) -> bool {
        let Notice::Ike(Event::IkeDown { reason: DownReason::Refused(refusal), .. }) = notice else {
            return false;
        };
        let error = self.last_error.as_ref().filter(|error| !error.is_over);
        error.is_some_and(|error| error.event.cause == Some(Cause::ChildRefused(*refusal)))
    }

    /// Notes that an SA has come up. `concerns` decides by what failed whether this ends the failure.
    fn error_is_over(&mut self, concerns: impl FnOnce(&FailedSa) -> bool) {
        if let Some(error) = self.last_error.as_mut().filter(|error| concerns(&error.failed)) {
            error.is_over = true;
        }
    }
}

/// The last failure among these events. It is over if an IKE SA has come up since.
fn last_failure(events: &VecDeque<PastEvent>) -> Option<LastError> {
    let at = events.iter().rposition(|event| event.level <= Level::Warning)?;
    let event = events.get(at)?.clone();
    let is_over = events.iter().skip(at).any(|later| later.change == Some(SaChange::IkeUp));
    Some(LastError { event, failed: FailedSa::Ike, silent: None, is_over })
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
    use casemate_ike::Path;
    use casemate_ike::config::Identity;
    use casemate_ike::diagnosis::{Considered, PeerProof};
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
        let down = Event::IkeDown {
            ike,
            connection: gw,
            reason: DownReason::Fault(fault),
            half_open: false,
            path: path(),
        };
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
        let down = Event::IkeDown {
            ike,
            connection: gw,
            reason: DownReason::Fault(fault),
            half_open: false,
            path: path(),
        };
        let message = note(&mut history, down);
        assert_eq!((message.level, &*message.text), (Level::Warning, "ended: ke-method"));
        assert_eq!(message.details, ["the public value is of another method than the chosen proposal"]);
        let error = history.of("gw").unwrap().last_error.clone().unwrap().event;
        assert_eq!(error.cause, Some(Cause::Fault(StateFault::KeMethod)));
        assert_eq!(error.lines[0], "ended: ke-method");
    }

    /// An IKE SA of the connection is established.
    fn ike_up(ike: IkeSaId, connection: &Arc<Connection>) -> Event {
        Event::IkeUp {
            ike,
            connection: connection.clone(),
            peer: Identity::Fqdn("right".into()),
            eap_identity: None,
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
            is_restored: false,
        }
    }

    #[test]
    fn a_refused_rekeying_is_an_error_until_the_ike_sa_is_replaced() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        let reason = DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN);
        note(&mut history, ike_up(ike, &gw));
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
            is_restored: false,
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
        let counts = ["gw", "other"].map(|name| history.refused(name).count());
        assert_eq!(counts, [refused::MAX_REFUSED, 0]);
        history.reconfigure(&[]);
        assert!(history.of("gw").is_none());
    }

    /// A client that gets no virtual address closes the IKE SA at once (RFC 7296 section 3.15.4).
    #[test]
    fn the_end_of_an_ike_sa_does_not_hide_why_its_child_sa_was_refused() {
        let (mut history, ike) = (History::default(), ike_id());
        let mut connection = Connection::clone(&connection("gw"));
        connection.vips = vec!["0.0.0.0".parse().unwrap()];
        let gw = Arc::new(connection);
        let reason = DownReason::Refused(NotifyType::INTERNAL_ADDRESS_FAILURE);
        let child = Arc::new(casemate_ike::config::ChildConfig::new("net"));
        note(&mut history, Event::ChildFailed { connection: gw.clone(), child, replaces: None, reason });
        note(&mut history, ike_up(ike, &gw));
        let down = || Event::IkeDown { ike, connection: gw.clone(), reason, half_open: false, path: path() };
        note(&mut history, down());
        let error = history.of("gw").unwrap().last_error.clone().unwrap().event;
        assert_eq!(error.cause, Some(Cause::ChildRefused(NotifyType::INTERNAL_ADDRESS_FAILURE)));
        assert!(error.lines[1].contains("requested by this host: vips = 0.0.0.0"), "{error:?}");
        // Without such a Child SA, the end is the error.
        history = History::default();
        note(&mut history, down());
        let error = history.of("gw").unwrap().last_error.clone().unwrap().event;
        assert_eq!(error.cause, Some(Cause::IkeRefused(NotifyType::INTERNAL_ADDRESS_FAILURE)));
    }

    #[test]
    fn a_refused_request_is_over_when_the_same_peer_is_authenticated() {
        let (mut history, gw, ike) = (History::default(), connection("gw"), ike_id());
        let considered = Considered {
            connection: gw.clone(),
            mismatch: casemate_ike::diagnosis::Mismatch::RemoteIdentity,
        };
        let fault = |fault, explanation: Explanation| Event::Fault {
            fault: PeerFault::State(fault),
            path: path(),
            connection: None,
            explanation: Some(explanation.into()),
        };
        let of_user = |user: &str| {
            let id = Some(Identity::Fqdn(user.into()));
            let proof = PeerProof { id, method: None, certificates: 0, ppk_id: None };
            let considered = vec![considered.clone()];
            fault(StateFault::NoPeer, Explanation::Initiator { proof, asked: None, considered })
        };
        let of_address = || {
            let considered = vec![considered.clone()];
            let explanation = Explanation::FirstRequest { offered: Vec::new(), considered };
            fault(StateFault::NoProposalChosen, explanation)
        };
        let incomplete = || Event::IkeDown {
            ike,
            connection: gw.clone(),
            reason: DownReason::DeadPeer,
            half_open: true,
            path: path(),
        };
        let all = [of_user("carol"), of_user("dave"), of_address(), incomplete()];
        all.into_iter().for_each(|event| drop(note(&mut history, event)));
        let over = |history: &History| history.refused("gw").map(|one| one.is_over).collect::<Vec<_>>();
        assert_eq!(over(&history), [false; 4]);
        let up = |user: &str| Event::IkeUp {
            ike,
            connection: gw.clone(),
            peer: Identity::Fqdn(user.into()),
            eap_identity: None,
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: path(),
            is_restored: false,
        };
        note(&mut history, up("carol"));
        assert_eq!(over(&history), [true, false, true, true], "dave may have the same address behind a NAT");
        note(&mut history, of_user("carol"));
        assert_eq!(over(&history), [true, false, true, true, false]);
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
                is_restored: false,
            },
        );
        let released = Event::AddrsReleased { ike, addrs: vec![[10, 0, 0, 1].into()] };
        let message = note(&mut history, released);
        assert_eq!(message.headline(), format!("gw[{ike}]: virtual addresses 10.0.0.1 were removed"));
    }
}
