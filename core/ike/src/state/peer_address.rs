//! The address of the peer, which may change behind a NAT (RFC 7296 section 2.23). With MOBIKE it changes
//! only when the host that decides on addresses says so (RFC 4555 section 3.5).

use super::timers::Timer;
#[cfg(feature = "mobike")]
use crate::child_sa::ChildRequest;
use crate::child_sa::{ChildSa, DynamicAddrs};
use crate::context::Step;
use crate::nat::NatStatus;
use crate::state::{Established, PathProbe, SaCommon, Task};
use crate::{DownReason, Event, Path, StateFault};
#[cfg(feature = "mobike")]
use alloc::{boxed::Box, vec::Vec};
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
        let addrs = &self.contents.dynamic_addrs;
        let is_bound = |child: &&ChildSa| !child.is_stopped && child.is_outdated(addrs);
        let bound = self.children().iter().filter(is_bound);
        let bound: Vec<_> =
            bound.map(|child| (child.id, child.is_installed().then(|| child.config.clone()))).collect();
        for config in bound.iter().filter_map(|(_, config)| config.clone()) {
            if !self.requested_children().any(|requested| requested.name == config.name) {
                let request = ChildRequest::restart(config, step.context.now, 0);
                self.tasks.push_back(Task::Child(Box::new(request)));
            }
        }
        // This reason ends the traffic at once, and a rekeying that is under way makes nothing that stays.
        self.tasks.extend(bound.into_iter().map(|(id, _)| Task::DeleteChild(id, DownReason::Local)));
    }
}

impl DynamicAddrs {
    /// Notes that the peer sends from `now`, after `before`.
    pub(crate) fn peer_moved(&mut self, before: IpAddr, now: IpAddr) {
        if self.unproved == Some(before) || self.remote == [before] {
            self.unproved = Some(now).filter(|addr| self.remote != [*addr]);
        }
    }

    /// Notes that the peer has proved that it receives at the address of the path.
    #[cfg(feature = "mobike")]
    pub(crate) fn peer_proved(&mut self) {
        if let Some(addr) = self.unproved.take() {
            self.remote = [addr].into();
        }
    }
}
