//! Continues the IKE SA of a record (docs/decisions/0140-cells.md).

mod unfinished;

use super::counter_sync::peer_numbers;
use super::established::Phase;
use super::timers::{Timer, Timers};
use super::traffic::{TrafficWatch, next_comparison};
use crate::address_pool::LeaseRequest;
use crate::auth::credentials::id_matches;
use crate::auth::{PeerAuthenticated, resumption::PeerRecord};
use crate::child_sa::{
    AgreedChild, ChildKeymat, ChildKeys, ChildOwner, DynamicAddrs, NewChild, SequenceNumbers, Stage,
    install_with,
};
use crate::config::{ChildConfig, Connection, RemoteMethod};
use crate::context::Step;
use crate::crash_token::PeerToken;
use crate::engine::peer_index::Proof;
use crate::mobike::Mobike;
use crate::path_mtu::PathSearch;
use crate::record::{
    ChildFields, DynamicFields, FragmentFields, IkeRecord, MobikeFields, PathMtuFields, PhaseField,
    RestoreError, Span, SpiFields, TimeFields,
};
use crate::state::{Established, IkeSa, PathProbe, SaCommon, SaContents, State, Task};
use crate::transport::{FragmentSupport, MessageCipher, SecureChannel, Window};
use crate::{AssignedConfig, DownReason, Event, IkeSaId, IkeSpis, IkeSuite, Role, TrafficSelector};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_sa::Mode;
use casemate_wire::ike::IkeSpi;
use core::time::Duration;

/// Seconds until the path of a restored IKE SA is searched again, if it was before.
const FIRST_SEARCH: u64 = 60;
const LAST_SEARCH: u64 = 600;

impl From<SpiFields> for IkeSpis {
    fn from(SpiFields { initiator, responder }: SpiFields) -> Self {
        Self { initiator: IkeSpi(initiator), responder: IkeSpi(responder) }
    }
}

const fn role(is_initiator: bool) -> Role {
    if is_initiator { Role::Initiator } else { Role::Responder }
}

/// Identifiers of a restored IKE SA, and the number of its owners so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestoredIds {
    pub(crate) ike: IkeSaId,
    /// Origin of the IKE SA.
    pub(crate) origin: IkeSaId,
    pub(crate) owners: u16,
}

impl IkeSa {
    /// Continues the IKE SA of a record. `connection` is the one that the record names. Returns the IKE SA,
    /// and whether the connection still allows it.
    pub(crate) fn restore(
        record: IkeRecord,
        connection: &Arc<Connection>,
        ids: RestoredIds,
        step: &mut Step<'_, '_>,
    ) -> Result<(Self, bool), RestoreError> {
        let spis = IkeSpis::from(record.spis);
        let path = record.path.into();
        let common = SaCommon::new(connection.clone(), path, role(record.is_initiator), spis, step);
        let common = SaCommon { id: ids.ike, ..common };
        let suite = record.suite.to_ike().ok_or(RestoreError::Unusable)?;
        let peer = record.peer.to_peer(ids.origin).ok_or(RestoreError::Unusable)?;
        let children = children(&record.children, connection)?;
        let assigned = assigned(&record)?;
        let channel = channel(&record, suite, &common, ids.owners, step)?;
        let is_allowed = allows(connection, suite, &peer, step) && children.iter().all(Option::is_some);
        let parts = RestoredParts {
            channel,
            peer: Arc::new(peer.restored(connection, record.peer.was_v4)),
            assigned,
            children: children.into_iter().flatten().collect(),
        };
        let state = Established::restored(&record, &common, parts, ids, step);
        let is_complete = state.contents.leased.len() == record.leased.len();
        let sa = Self { common, state: State::Established(Box::new(state)) };
        Ok((sa, is_allowed && is_complete))
    }

    /// Sends the outstanding request again, if there is one.
    pub(crate) fn resend(self, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &self.state {
            state.channel.resend(&self.common, step);
        }
        self
    }
}

/// What was read from a record before anything changed.
struct RestoredParts {
    channel: SecureChannel,
    peer: Arc<PeerAuthenticated>,
    assigned: Option<Box<AssignedConfig>>,
    children: Vec<RestoredChild>,
}

/// A Child SA of a record, with its configuration.
struct RestoredChild {
    fields: ChildFields,
    config: Arc<ChildConfig>,
    agreed: AgreedChild,
    keys: ChildKeys,
}

/// The Child SAs of a record, those that others replace first; `None` for one without a configuration.
fn children(
    all: &[ChildFields],
    connection: &Connection,
) -> Result<Vec<Option<RestoredChild>>, RestoreError> {
    let mut all = all.to_vec();
    all.sort_by_key(|child| child.replaces.is_some());
    let restored = |fields: ChildFields| {
        let agreed = fields.to_agreed().ok_or(RestoreError::Unusable)?;
        let keymat =
            ChildKeymat { outbound: fields.keys.outbound.0.clone(), inbound: fields.keys.inbound.0.clone() };
        let keys = keymat.split(agreed.suite).ok_or(RestoreError::Unusable)?;
        let config = connection.children.iter().find(|config| config.name == fields.name).cloned();
        Ok(config.map(|config| RestoredChild { fields, config, agreed, keys }))
    };
    all.into_iter().map(restored).collect()
}

fn assigned(record: &IkeRecord) -> Result<Option<Box<AssignedConfig>>, RestoreError> {
    match &record.assigned {
        Some(fields) => Ok(Some(Box::new(fields.to_config().ok_or(RestoreError::Unusable)?))),
        None => Ok(None),
    }
}

/// Whether the connection would accept the IKE SA now.
fn allows(connection: &Connection, suite: IkeSuite, peer: &PeerRecord, step: &Step<'_, '_>) -> bool {
    let is_accepted_proof = matches!(
        (&connection.remote.method, peer.proof),
        (RemoteMethod::SharedKey | RemoteMethod::Any(_), Proof::SharedKey)
            | (RemoteMethod::Certificate(_) | RemoteMethod::Any(_), Proof::Signature)
            | (RemoteMethod::Eap(_), Proof::Eap | Proof::EapLogin)
    );
    let is_own = connection.local.id.as_ref().is_none_or(|id| id.is_same_peer(&peer.own_id));
    is_accepted_proof
        && is_own
        && !connection.has_further_rounds()
        && connection.proposals.iter().any(|proposal| proposal.allows(suite))
        && id_matches(step.context.credentials, &connection.remote.id, &peer.id)
}

fn channel(
    record: &IkeRecord,
    suite: IkeSuite,
    common: &SaCommon,
    owners: u16,
    step: &Step<'_, '_>,
) -> Result<SecureChannel, RestoreError> {
    let keys = record.keys.clone();
    let sk_d = keys.d.0.clone();
    let cipher =
        MessageCipher::from_fields(common.spis(), common.role, suite, keys, owners, step.context.providers);
    let cipher = cipher.map_err(|_| RestoreError::Provider)?;
    let window = Window::from_fields(record.window.clone(), step.context.now);
    let FragmentFields { local, remote } = record.fragments;
    let token = record.peer_token.clone().map(|token| PeerToken(token.0));
    let fragments = FragmentSupport { local, remote };
    let channel = SecureChannel::restored(cipher, window, suite, sk_d, fragments, common.path);
    let sync = record.sync.map(Into::into).unwrap_or_default();
    Ok(channel.with_sync(sync).with_peer_token(token))
}

impl Established {
    fn restored(
        record: &IkeRecord,
        common: &SaCommon,
        parts: RestoredParts,
        ids: RestoredIds,
        step: &mut Step<'_, '_>,
    ) -> Self {
        let now = step.context.now;
        let RestoredParts { channel, peer, assigned, children } = parts;
        let times = record.times;
        let phase = if record.phase == PhaseField::Replaced { Phase::Replaced } else { Phase::Open };
        let since = times.authenticated.before(now);
        let origin_role = role(record.origin.is_initiator);
        if phase == Phase::Open {
            step.shared.peers.insert(&peer, since, common.id, origin_role);
        }
        report(common, &peer, step);
        let purpose = record.window.request.as_ref().and_then(|request| request.purpose);
        let mut state = Self {
            pending: unfinished::pending(&channel, purpose),
            channel,
            contents: contents(record, common, peer, assigned, step),
            phase,
            provisional: None,
            tasks: unfinished::tasks(record, purpose),
            established_at: times.established.before(now),
            authenticated_at: since,
            timers: timers(times, common, step),
            traffic: TrafficWatch::new(now),
            path_probe: PathProbe::default(),
            rekey_failures: 0,
            predecessor: None,
            origin: ids.origin,
            origin_role,
            origin_spis: record.origin.spis.into(),
            reauth_attempts: times.reauth_attempts,
            is_reauth_refused: times.is_reauth_refused,
            #[cfg(feature = "redirect")]
            ends_by: None,
            ticket: super::resumption::TicketState::with_deadline(None),
            again: unfinished::again(record, &common.connection),
            series: None,
            forgotten_series: 0,
        };
        children.into_iter().for_each(|child| state.restore_child(child, common, step));
        state
    }

    fn restore_child(&mut self, restored: RestoredChild, common: &SaCommon, step: &mut Step<'_, '_>) {
        let RestoredChild { fields, config, agreed, keys } = restored;
        let is_outdated = !still_allows(&config, &agreed, &self.contents.dynamic_addrs);
        let mut known = self.contents.children.iter();
        let replaced = known.find(|old| Some(old.agreed.spi_in.get()) == fields.replaces);
        let peer_numbers = peer_numbers(fields.received, fields.reached, common.connection.replay_takeover);
        let new = NewChild {
            config: &config,
            agreed,
            replaces: replaced.map(|old| old.id),
            active: fields.is_active,
            restored: Some(SequenceNumbers { sent: fields.sent, received: peer_numbers.start }),
        };
        let owner = ChildOwner::new(common, self.origin, self.contents.nat)
            .until_check(self.contents.mobike.as_deref());
        let mut child = install_with(new, keys, &owner, step);
        let now = step.context.now;
        child.rekey_at = fields.times.rekey.map(|left| left.after(now));
        child.expires_at = fields.times.expire.map(|left| left.after(now));
        child.installed_at = fields.times.installed.before(now);
        child.restored_numbers = Some(Box::new(peer_numbers));
        if fields.is_replaced {
            child.stage = Stage::Replaced;
        }
        let closed = fields.is_closing.then_some(DownReason::Local);
        let reason = if is_outdated { Some(DownReason::Unconfigured) } else { closed };
        self.tasks.extend(reason.map(|reason| Task::DeleteChild(child.id, reason)));
        self.contents.children.push(child);
    }
}

fn report(common: &SaCommon, peer: &PeerAuthenticated, step: &mut Step<'_, '_>) {
    step.event(Event::IkeUp {
        ike: common.id,
        connection: common.connection.clone(),
        peer: peer.id().clone(),
        eap_identity: peer.eap_identity().cloned(),
        earlier_rounds: Vec::new(),
        resumes: None,
        ppk_id: peer.ppk_id().map(Vec::from),
        path: common.path,
        is_restored: true,
    });
}

/// Whether the configuration still allows what was agreed.
fn still_allows(config: &ChildConfig, agreed: &AgreedChild, addrs: &DynamicAddrs) -> bool {
    let allowed = addrs.traffic_selectors(config, agreed.mode == Mode::Transport);
    let is_within = |agreed: &[TrafficSelector], allowed: &[TrafficSelector]| {
        agreed.iter().all(|agreed| allowed.iter().any(|allowed| allowed.contains(agreed)))
    };
    // In transport mode through a NAT, the selectors are those of the addresses that the peer sees.
    let is_traffic = agreed.original.is_some()
        || (is_within(&agreed.local, &allowed.local) && is_within(&agreed.remote, &allowed.remote));
    is_traffic && config.allows(agreed.suite)
}

fn contents(
    record: &IkeRecord,
    common: &SaCommon,
    peer: Arc<PeerAuthenticated>,
    assigned: Option<Box<AssignedConfig>>,
    step: &mut Step<'_, '_>,
) -> SaContents {
    let DynamicFields { local, remote, unproved } = record.dynamic_addrs.clone();
    if let Some(config) = &assigned {
        let new_addrs = step.shared.assigned_addrs.add(&config.addrs);
        step.event(Event::ConfigAssigned {
            ike: common.id,
            connection: common.connection.clone(),
            config: (**config).clone(),
            new_addrs,
        });
    }
    let to = LeaseRequest {
        scope: peer.scope(),
        remote: common.path.remote.ip(),
        replaces_older: false,
        held: &[],
    };
    let leased =
        record.leased.iter().filter_map(|addr| step.shared.pools.lease_assigned(*addr, to)).collect();
    let path_search = if common.connection.path_mtu_probes && step.shared.path_prober.is_some() {
        restored_search(record, step.context.now)
    } else {
        PathSearch::OFF
    };
    SaContents {
        peer,
        nat: record.nat.into(),
        dynamic_addrs: DynamicAddrs { local, remote, unproved },
        leased,
        assigned,
        children: Vec::new(),
        mobike: record.mobike.as_ref().map(restored_mobike),
        path_search,
        tasks: VecDeque::new(),
    }
}

/// The next search of a path. An owner that has taken over many IKE SAs does not search all paths at once.
fn restored_search(record: &IkeRecord, now: Instant) -> PathSearch {
    let Some(PathMtuFields { limit }) = record.path_mtu else { return PathSearch::starting_at(now) };
    let spread = record.own_spi().checked_rem(LAST_SEARCH.saturating_sub(FIRST_SEARCH)).unwrap_or(0);
    let at = now.after(Duration::from_secs(FIRST_SEARCH.saturating_add(spread)));
    PathSearch::continued(limit, at, now)
}

fn restored_mobike(fields: &MobikeFields) -> Box<Mobike> {
    Box::new(Mobike {
        decides: fields.decides,
        peer_addrs: fields.peer_addrs.clone(),
        // What the peer knows of this host's addresses is not certain any more.
        announced: Vec::new(),
        has_nat_traversal: fields.has_nat_traversal,
        forces_encap: fields.forces_encap,
        is_unverified: fields.is_unverified,
        former: fields.former.map(|(path, encap)| (path.into(), encap)),
        tried: Vec::new(),
        refused: Vec::new(),
        nat_refusals: 0,
    })
}

fn timers(times: TimeFields, common: &SaCommon, step: &Step<'_, '_>) -> Timers {
    let now = step.context.now;
    let at = |left: Option<Span>| left.map(|left| left.after(now));
    let mut timers = Timers::default();
    timers.set(Timer::Rekey, at(times.rekey));
    timers.set(Timer::Expire, at(times.expire));
    timers.set(Timer::Reauthenticate, at(times.reauthenticate));
    timers.set(Timer::Duplicate, at(times.duplicate));
    timers.set(Timer::Liveness, common.connection.dpd_delay.map(|delay| now.after(delay)));
    timers.set(Timer::Keepalive, Some(now));
    timers.set(Timer::Traffic, Some(next_comparison(now)));
    timers
}
