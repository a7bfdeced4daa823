//! Makes the record of an established IKE SA (docs/decisions/0140-cells.md).

use super::established::Phase;
use super::tasks::Pending;
use super::timers::Timer;
use crate::child_sa::{ChildSa, DynamicAddrs, Stage};
use crate::mobike::Mobike;
use crate::record::{
    AssignedFields, ChildFields, ChildKeys, ChildTimes, ClosedChild, DynamicFields, FragmentFields,
    IkeRecord, MobikeFields, OriginFields, PathMtuFields, PeerFields, PhaseField, PurposeFields, Secret,
    Span, SpiFields, SuiteFields, TimeFields, WindowFields,
};
use crate::state::{Established, IkeSa, SaCommon, State, Task};
use crate::{ChildId, ChildSequence, IkeSpis, Role};
use alloc::vec::Vec;
use casemate_sa::Instant;

impl From<IkeSpis> for SpiFields {
    fn from(IkeSpis { initiator, responder }: IkeSpis) -> Self {
        Self { initiator: initiator.0, responder: responder.0 }
    }
}

impl IkeSa {
    /// The record of the IKE SA; `None` unless it is established, and its peer has passed one round of
    /// authentication. The sequence numbers of its Child SAs are 0.
    pub(crate) fn record(&self, now: Instant) -> Option<IkeRecord> {
        let State::Established(state) = &self.state else { return None };
        state.record(&self.common, now)
    }

    /// How far the sequence numbers of the Child SAs of its record are, without what the data path has.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = ChildSequence> {
        let established = match &self.state {
            State::Established(state) => Some(state),
            _ => None,
        };
        established.into_iter().flat_map(|state| {
            state.contents.children.iter().filter(|child| state.is_recorded(child)).map(|child| {
                ChildSequence {
                    spi: child.agreed.spi_in.get(),
                    esn: child.agreed.suite.esn,
                    sent: 0,
                    received: child.peer_numbers().start,
                    reached: child.peer_numbers().reached,
                }
            })
        })
    }
}

impl Established {
    fn record(&self, common: &SaCommon, now: Instant) -> Option<IkeRecord> {
        let contents = &self.contents;
        let DynamicAddrs { local, remote, unproved } = contents.dynamic_addrs.clone();
        let children = contents.children.iter().filter(|child| self.is_recorded(child));
        Some(IkeRecord {
            connection: common.connection.name.clone(),
            is_initiator: common.role == Role::Initiator,
            spis: common.spis().into(),
            path: common.path.into(),
            suite: SuiteFields::of_ike(self.channel.suite)?,
            keys: self.channel.cipher.to_fields(&self.channel.sk_d),
            window: self.window_fields(now),
            fragments: FragmentFields {
                local: self.channel.fragments.local,
                remote: self.channel.fragments.remote,
            },
            peer_token: self.channel.peer_token.as_ref().map(|token| Secret(token.0.clone())),
            peer: PeerFields::new(&contents.peer.record(), contents.peer.pair().is_v4())?,
            nat: contents.nat.into(),
            dynamic_addrs: DynamicFields { local, remote, unproved },
            leased: contents.leased.clone(),
            assigned: contents.assigned.as_ref().map(|config| AssignedFields::from(&**config)),
            mobike: contents.mobike.as_ref().map(|mobike| mobike_fields(mobike)),
            phase: self.phase_field(),
            origin: OriginFields {
                spis: self.origin_spis.into(),
                is_initiator: self.origin_role == Role::Initiator,
            },
            times: self.time_fields(now),
            children: children.map(|child| self.child_fields(child, now)).collect::<Option<_>>()?,
            closed: Some(self.closed_children()).filter(|closed| !closed.is_empty()),
            sync: Some(self.channel.sync.into()),
            path_mtu: contents.path_search.found().map(|limit| PathMtuFields { limit }),
            again: self.again_field(),
        })
    }

    /// Child SAs that are closed at this host, and whose Delete is in the queue.
    fn closed_children(&self) -> Vec<ClosedChild> {
        let closed = |task: &Task| match task {
            Task::DeleteSpi(spi) => Some((*spi).into()),
            Task::DeleteChild(id, _) => {
                let mut children = self.contents.children.iter();
                let child = children.find(|child| child.id == *id && child.is_stopped)?;
                Some(child.agreed.inbound_spi().into())
            }
            _ => None,
        };
        self.tasks.iter().filter_map(closed).collect()
    }

    /// Whether a Child SA still exists for the peer, as far as this host knows.
    fn is_recorded(&self, child: &ChildSa) -> bool {
        let is_deleted = matches!(self.pending, Some(Pending::DeleteChild { id, .. }) if id == child.id);
        !is_deleted && !child.is_stopped
    }

    fn phase_field(&self) -> PhaseField {
        match self.phase {
            Phase::Closing => PhaseField::Closing,
            _ if self.closing_reason().is_some() => PhaseField::Closing,
            Phase::Open => PhaseField::Open,
            Phase::Replaced => PhaseField::Replaced,
        }
    }

    fn window_fields(&self, now: Instant) -> WindowFields {
        let mut fields = self.channel.window.to_fields(now);
        if let Some(request) = &mut fields.request {
            request.purpose = Some(self.purpose());
        }
        fields
    }

    /// What the outstanding request asked for.
    pub(super) fn purpose(&self) -> PurposeFields {
        match &self.pending {
            Some(Pending::Child(pending)) => {
                let ClosedChild { spi, is_ah } = pending.negotiation.offered_spi().into();
                let replaces = pending.negotiation.request.replaces.map(|old| old.spi_in.get());
                PurposeFields::Child { spi, is_ah, replaces }
            }
            Some(Pending::Rekey(_)) => PurposeFields::RekeyIke,
            Some(Pending::DeleteIke(_)) => PurposeFields::DeleteIke,
            Some(Pending::UpdateAddresses { .. }) => PurposeFields::UpdateAddresses,
            Some(Pending::Lost(lost)) => lost.purpose(),
            _ => PurposeFields::Other,
        }
    }

    fn time_fields(&self, now: Instant) -> TimeFields {
        let left = |timer| self.timers.get(timer).map(|at| Span::until(at, now));
        let rekeys = self.tasks.iter().any(|task| matches!(task, Task::RekeyIke))
            || matches!(self.pending, Some(Pending::Rekey(_)));
        TimeFields {
            established: Span::since(self.established_at, now),
            authenticated: Span::since(self.authenticated_at, now),
            rekey: if rekeys { Some(Span::ZERO) } else { left(Timer::Rekey) },
            expire: left(Timer::Expire),
            reauthenticate: left(Timer::Reauthenticate),
            reauth_attempts: self.reauth_attempts,
            is_reauth_refused: self.is_reauth_refused,
            duplicate: left(Timer::Duplicate),
        }
    }

    fn child_fields(&self, child: &ChildSa, now: Instant) -> Option<ChildFields> {
        let keymat = child.keymat.as_ref()?;
        let keys =
            ChildKeys { outbound: Secret(keymat.outbound.clone()), inbound: Secret(keymat.inbound.clone()) };
        let left = |at: Option<Instant>| at.map(|at| Span::until(at, now));
        let times = ChildTimes {
            installed: Span::since(child.installed_at, now),
            rekey: if self.is_rekeying(child.id) { Some(Span::ZERO) } else { left(child.rekey_at) },
            expire: left(child.expires_at),
        };
        let is_closed = |task: &Task| matches!(task, Task::DeleteChild(id, _) if *id == child.id);
        let replaced = |id| self.contents.children.iter().find(|other| other.id == id);
        Some(ChildFields {
            is_replaced: child.stage == Stage::Replaced,
            is_closing: child.stage == Stage::Closing || self.tasks.iter().any(is_closed),
            is_active: child.active,
            replaces: child.replaces.and_then(replaced).map(|old| old.agreed.spi_in.get()),
            received: child.peer_numbers().start,
            reached: child.peer_numbers().reached,
            ..ChildFields::of(&child.agreed, &child.config.name, keys, times)?
        })
    }

    /// Whether this host is rekeying a Child SA, or is about to. The successor begins again.
    fn is_rekeying(&self, id: ChildId) -> bool {
        let is_queued = self.tasks.iter().any(|task| matches!(task, Task::RekeyChild(of) if *of == id));
        let is_begun = match &self.pending {
            Some(Pending::Child(pending)) => {
                pending.negotiation.request.replaces.as_ref().is_some_and(|old| old.id == id)
            }
            _ => false,
        };
        is_queued || is_begun
    }
}

fn mobike_fields(mobike: &Mobike) -> MobikeFields {
    MobikeFields {
        decides: mobike.decides,
        peer_addrs: mobike.peer_addrs.clone(),
        has_nat_traversal: mobike.has_nat_traversal,
        forces_encap: mobike.forces_encap(),
        is_unverified: mobike.is_unverified,
        former: mobike.former.map(|(path, encap)| (path.into(), encap)),
    }
}
