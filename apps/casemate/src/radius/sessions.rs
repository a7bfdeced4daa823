//! The sessions that RADIUS servers have accepted: accounting, their longest duration, and their end at the
//! request of a server.

use super::RadiusLink;
use super::host_id;
use crate::swanctl::{Accounting, RadiusConfig};
use casemate::Notice;
use casemate_ike::config::RemoteMethod;
use casemate_ike::{ChildId, DownReason, Event, IkeSaId, IkeSettings, Path};
use casemate_linux::EndpointContext;
use casemate_radius::{
    AccessResponse, AccountingRequest, AccountingStatus, DisconnectRequest, Dynamic, ErrorCause,
    TerminateCause, Usage,
};
use casemate_sa::Instant;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Sessions that have ended and can be resumed, at most.
const MAX_LOST: usize = 65_536;
/// Sessions that are looked at in one go.
const SESSIONS_AT_ONCE: usize = 64;

/// Accepted peers, by their current IKE SA.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Peers whose IKE SA is not established yet.
    accepted: BTreeMap<IkeSaId, Box<AccessResponse>>,
    active: HashMap<IkeSaId, Session>,
    /// Peers that did not respond any more, and may resume their sessions (RFC 5723).
    lost: BTreeMap<IkeSaId, LostSession>,
    /// IKE SAs that resume a session whose decision is not known: they are closed.
    unauthorized: Vec<IkeSaId>,
    /// Sessions to look at.
    due: VecDeque<IkeSaId>,
    /// Distinguishes sessions of this run from those of others.
    run: u64,
    last: u64,
}

/// What a server has decided on a user.
#[derive(Clone)]
struct Authorization {
    user_name: Vec<u8>,
    response: Box<AccessResponse>,
    /// When the first session of this decision began; `None` until the first look at the endpoint. The time
    /// that the server allows counts from then on, also for a session that resumes another.
    since: Option<Instant>,
}

/// A session that may be resumed.
struct LostSession {
    /// Acct-Session-Id in the records of the session.
    id: String,
    authorization: Authorization,
}

struct Session {
    id: String,
    authorization: Authorization,
    path: Path,
    addrs: Vec<IpAddr>,
    /// When the session began; `None` until the next look at the endpoint.
    began: Option<Instant>,
    next_interim: Option<Instant>,
    duration: Duration,
    /// What each Child SA has carried.
    usage: HashMap<ChildId, Usage>,
    /// Whether a Start was sent, so that a Stop has to follow.
    is_recorded: bool,
    /// Why this host closes the session.
    cause: Option<TerminateCause>,
}

impl LostSession {
    /// Whether a request of a server names this session, or this user and no session.
    fn is_named_by(&self, wanted: &DisconnectRequest) -> bool {
        let is_user = wanted.user_name.as_ref().map(|name| *name == self.authorization.user_name);
        match &wanted.session_id {
            Some(id) => *id == self.id.as_bytes() && is_user != Some(false),
            None => is_user == Some(true),
        }
    }
}

impl Sessions {
    /// `run` distinguishes the sessions of this run from those of others.
    pub(crate) fn new(run: u64) -> Self {
        Self { run, ..Self::default() }
    }

    /// A second has passed. Returns whether [`update`](Self::update) has to follow.
    pub(crate) fn on_tick(&mut self, config: &RadiusConfig) -> bool {
        // Under load, the last round may not have ended.
        if self.due.is_empty() {
            let has_time = |session: &Session| session.authorization.response.session_timeout.is_some();
            let is_due = |session: &Session| config.accounting.is_some() || has_time(session);
            let due = self.active.iter().filter(|(_, session)| is_due(session)).map(|(ike, _)| *ike);
            self.due.extend(due);
        }
        !self.due.is_empty()
    }

    /// Notes that a server has accepted the peer of a half-open IKE SA.
    pub(crate) fn accept(&mut self, ike: IkeSaId, response: Box<AccessResponse>) {
        self.accepted.insert(ike, response);
        if self.accepted.len() > IkeSettings::SERVER.max_half_open {
            self.accepted.pop_first();
        }
    }

    /// Follows the IKE SAs. Returns whether [`update`](Self::update) has to follow at once.
    pub(crate) fn on_notice(&mut self, notice: &Notice, link: &RadiusLink, config: &RadiusConfig) -> bool {
        match notice {
            Notice::Ike(Event::IkeUp { ike, connection, path, resumes: Some(old), .. }) => {
                let authorization = self.authorization_of(*old);
                if authorization.is_none() && is_relayed(&connection.remote.method) {
                    self.unauthorized.push(*ike);
                }
                let is_known = authorization.is_some();
                authorization.into_iter().for_each(|one| self.begin(*ike, *path, one));
                is_known || !self.unauthorized.is_empty()
            }
            Notice::Ike(Event::IkeUp { ike, eap_identity, path, .. }) => {
                let Some(response) = self.accepted.remove(ike) else { return false };
                let identity = eap_identity.clone().unwrap_or_default();
                let user_name = response.user_name.clone().unwrap_or(identity);
                self.begin(*ike, *path, Authorization { user_name, response, since: None });
                true
            }
            Notice::Ike(Event::IkeRekeyed { old, new }) => {
                if let Some(session) = self.active.remove(old) {
                    self.active.insert(*new, session);
                }
                false
            }
            Notice::Ike(Event::PathChanged { ike, path, .. }) => {
                if let Some(session) = self.active.get_mut(ike) {
                    session.path = *path;
                }
                false
            }
            Notice::Ike(Event::IkeDown { ike, reason, .. }) => {
                self.accepted.remove(ike);
                if let Some(session) = self.active.remove(ike) {
                    if can_be_resumed(*reason) {
                        let (id, authorization) = (session.id.clone(), session.authorization.clone());
                        self.lost.insert(*ike, LostSession { id, authorization });
                    }
                    if self.lost.len() > MAX_LOST {
                        self.lost.pop_first();
                    }
                    session.stop(terminate_cause(*reason), link, config);
                }
                false
            }
            _ => false,
        }
    }

    /// The decision on the peer of an earlier IKE SA, which another one resumes. Not of a session that this
    /// host is ending.
    fn authorization_of(&mut self, old: IkeSaId) -> Option<Authorization> {
        let active = self.active.get(&old).filter(|session| session.cause.is_none());
        let active = active.map(|session| session.authorization.clone());
        self.lost.remove(&old).map(|lost| lost.authorization).or(active)
    }

    fn begin(&mut self, ike: IkeSaId, path: Path, authorization: Authorization) {
        self.last = self.last.wrapping_add(1);
        let session = Session {
            id: format!("{:016x}-{}", self.run, self.last),
            authorization,
            path,
            addrs: Vec::new(),
            began: None,
            next_interim: None,
            duration: Duration::ZERO,
            usage: HashMap::new(),
            is_recorded: false,
            cause: None,
        };
        self.active.insert(ike, session);
        self.due.push_front(ike);
    }

    /// Looks at the next sessions: reads their counters, reports what is due, and ends those whose time is
    /// over. Returns whether there are more, which have to wait because packets wait meanwhile.
    pub(crate) fn update(
        &mut self,
        context: &mut EndpointContext,
        link: &RadiusLink,
        config: &RadiusConfig,
    ) -> bool {
        for ike in self.unauthorized.drain(..) {
            context.with(|endpoint, context| endpoint.terminate(ike, context));
        }
        for _ in 0..SESSIONS_AT_ONCE {
            let Some(ike) = self.due.pop_front() else { return false };
            // The session may have ended, or have another IKE SA.
            let Some(session) = self.active.get_mut(&ike) else { continue };
            session.read(ike, context);
            session.report_due(context.now(), link, config);
            if session.is_over(context.now()) {
                session.cause = Some(TerminateCause::SessionTimeout);
                context.with(|endpoint, context| endpoint.terminate(ike, context));
            }
        }
        !self.due.is_empty()
    }

    /// Ends the sessions that a server names.
    pub(crate) fn disconnect(
        &mut self,
        to: SocketAddr,
        request: Box<Dynamic>,
        context: &mut EndpointContext,
        link: &RadiusLink,
    ) {
        let result = request.request.clone().and_then(|wanted| {
            let mut named = Vec::new();
            // A user who is to be disconnected must not come back without the server.
            let is_any_lost = self.lost.values().any(|lost| lost.is_named_by(&wanted));
            let is_user = |lost: &LostSession| {
                wanted.user_name.as_ref().is_some_and(|name| *name == lost.authorization.user_name)
            };
            self.lost.retain(|_, lost| !is_user(lost) && !lost.is_named_by(&wanted));
            for (ike, session) in self.active.iter_mut().filter(|(_, session)| session.is_user(&wanted)) {
                // The request may name an address, and the record of the end has the last counters.
                session.read(*ike, context);
                if wanted.addr.is_none_or(|addr| session.addrs.contains(&IpAddr::V4(addr))) {
                    session.cause = Some(TerminateCause::AdminReset);
                    named.push(*ike);
                }
            }
            for ike in &named {
                context.with(|endpoint, context| endpoint.terminate(*ike, context));
            }
            if named.is_empty() && !is_any_lost { Err(ErrorCause::SessionNotFound) } else { Ok(()) }
        });
        link.respond(to, request, result);
    }

    /// Records the end of all sessions, because this host ends.
    pub(crate) fn stop_all(&mut self, link: &RadiusLink, config: &RadiusConfig) {
        for (_, session) in self.active.drain() {
            session.stop(TerminateCause::NasReboot, link, config);
        }
    }
}

impl Session {
    /// Reads counters and addresses.
    fn read(&mut self, ike: IkeSaId, context: &EndpointContext) {
        let (endpoint, now) = (context.endpoint(), context.now());
        let began = *self.began.get_or_insert(now);
        self.authorization.since.get_or_insert(now);
        self.duration = now.since(began);
        let Some(status) = endpoint.ike().status_of(ike) else { return };
        self.addrs = status.virtual_addrs;
        for child in status.children {
            let Some(sas) = endpoint.sas_of(child.id) else { continue };
            let inbound = endpoint.datapath().sa(sas.inbound).map(|sa| sa.meter);
            let outbound = sas.outbound.and_then(|sa| endpoint.datapath().sa(sa)).map(|sa| sa.meter);
            let known = self.usage.entry(child.id).or_default();
            if let Some(meter) = inbound {
                (known.input_bytes, known.input_packets) = (meter.bytes, meter.packets);
            }
            if let Some(meter) = outbound {
                (known.output_bytes, known.output_packets) = (meter.bytes, meter.packets);
            }
        }
    }

    /// Whether the time that the server allows is over.
    fn is_over(&self, now: Instant) -> bool {
        let Authorization { response, since, .. } = &self.authorization;
        let used = since.map_or(Duration::ZERO, |since| now.since(since));
        response.session_timeout.is_some_and(|timeout| used >= timeout)
    }

    /// Sends a Start or an interim update if it is due.
    fn report_due(&mut self, now: Instant, link: &RadiusLink, config: &RadiusConfig) {
        let Some(accounting) = &config.accounting else { return };
        if accounting.requires_vip && self.addrs.is_empty() {
            return;
        }
        let interval = self.authorization.response.interim_interval.or(accounting.interval);
        if !self.is_recorded {
            self.is_recorded = true;
            self.send(AccountingStatus::Start, accounting, link);
        } else if self.next_interim.is_some_and(|at| at <= now) {
            self.send(AccountingStatus::Interim, accounting, link);
        } else {
            return;
        }
        self.next_interim =
            interval.filter(|interval| !interval.is_zero()).map(|interval| now.after(interval));
    }

    fn stop(mut self, cause: TerminateCause, link: &RadiusLink, config: &RadiusConfig) {
        if let Some(accounting) = config.accounting.as_ref().filter(|_| self.is_recorded) {
            let cause = self.cause.take().unwrap_or(cause);
            self.send(AccountingStatus::Stop(cause), accounting, link);
        }
    }

    fn send(&self, status: AccountingStatus, accounting: &Accounting, link: &RadiusLink) {
        let with_port = link.ids_have_port;
        link.account(AccountingRequest {
            status,
            session_id: self.id.clone(),
            user_name: self.authorization.user_name.clone(),
            classes: if accounting.sends_class {
                self.authorization.response.classes.clone()
            } else {
                Vec::new()
            },
            addrs: self.addrs.clone(),
            nas_addr: self.path.local.ip(),
            called_id: host_id(self.path.local, with_port),
            calling_id: host_id(self.path.remote, with_port),
            duration: self.duration,
            usage: self.usage(),
        });
    }

    /// What all Child SAs have carried.
    fn usage(&self) -> Usage {
        let add = |sum: Usage, one: &Usage| Usage {
            input_bytes: sum.input_bytes.saturating_add(one.input_bytes),
            input_packets: sum.input_packets.saturating_add(one.input_packets),
            output_bytes: sum.output_bytes.saturating_add(one.output_bytes),
            output_packets: sum.output_packets.saturating_add(one.output_packets),
        };
        self.usage.values().fold(Usage::default(), add)
    }

    /// Whether a request of a server names this session, but for its address.
    fn is_user(&self, wanted: &DisconnectRequest) -> bool {
        let names = [true, false].map(|with_port| host_id(self.path.remote, with_port));
        wanted.user_name.as_ref().is_none_or(|name| *name == self.authorization.user_name)
            && wanted.session_id.as_ref().is_none_or(|id| *id == self.id.as_bytes())
            && wanted.calling_id.as_ref().is_none_or(|name| names.iter().any(|own| own.as_bytes() == name))
    }
}

/// Whether a session that has ended for this reason can be resumed.
const fn can_be_resumed(reason: DownReason) -> bool {
    matches!(reason, DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. })
}

/// Whether a server decides on the peers.
fn is_relayed(method: &RemoteMethod) -> bool {
    matches!(method, RemoteMethod::Eap(eap) if eap.is_relayed())
}

/// Why a session has ended, if this host had no reason of its own to close it.
const fn terminate_cause(reason: DownReason) -> TerminateCause {
    match reason {
        DownReason::Peer => TerminateCause::UserRequest,
        DownReason::DeadPeer | DownReason::Forgotten { .. } => TerminateCause::LostCarrier,
        DownReason::Expired => TerminateCause::SessionTimeout,
        DownReason::Local | DownReason::Inactive | DownReason::Unconfigured => TerminateCause::AdminReset,
        DownReason::Replaced | DownReason::NotUnique | DownReason::InitialContact | DownReason::Reauth => {
            TerminateCause::NasRequest
        }
        DownReason::Refused(_) | DownReason::Fault(_) => TerminateCause::NasError,
    }
}
