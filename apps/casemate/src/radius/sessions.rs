//! The sessions that RADIUS servers have accepted: accounting, their longest duration, and their end at the
//! request of a server.

use super::RadiusLink;
use super::session::{Authorization, LostSession, Session};
use crate::swanctl::RadiusConfig;
use casemate::Notice;
use casemate_datapath::{SaCounters, SaId};
use casemate_ike::config::RemoteMethod;
use casemate_ike::{ByOrigin, DownReason, Event, IkeSaId, IkeSettings, Path};
use casemate_linux::EndpointContext;
use casemate_radius::{AccessResponse, DisconnectRequest, Dynamic, ErrorCause, TerminateCause};
use casemate_sa::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Sessions that have ended and can be resumed, at most.
const MAX_LOST: usize = 65_536;
/// Sessions that are looked at in one go.
const SESSIONS_AT_ONCE: usize = 64;

/// Accepted peers. A session lasts as long as one of the IKE SAs with its origin.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Peers whose IKE SA is not established yet.
    accepted: BTreeMap<IkeSaId, Authorization>,
    active: ByOrigin<Session>,
    /// Sessions that have ended, and why: their records follow once the last counters are read.
    ended: VecDeque<(Session, TerminateCause)>,
    /// Peers that did not respond any more, and may resume their sessions (RFC 5723).
    lost: BTreeMap<IkeSaId, LostSession>,
    /// IKE SAs that resume a session whose decision is not known: they are closed.
    unauthorized: Vec<IkeSaId>,
    /// Lines for the log about IKE SAs that are closed.
    lines: Vec<String>,
    /// Origins of the sessions to look at.
    due: VecDeque<IkeSaId>,
    /// Distinguishes sessions of this run from those of others.
    run: u64,
    last: u64,
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
            let due = self.active.iter().filter(|(_, session)| is_due(session)).map(|(origin, _)| origin);
            self.due.extend(due);
        }
        !self.due.is_empty()
    }

    /// Notes that a server has accepted the peer of a half-open IKE SA.
    pub(crate) fn accept(
        &mut self,
        ike: IkeSaId,
        user_name: Vec<u8>,
        path: Path,
        response: Box<AccessResponse>,
    ) {
        let remote = path.remote;
        self.accepted.insert(ike, Authorization { user_name, response, remote, since: None });
        if self.accepted.len() > IkeSettings::SERVER.max_half_open {
            self.accepted.pop_first();
        }
    }

    /// Follows the IKE SAs. Returns whether [`update`](Self::update) has to follow at once.
    pub(crate) fn on_notice(&mut self, notice: &Notice) -> bool {
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
            Notice::Ike(Event::IkeUp { ike, path, .. }) => {
                let Some(authorization) = self.accepted.remove(ike) else { return false };
                self.begin(*ike, *path, authorization);
                true
            }
            Notice::Ike(Event::IkeRekeyed { old, new }) => {
                self.active.rekeyed(*old, *new);
                false
            }
            Notice::Ike(Event::PathChanged { ike, path, .. }) => {
                if let Some(session) = self.active.get_mut(*ike) {
                    session.path = *path;
                }
                false
            }
            Notice::SaCounters { origin, sa, counters, is_removed } => {
                if let Some(session) = self.active.get_mut(*origin) {
                    session.note_counters(*sa, *counters, *is_removed);
                }
                false
            }
            Notice::Ike(Event::IkeDown { ike, reason, .. }) => {
                self.accepted.remove(ike);
                self.ike_down(*ike, *reason);
                !self.ended.is_empty()
            }
            _ => false,
        }
    }

    /// Ends a session with the last of its IKE SAs.
    fn ike_down(&mut self, ike: IkeSaId, reason: DownReason) {
        if let Some(session) = self.active.get_mut(ike).filter(|_| reason != DownReason::Replaced) {
            session.last_end = Some((ike, reason));
        }
        let Some(session) = self.active.ended(ike) else { return };
        // A replaced IKE SA may end after its successor.
        let (ike, reason) = session.last_end.unwrap_or((ike, reason));
        if can_be_resumed(reason) && session.cause.is_none() {
            let (id, authorization) = (session.id.clone(), session.authorization.clone());
            self.lost.insert(ike, LostSession { id, authorization });
        }
        if self.lost.len() > MAX_LOST {
            self.lost.pop_first();
        }
        self.ended.push_back((session, terminate_cause(reason)));
    }

    /// Records the ends of sessions, of some that wait. An SA that receives for a while after the end of its
    /// Child SA counts until now.
    fn record_ends(
        &mut self,
        now: Instant,
        counters: impl Fn(SaId) -> Option<SaCounters>,
        link: &RadiusLink,
        config: &RadiusConfig,
    ) {
        let count = self.ended.len().min(SESSIONS_AT_ONCE);
        for (mut session, cause) in self.ended.drain(..count) {
            session.read_counters(now, &counters);
            session.stop(cause, link, config);
        }
    }

    /// The decision on the peer of an earlier IKE SA, which another one resumes. Not of a session that this
    /// host is ending.
    fn authorization_of(&mut self, old: IkeSaId) -> Option<Authorization> {
        let active = self.active.get(old).filter(|session| session.cause.is_none());
        let active = active.map(|session| session.authorization.clone());
        self.lost.remove(&old).map(|lost| lost.authorization).or(active)
    }

    fn begin(&mut self, ike: IkeSaId, path: Path, authorization: Authorization) {
        self.last = self.last.wrapping_add(1);
        let id = format!("{:016x}-{}", self.run, self.last);
        let session = Session::new(id, path, authorization);
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
        terminate(&std::mem::take(&mut self.unauthorized), context);
        let datapath = context.endpoint().datapath();
        self.record_ends(context.now(), |sa| datapath.sa_counters(sa), link, config);
        for _ in 0..SESSIONS_AT_ONCE {
            let Some(origin) = self.due.pop_front() else { break };
            let ikes = self.active.members(origin).to_vec();
            // The session may have ended.
            let Some(session) = self.active.get_mut(origin) else { continue };
            session.read(&ikes, context);
            session.report_due(context.now(), link, config);
            if session.is_over(context.now()) {
                if session.cause.replace(TerminateCause::SessionTimeout).is_none() {
                    self.lines.push(format!("{}: its Session-Timeout is over", session.name()));
                }
                terminate(&ikes, context);
            }
        }
        !self.due.is_empty() || !self.ended.is_empty()
    }

    /// Ends the sessions that a server names, and the logins that it has accepted.
    pub(crate) fn disconnect(
        &mut self,
        to: SocketAddr,
        request: Box<Dynamic>,
        context: &mut EndpointContext,
        link: &RadiusLink,
    ) {
        let result = request.request.clone().and_then(|wanted| {
            let mut named = self.end_logins(&wanted, to.ip());
            // A user who is to be disconnected must not come back without the server.
            let is_any_lost = self.lost.values().any(|lost| lost.is_named_by(&wanted));
            let is_user = |lost: &LostSession| {
                wanted.user_name.as_ref().is_some_and(|name| *name == lost.authorization.user_name)
            };
            self.lost.retain(|_, lost| !is_user(lost) && !lost.is_named_by(&wanted));
            for (ikes, session) in self.active.iter_mut().filter(|(_, session)| session.is_named_by(&wanted))
            {
                // The request may name an address, and the record of the end has the last counters.
                session.read(ikes, context);
                if wanted.addr.is_none_or(|addr| session.addrs.contains(&IpAddr::V4(addr))) {
                    session.cause = Some(TerminateCause::AdminReset);
                    let server = to.ip();
                    let line =
                        format!("{}: the RADIUS server {server} has requested its end", session.name());
                    self.lines.push(line);
                    named.extend_from_slice(ikes);
                }
            }
            terminate(&named, context);
            if named.is_empty() && !is_any_lost { Err(ErrorCause::SessionNotFound) } else { Ok(()) }
        });
        link.respond(to, request, result);
    }

    /// Ends the logins that a server names, whose clients withhold their last AUTH payloads or have not sent
    /// them yet. Returns their IKE SAs.
    fn end_logins(&mut self, wanted: &DisconnectRequest, server: IpAddr) -> Vec<IkeSaId> {
        let named = self.accepted.extract_if(.., |_, login| login.is_login_named_by(wanted));
        let named: Vec<_> = named.collect();
        for (_, Authorization { user_name, remote, .. }) in &named {
            let (user, host) = (String::from_utf8_lossy(user_name), remote.ip());
            self.lines.push(format!(
                "RADIUS login of `{user}` from {host}: the RADIUS server {server} has requested its end"
            ));
        }
        named.into_iter().map(|(ike, _)| ike).collect()
    }

    /// Takes lines for the log about IKE SAs that are closed, and why.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Records the end of all sessions, because this host ends.
    pub(crate) fn stop_all(mut self, context: &EndpointContext, link: &RadiusLink, config: &RadiusConfig) {
        let datapath = context.endpoint().datapath();
        while !self.ended.is_empty() {
            self.record_ends(context.now(), |sa| datapath.sa_counters(sa), link, config);
        }
        for (ikes, session) in self.active.iter_mut() {
            session.read(ikes, context);
            session.stop(TerminateCause::NasReboot, link, config);
        }
    }
}

/// Closes IKE SAs. While one is being rekeyed, its successors are closed with it.
fn terminate(ikes: &[IkeSaId], context: &mut EndpointContext) {
    for ike in ikes {
        context.with(|endpoint, context| endpoint.terminate(*ike, context));
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

#[cfg(test)]
mod tests;
