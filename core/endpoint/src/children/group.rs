//! Groups of Child SAs for the same traffic, which share their policies.

use super::{ChildPlace, Children};
use crate::policy::{DirectionActions, PolicySet, Purpose, SpdWriter, priority, protect};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::{InsertError, Template};
use casemate_ike::config::Connection;
use casemate_ike::{ChildId, ChildUp, TrafficSelector, TrafficSelectorTemplate};
use casemate_sa::table::ByteIndex;
use casemate_sa::{Mode, SaParams, SpdPair};
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;

/// Child SAs for the same traffic: one that replaces another, or several at the same time. They share their
/// policies.
pub(super) struct ChildGroup {
    pub(super) reqid: u32,
    pub(super) connection: Arc<Connection>,
    pub(super) peer: IpAddr,
    /// In transport mode: which of the hosts with the peer's address it is.
    pub(super) host: Option<TransportHost>,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) spds: SpdPair,
    policies: PolicySet,
    members: u32,
}

/// One of the hosts with an address in transport mode: hosts behind a NAT, or the NAT itself (RFC 3948
/// section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportHost {
    /// The host that has the address itself: ESP is not encapsulated.
    Itself,
    /// The host with this UDP port, which distinguishes hosts behind a NAT.
    Encapsulated(u16),
}

impl From<Option<u16>> for TransportHost {
    fn from(encap_port: Option<u16>) -> Self {
        encap_port.map_or(Self::Itself, Self::Encapsulated)
    }
}

impl TransportHost {
    /// The remote host of this outbound SA; `None` in tunnel mode.
    pub(super) fn of(outbound: &SaParams) -> Option<Self> {
        let encap_port = outbound.encap.map(|encap| encap.dst_port);
        (outbound.mode == Mode::Transport).then(|| encap_port.into())
    }
}

/// First address of the remote traffic. With many Child SAs, few share it.
pub(super) type FirstAddr = Option<IpAddr>;

pub(super) fn first_addr(remote: &[TrafficSelector]) -> FirstAddr {
    remote.first().map(|traffic| traffic.addrs.first())
}

/// Key of a group in `by_peer`.
pub(super) fn peer_key(first: FirstAddr, peer: IpAddr) -> Vec<u8> {
    [bytes(first), bytes(Some(peer))].concat()
}

/// Key of a group in `by_reqid`.
fn reqid_key(first: FirstAddr, reqid: u32) -> Vec<u8> {
    [&*bytes(first), &reqid.to_be_bytes()].concat()
}

/// Length and bytes of an address.
fn bytes(addr: Option<IpAddr>) -> Vec<u8> {
    match addr {
        None => [0].into(),
        Some(IpAddr::V4(addr)) => [&[4], &addr.octets()[..]].concat(),
        Some(IpAddr::V6(addr)) => [&[16], &addr.octets()[..]].concat(),
    }
}

/// Value of a group in the two indexes.
pub(super) const fn group_value(group: u32) -> [u64; 2] {
    [group as u64, 0]
}

pub(super) const HAS_GROUP: &str = "an installed Child SA has a group";

impl ChildGroup {
    pub(super) fn carries_traffic_of(&self, up: &ChildUp, spds: SpdPair) -> bool {
        self.spds == spds && self.local == up.local && self.remote == up.remote
    }
}

impl Children {
    /// The groups with this key.
    pub(super) fn groups_in<'a>(
        &'a self,
        index: &'a ByteIndex,
        key: &[u8],
    ) -> impl Iterator<Item = (u32, &'a ChildGroup)> + use<'a> {
        let ids = index.get_all(key).filter_map(|[id, _]| u32::try_from(id).ok());
        ids.filter_map(|id| Some((id, &**self.groups.get(id)?)))
    }

    /// Adds a Child SA to the group with this reqid and traffic, or to a new group. Returns `None` if the SPD
    /// has no room for the policies.
    pub(super) fn join_group(
        &mut self,
        up: &ChildUp,
        place: ChildPlace,
        writer: &mut SpdWriter<'_>,
    ) -> Option<u32> {
        let ChildPlace { reqid, spds } = place;
        let first = first_addr(&up.remote);
        let is_same_traffic = |found: &(u32, &ChildGroup)| found.1.carries_traffic_of(up, spds);
        let host = TransportHost::of(&up.outbound);
        let installed =
            self.groups_in(&self.by_reqid, &reqid_key(first, reqid)).find(is_same_traffic).map(|(id, _)| id);
        if let Some((id, group)) = installed.and_then(|id| Some((id, self.groups.get_mut(id)?))) {
            group.members = group.members.saturating_add(1);
            // The peer may have another port now.
            group.host = host;
            return Some(id);
        }
        let policies = match up.child.policies {
            true => add_policies(up, place, writer).ok()?,
            false => PolicySet::default(),
        };
        let (connection, peer) = (up.connection.clone(), up.outbound.dst);
        let (local, remote) = (up.local.clone(), up.remote.clone());
        self.last_group = self.last_group.wrapping_add(1);
        let group = ChildGroup { reqid, connection, peer, host, local, remote, spds, policies, members: 1 };
        self.groups.insert(self.last_group, group.into());
        self.by_peer.insert(&peer_key(first, peer), group_value(self.last_group));
        self.by_reqid.insert(&reqid_key(first, reqid), group_value(self.last_group));
        Some(self.last_group)
    }

    pub(super) fn group_has_siblings(&self, group: u32) -> bool {
        self.groups.get(group).is_some_and(|group| group.members > 1)
    }

    /// Whether a Child SA in transport mode carries some of this traffic for another host with the peer's
    /// address. Packets for one host would reach the other. Ignores Child SAs for which `is_ignored` returns
    /// `true`.
    pub(crate) fn is_carried_for_another(
        &self,
        peer: IpAddr,
        host: TransportHost,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        is_ignored: &dyn Fn(ChildId) -> bool,
    ) -> bool {
        let is_of = |id: ChildId, group| self.installed.get(id).is_some_and(|child| child.group == group);
        // Rarely called: only if another host has the same traffic.
        let counts = |group| self.by_sa.values().any(|id| is_of(*id, group) && !is_ignored(*id));
        let intersect = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
            ours.iter().any(|one| theirs.iter().any(|other| one.intersection(other).is_some()))
        };
        self.groups_in(&self.by_peer, &peer_key(first_addr(remote), peer)).any(|(id, group)| {
            group.host.is_some_and(|known| known != host)
                && intersect(&group.local, local)
                && intersect(&group.remote, remote)
                && counts(id)
        })
    }

    /// Removes a Child SA from its group. The last one removes the policies.
    pub(super) fn leave_group(&mut self, id: u32, spds: &mut SpdWriter<'_>) {
        let Some(group) = self.groups.get_mut(id).or_report(HAS_GROUP) else { return };
        group.members = group.members.checked_sub(1).or_broken_default("a group counts its Child SAs");
        if group.members == 0 {
            group.policies.remove(spds);
            let first = first_addr(&group.remote);
            self.by_peer.remove(&peer_key(first, group.peer), group_value(id));
            self.by_reqid.remove(&reqid_key(first, group.reqid), group_value(id));
            self.groups.remove(id);
        }
    }
}

/// Whether the configuration names each of these selectors.
fn are_configured(negotiated: &[TrafficSelector], configured: &[TrafficSelectorTemplate]) -> bool {
    let is = |one: &TrafficSelector, known: &TrafficSelectorTemplate| {
        known.addrs == Some(one.addrs) && known.proto == one.proto && known.ports == one.ports
    };
    negotiated.iter().all(|one| configured.iter().any(|known| is(one, known)))
}

/// Adds the policies of a group. The SPI may change, and with a NAT or MOBIKE the addresses too, so the
/// templates then match the reqid only.
fn add_policies(
    up: &ChildUp,
    place: ChildPlace,
    writer: &mut SpdWriter<'_>,
) -> Result<PolicySet, InsertError> {
    let ChildPlace { reqid, spds } = place;
    let (protocol, mode) = (up.inbound.transform.protocol(), up.inbound.mode);
    let moves = up.inbound.encap.is_some() || mode == Mode::Transport || up.connection.may_move();
    let template = |sa: &SaParams| Template {
        protocol,
        mode,
        src: Some(sa.src).filter(|_| !moves),
        dst: Some(sa.dst).filter(|_| !moves),
        reqid,
    };
    // The peer chooses what it narrows selectors to, so only those of the configuration may be shared.
    let is_configured =
        are_configured(&up.local, &up.child.local_ts) && are_configured(&up.remote, &up.child.remote_ts);
    let outbound = protect(template(&up.outbound), false);
    let inbound = protect(template(&up.inbound), is_configured);
    let priority_of = |selector: &_| priority(selector, up.child.priority, Purpose::Child);
    let actions = DirectionActions { outbound: &outbound, inbound: &inbound };
    PolicySet::add(writer, spds, &up.local, &up.remote, actions, priority_of)
}
