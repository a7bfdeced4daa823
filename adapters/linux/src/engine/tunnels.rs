//! TUN interfaces of route-based tunnels, one for each SPD besides the main one.
//!
//! An interface of the configuration exists from the start of the configuration that names it to its end,
//! whether SAs exist or not, so that routes into it hold packets back rather than let them leave in clear. It
//! outlives a process that does not undo its changes, and the next one takes it over. An interface of an SPD
//! that belongs to one SA exists as long as the SPD. All these interfaces are one input of the engine, with
//! an epoll set of their own: the engine's input list does not change when a reload adds or removes an
//! interface. Their packets are not scheduled.

use super::tun_queue::fill_directly;
use crate::Error;
use crate::buffers::Buffers;
use crate::netfilter::SetMarks;
use crate::netlink::Netlink;
use crate::offload::{PacketList, SegmentSplitter};
use crate::setup::mark_routes::MarkedTunnel;
use crate::sys::{Epoll, NumberedFd};
use crate::tun::{Tun, TunWriter};
use casemate_sa::SpdId;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Largest number of interfaces of a configuration.
pub const MAX_TUNNELS: usize = 256;

/// Description of the interface of a route-based tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelSpec {
    /// The SPD whose policies apply to packets that enter the interface. Not the main one.
    pub spd: SpdId,
    /// Another SPD whose decrypted packets leave by this interface, and which none enters. No other interface
    /// has it.
    pub inbound: Option<SpdId>,
    /// Name of the interface.
    pub name: String,
    /// MTU of the interface in bytes.
    pub mtu: usize,
    /// Packets with this mark and addresses of an outbound policy are routed into the interface.
    pub mark: Option<u32>,
    /// The mark that packets from the interface get.
    pub set_mark: Option<u32>,
}

/// An open interface.
#[derive(Debug)]
struct Tunnel {
    tun: Tun,
    writer: TunWriter,
}

/// Interfaces by SPD. An interface may have two.
type TunnelMap = BTreeMap<SpdId, Arc<Tunnel>>;

/// The interfaces that exist, for all threads. Only packets that come out of a tunnel take the lock.
pub(super) struct Tunnels {
    map: RwLock<TunnelMap>,
    control: Mutex<TunnelControl>,
}

/// What only the event loop uses. Locked before the map.
struct TunnelControl {
    /// Name of the TUN interface of the main SPD.
    main: String,
    /// Interfaces of the configuration.
    configured: TunnelSet,
    /// Those of former configurations. They stay, with the routes into them, until the guard and the routes
    /// of the new one are set.
    leaving: Vec<Arc<Tunnel>>,
    /// Interfaces of SPDs that belong to one SA.
    own: TunnelSet,
    /// Those of SPDs that have ended. They stay in the same way.
    leaving_own: Vec<Arc<Tunnel>>,
    /// Tunnels whose packets have marks, if they have changed.
    marked: Option<BTreeMap<SpdId, MarkedTunnel>>,
    /// Interfaces that a former run has left, and their indices, by their names.
    former: BTreeMap<String, u32>,
    /// The configured interfaces have changed.
    is_changed: bool,
    /// Made with the first mark.
    set_marks: Option<SetMarks>,
}

/// Some of the interfaces.
#[derive(Debug, Clone, Default)]
struct TunnelSet {
    map: TunnelMap,
    /// Those that also deliver the packets of an inbound SPD, by this SPD.
    inbound: TunnelMap,
    /// Those whose packets have marks.
    marked: BTreeMap<SpdId, MarkedTunnel>,
}

/// The interfaces of a new configuration, which `Tunnels::commit` puts in the place of the former ones.
/// Dropping it removes those that are new.
#[derive(Debug)]
pub struct PreparedTunnels {
    tunnels: TunnelSet,
    /// Marks of packets by index of their interface.
    set_marks: BTreeMap<u32, u32>,
}

impl Tunnels {
    /// No interfaces yet, in an instance with this TUN interface, after a run that has left `former` ones.
    pub(super) fn new(main: &str, former: BTreeMap<String, u32>) -> Self {
        let control = TunnelControl {
            main: main.into(),
            configured: TunnelSet::default(),
            leaving: Vec::new(),
            own: TunnelSet::default(),
            leaving_own: Vec::new(),
            marked: None,
            former,
            is_changed: false,
            set_marks: None,
        };
        Self { map: RwLock::default(), control: Mutex::new(control) }
    }

    /// Makes the interfaces that do not exist yet. They are up; packets that enter them wait in the kernel.
    /// An error if one cannot be made: then none is.
    pub(super) fn prepare(&self, specs: &[TunnelSpec]) -> Result<PreparedTunnels, Error> {
        if specs.len() > MAX_TUNNELS {
            return Err(Error::other("tunnel interfaces", format!("there are more than {MAX_TUNNELS}")));
        }
        let control = self.lock_control();
        let (configured, leaving) = (control.configured.map.values(), control.leaving.iter());
        let existing: Vec<_> = configured.chain(leaving).cloned().collect();
        let former = control.former.clone();
        drop(control);
        let mut netlink = None;
        let mut prepared = PreparedTunnels { tunnels: TunnelSet::default(), set_marks: BTreeMap::new() };
        for spec in specs {
            let TunnelSpec { name, mtu, .. } = spec;
            // An interface stays if it gets another SPD.
            let known = existing.iter().find(|tunnel| tunnel.tun.name() == name);
            let tunnel = match known {
                Some(tunnel) => Arc::clone(tunnel),
                None => {
                    let netlink = match &mut netlink {
                        Some(netlink) => netlink,
                        none => none.insert(Netlink::open()?),
                    };
                    let is_former =
                        former.contains_key(name) && netlink.index_of(name)? == former.get(name).copied();
                    let tun =
                        if is_former { Tun::take_over(name, netlink) } else { Tun::create(name, netlink) };
                    let tun = tun.map_err(|error| with_removal_hint(error, name, netlink))?;
                    Arc::new(Tunnel::set_up(tun, *mtu, netlink)?)
                }
            };
            prepared.set_marks.extend(spec.set_mark.map(|mark| (tunnel.tun.index(), mark)));
            prepared.tunnels.insert(spec, tunnel);
        }
        Ok(prepared)
    }

    /// Uses exactly these interfaces, and those of SPDs that belong to one SA. Packets that enter the others
    /// are lost until `remove_leaving` removes these, together with the routes into them.
    pub(super) fn commit(&self, prepared: PreparedTunnels, inputs: &mut TunnelInputs) -> Result<(), Error> {
        let PreparedTunnels { tunnels, set_marks } = prepared;
        let mut control = self.lock_control();
        let former = std::mem::replace(&mut control.configured, tunnels);
        let stays = |set: &TunnelSet, former: &Arc<Tunnel>| {
            set.map.values().any(|tunnel| tunnel.tun.index() == former.tun.index())
        };
        let TunnelControl { configured, leaving, .. } = &mut *control;
        leaving.extend(former.map.into_values());
        leaving.retain(|tunnel| !stays(configured, tunnel));
        control.is_changed = true;
        self.publish(&mut control, inputs)?;
        let failed = |error| Error::new("nftables, for set_mark_in", error);
        if control.set_marks.is_none() && !set_marks.is_empty() {
            control.set_marks = Some(SetMarks::open(&control.main).map_err(failed)?);
        }
        control.set_marks.as_mut().map_or(Ok(()), |table| table.set(set_marks)).map_err(failed)
    }

    /// Makes the interface of an SPD that belongs to one SA.
    pub(super) fn add_own(&self, spec: &TunnelSpec, inputs: &mut TunnelInputs) -> Result<(), Error> {
        // The routes into a former interface with this name belong to another SA.
        self.lock_control().leaving_own.retain(|tunnel| tunnel.tun.name() != spec.name);
        let mut netlink = Netlink::open()?;
        let tun = Tun::create(&spec.name, &mut netlink)?;
        let tunnel = Arc::new(Tunnel::set_up(tun, spec.mtu, &mut netlink)?);
        let mut control = self.lock_control();
        control.own.insert(spec, tunnel);
        self.publish(&mut control, inputs)
    }

    /// Ends the use of the interface of such an SPD, if there is one, until `remove_leaving_own` removes it.
    pub(super) fn remove_own(&self, spd: SpdId, inputs: &mut TunnelInputs) -> Result<(), Error> {
        let mut control = self.lock_control();
        let TunnelControl { own, leaving_own, .. } = &mut *control;
        leaving_own.extend(own.map.remove(&spd));
        control.own.marked.remove(&spd);
        self.publish(&mut control, inputs)
    }

    /// Makes all threads use the interfaces of both sets.
    fn publish(&self, control: &mut TunnelControl, inputs: &mut TunnelInputs) -> Result<(), Error> {
        let TunnelSet { mut map, inbound, mut marked } = control.configured.clone();
        map.extend(control.own.map.clone());
        marked.extend(control.own.marked.clone());
        inputs.set(&map)?;
        map.extend(inbound);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        control.marked = Some(marked);
        Ok(())
    }

    /// Names of all interfaces.
    pub(super) fn names(&self) -> BTreeMap<SpdId, String> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.iter().map(|(spd, tunnel)| (*spd, tunnel.tun.name().to_owned())).collect()
    }

    /// Tunnels whose packets have marks; `None` if they have not changed since the last call.
    pub(super) fn take_marked(&self) -> Option<BTreeMap<SpdId, MarkedTunnel>> {
        self.lock_control().marked.take()
    }

    /// Indices of the interfaces of the configuration by their names; `None` if they have not changed since
    /// the last call.
    pub(super) fn take_configured(&self) -> Option<BTreeMap<String, u32>> {
        let mut control = self.lock_control();
        let named = |tunnel: &Arc<Tunnel>| (tunnel.tun.name().to_owned(), tunnel.tun.index());
        let is_changed = std::mem::take(&mut control.is_changed);
        is_changed.then(|| control.configured.map.values().map(named).collect())
    }

    /// Removes the interfaces of former configurations that still exist.
    pub(super) fn remove_leaving(&self) -> Result<(), Error> {
        let leaving = std::mem::take(&mut self.lock_control().leaving);
        let remove = |tunnel: &Arc<Tunnel>| match tunnel.tun.set_persistent(false) {
            // The interface has gone: with its entry in the journal, or by a command of the administrator.
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Ok(()),
            done => done,
        };
        leaving.iter().map(remove).fold(Ok(()), Result::and)
    }

    /// Removes the interfaces of SPDs that have ended.
    pub(super) fn remove_leaving_own(&self) {
        self.lock_control().leaving_own.clear();
    }

    /// Lets the interfaces of the configuration outlive this process.
    pub(super) fn make_persistent(&self) -> Result<(), Error> {
        self.lock_control().configured.map.values().try_for_each(|tunnel| tunnel.tun.set_persistent(true))
    }

    fn lock_control(&self) -> MutexGuard<'_, TunnelControl> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a packet to the host by the interface of this SPD. Returns whether the kernel took it.
    pub(super) fn deliver(&self, spd: SpdId, packet: &[u8]) -> bool {
        self.get(spd).is_some_and(|tunnel| tunnel.writer.deliver(packet).is_ok())
    }

    /// Delivers packets to the host by the interface of this SPD. Calls `lost` with each packet that the
    /// kernel does not take.
    pub(super) fn deliver_batch<'p>(&self, spd: SpdId, list: &PacketList<'p>, lost: impl FnMut(&'p [u8])) {
        match self.get(spd) {
            Some(tunnel) => tunnel.writer.deliver_batch(list, lost),
            None => list.iter().copied().for_each(lost),
        }
    }

    fn get(&self, spd: SpdId) -> Option<Arc<Tunnel>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).get(&spd).cloned()
    }
}

impl TunnelSet {
    fn insert(&mut self, spec: &TunnelSpec, tunnel: Arc<Tunnel>) {
        let index = tunnel.tun.index();
        self.marked.extend(spec.mark.map(|mark| (spec.spd, MarkedTunnel { mark, index })));
        self.inbound.extend(spec.inbound.map(|spd| (spd, Arc::clone(&tunnel))));
        self.map.insert(spec.spd, tunnel);
    }
}

impl Tunnel {
    fn set_up(tun: Tun, mtu: usize, netlink: &mut Netlink) -> Result<Self, Error> {
        let writer = tun.writer()?;
        tun.set_up_tunnel(mtu, netlink)?;
        Ok(Self { tun, writer })
    }
}

/// The interfaces as an input of the engine.
pub(super) struct TunnelInputs {
    /// The numbers are those of the SPDs.
    epoll: Epoll,
    tunnels: TunnelMap,
    splitter: SegmentSplitter,
    /// Where the large packet in `splitter` comes from.
    current: Option<(SpdId, Arc<Tunnel>)>,
}

impl TunnelInputs {
    /// No interfaces.
    pub(super) fn new() -> Result<Self, Error> {
        let (epoll, splitter) =
            (Epoll::new(std::iter::empty()).map_err(epoll_error)?, SegmentSplitter::new());
        Ok(Self { epoll, tunnels: TunnelMap::new(), splitter, current: None })
    }

    /// Readable while packets wait in one of the interfaces.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether segments of a large packet were not returned yet.
    pub(super) fn has_buffered(&self) -> bool {
        self.splitter.has_more()
    }

    /// Fills the buffers with packets from one interface. Returns its SPD; `None` if no packet waits.
    pub(super) fn fill(&mut self, buffers: &mut Buffers) -> Result<Option<SpdId>, Error> {
        if !self.splitter.has_more() {
            let ready = self.epoll.next_ready().map_err(epoll_error)?;
            let spd = ready.and_then(|number| u32::try_from(number).ok()).map(SpdId::new);
            self.current = spd.and_then(|spd| Some((spd, Arc::clone(self.tunnels.get(&spd)?))));
        }
        let Some((spd, tunnel)) = &self.current else {
            buffers.set_lens(&[]);
            return Ok(None);
        };
        let filled = fill_directly(&mut self.splitter, tunnel.tun.first_queue(), buffers);
        filled.map_err(|error| Error::new(format!("TUN interface {}", tunnel.tun.name()), error))?;
        Ok(Some(*spd))
    }

    fn set(&mut self, tunnels: &TunnelMap) -> Result<(), Error> {
        let is_in = |map: &TunnelMap, spd: &SpdId, tunnel: &Arc<Tunnel>| {
            map.get(spd).is_some_and(|known| Arc::ptr_eq(known, tunnel))
        };
        for (_, tunnel) in self.tunnels.iter().filter(|(spd, tunnel)| !is_in(tunnels, spd, tunnel)) {
            self.epoll.remove(tunnel.tun.first_queue().as_fd()).map_err(epoll_error)?;
        }
        for (spd, tunnel) in tunnels.iter().filter(|(spd, tunnel)| !is_in(&self.tunnels, spd, tunnel)) {
            let number = usize::try_from(spd.number()).unwrap_or(usize::MAX);
            let fd = tunnel.tun.first_queue().as_fd();
            self.epoll.add(NumberedFd { number, fd }).map_err(epoll_error)?;
        }
        self.tunnels = tunnels.clone();
        if !self.current.as_ref().is_some_and(|(spd, tunnel)| is_in(tunnels, spd, tunnel)) {
            (self.current, self.splitter) = (None, SegmentSplitter::new());
        }
        Ok(())
    }
}

/// Adds to an error how to remove an interface that exists. The one of the main SPD does not outlive a run.
fn with_removal_hint(error: Error, name: &str, netlink: &mut Netlink) -> Error {
    if !netlink.index_of(name).is_ok_and(|index| index.is_some()) {
        return error;
    }
    let hint = format!("if a run whose journal is lost has left it, `ip link delete {name}` removes it");
    Error::other(error.to_string(), hint)
}

fn epoll_error(error: std::io::Error) -> Error {
    Error::new("epoll", error)
}
