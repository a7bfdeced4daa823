//! The address of the peer, which may change behind a NAT (RFC 7296 section 2.23). With MOBIKE it changes
//! only when the host that decides on addresses says so (RFC 4555 section 3.5).

use super::timers::Timer;
#[cfg(feature = "mobike")]
use crate::child_sa::{AgreedChild, ChildRequest};
use crate::child_sa::{ChildSa, DynamicAddrs};
use crate::context::Step;
use crate::nat::NatStatus;
#[cfg(feature = "mobike")]
use crate::state::SaContents;
use crate::state::{Established, PathProbe, SaCommon, Task};
use crate::{DownReason, Event, Path, StateFault};
#[cfg(feature = "mobike")]
use crate::{PacketSelectors, TrafficSelector};
#[cfg(feature = "mobike")]
use alloc::{boxed::Box, vec::Vec};
#[cfg(feature = "mobike")]
use casemate_sa::AddrRange;
use casemate_sa::Mode;
use core::net::IpAddr;

impl Established {
    /// Handles the arrival of an authentic message.
    pub(super) fn note_received(&mut self, common: &mut SaCommon, path: Path, step: &mut Step<'_, '_>) {
        let now = step.context.now;
        self.traffic.note_message(now);
        self.timers.set(Timer::Liveness, common.connection.dpd_delay.map(|delay| now.after(delay)));
        // RFC 7296 section 2.23: the path of a peer behind a NAT follows its last message. A host that is
        // behind a NAT itself does not follow, and with MOBIKE no host does (RFC 4555 section 3.8).
        #[cfg(feature = "mobike")]
        if self.mobike().is_some() {
            return;
        }
        let NatStatus { local, remote, .. } = self.contents.nat;
        if remote && !local && path.remote != common.path.remote && path.local == common.path.local {
            if !common.connection.may_move_to(path, step.context.routes) {
                return step.sa_fault(StateFault::UnacceptableAddresses.into(), path, common);
            }
            let before = core::mem::replace(&mut common.path, path).remote.ip();
            let children = self.children_in_use();
            step.event(Event::PathChanged { ike: common.id, children, path, udp_encap: true });
            self.peer_addr_changed(common, (before, path.remote.ip()), step);
        }
    }

    /// Handles a new address of the peer (RFC 7296 section 2.23), which may be that of another host. In
    /// transport mode the address is the peer's traffic selector. With MOBIKE, the peer proves that it
    /// receives there, and Child SAs with its former address are replaced. Otherwise only a new IKE SA proves
    /// it.
    pub(super) fn peer_addr_changed(
        &mut self,
        common: &SaCommon,
        (before, now): (IpAddr, IpAddr),
        step: &mut Step<'_, '_>,
    ) {
        if before == now {
            return;
        }
        self.path_probe = PathProbe::None;
        self.contents.path_search.restart(step.context.now);
        self.contents.leased.iter().for_each(|addr| step.shared.pools.update_remote(*addr, now));
        self.contents.dynamic_addrs.peer_moved(before, now);
        let is_bound = |child: &ChildSa| child.is_installed() && child.agreed.mode == Mode::Transport;
        if !self.proves_addresses() && self.children().iter().any(is_bound) {
            let fault = StateFault::UnacceptableAddresses.into();
            step.sa_fault(fault, common.path, common);
            self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
        }
    }
}

impl Established {
    /// Whether the peer proves that it receives at a new address (RFC 4555 section 3.7).
    fn proves_addresses(&self) -> bool {
        #[cfg(feature = "mobike")]
        return self.mobike().is_some();
        #[cfg(not(feature = "mobike"))]
        false
    }

    /// After the peer has moved, closes the Child SAs whose traffic selectors have its former address, and
    /// requests new ones. Packets of the new address do not match, and packets to the former one must neither
    /// be held nor go to the peer: another host may have it now.
    #[cfg(feature = "mobike")]
    pub(super) fn replace_outdated(&mut self, step: &Step<'_, '_>) {
        let SaContents { children, dynamic_addrs, .. } = &self.contents;
        let is_bound = |child: &&ChildSa| !child.is_stopped && child.is_outdated(dynamic_addrs);
        let bound: Vec<&ChildSa> = children.iter().filter(is_bound).collect();
        let requests = bound.iter().filter(|child| child.is_installed()).map(|child| {
            let packet = dynamic_addrs.packet_of_moved(&child.agreed);
            let request = ChildRequest::restart(child.config.clone(), step.context.now, 0);
            Task::Child(Box::new(ChildRequest { packet, ..request }))
        });
        // This reason ends the traffic at once, and a rekeying that is under way makes nothing that stays.
        let deletions = bound.iter().map(|child| Task::DeleteChild(child.id, DownReason::Local));
        let tasks: Vec<Task> = requests.chain(deletions).collect();
        self.tasks.extend(tasks);
    }
}

impl DynamicAddrs {
    /// Notes that the peer sends from `now`, after `before`.
    pub(crate) fn peer_moved(&mut self, before: IpAddr, now: IpAddr) {
        if self.unproved == Some(before) || self.remote == [before] {
            self.unproved = Some(now).filter(|addr| self.remote != [*addr]);
        }
    }

    /// Traffic of a Child SA with the former address of the peer, as a packet of its present address. A
    /// request with it gives the peer's part of the configuration that the Child SA had: the peer may have
    /// several children within one of this host.
    #[cfg(feature = "mobike")]
    fn packet_of_moved(&self, agreed: &AgreedChild) -> Option<PacketSelectors> {
        let (src, former) = (*agreed.local.first()?, agreed.remote.first()?);
        let addrs = AddrRange::single(*self.remote.first()?);
        Some(PacketSelectors { src, dst: TrafficSelector { addrs, ..*former } })
    }

    /// Notes that the peer has proved that it receives at the address of the path.
    #[cfg(feature = "mobike")]
    pub(crate) fn peer_proved(&mut self) {
        if let Some(addr) = self.unproved.take() {
            self.remote = [addr].into();
        }
    }
}
