//! Queries: SAs and connections by name, and pending retries; settings of IKE.

use super::Endpoint;
#[cfg(feature = "child-counters")]
use crate::ChildCounters;
use crate::{ChildSas, Notice};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_datapath::SaStatus;
use casemate_datapath::spd::PolicyId;
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{ChildId, ChildStatus, Event, IkeSaId, IkeStatus, PendingRetry, Retransmission};

/// The SAs with a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedSas {
    /// IKE SAs.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs.
    pub children: Vec<ChildId>,
}

/// The SA that a notice is about, as it is when it is asked for.
#[derive(Debug, Clone)]
pub enum NoticeSa {
    /// An SA of the data path whose lifetime is reached.
    Datapath(Box<SaStatus>),
    /// An IKE SA that is established now, or that has replaced another one.
    Ike(Box<IkeStatus>),
}

impl Endpoint {
    /// Whether keys of IKE SAs are reported as events.
    pub fn report_keys(&mut self, report: bool) {
        self.ike.report_keys(report);
    }

    /// Sets the secret for the tokens of quick crash detection
    /// ([`set_crash_secret`](casemate_ike::Ike::set_crash_secret)).
    pub fn set_crash_secret(&mut self, secret: Option<SecretBytes>) {
        self.ike.set_crash_secret(secret);
    }

    /// Sets whether new IKE SAs follow redirects to other gateways.
    #[cfg(feature = "redirect")]
    pub fn follow_redirects(&mut self, follow: bool) {
        self.ike.follow_redirects(follow);
    }

    /// Changes how requests of IKE are retransmitted.
    pub fn set_retransmission(&mut self, retransmission: Retransmission) {
        self.ike.set_retransmission(retransmission);
    }

    /// Whether counters of SAs that end are reported as notices ([`Notice::SaCounters`]).
    #[cfg(feature = "child-counters")]
    pub fn report_sa_counters(&mut self, report: bool) {
        self.children.report_counters(report);
    }

    /// Requests an explanation with each fault of a negotiation
    /// ([`explain_faults`](casemate_ike::Ike::explain_faults)).
    pub fn explain_faults(&mut self) {
        self.ike.explain_faults();
    }

    /// Probes the path MTU to peers whose connections allow it
    /// ([`probe_path_mtu`](casemate_ike::Ike::probe_path_mtu)).
    pub fn probe_path_mtu(&mut self) {
        self.ike.probe_path_mtu();
    }

    /// Connections and children that will be initiated again: by a timer, or after the pause of a trap by the
    /// next packet.
    pub fn pending_retries(&self) -> impl Iterator<Item = PendingRetry> + '_ {
        self.ike.pending_retries().chain(self.traps.paused())
    }

    /// The SA of a notice about a lifetime, or about a new IKE SA, if the SA still exists.
    pub fn sa_of(&self, notice: &Notice) -> Option<NoticeSa> {
        use casemate_datapath::Event::{HardLifetime, SoftLifetime};
        match notice {
            Notice::Datapath(SoftLifetime(id) | HardLifetime(id)) => {
                self.datapath().sas().find(|sa| sa.id == *id).map(|sa| NoticeSa::Datapath(Box::new(sa)))
            }
            Notice::Ike(Event::IkeUp { ike, .. } | Event::IkeRekeyed { new: ike, .. }) => {
                self.ike.status_of(*ike).map(|status| NoticeSa::Ike(Box::new(status)))
            }
            _ => None,
        }
    }

    /// The data path's SAs of a Child SA.
    pub fn sas_of(&self, child: ChildId) -> Option<ChildSas> {
        self.children.sas(child)
    }

    /// The connection and child whose trap has this outbound policy.
    pub fn trap_of(&self, policy: PolicyId) -> Option<(&Connection, &ChildConfig)> {
        self.traps.of_policy(policy).map(|trap| (&*trap.connection, &*trap.child))
    }

    /// Counters of each configured child, and of other children that still have SAs, over all SAs that it has
    /// had: an end of an SA never decreases them. A child that is no longer configured and has no SA is
    /// forgotten by the next [`configure`](Self::configure). Begins with the entry of this number; with many
    /// children, a caller can read them in parts.
    #[cfg(feature = "child-counters")]
    pub fn child_counters(&self, from_number: u64) -> impl Iterator<Item = ChildCounters> {
        self.children.counters_from(from_number, &self.datapath)
    }

    /// Number of reserved inbound SPIs, of SAs and of running negotiations.
    pub fn reserved_spis(&self) -> usize {
        self.spis.count()
    }

    /// The IKE SAs of a connection, or the Child SAs of a child. A child has the name `child`, or
    /// `connection/child` if several connections have a child of this name.
    pub fn sas_by_name(&self, name: &str) -> NamedSas {
        let mut named = NamedSas::default();
        for sa in self.ike().status() {
            if sa.connection.name == name {
                named.ikes.push(sa.id);
            }
            let is_named_child = |child: &&ChildStatus| is_named(name, &sa.connection, &child.child);
            let children = sa.children.iter().filter(is_named_child);
            named.children.extend(children.map(|child| child.id));
        }
        named
    }

    /// A connection, or one of its children by the name `child` or `connection/child`.
    pub fn config_by_name(&self, name: &str) -> Option<(Arc<Connection>, Option<Arc<ChildConfig>>)> {
        let connections = self.ike().connections();
        if let Some(connection) = connections.iter().find(|connection| connection.name == name) {
            return Some((connection.clone(), None));
        }
        connections.iter().find_map(|connection| {
            let is_named_child = |child: &&Arc<ChildConfig>| is_named(name, connection, child);
            Some((connection.clone(), Some(connection.children.iter().find(is_named_child)?.clone())))
        })
    }
}

/// Whether `name` is the name of this child.
pub(crate) fn is_named(name: &str, connection: &Connection, child: &ChildConfig) -> bool {
    let whole = name.strip_prefix(&*connection.name).and_then(|rest| rest.strip_prefix('/'));
    name == child.name || whole == Some(&*child.name)
}
