//! A peer behind a NAT that has another address (RFC 7296 section 2.23). Called when one of its messages came
//! from there.

use super::{Cx, Established, Task};
use crate::ChildId;
use crate::child::{ChildSa, Stage};
use alloc::vec::Vec;
use casemate_sa::Mode;
use core::net::IpAddr;

impl Established {
    /// The peer has another address. In transport mode that is its traffic, which is agreed on anew.
    pub(super) fn follow_addr(&mut self, (before, now): (IpAddr, IpAddr), cx: &mut Cx<'_, '_>) {
        if before == now {
            return;
        }
        self.parentage.leased.iter().for_each(|addr| cx.shared.pools.follow(*addr, now));
        self.parentage.ends.remote.iter_mut().filter(|end| **end == before).for_each(|end| *end = now);
        let is_bound = |child: &&ChildSa| child.stage == Stage::Live && child.agreed.mode == Mode::Transport;
        let bound: Vec<ChildId> = self.children().iter().filter(is_bound).map(|child| child.id).collect();
        // The peer may move often while a request is outstanding: the queue holds each Child SA once.
        for id in bound {
            if !self.tasks.iter().any(|task| matches!(task, Task::RekeyChild(queued) if *queued == id)) {
                self.tasks.push_back(Task::RekeyChild(id));
            }
        }
    }
}
