//! The address of the peer, which may change behind a NAT (RFC 7296 section 2.23). With MOBIKE it changes
//! only when the host that decides on addresses says so (RFC 4555 section 3.5).

use super::timers::Timer;
use crate::child_sa::ChildSa;
use crate::context::Step;
use crate::nat::NatStatus;
use crate::state::{Established, PathProbe, SaCommon, Task};
use crate::{ChildId, Event, Path};
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
            let before = core::mem::replace(&mut common.path, path).remote.ip();
            let children = self.children_in_use();
            step.event(Event::PathChanged { ike: common.id, children, path, udp_encap: true });
            self.peer_addr_changed(before, path.remote.ip(), step);
        }
    }

    /// Handles a new address of the peer (RFC 7296 section 2.23), which may be that of another host. In
    /// transport mode the address is the peer's traffic selector, so Child SAs in transport mode are rekeyed.
    pub(super) fn peer_addr_changed(&mut self, before: IpAddr, now: IpAddr, step: &mut Step<'_, '_>) {
        if before == now {
            return;
        }
        self.path_probe = PathProbe::None;
        self.contents.path_search.restart(step.context.now);
        self.contents.leased.iter().for_each(|addr| step.shared.pools.update_remote(*addr, now));
        self.contents.dynamic_addrs.peer_moved(before, now);
        let is_bound = |child: &&ChildSa| child.is_installed() && child.agreed.mode == Mode::Transport;
        let bound: Vec<ChildId> = self.children().iter().filter(is_bound).map(|child| child.id).collect();
        // The peer may move often while a request is outstanding, so the queue holds each Child SA once.
        for id in bound {
            if !self.tasks.iter().any(|task| matches!(task, Task::RekeyChild(queued) if *queued == id)) {
                self.tasks.push_back(Task::RekeyChild(id));
            }
        }
    }
}
