//! A session that a RADIUS server has accepted: its counters, and the records of accounting.

use super::{RadiusLink, host_id};
use crate::swanctl::{Accounting, RadiusConfig};
use casemate_datapath::{Direction, SaCounters, SaId};
use casemate_ike::{DownReason, IkeSaId, Path};
use casemate_linux::EndpointContext;
use casemate_radius::{
    AccessResponse, AccountingRequest, AccountingStatus, DisconnectRequest, TerminateCause, Usage,
};
use casemate_sa::Instant;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Addresses of a peer that has moved, at most, by which servers may know its session. They learn of a move
/// late if a record is lost, or waits.
const MAX_REPORTED: usize = 8;

/// What a server has decided on a user.
#[derive(Clone)]
pub(super) struct Authorization {
    /// User-Name for accounting and Disconnect-Request: that of the server, or else that of the request, by
    /// which the server knows the session.
    pub(super) user_name: Vec<u8>,
    pub(super) response: Box<AccessResponse>,
    /// Address of the peer in the Access-Request.
    pub(super) remote: SocketAddr,
    /// When the first session of this decision began; `None` until the first look at the endpoint. The time
    /// that the server allows counts from then on, also for a session that resumes another.
    pub(super) since: Option<Instant>,
}

/// A session that may be resumed.
pub(super) struct LostSession {
    /// Acct-Session-Id in the records of the session.
    pub(super) id: String,
    pub(super) authorization: Authorization,
}

pub(super) struct Session {
    pub(super) id: String,
    pub(super) authorization: Authorization,
    pub(super) path: Path,
    /// Addresses of the peer in the latest records, the last one at the end.
    reported: VecDeque<SocketAddr>,
    pub(super) addrs: Vec<IpAddr>,
    /// When the session began; `None` until the next look at the endpoint.
    began: Option<Instant>,
    next_interim: Option<Instant>,
    duration: Duration,
    /// What each SA has carried that is not removed, when it was last read.
    pub(super) sas: HashMap<SaId, SaCounters>,
    /// What those have carried that are removed.
    former_usage: Usage,
    /// Whether a Start was sent, so that a Stop has to follow.
    pub(super) is_recorded: bool,
    /// Why this host closes the session.
    pub(super) cause: Option<TerminateCause>,
    /// The last of its IKE SAs that has ended otherwise than by rekeying, and why.
    pub(super) last_end: Option<(IkeSaId, DownReason)>,
}

impl Authorization {
    /// Whether a request of a server names the login in which this was decided, which has no Acct-Session-Id
    /// yet.
    pub(super) fn is_login_named_by(&self, wanted: &DisconnectRequest) -> bool {
        let has_addr = |addr| self.response.addrs.contains(&IpAddr::V4(addr));
        wanted.session_id.is_none() && wanted.addr.is_none_or(has_addr) && self.is_peer(wanted, [])
    }

    /// Whether a request of a server names this user and one of the peer's addresses, if it names any. The
    /// others than that of the login are `later`.
    fn is_peer(&self, wanted: &DisconnectRequest, later: impl IntoIterator<Item = SocketAddr>) -> bool {
        let is_id = |id: &[u8], remote| {
            [true, false].iter().any(|with_port| host_id(remote, *with_port).as_bytes() == id)
        };
        wanted.user_name.as_ref().is_none_or(|name| *name == self.user_name)
            && wanted
                .calling_id
                .as_ref()
                .is_none_or(|id| [self.remote].into_iter().chain(later).any(|remote| is_id(id, remote)))
    }
}

impl LostSession {
    /// Whether a request of a server names this session, or this user and no session.
    pub(super) fn is_named_by(&self, wanted: &DisconnectRequest) -> bool {
        let is_user = wanted.user_name.as_ref().map(|name| *name == self.authorization.user_name);
        match &wanted.session_id {
            Some(id) => *id == self.id.as_bytes() && is_user != Some(false),
            None => is_user == Some(true),
        }
    }
}

impl Session {
    /// A session that begins now.
    pub(super) fn new(id: String, path: Path, authorization: Authorization) -> Self {
        Self {
            id,
            authorization,
            path,
            reported: VecDeque::new(),
            addrs: Vec::new(),
            began: None,
            next_interim: None,
            duration: Duration::ZERO,
            sas: HashMap::new(),
            former_usage: Usage::default(),
            is_recorded: false,
            cause: None,
            last_end: None,
        }
    }

    /// Reads counters and addresses. While the IKE SA is being rekeyed there are several, and one of them has
    /// the addresses and Child SAs.
    pub(super) fn read(&mut self, ikes: &[IkeSaId], context: &EndpointContext) {
        let (endpoint, now) = (context.endpoint(), context.now());
        self.authorization.since.get_or_insert(now);
        for status in ikes.iter().filter_map(|ike| endpoint.ike().status_of(*ike)) {
            if !status.virtual_addrs.is_empty() {
                self.addrs = status.virtual_addrs;
            }
            for child in status.children {
                let Some(sas) = endpoint.sas_of(child.id) else { continue };
                for sa in [Some(sas.inbound), sas.outbound].into_iter().flatten() {
                    self.sas.entry(sa).or_default();
                }
            }
        }
        self.read_counters(now, |sa| endpoint.datapath().sa_counters(sa));
    }

    /// Reads the time and the counters of the SAs that are known, also of those that receive for a while
    /// after the end of their Child SAs.
    pub(super) fn read_counters(&mut self, now: Instant, counters: impl Fn(SaId) -> Option<SaCounters>) {
        self.duration = now.since(*self.began.get_or_insert(now));
        for (sa, known) in &mut self.sas {
            // A notice has the last counters of an SA that is removed.
            *known = counters(*sa).unwrap_or(*known);
        }
    }

    /// Notes the address of the peer in a record, by which the server knows the session from then on.
    fn note_reported(&mut self) {
        let remote = self.path.remote;
        self.reported.retain(|known| *known != remote);
        if self.reported.len() >= MAX_REPORTED {
            self.reported.pop_front();
        }
        self.reported.push_back(remote);
    }

    /// Session and user for the log.
    pub(super) fn name(&self) -> String {
        let user = String::from_utf8_lossy(&self.authorization.user_name);
        format!("RADIUS session {} of `{user}` from {}", self.id, self.path.remote.ip())
    }

    /// Notes what an SA has carried whose Child SA ends.
    pub(super) fn note_counters(&mut self, sa: SaId, counters: SaCounters, is_removed: bool) {
        if is_removed {
            self.sas.remove(&sa);
            self.former_usage = sum(self.former_usage, sa, counters);
        } else {
            self.sas.insert(sa, counters);
        }
    }

    /// Whether the time that the server allows is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let Authorization { response, since, .. } = &self.authorization;
        let used = since.map_or(Duration::ZERO, |since| now.since(since));
        response.session_timeout.is_some_and(|timeout| used >= timeout)
    }

    /// Sends a Start or an interim update if it is due.
    pub(super) fn report_due(&mut self, now: Instant, link: &RadiusLink, config: &RadiusConfig) {
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

    /// Records the end of the session.
    pub(super) fn stop(&mut self, cause: TerminateCause, link: &RadiusLink, config: &RadiusConfig) {
        if let Some(accounting) = config.accounting.as_ref().filter(|_| self.is_recorded) {
            let cause = self.cause.take().unwrap_or(cause);
            self.send(AccountingStatus::Stop(cause), accounting, link);
        }
    }

    fn send(&mut self, status: AccountingStatus, accounting: &Accounting, link: &RadiusLink) {
        self.note_reported();
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
    pub(super) fn usage(&self) -> Usage {
        self.sas.iter().fold(self.former_usage, |usage, (sa, counters)| sum(usage, *sa, *counters))
    }

    /// Whether a request of a server names this session, but for its virtual address. The server may not know
    /// yet that the peer has moved.
    pub(super) fn is_named_by(&self, wanted: &DisconnectRequest) -> bool {
        let later = self.reported.iter().copied().chain([self.path.remote]);
        wanted.session_id.as_ref().is_none_or(|id| *id == self.id.as_bytes())
            && self.authorization.is_peer(wanted, later)
    }
}

/// Adds what an SA has carried.
const fn sum(mut usage: Usage, sa: SaId, counters: SaCounters) -> Usage {
    let (bytes, packets) = match sa.direction() {
        Direction::Inbound => (&mut usage.input_bytes, &mut usage.input_packets),
        Direction::Outbound => (&mut usage.output_bytes, &mut usage.output_packets),
    };
    *bytes = bytes.saturating_add(counters.bytes);
    *packets = packets.saturating_add(counters.packets);
    usage
}
