//! The state of each configured connection.

use super::seconds;
use crate::history::{self, Cause, History};
use crate::log::wording;
use casemate::Endpoint;
use casemate_ike::config::{AddrPattern, CloseAction, Connection};
use casemate_ike::{ChildState, IkeState, PendingRetry};
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
    /// Time since the peer last responded or requested something.
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
    connecting: bool,
    has_child: bool,
    next_attempt: Option<Instant>,
    /// When the last message of the peer arrived.
    last_message: Option<Instant>,
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
        let transmission = record.and_then(|record| record.next_transmission);
        let transmission = transmission.filter(|_| activity.connecting || activity.established);
        let retry = activity.next_attempt.map(|at| at.since(now));
        let last_heard = record
            .and_then(|record| record.last_heard)
            .map(|at| wall_now.saturating_duration_since(at))
            .into_iter()
            .chain(activity.last_message.map(|at| now.since(at)))
            .min();
        let state = state(connection, activity);
        let last_error = |error: &history::LastError| {
            let age = wall_now.saturating_duration_since(error.event.at);
            let is_heard_since = last_heard.is_some_and(|heard| heard < age);
            let is_over = error.is_over || is_silence(error.event.cause) && is_heard_since;
            LastError {
                text: error.event.lines.first().cloned().unwrap_or_default(),
                age,
                is_past: state == ConnectionState::Up && is_over,
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
            IkeState::Connecting => activity.connecting |= sa.initiator,
            IkeState::Established => activity.established = true,
            IkeState::Rekeyed | IkeState::Closing | IkeState::Closed => {}
        }
        activity.last_message = activity.last_message.max(endpoint.ike().last_message_at(sa.id));
        activity.has_child |= sa.children.iter().any(|child| child.state != ChildState::Closing);
    }
    for PendingRetry { connection, at, .. } in endpoint.pending_retries() {
        let next = &mut all.entry(connection.name.clone()).or_default().next_attempt;
        *next = Some(next.map_or(at, |known| known.min(at)));
    }
    all
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
        Activity { connecting: true, .. } => ConnectionState::Connecting,
        Activity { next_attempt: Some(_), .. } => ConnectionState::Waiting,
        _ if !has_peer => ConnectionState::Passive,
        _ if holds_traffic => ConnectionState::Trapped,
        _ => ConnectionState::Down,
    }
}
