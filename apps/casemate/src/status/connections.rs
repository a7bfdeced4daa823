//! The state of each configured connection.

use super::seconds;
use crate::history::{self, Cause, History};
use crate::log::wording;
use casemate::Endpoint;
use casemate_ike::config::{AddrPattern, CloseAction, Connection};
use casemate_ike::{ChildState, ChildStatus, IkeSaId, IkeState, IkeStatus, PendingRetry};
use casemate_sa::Instant;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant as WallInstant};

/// What a connection does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// An IKE SA is established and has a Child SA, or no child is configured.
    Up,
    /// An IKE SA is established, but it has no Child SA.
    NoChildSa,
    /// An IKE SA is being negotiated.
    Connecting,
    /// Another attempt follows.
    Waiting,
    /// A packet of the blocked traffic starts the next attempt.
    Trapped,
    /// Only the peer can start it, because the connection has no single remote address, or EAP authenticates
    /// the peer.
    Passive,
    /// Nothing starts it.
    Down,
    /// It has only policies that let traffic pass or drop it, so nothing is negotiated.
    PoliciesOnly,
}

impl ConnectionState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoChildSa => "no Child SA",
            Self::Connecting => "connecting",
            Self::Waiting => "waiting",
            Self::Trapped => "trapped",
            Self::Passive => "waits for the peer",
            Self::Down => "down",
            Self::PoliciesOnly => "policies only",
        }
    }
}

/// State of a connection, its last error and its next attempt.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionStatus {
    pub(crate) name: String,
    pub(crate) state: ConnectionState,
    peer: String,
    last_error: Option<LastError>,
    /// Time until the next attempt or transmission.
    pub(crate) next_attempt: Option<Duration>,
    /// Time since the last message or protected packet of the peer.
    pub(crate) last_heard: Option<Duration>,
}

#[derive(Debug, Clone)]
struct LastError {
    text: String,
    age: Duration,
    /// Whether the connection has come up since.
    is_past: bool,
}

/// SAs and retries of one connection.
#[derive(Debug, Default)]
struct Activity {
    established: bool,
    /// The IKE SAs that this host is setting up.
    connecting: Vec<IkeSaId>,
    /// When the last message of each established IKE SA arrived.
    messages: HashMap<IkeSaId, Instant>,
    /// When the last protected packet arrived.
    packet_at: Option<Instant>,
    has_child: bool,
    next_attempt: Option<Instant>,
}

impl Activity {
    /// What has become of an IKE SA.
    fn fate(&self, ike: Option<IkeSaId>) -> Fate {
        match ike.map(|ike| (self.connecting.contains(&ike), self.messages.get(&ike))) {
            Some((true, _)) => Fate::Connecting,
            Some((false, Some(at))) => Fate::Established(*at),
            Some((false, None)) | None => Fate::Ended,
        }
    }
}

/// What has become of an IKE SA of which a request had no response.
enum Fate {
    /// It is still being set up.
    Connecting,
    /// It is established; when the last message arrived.
    Established(Instant),
    /// It has ended, or is not known.
    Ended,
}

/// When peers of a connection were heard.
struct Heard {
    now: Instant,
    /// Time since any of them was heard.
    of_connection: Option<Duration>,
}

impl Heard {
    /// Whether the peer was heard since this time ago: on its own IKE SA as long as there is one, because
    /// others of the connection may work while it is silent.
    fn is_since(&self, ago: Duration, fate: &Fate) -> bool {
        match fate {
            Fate::Connecting => false,
            Fate::Established(at) => self.now.since(*at) < ago,
            Fate::Ended => self.of_connection.is_some_and(|heard| heard < ago),
        }
    }
}

impl ConnectionStatus {
    /// The state of all configured connections, in the order of the configuration.
    pub(crate) fn all(endpoint: &Endpoint, now: Instant, history: &History) -> Vec<Self> {
        let activities = activities(endpoint);
        let none = Activity::default();
        let of = |connection: &Connection| {
            Self::of(connection, activities.get(&*connection.name).unwrap_or(&none), now, history)
        };
        endpoint.ike().connections().iter().map(|connection| of(connection)).collect()
    }

    fn of(connection: &Connection, activity: &Activity, now: Instant, history: &History) -> Self {
        let record = history.of(&connection.name);
        let wall_now = WallInstant::now();
        let error = record.and_then(|record| record.last_error.as_ref());
        let retry = activity.next_attempt.map(|at| at.since(now));
        let last_heard = record
            .and_then(|record| record.last_heard)
            .map(|at| wall_now.saturating_duration_since(at))
            .into_iter()
            .chain(activity.messages.values().max().map(|at| now.since(*at)))
            .min();
        // A peer that sends packets may still not respond to a request.
        let heard = Heard { now, of_connection: last_heard };
        let last_heard = last_heard.into_iter().chain(activity.packet_at.map(|at| now.since(at))).min();
        let age = |at: WallInstant| wall_now.saturating_duration_since(at);
        let repeated = record.and_then(|record| record.repeated);
        let repeated = repeated.filter(|_| !activity.connecting.is_empty() || activity.established);
        let repeated = repeated.filter(|request| match activity.fate(Some(request.ike)) {
            fate @ Fate::Established(_) => !heard.is_since(age(request.at), &fate),
            Fate::Connecting | Fate::Ended => true,
        });
        let transmission = repeated.and_then(|request| request.next).filter(|next| *next > wall_now);
        let state = state(connection, activity);
        let last_error = |error: &history::LastError| {
            let age = age(error.event.at);
            let is_heard_since = heard.is_since(age, &activity.fate(error.silent));
            let is_silence_over = is_silence(error.event.cause) && is_heard_since;
            LastError {
                text: error.event.lines.first().cloned().unwrap_or_default(),
                age,
                // An SA that has come up and ended since has ended for another reason.
                is_past: error.is_over || state == ConnectionState::Up && is_silence_over,
            }
        };
        Self {
            name: connection.name.clone(),
            state,
            peer: wording::addrs(&connection.remote_addrs),
            last_error: error.map(last_error),
            next_attempt: retry.or(transmission.map(|at| at.saturating_duration_since(wall_now))),
            last_heard,
        }
    }

    /// Whether the connection has come up since its last error.
    pub(crate) fn is_error_past(&self) -> bool {
        self.last_error.as_ref().is_some_and(|error| error.is_past)
    }

    pub(crate) fn to_json(&self) -> Value {
        let error = |LastError { text, age, is_past }: &LastError| {
            let seconds_ago = seconds(*age);
            json!({"text": text, "seconds_ago": seconds_ago, "is_past": is_past})
        };
        json!({
            "name": self.name,
            "state": self.state.name(),
            "remote_addrs": self.peer,
            "last_error": self.last_error.as_ref().map(error),
            "next_attempt_seconds": self.next_attempt.map(seconds),
            "last_heard_seconds": self.last_heard.map(seconds),
        })
    }
}

/// Whether an error is over as soon as the peer responds.
const fn is_silence(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::NoResponse { .. } | Cause::DeadPeer))
}

/// SAs and retries by connection.
fn activities(endpoint: &Endpoint) -> HashMap<String, Activity> {
    let mut all: HashMap<String, Activity> = HashMap::new();
    for sa in endpoint.ike().status() {
        let activity = all.entry(sa.connection.name.clone()).or_default();
        match sa.state {
            IkeState::Connecting if sa.initiator => activity.connecting.push(sa.id),
            IkeState::Connecting => {}
            IkeState::Established => activity.established = true,
            IkeState::Rekeyed | IkeState::Closing | IkeState::Closed => {}
        }
        activity.messages.extend(endpoint.ike().last_message_at(sa.id).map(|at| (sa.id, at)));
        activity.packet_at = activity.packet_at.max(last_packet_at(endpoint, &sa));
        activity.has_child |= sa.children.iter().any(|child| child.state != ChildState::Closing);
    }
    for PendingRetry { connection, at, .. } in endpoint.pending_retries() {
        let next = &mut all.entry(connection.name.clone()).or_default().next_attempt;
        *next = Some(next.map_or(at, |known| known.min(at)));
    }
    all
}

/// When the last packet arrived on a Child SA of an IKE SA.
fn last_packet_at(endpoint: &Endpoint, sa: &IkeStatus) -> Option<Instant> {
    let of_child = |child: &ChildStatus| endpoint.datapath().last_used(endpoint.sas_of(child.id)?.inbound);
    sa.children.iter().filter_map(of_child).max()
}

/// Time since the last message or protected packet on these IKE SAs.
pub(crate) fn last_heard(endpoint: &Endpoint, ikes: &[IkeStatus], now: Instant) -> Option<Duration> {
    let of_sa = |sa: &IkeStatus| endpoint.ike().last_message_at(sa.id).max(last_packet_at(endpoint, sa));
    ikes.iter().filter_map(of_sa).max().map(|at| now.since(at))
}

fn state(connection: &Connection, activity: &Activity) -> ConnectionState {
    let holds_traffic = connection
        .children
        .iter()
        .any(|child| child.start_action.on_traffic || child.has_action(CloseAction::Trap));
    let has_peer =
        !connection.is_started_by_peer() && connection.remote_addrs.iter().any(AddrPattern::is_single);
    match activity {
        _ if !connection.negotiates() => ConnectionState::PoliciesOnly,
        Activity { established: true, has_child, .. } if *has_child || connection.children.is_empty() => {
            ConnectionState::Up
        }
        Activity { established: true, .. } => ConnectionState::NoChildSa,
        Activity { connecting, .. } if !connecting.is_empty() => ConnectionState::Connecting,
        Activity { next_attempt: Some(_), .. } => ConnectionState::Waiting,
        _ if !has_peer => ConnectionState::Passive,
        _ if holds_traffic => ConnectionState::Trapped,
        _ => ConnectionState::Down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A redirect: the old IKE SA is in use while the new one gets no response.
    #[test]
    fn an_attempt_without_a_response_is_not_over_because_another_ike_sa_works() {
        let heard = Heard { now: Instant::from_secs(100), of_connection: Some(Duration::from_secs(5)) };
        let ago = Duration::from_secs(10);
        assert!(!heard.is_since(ago, &Fate::Connecting));
        assert!(heard.is_since(ago, &Fate::Established(Instant::from_secs(95))));
        assert!(!heard.is_since(ago, &Fate::Established(Instant::from_secs(80))));
        assert!(heard.is_since(ago, &Fate::Ended));
    }
}
