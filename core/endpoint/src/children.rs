//! Child SAs in the data path: installed before what they replace is removed, and removed when nothing comes any more.

mod lingering;
mod transport_host;

use crate::Notice;
use crate::host::{Routes, Spis};
use crate::policy::{PolicySet, Purpose, Spds, priority, protect};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::Providers;
use casemate_datapath::spd::Template;
use casemate_datapath::{AddSaError, Datapath, Direction, SaId, SaPath};
use casemate_ike::config::{Child, Connection};
use casemate_ike::{ChildId, ChildUp, Down, IkeSaId, Path, Traffic};
use casemate_sa::{Instant, Mode, SaParams, Spi, UdpEncap};
use casemate_tables::{Names, Table};
use core::net::{IpAddr, SocketAddr};
use lingering::{InboundSa, Lingering};

pub(crate) use transport_host::TransportHost;

/// The Child SAs that are installed.
pub(crate) struct Children {
    known: Table<ChildId, Box<Installed>>,
    lineages: Table<u32, Box<Lineage>>,
    /// Those with a peer whose traffic begins at an address, the oldest first.
    by_peer: Names,
    /// Those with a reqid whose traffic begins at an address, the oldest first.
    by_reqid: Names,
    last_lineage: u32,
    /// By the data path's SAs.
    by_sa: Table<SaId, ChildId>,
    lingering: Lingering,
}

struct Installed {
    inbound: SaId,
    spi_in: Spi,
    outbound: Outbound,
    lineage: u32,
    connection: Arc<Connection>,
    config: Arc<Child>,
    replaces: Option<ChildId>,
}

enum Outbound {
    Used(SaId),
    /// It waits until the peer can receive on it (RFC 7296 section 2.8).
    Waits(Box<SaParams>),
    Gone,
}

/// Child SAs for the same traffic, one in the place of another or beside it: they share their policies.
struct Lineage {
    reqid: u32,
    connection: Arc<Connection>,
    peer: IpAddr,
    /// Which of the hosts at the peer's address it is, in transport mode.
    host: Option<TransportHost>,
    local: Vec<Traffic>,
    remote: Vec<Traffic>,
    policies: PolicySet,
    members: u32,
}

/// Where the traffic of the peer's side begins. With many Child SAs, few have the same one.
type Start = Option<IpAddr>;

fn start_of(remote: &[Traffic]) -> Start {
    remote.first().map(|traffic| traffic.addrs.first())
}

/// What a lineage is found by: where its traffic begins, and with whom.
fn with_peer(start: Start, peer: IpAddr) -> Vec<u8> {
    [bytes(start), bytes(Some(peer))].concat()
}

/// What a lineage is found by: where its traffic begins, and its reqid.
fn with_reqid(start: Start, reqid: u32) -> Vec<u8> {
    [&*bytes(start), &reqid.to_be_bytes()].concat()
}

/// An address, with its length in front.
fn bytes(addr: Option<IpAddr>) -> Vec<u8> {
    match addr {
        None => [0].into(),
        Some(IpAddr::V4(addr)) => [&[4], &addr.octets()[..]].concat(),
        Some(IpAddr::V6(addr)) => [&[16], &addr.octets()[..]].concat(),
    }
}

/// What stands behind these.
const fn behind(lineage: u32) -> [u64; 2] {
    [lineage as u64, 0]
}

impl Lineage {
    fn carries_traffic_of(&self, up: &ChildUp) -> bool {
        self.local == up.local && self.remote == up.remote
    }
}

/// What is at hand for a change.
pub(crate) struct Bench<'b> {
    pub(crate) datapath: &'b mut Datapath,
    pub(crate) notices: &'b mut VecDeque<Notice>,
    pub(crate) spis: &'b mut Spis,
    pub(crate) providers: &'b Providers<'b>,
    pub(crate) routes: &'b dyn Routes,
    pub(crate) now: Instant,
}

impl Bench<'_> {
    /// Adds an outbound SA, which knows the link towards its peer.
    fn add_outbound(&mut self, params: &SaParams) -> Result<SaId, AddSaError> {
        let id = self.datapath.add_sa(params, Direction::Outbound, self.providers, self.now)?;
        learn_link(self.datapath, id, params.dst, self.routes);
        Ok(id)
    }

    fn spds(&mut self) -> Spds<'_> {
        Spds { datapath: self.datapath, notices: self.notices }
    }
}

/// Why a Child SA was not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotInstalled {
    Sa(AddSaError),
    /// The SPD is full.
    Policies,
}

impl From<AddSaError> for NotInstalled {
    fn from(error: AddSaError) -> Self {
        Self::Sa(error)
    }
}

impl Children {
    /// Without Child SAs. So many inbound SAs linger for one IKE SA at most.
    pub(crate) fn new(most_lingering: usize) -> Self {
        Self {
            known: Table::default(),
            lineages: Table::default(),
            by_peer: Names::new(),
            by_reqid: Names::new(),
            last_lineage: 0,
            by_sa: Table::default(),
            lingering: Lingering::new(most_lingering),
        }
    }

    /// The reqid that `up` has from its like: from the Child SA that it replaces, or from one for the same traffic with the
    /// same peer, when both sides began at once. With reqids of their own, each side would send on the one and wait for the
    /// other.
    pub(crate) fn inherited_reqid(&self, up: &ChildUp) -> Option<u32> {
        let replaced = up
            .replaces
            .and_then(|old| self.lineages.get(self.known.get(old)?.lineage))
            .map(|lineage| &**lineage);
        let host = TransportHost::of(&up.outbound);
        let is_like = |lineage: &&Lineage| {
            lineage.connection.name == up.connection.name
                && lineage.host == host
                && lineage.carries_traffic_of(up)
        };
        let likely = self.found(&self.by_peer, &with_peer(start_of(&up.remote), up.outbound.dst));
        let mut likely = likely.map(|(_, lineage)| lineage);
        replaced.or_else(|| likely.find(is_like)).map(|lineage| lineage.reqid)
    }

    /// What all Child SAs were made of.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (&Connection, &Child)> {
        self.known.values().map(|child| (&*child.connection, &*child.config))
    }

    /// What a Child SA was made of.
    pub(crate) fn origin(&self, id: ChildId) -> Option<(Arc<Connection>, Arc<Child>)> {
        self.known.get(id).map(|child| (child.connection.clone(), child.config.clone()))
    }

    /// The traffic of a Child SA: of our side, and of the peer's.
    pub(crate) fn traffic(&self, id: ChildId) -> Option<(&[Traffic], &[Traffic])> {
        let lineage = self.lineages.get(self.known.get(id)?.lineage)?;
        Some((&lineage.local, &lineage.remote))
    }

    /// The Child SA of a data path's SA.
    pub(crate) fn of_sa(&self, id: SaId) -> Option<ChildId> {
        self.by_sa.get(id).copied()
    }

    /// Installs a Child SA. Nothing is left behind if it fails.
    pub(crate) fn install(
        &mut self,
        up: &ChildUp,
        reqid: u32,
        bench: &mut Bench<'_>,
    ) -> Result<(), NotInstalled> {
        let with_reqid = |sa: &SaParams| SaParams { reqid, ..sa.clone() };
        let (inbound, outbound) = (with_reqid(&up.inbound), with_reqid(&up.outbound));
        let id = bench.datapath.add_sa(&inbound, Direction::Inbound, bench.providers, bench.now)?;
        let spi_in = inbound.spi;
        let out = if up.active {
            match bench.add_outbound(&outbound) {
                Ok(id) => Outbound::Used(id),
                Err(error) => {
                    bench.datapath.remove_sa(id);
                    return Err(error.into());
                }
            }
        } else {
            Outbound::Waits(outbound.into())
        };
        let Some(lineage) = self.join_lineage(up, reqid, &mut bench.spds()) else {
            bench.datapath.remove_sa(id);
            if let Outbound::Used(id) = out {
                bench.datapath.remove_sa(id);
            }
            return Err(NotInstalled::Policies);
        };
        bench.spis.install(spi_in, id);
        self.by_sa.insert(id, up.id);
        if let Outbound::Used(out) = out {
            self.by_sa.insert(out, up.id);
        }
        let replaces = up.replaces;
        let (connection, config) = (up.connection.clone(), up.child.clone());
        let child = Installed { inbound: id, spi_in, outbound: out, lineage, connection, config, replaces };
        self.known.insert(up.id, child.into());
        if up.active {
            self.retire_outbound(replaces, bench.datapath);
        }
        Ok(())
    }

    /// The lineages behind a name.
    fn found<'a>(
        &'a self,
        names: &'a Names,
        name: &[u8],
    ) -> impl Iterator<Item = (u32, &'a Lineage)> + use<'a> {
        let ids = names.of(name).filter_map(|[id, _]| u32::try_from(id).ok());
        ids.filter_map(|id| Some((id, &**self.lineages.get(id)?)))
    }

    /// The lineage with this reqid and traffic, a new one if there is none; nothing if its policies do not fit.
    fn join_lineage(&mut self, up: &ChildUp, reqid: u32, spds: &mut Spds<'_>) -> Option<u32> {
        let start = start_of(&up.remote);
        let is_its = |found: &(u32, &Lineage)| found.1.carries_traffic_of(up);
        let host = TransportHost::of(&up.outbound);
        let known = self.found(&self.by_reqid, &with_reqid(start, reqid)).find(is_its).map(|(id, _)| id);
        if let Some((id, lineage)) = known.and_then(|id| Some((id, self.lineages.get_mut(id)?))) {
            lineage.members = lineage.members.saturating_add(1);
            // The peer may have another port since.
            lineage.host = host;
            return Some(id);
        }
        let policies = match up.child.policies {
            true => policies_of(up, reqid, spds).ok()?,
            false => PolicySet::default(),
        };
        let (connection, peer) = (up.connection.clone(), up.outbound.dst);
        let (local, remote) = (up.local.clone(), up.remote.clone());
        self.last_lineage = self.last_lineage.wrapping_add(1);
        let lineage = Lineage { reqid, connection, peer, host, local, remote, policies, members: 1 };
        self.lineages.insert(self.last_lineage, lineage.into());
        self.by_peer.insert(&with_peer(start, peer), behind(self.last_lineage));
        self.by_reqid.insert(&with_reqid(start, reqid), behind(self.last_lineage));
        Some(self.last_lineage)
    }

    /// From now on packets leave through it.
    pub(crate) fn activate(&mut self, id: ChildId, bench: &mut Bench<'_>) -> Result<(), NotInstalled> {
        let Some(child) = self.known.get_mut(id) else { return Ok(()) };
        let Outbound::Waits(params) = &child.outbound else { return Ok(()) };
        let added = bench.add_outbound(params)?;
        child.outbound = Outbound::Used(added);
        self.by_sa.insert(added, id);
        let replaces = child.replaces;
        self.retire_outbound(replaces, bench.datapath);
        Ok(())
    }

    /// Nothing leaves through the old one any more, now that there is a new one.
    fn retire_outbound(&mut self, old: Option<ChildId>, datapath: &mut Datapath) {
        let Some(old) = old.and_then(|old| self.known.get_mut(old)) else { return };
        if let Outbound::Used(id) = core::mem::replace(&mut old.outbound, Outbound::Gone) {
            self.by_sa.remove(id);
            datapath.remove_sa(id);
        }
    }

    /// The peer is about to close it: packets leave through another one of its lineage, if one sends.
    pub(crate) fn stop_sending(&mut self, id: ChildId, datapath: &mut Datapath) {
        let Some(Installed { inbound, lineage, .. }) = self.known.get(id).map(|child| &**child) else {
            return;
        };
        let is_other = |child: &Installed| child.inbound != *inbound && child.lineage == *lineage;
        let sends = |child: &Installed| matches!(child.outbound, Outbound::Used(_));
        let mut known = self.known.values();
        if self.has_siblings(*lineage) && known.any(|child| is_other(child) && sends(child)) {
            drop(known);
            self.retire_outbound(Some(id), datapath);
        }
    }

    /// Whether another Child SA carries the same traffic: the policies of this one stay when it ends.
    pub(crate) fn has_twin(&self, id: ChildId) -> bool {
        self.known.get(id).is_some_and(|child| self.has_siblings(child.lineage))
    }

    fn has_siblings(&self, lineage: u32) -> bool {
        self.lineages.get(lineage).is_some_and(|lineage| lineage.members > 1)
    }

    /// Removes a Child SA. Its inbound SA lingers if another Child SA carries the traffic from now on. `origin` is the
    /// origin of its IKE SA.
    pub(crate) fn remove(&mut self, id: ChildId, why: Down, origin: IkeSaId, bench: &mut Bench<'_>) {
        let Some(child) = self.known.remove(id) else { return };
        self.by_sa.remove(child.inbound);
        if let Outbound::Used(id) = child.outbound {
            self.by_sa.remove(id);
            bench.datapath.remove_sa(id);
        }
        let goes_on = matches!(why, Down::Peer | Down::Reauth) && self.has_siblings(child.lineage);
        self.leave_lineage(child.lineage, &mut bench.spds());
        let sa = InboundSa { id: child.inbound, spi: child.spi_in };
        let lingers = why == Down::Replaced || goes_on;
        let ended = if lingers { self.lingering.add(origin, sa, bench.now) } else { Some(sa) };
        ended.into_iter().for_each(|sa| remove_inbound(sa, bench.datapath, bench.spis));
    }

    /// The last of a lineage takes the policies with it.
    fn leave_lineage(&mut self, id: u32, spds: &mut Spds<'_>) {
        let Some(lineage) = self.lineages.get_mut(id) else { return };
        lineage.members = lineage.members.saturating_sub(1);
        if lineage.members == 0 {
            lineage.policies.remove(spds);
            let start = start_of(&lineage.remote);
            self.by_peer.remove(&with_peer(start, lineage.peer), behind(id));
            self.by_reqid.remove(&with_reqid(start, lineage.reqid), behind(id));
            self.lineages.remove(id);
        }
    }

    /// Child SAs follow a peer that moved.
    pub(crate) fn follow(
        &mut self,
        children: &[ChildId],
        path: Path,
        datapath: &mut Datapath,
        routes: &dyn Routes,
    ) {
        let (local, remote) = (path.local, path.remote);
        let Self { known, lineages, by_peer, .. } = self;
        for id in children {
            let Some(child) = known.get_mut(*id) else { continue };
            let path = |(src, dst): (SocketAddr, SocketAddr)| {
                let encap = Some(UdpEncap { src_port: src.port(), dst_port: dst.port() });
                SaPath { src: src.ip(), dst: dst.ip(), encap }
            };
            let outward = path((local, remote));
            match &mut child.outbound {
                Outbound::Used(id) => {
                    datapath.move_sa(*id, outward);
                    learn_link(datapath, *id, remote.ip(), routes);
                }
                Outbound::Waits(sa) => (sa.src, sa.dst, sa.encap) = (outward.src, outward.dst, outward.encap),
                Outbound::Gone => {}
            }
            datapath.move_sa(child.inbound, path((remote, local)));
            // Those to come for the same traffic find it where the peer is now.
            let Some(lineage) = lineages.get_mut(child.lineage) else { continue };
            let (start, before) =
                (start_of(&lineage.remote), core::mem::replace(&mut lineage.peer, remote.ip()));
            by_peer.remove(&with_peer(start, before), behind(child.lineage));
            by_peer.insert(&with_peer(start, lineage.peer), behind(child.lineage));
            lineage.host = lineage.host.map(|host| host.follow(remote.port()));
        }
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.lingering.due()
    }

    /// Removes what has waited long enough.
    pub(crate) fn expire(&mut self, datapath: &mut Datapath, spis: &mut Spis, now: Instant) {
        while let Some(sa) = self.lingering.take_due(now) {
            remove_inbound(sa, datapath, spis);
        }
    }

    /// The SAs of a Child SA: inbound, and outbound if it is used.
    pub(crate) fn sas(&self, id: ChildId) -> Option<(SaId, Option<SaId>)> {
        let child = self.known.get(id)?;
        let outbound = match child.outbound {
            Outbound::Used(id) => Some(id),
            Outbound::Waits(_) | Outbound::Gone => None,
        };
        Some((child.inbound, outbound))
    }
}

fn remove_inbound(sa: InboundSa, datapath: &mut Datapath, spis: &mut Spis) {
    datapath.remove_sa(sa.id);
    spis.release(sa.spi);
}

/// Has an outbound SA know the link towards its peer.
fn learn_link(datapath: &mut Datapath, id: SaId, peer: IpAddr, routes: &dyn Routes) {
    if let Some(mtu) = routes.link_mtu(peer) {
        datapath.set_sa_link_mtu(id, mtu);
    }
}

/// The SPI or the addresses of a peer behind a NAT may change, so templates go by reqid alone.
fn policies_of(
    up: &ChildUp,
    reqid: u32,
    spds: &mut Spds<'_>,
) -> Result<PolicySet, casemate_datapath::spd::InsertError> {
    let (protocol, mode) = (up.inbound.transform.protocol(), up.inbound.mode);
    let moves = up.inbound.encap.is_some() || mode == Mode::Transport;
    let template = |sa: &SaParams| Template {
        protocol,
        mode,
        src: Some(sa.src).filter(|_| !moves),
        dst: Some(sa.dst).filter(|_| !moves),
        reqid,
    };
    let (out, inn) = (protect(template(&up.outbound)), protect(template(&up.inbound)));
    let rank = |selector: &_| priority(selector, up.child.priority, Purpose::Child);
    PolicySet::add(spds, (&up.local, &up.remote), (&out, &inn), rank)
}
