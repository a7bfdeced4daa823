//! Child SAs in the data path. A new Child SA is installed before the one that it replaces is removed, and
//! its inbound SA is removed only after packets have stopped arriving.

#[cfg(feature = "child-counters")]
mod counters;
mod group;
mod lingering;
mod moving;

use crate::Notice;
use crate::host::SpiTable;
use crate::policy::SpdWriter;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use casemate_datapath::{AddSaError, Datapath, Direction, SaId};
use casemate_ike::config::{ChildConfig, Connection, PacketLimits};
use casemate_ike::{ChildId, ChildUp, Context, DownReason, IkeSaId, TrafficSelector};
use casemate_sa::table::{ByteIndex, OrderedMap};
use casemate_sa::{Instant, SaParams, SpdPair, Spi};
use casemate_wire::invariant::OrBroken;
use group::{ChildGroup, HAS_GROUP, first_addr, peer_key};
use lingering::{InboundSa, Lingering};
use moving::set_link_mtu;

#[cfg(feature = "child-counters")]
pub use counters::ChildCounters;
#[cfg(feature = "child-counters")]
use counters::CounterTable;
pub(crate) use group::TransportHost;

/// The installed Child SAs.
pub(crate) struct Children {
    installed: OrderedMap<ChildId, Box<InstalledChild>>,
    groups: OrderedMap<u32, Box<ChildGroup>>,
    /// Groups by first remote address and peer, the oldest first.
    by_peer: ByteIndex,
    /// Groups by first remote address and reqid, the oldest first.
    by_reqid: ByteIndex,
    last_group: u32,
    /// Child SAs by the SAs of the data path.
    by_sa: OrderedMap<SaId, ChildId>,
    lingering: Lingering,
    counters: CounterTable,
}

/// The data path's SAs of a Child SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSas {
    /// Inbound SA.
    pub inbound: SaId,
    /// Outbound SA, if it is in use.
    pub outbound: Option<SaId>,
}

/// Where a Child SA is installed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildPlace {
    /// Request identifier that policies and SAs have in common.
    pub(crate) reqid: u32,
    /// The SPDs of its policies.
    pub(crate) spds: SpdPair,
}

/// Configuration with which a Child SA was installed.
pub(crate) struct InstalledConfig {
    pub(crate) connection: Arc<Connection>,
    pub(crate) child: Arc<ChildConfig>,
}

struct InstalledChild {
    inbound: SaId,
    spi_in: Spi,
    outbound: OutboundSa,
    group: u32,
    /// Origin of its IKE SA.
    origin: IkeSaId,
    connection: Arc<Connection>,
    config: Arc<ChildConfig>,
    replaces: Option<ChildId>,
}

enum OutboundSa {
    Active(SaId),
    /// Not installed until the peer can receive on it (RFC 7296 section 2.8).
    Pending(Box<SaParams>),
    Removed,
}

/// Tables that a change to the Child SAs writes to, and the queue for its notices.
pub(crate) struct SaWriter<'w> {
    pub(crate) datapath: &'w mut Datapath,
    pub(crate) notices: &'w mut VecDeque<Notice>,
    pub(crate) spis: &'w mut SpiTable,
}

impl SaWriter<'_> {
    /// Adds the outbound SA of a pair and sets the limits for its packets.
    fn add_outbound(
        &mut self,
        params: &SaParams,
        inbound: SaId,
        limits: PacketLimits,
        context: &Context<'_>,
    ) -> Result<SaId, AddSaError> {
        let id = self.datapath.add_sa(params, Direction::Outbound, context.providers, context.now)?;
        self.datapath.couple_rohc(inbound, id);
        set_link_mtu(self.datapath, id, params.dst, context.routes);
        self.datapath.set_sa_configured_mtu(id, limits.mtu.map(usize::from));
        self.datapath.set_sa_max_mss(id, limits.mss);
        Ok(id)
    }

    fn spds(&mut self) -> SpdWriter<'_> {
        SpdWriter { datapath: self.datapath, notices: self.notices }
    }
}

/// Why a Child SA was not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstallFailure {
    Sa(AddSaError),
    /// The SPD is full.
    Policies,
}

impl From<AddSaError> for InstallFailure {
    fn from(error: AddSaError) -> Self {
        Self::Sa(error)
    }
}

impl Children {
    /// Without Child SAs. At most `max_lingering` inbound SAs linger for each IKE SA.
    pub(crate) fn new(max_lingering: usize) -> Self {
        Self {
            installed: OrderedMap::default(),
            groups: OrderedMap::default(),
            by_peer: ByteIndex::new(),
            by_reqid: ByteIndex::new(),
            last_group: 0,
            by_sa: OrderedMap::default(),
            lingering: Lingering::new(max_lingering),
            counters: CounterTable::default(),
        }
    }

    /// The reqid that `up` shares with a Child SA: the one that it replaces, or one for the same traffic with
    /// the same peer if both sides initiated at the same time. With different reqids, each side would send on
    /// one Child SA and expect packets on the other.
    pub(crate) fn inherited_reqid(&self, up: &ChildUp, spds: SpdPair) -> Option<u32> {
        let replaced =
            up.replaces.and_then(|old| self.groups.get(self.installed.get(old)?.group)).map(|group| &**group);
        let host = TransportHost::of(&up.outbound);
        let is_same = |group: &&ChildGroup| {
            group.connection.name == up.connection.name
                && group.host == host
                && group.carries_traffic_of(up, spds)
        };
        let candidates = self.groups_in(&self.by_peer, &peer_key(first_addr(&up.remote), up.outbound.dst));
        let mut candidates = candidates.map(|(_, group)| group);
        replaced.or_else(|| candidates.find(is_same)).map(|group| group.reqid)
    }

    /// Connection and child configuration of all Child SAs.
    pub(crate) fn configs(&self) -> impl Iterator<Item = (&Connection, &ChildConfig)> {
        self.installed.values().map(|child| (&*child.connection, &*child.config))
    }

    /// Configuration of a Child SA.
    pub(crate) fn config_of(&self, id: ChildId) -> Option<InstalledConfig> {
        let child = self.installed.get(id)?;
        Some(InstalledConfig { connection: child.connection.clone(), child: child.config.clone() })
    }

    /// Remote traffic selectors of a Child SA.
    pub(crate) fn remote_traffic(&self, id: ChildId) -> Option<&[TrafficSelector]> {
        let group = self.groups.get(self.installed.get(id)?.group).or_report(HAS_GROUP)?;
        Some(&group.remote)
    }

    /// The SPDs of a Child SA.
    pub(crate) fn spds(&self, id: ChildId) -> Option<SpdPair> {
        let group = self.groups.get(self.installed.get(id)?.group).or_report(HAS_GROUP)?;
        Some(group.spds)
    }

    /// The Child SA of an SA of the data path.
    pub(crate) fn by_sa_id(&self, id: SaId) -> Option<ChildId> {
        self.by_sa.get(id).copied()
    }

    /// Installs a Child SA. If that fails, nothing is installed.
    pub(crate) fn install(
        &mut self,
        up: &ChildUp,
        place: ChildPlace,
        sas: &mut SaWriter<'_>,
        context: &Context<'_>,
    ) -> Result<(), InstallFailure> {
        let with_reqid = |sa: &SaParams| SaParams { reqid: place.reqid, ..sa.clone() };
        let (inbound, outbound) = (with_reqid(&up.inbound), with_reqid(&up.outbound));
        let id = sas.datapath.add_sa(&inbound, Direction::Inbound, context.providers, context.now)?;
        if place.spds != SpdPair::MAIN {
            sas.datapath.set_sa_spd(id, place.spds.inbound);
        }
        let spi_in = inbound.spi;
        let out = if up.active {
            match sas.add_outbound(&outbound, id, up.connection.packet_limits, context) {
                Ok(id) => OutboundSa::Active(id),
                Err(error) => {
                    sas.datapath.remove_sa(id);
                    return Err(error.into());
                }
            }
        } else {
            OutboundSa::Pending(outbound.into())
        };
        let Some(group) = self.join_group(up, place, &mut sas.spds()) else {
            sas.datapath.remove_sa(id);
            if let OutboundSa::Active(id) = out {
                sas.datapath.remove_sa(id);
            }
            return Err(InstallFailure::Policies);
        };
        sas.spis.install(spi_in, id);
        self.counters.child_up(&up.connection, &up.child);
        let (replaces, origin) = (up.replaces, up.origin);
        let (connection, config) = (up.connection.clone(), up.child.clone());
        let child = InstalledChild {
            inbound: id,
            spi_in,
            outbound: out,
            group,
            origin,
            connection,
            config,
            replaces,
        };
        self.add_sa(up.id, &child, id);
        if let OutboundSa::Active(out) = &child.outbound {
            self.add_sa(up.id, &child, *out);
        }
        self.installed.insert(up.id, child.into());
        if up.active {
            self.retire_outbound(replaces, sas.datapath);
        }
        Ok(())
    }

    /// Installs the outbound SA of a Child SA and stops sending on the Child SA that it replaces.
    pub(crate) fn activate(
        &mut self,
        id: ChildId,
        sas: &mut SaWriter<'_>,
        context: &Context<'_>,
    ) -> Result<(), InstallFailure> {
        let Some(child) = self.installed.get_mut(id) else { return Ok(()) };
        let OutboundSa::Pending(params) = &child.outbound else { return Ok(()) };
        let added = sas.add_outbound(params, child.inbound, child.connection.packet_limits, context)?;
        child.outbound = OutboundSa::Active(added);
        let replaces = child.replaces;
        self.by_sa.insert(added, id);
        self.counters.add_sa(&child.connection, &child.config, child.origin, added);
        self.retire_outbound(replaces, sas.datapath);
        Ok(())
    }

    /// Removes the outbound SA of a Child SA that was replaced.
    fn retire_outbound(&mut self, old: Option<ChildId>, datapath: &mut Datapath) {
        let Some(old) = old.and_then(|old| self.installed.get_mut(old)) else { return };
        if let OutboundSa::Active(id) = core::mem::replace(&mut old.outbound, OutboundSa::Removed) {
            self.by_sa.remove(id);
            self.counters.remove_sa(id, datapath);
        }
    }

    /// Stops sending on a Child SA that the peer is about to close, if another Child SA of its group can
    /// send.
    pub(crate) fn stop_sending(&mut self, id: ChildId, datapath: &mut Datapath) {
        let Some(InstalledChild { inbound, group, .. }) = self.installed.get(id).map(|child| &**child) else {
            return;
        };
        let is_other = |child: &InstalledChild| child.inbound != *inbound && child.group == *group;
        let sends = |child: &InstalledChild| matches!(child.outbound, OutboundSa::Active(_));
        let mut installed = self.installed.values();
        if self.group_has_siblings(*group) && installed.any(|child| is_other(child) && sends(child)) {
            drop(installed);
            self.retire_outbound(Some(id), datapath);
        }
    }

    /// Whether another Child SA carries the same traffic, so that the policies stay when this one ends.
    pub(crate) fn has_sibling(&self, id: ChildId) -> bool {
        self.installed.get(id).is_some_and(|child| self.group_has_siblings(child.group))
    }

    /// Removes a Child SA. Its inbound SA lingers if another Child SA carries the traffic from now on.
    /// `origin` is the origin of its IKE SA.
    pub(crate) fn remove(
        &mut self,
        id: ChildId,
        reason: DownReason,
        origin: IkeSaId,
        sas: &mut SaWriter<'_>,
        context: &Context<'_>,
    ) {
        let Some(child) = self.installed.remove(id) else { return };
        self.counters.child_down(&child.connection, &child.config);
        self.by_sa.remove(child.inbound);
        if let OutboundSa::Active(id) = child.outbound {
            self.by_sa.remove(id);
            self.counters.remove_sa(id, sas.datapath);
        }
        let is_continued = (reason == DownReason::Peer || reason.is_reauthentication())
            && self.group_has_siblings(child.group);
        self.leave_group(child.group, &mut sas.spds());
        let sa = InboundSa { id: child.inbound, spi: child.spi_in };
        let lingers = reason == DownReason::Replaced || is_continued;
        if lingers {
            self.counters.sa_lingers(sa.id, sas.datapath);
        }
        let ended = if lingers { self.lingering.add(origin, sa, context.now) } else { Some(sa) };
        ended.into_iter().for_each(|sa| self.remove_inbound(sa, sas.datapath, sas.spis));
    }

    /// When [`Self::expire`] is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.lingering.next_timeout()
    }

    /// Removes inbound SAs that have lingered long enough.
    pub(crate) fn expire(&mut self, datapath: &mut Datapath, spis: &mut SpiTable, now: Instant) {
        while let Some(sa) = self.lingering.take_expired(now) {
            self.remove_inbound(sa, datapath, spis);
        }
    }

    /// Notes that an SA of the data path belongs to a Child SA.
    fn add_sa(&mut self, id: ChildId, child: &InstalledChild, sa: SaId) {
        self.by_sa.insert(sa, id);
        self.counters.add_sa(&child.connection, &child.config, child.origin, sa);
    }

    fn remove_inbound(&mut self, sa: InboundSa, datapath: &mut Datapath, spis: &mut SpiTable) {
        self.counters.remove_sa(sa.id, datapath);
        spis.release(sa.spi);
    }

    /// Keeps counters for the children of these connections, and for others as long as they have SAs.
    pub(crate) fn configure_counters(&mut self, connections: &[Arc<Connection>]) {
        self.counters.configure(connections);
    }

    /// Moves reports of SAs that end to the notices.
    pub(crate) fn take_reports(&mut self, notices: &mut VecDeque<Notice>) {
        self.counters.take_reports(notices);
    }

    /// Leaves out the next `count` sequence numbers of an outbound SA that is not in use yet.
    #[cfg(feature = "records")]
    pub(crate) fn skip_before_first(&mut self, id: ChildId, count: u64) {
        if let Some(OutboundSa::Pending(sa)) = self.installed.get_mut(id).map(|child| &mut child.outbound) {
            sa.last_sent = sa.last_sent.saturating_add(count);
        }
    }

    /// The SAs of a Child SA.
    pub(crate) fn sas(&self, id: ChildId) -> Option<ChildSas> {
        let child = self.installed.get(id)?;
        let outbound = match child.outbound {
            OutboundSa::Active(id) => Some(id),
            OutboundSa::Pending(_) | OutboundSa::Removed => None,
        };
        Some(ChildSas { inbound: child.inbound, outbound })
    }
}

/// Without the Cargo feature `child-counters` nothing is counted, so that devices do not pay for it.
#[cfg(not(feature = "child-counters"))]
#[derive(Default)]
struct CounterTable {}

#[cfg(not(feature = "child-counters"))]
impl CounterTable {
    fn configure(&mut self, _: &[Arc<Connection>]) {}
    fn add_sa(&mut self, _: &Connection, _: &ChildConfig, _: IkeSaId, _: SaId) {}
    fn sa_lingers(&mut self, _: SaId, _: &Datapath) {}
    fn take_reports(&mut self, _: &mut VecDeque<Notice>) {}
    fn remove_sa(&mut self, sa: SaId, datapath: &mut Datapath) {
        datapath.remove_sa(sa);
    }
    fn child_up(&mut self, _: &Connection, _: &ChildConfig) {}
    fn child_down(&mut self, _: &Connection, _: &ChildConfig) {}
}
