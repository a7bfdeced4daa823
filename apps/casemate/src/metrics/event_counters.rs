//! Counters of what IKE reports about each connection: established, rekeyed and ended SAs, failed
//! negotiations and retransmissions.
//!
//! Connections are counted by the names of the configuration, and reasons have names of this program or of
//! the RFCs, so no value that a peer chooses becomes a label. The counters of a connection end when it is no
//! longer configured and its last IKE SA has ended.

use casemate::Notice;
use casemate_ike::config::Connection;
use casemate_ike::{ChildId, DownReason, Event, IkeSaId, IkeStatus, InitiateError};
use casemate_strongswan::notation;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// What is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SaKind {
    Ike,
    Child,
}

impl SaKind {
    pub(super) const ALL: [Self; 2] = [Self::Ike, Self::Child];

    /// The name in labels.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ike => "ike",
            Self::Child => "child",
        }
    }
}

/// Counters of the SAs of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct SaEvents {
    /// SAs that were established, without those that replace others.
    pub(super) established: u64,
    /// SAs that were replaced by rekeying.
    pub(super) rekeyed: u64,
    /// SAs whose lifetime ended before they were replaced.
    pub(super) expired: u64,
    /// Failed negotiations by reason.
    pub(super) failed: BTreeMap<&'static str, u64>,
}

/// How the keys of an IKE SA were agreed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyExchange {
    /// The methods, such as `x25519-ke1_mlkem768`: one of the connection's proposals allows them.
    pub(super) methods: Arc<str>,
    /// Whether the keys depend on a post-quantum pre-shared key.
    pub(super) uses_ppk: bool,
}

/// Counters of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionCounters {
    pub(super) ike: SaEvents,
    pub(super) child: SaEvents,
    /// Established IKE SAs that have ended, by reason.
    pub(super) ended: BTreeMap<&'static str, u64>,
    pub(super) retransmissions: u64,
    /// Established IKE SAs by key exchange, without zeros.
    pub(super) key_exchanges: BTreeMap<KeyExchange, u64>,
}

impl ConnectionCounters {
    pub(super) const fn of(&self, kind: SaKind) -> &SaEvents {
        match kind {
            SaKind::Ike => &self.ike,
            SaKind::Child => &self.child,
        }
    }
}

/// Counters of all connections.
#[derive(Debug, Default)]
pub(super) struct EventCounters {
    connections: BTreeMap<Arc<str>, ConnectionCounters>,
    /// Connections of established IKE SAs.
    ikes: HashMap<IkeSaId, Arc<str>>,
    /// Connections of installed Child SAs.
    children: HashMap<ChildId, Arc<str>>,
    /// Connections and key exchanges of established IKE SAs, without those that were replaced.
    key_exchanges: HashMap<IkeSaId, (Arc<str>, KeyExchange)>,
}

impl EventCounters {
    /// Starts the counters of these connections, and ends those of others that have no SA.
    pub(super) fn configure(&mut self, connections: &[Arc<Connection>]) {
        let configured: HashSet<&str> = connections.iter().map(|connection| &*connection.name).collect();
        let Self { connections: known, ikes, children, .. } = self;
        let used: HashSet<&str> = ikes.values().chain(children.values()).map(|name| &**name).collect();
        known.retain(|name, _| configured.contains(&**name) || used.contains(&**name));
        for name in configured {
            if !known.contains_key(name) {
                known.insert(name.into(), ConnectionCounters::default());
            }
        }
    }

    /// Counters of the connections after the one with this name, in the order of names.
    pub(super) fn after(
        &self,
        name: Option<&Arc<str>>,
    ) -> impl Iterator<Item = (&Arc<str>, &ConnectionCounters)> {
        let from = name.map_or(Bound::Unbounded, |name| Bound::Excluded(name.clone()));
        self.connections.range((from, Bound::Unbounded))
    }

    /// Counts a notice.
    pub(super) fn note(&mut self, notice: &Notice) {
        match notice {
            Notice::Ike(event) => self.note_event(event),
            Notice::ChildNotInstalled { connection, .. } => {
                self.failed(SaKind::Child, &connection.name, Some("not-installed"));
            }
            _ => {}
        }
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::IkeUp { ike, connection, is_restored, .. } => {
                let name = self.name(&connection.name);
                if !is_restored {
                    increment(&mut self.counters(&name).ike.established);
                }
                self.ikes.insert(*ike, name);
            }
            Event::IkeRekeyed { old, new } => {
                self.forget_key_exchange(*old);
                if let Some(name) = self.ikes.get(old).cloned() {
                    increment(&mut self.counters(&name).ike.rekeyed);
                    self.ikes.insert(*new, name);
                }
            }
            Event::IkeDown { ike, connection, reason, .. } => self.ike_down(*ike, connection, *reason),
            Event::IkeRekeyFailed { connection, reason, .. } => {
                self.failed(SaKind::Ike, &connection.name, failure(*reason));
            }
            Event::InitiateFailed { connection, error } => {
                self.failed(SaKind::Ike, &connection.name, initiate_failure(*error));
            }
            Event::ChildUp(up) => {
                let name = self.name(&up.connection.name);
                let child = &mut self.counters(&name).child;
                if !up.is_restored {
                    increment(if up.replaces.is_some() {
                        &mut child.rekeyed
                    } else {
                        &mut child.established
                    });
                }
                self.children.insert(up.id, name);
            }
            Event::ChildDown { id, reason, .. } => {
                if let Some(name) = self.children.remove(id)
                    && *reason == DownReason::Expired
                {
                    increment(&mut self.counters(&name).child.expired);
                }
            }
            Event::ChildFailed { connection, reason, .. } => {
                self.failed(SaKind::Child, &connection.name, failure(*reason));
            }
            Event::Retransmitted { connection, .. } => {
                let name = self.name(&connection.name);
                increment(&mut self.counters(&name).retransmissions);
            }
            _ => {}
        }
    }

    /// Counts the key exchange of a new IKE SA. Call this after [`note`](Self::note).
    pub(super) fn note_key_exchange(&mut self, sa: &IkeStatus) {
        let (Some(suite), Some(name)) = (&sa.suite, self.ikes.get(&sa.id).cloned()) else { return };
        let methods = notation::key_exchanges(suite).into();
        let kex = KeyExchange { methods, uses_ppk: sa.ppk_id.is_some() };
        increment(self.counters(&name).key_exchanges.entry(kex.clone()).or_default());
        self.key_exchanges.insert(sa.id, (name, kex));
    }

    /// An IKE SA has ended, or another one has replaced it.
    fn forget_key_exchange(&mut self, ike: IkeSaId) {
        let Some((name, kex)) = self.key_exchanges.remove(&ike) else { return };
        let counts = &mut self.counters(&name).key_exchanges;
        if let Some(count) = counts.get_mut(&kex) {
            *count = count.saturating_sub(1);
        }
        counts.retain(|_, count| *count > 0);
    }

    fn ike_down(&mut self, ike: IkeSaId, connection: &Connection, reason: DownReason) {
        self.forget_key_exchange(ike);
        let Some(name) = self.ikes.remove(&ike) else {
            return self.failed(SaKind::Ike, &connection.name, failure(reason));
        };
        let counters = self.counters(&name);
        if reason == DownReason::Expired {
            increment(&mut counters.ike.expired);
        }
        increment(counters.ended.entry(end(reason)).or_default());
    }

    fn failed(&mut self, kind: SaKind, connection: &str, reason: Option<&'static str>) {
        let Some(reason) = reason else { return };
        let name = self.name(connection);
        let counters = self.counters(&name);
        let events = match kind {
            SaKind::Ike => &mut counters.ike,
            SaKind::Child => &mut counters.child,
        };
        increment(events.failed.entry(reason).or_default());
    }

    fn counters(&mut self, name: &Arc<str>) -> &mut ConnectionCounters {
        self.connections.entry(name.clone()).or_default()
    }

    /// The name that is the key of a connection, or a new one.
    fn name(&self, name: &str) -> Arc<str> {
        self.connections.get_key_value(name).map_or_else(|| name.into(), |(known, _)| known.clone())
    }
}

fn increment(count: &mut u64) {
    *count = count.saturating_add(1);
}

/// Name of the reason of a failed negotiation: a fault, a notification of the peer, or another cause. `None`
/// if it was ended on purpose.
fn failure(reason: DownReason) -> Option<&'static str> {
    Some(match reason {
        DownReason::Fault(fault) => fault.name(),
        DownReason::Refused(notify) => notify.name().unwrap_or("other-notification"),
        DownReason::DeadPeer | DownReason::Forgotten { .. } => "no-response",
        DownReason::Peer => "closed-by-peer",
        DownReason::Expired => "timeout",
        DownReason::Local
        | DownReason::Inactive
        | DownReason::Replaced
        | DownReason::InitialContact
        | DownReason::NotUnique
        | DownReason::Reauth
        | DownReason::Unconfigured => return None,
    })
}

/// Name of the reason of a negotiation that could not start. `None` if it starts later.
const fn initiate_failure(error: InitiateError) -> Option<&'static str> {
    match error {
        InitiateError::Pending => None,
        InitiateError::NoRemoteAddress => Some("no-remote-address"),
        InitiateError::OnlyPeer => Some("only-peer"),
        InitiateError::UnknownHost => Some("unknown-host"),
        InitiateError::NoRoute => Some("no-route"),
        InitiateError::Full => Some("sa-limit"),
        InitiateError::NoPpk => Some("no-ppk"),
        InitiateError::Provider => Some("provider"),
    }
}

/// Name of the reason of the end of an IKE SA.
const fn end(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Local | DownReason::Inactive => "closed",
        DownReason::Peer => "closed-by-peer",
        DownReason::Replaced => "rekeyed",
        DownReason::DeadPeer => "no-response",
        DownReason::Expired => "expired",
        DownReason::InitialContact | DownReason::NotUnique => "not-unique",
        DownReason::Refused(_) => "refused",
        DownReason::Fault(_) => "fault",
        DownReason::Reauth | DownReason::Forgotten { .. } => "reauthentication",
        DownReason::Unconfigured => "unconfigured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::negotiated::tests::{connection as connection_with, established};
    use casemate_crypto::KexMethod;
    use casemate_ike::config::{ChildConfig, Identity};
    use casemate_ike::{Path, PeerFault, StateFault};
    use casemate_wire::ike::NotifyType;

    fn connection(name: &str) -> Arc<Connection> {
        let id = |name: &str| Identity::Fqdn(name.into());
        Arc::new(Connection::with_shared_key(name, id("left"), id("right")))
    }

    fn child_failed(name: &str, reason: DownReason) -> Notice {
        let child = Arc::new(ChildConfig::new("net"));
        Notice::Ike(Event::ChildFailed { connection: connection(name), child, replaces: None, reason })
    }

    fn names(counters: &EventCounters) -> Vec<&str> {
        counters.after(None).map(|(name, _)| &**name).collect()
    }

    #[test]
    fn key_exchanges_are_those_of_ike_sas_that_stand() {
        let id = |number| IkeSaId::for_tests(number);
        let up = |connection: &Arc<Connection>, number| Event::IkeUp {
            ike: id(number),
            connection: connection.clone(),
            peer: Identity::Fqdn("right".into()),
            eap_identity: None,
            earlier_rounds: Vec::new(),
            resumes: None,
            ppk_id: None,
            path: Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() },
            is_restored: false,
        };
        let classical = established(connection_with("default"), None);
        let hybrid = established(connection_with("default"), Some(KexMethod::MlKem768));
        let gw = classical.connection.clone();
        let mut counters = EventCounters::default();
        let mut note = |event: Event, sa: Option<IkeStatus>| {
            counters.note(&Notice::Ike(event));
            sa.iter().for_each(|sa| counters.note_key_exchange(sa));
            let (_, of) = counters.after(None).next().unwrap();
            let row = |(kex, count): (&KeyExchange, &u64)| (kex.methods.to_string(), kex.uses_ppk, *count);
            of.key_exchanges.iter().map(row).collect::<Vec<_>>()
        };
        let (one, both) = ("x25519".to_owned(), "x25519-ke1_mlkem768".to_owned());
        note(up(&gw, 1), Some(IkeStatus { id: id(1), ..classical.clone() }));
        let ppk_id = Some(b"carol".to_vec());
        note(up(&gw, 2), Some(IkeStatus { id: id(2), ppk_id: ppk_id.clone(), ..hybrid.clone() }));
        let found = note(up(&gw, 3), Some(IkeStatus { id: id(3), ..classical }));
        assert_eq!(found, [(one.clone(), false, 2), (both.clone(), true, 1)]);
        // Rekeying replaces one by another; its end then changes nothing.
        let rekeyed = Event::IkeRekeyed { old: id(1), new: id(4) };
        let found = note(rekeyed, Some(IkeStatus { id: id(4), ..hybrid }));
        let expected = [(one, false, 1), (both.clone(), false, 1), (both, true, 1)];
        assert_eq!(found, expected);
        let down = |number, reason| Event::IkeDown {
            ike: id(number),
            connection: gw.clone(),
            reason,
            half_open: false,
            path: Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() },
        };
        assert_eq!(note(down(1, DownReason::Replaced), None), expected);
        (2..=4).for_each(|number| drop(note(down(number, DownReason::Local), None)));
        assert_eq!(note(down(9, DownReason::Local), None), []);
    }

    #[test]
    fn names_are_those_of_the_configuration() {
        let mut counters = EventCounters::default();
        counters.configure(&[connection("b"), connection("a")]);
        assert_eq!(names(&counters), ["a", "b"]);
        let first = counters.after(None).next().unwrap().0.clone();
        assert_eq!(counters.after(Some(&first)).count(), 1);
        for round in 0..1_000 {
            counters.configure(&[connection(&format!("c{round}"))]);
        }
        assert_eq!(names(&counters), ["c999"]);
    }

    /// A peer can send any of 65,536 notifications.
    #[test]
    fn reasons_are_bounded() {
        let mut counters = EventCounters::default();
        for number in 0..=u16::MAX {
            counters.note(&child_failed("a", DownReason::Refused(NotifyType(number))));
        }
        counters.note(&child_failed("a", DownReason::Local));
        let fault = PeerFault::State(StateFault::NoProposalChosen);
        counters.note(&child_failed("a", DownReason::Fault(fault)));
        let (_, of) = counters.after(None).next().unwrap();
        assert_eq!(of.child.failed.len(), NotifyType::ALL.len() + 2);
        assert_eq!(of.child.failed.values().sum::<u64>(), 65_537);
        assert_eq!(of.child.failed["NO_PROPOSAL_CHOSEN"], 1);
        assert_eq!(of.child.failed["no-proposal-chosen"], 1);
    }
}
