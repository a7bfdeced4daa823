//! A session that a RADIUS server has accepted: its counters, and the records of accounting.

use super::{RadiusLink, host_id};
use crate::swanctl::{Accounting, RadiusConfig};
use casemate_ike::{ChildId, DownReason, IkeSaId, Path};
use casemate_linux::EndpointContext;
use casemate_radius::{
    AccessResponse, AccountingRequest, AccountingStatus, DisconnectRequest, TerminateCause, Usage,
};
use casemate_sa::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// What a server has decided on a user.
#[derive(Clone)]
pub(super) struct Authorization {
    pub(super) user_name: Vec<u8>,
    pub(super) response: Box<AccessResponse>,
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
    pub(super) addrs: Vec<IpAddr>,
    /// When the session began; `None` until the next look at the endpoint.
    began: Option<Instant>,
    next_interim: Option<Instant>,
    duration: Duration,
    /// What each Child SA has carried that has not ended.
    pub(super) usage: HashMap<ChildId, Usage>,
    /// What those have carried that have ended.
    former_usage: Usage,
    /// Whether a Start was sent, so that a Stop has to follow.
    pub(super) is_recorded: bool,
    /// Why this host closes the session.
    pub(super) cause: Option<TerminateCause>,
    /// The last of its IKE SAs that has ended otherwise than by rekeying, and why.
    pub(super) last_end: Option<(IkeSaId, DownReason)>,
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
            addrs: Vec::new(),
            began: None,
            next_interim: None,
            duration: Duration::ZERO,
            usage: HashMap::new(),
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
        let began = *self.began.get_or_insert(now);
        self.authorization.since.get_or_insert(now);
        self.duration = now.since(began);
        for status in ikes.iter().filter_map(|ike| endpoint.ike().status_of(*ike)) {
            if !status.virtual_addrs.is_empty() {
                self.addrs = status.virtual_addrs;
            }
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
    }

    /// Notes that a Child SA has ended.
    pub(super) fn child_down(&mut self, id: ChildId) {
        if let Some(usage) = self.usage.remove(&id) {
            self.former_usage = sum(self.former_usage, &usage);
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
    pub(super) fn usage(&self) -> Usage {
        self.usage.values().fold(self.former_usage, sum)
    }

    /// Whether a request of a server names this session, but for its address.
    pub(super) fn is_user(&self, wanted: &DisconnectRequest) -> bool {
        let names = [true, false].map(|with_port| host_id(self.path.remote, with_port));
        wanted.user_name.as_ref().is_none_or(|name| *name == self.authorization.user_name)
            && wanted.session_id.as_ref().is_none_or(|id| *id == self.id.as_bytes())
            && wanted.calling_id.as_ref().is_none_or(|name| names.iter().any(|own| own.as_bytes() == name))
    }
}

/// The sum of two counts.
fn sum(sum: Usage, one: &Usage) -> Usage {
    Usage {
        input_bytes: sum.input_bytes.saturating_add(one.input_bytes),
        input_packets: sum.input_packets.saturating_add(one.input_packets),
        output_bytes: sum.output_bytes.saturating_add(one.output_bytes),
        output_packets: sum.output_packets.saturating_add(one.output_packets),
    }
}
