//! The address of the peer, which may change behind a NAT (RFC 7296 section 2.23). With MOBIKE it changes
//! only when the host that decides on addresses says so (RFC 4555 section 3.5).

use super::timers::Timer;
use crate::child_sa::{ChildSa, DynamicAddrs};
use crate::context::Step;
use crate::nat::NatStatus;
use crate::state::{Established, PathProbe, SaCommon, Task};
use crate::{ChildId, DownReason, Event, Path, StateFault};
use alloc::vec::Vec;
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
    /// receives there, and Child SAs in transport mode are rekeyed. Otherwise only a new IKE SA proves it.
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
        let is_bound = |child: &&ChildSa| child.is_installed() && child.agreed.mode == Mode::Transport;
        let bound: Vec<ChildId> = self.children().iter().filter(is_bound).map(|child| child.id).collect();
        if !bound.is_empty() && !self.proves_addresses() {
            let fault = StateFault::UnacceptableAddresses.into();
            step.sa_fault(fault, common.path, common);
            self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
            return;
        }
        // The peer may move often while a request is outstanding, so the queue holds each Child SA once.
        for id in bound {
            if !self.tasks.iter().any(|task| matches!(task, Task::RekeyChild(queued) if *queued == id)) {
                self.tasks.push_back(Task::RekeyChild(id));
            }
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
