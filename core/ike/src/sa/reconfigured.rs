//! A configuration that is read again: what an IKE SA has, or is to have, and is no longer configured.

use super::{Established, Head, IkeSa, State, Task};
use crate::child::{ChildSa, Wish};
use crate::config::{Child, Connection};
use crate::{ChildId, Down};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl IkeSa {
    /// The IKE SA goes on under a connection that differs in its children only. Returns the Child SAs that are no longer configured; those
    /// that were only to be asked for are not asked for any more.
    pub(crate) fn reconfigure(&mut self, connection: &Arc<Connection>) -> Vec<ChildId> {
        self.head.connection = connection.clone();
        let is_kept = |wish: &Wish| connection.children.contains(&wish.config);
        match &mut self.state {
            State::InitSent(state) => state.wishes.retain(is_kept),
            State::AuthSent(state) => state.others.retain(is_kept),
            State::Established(state) => {
                state.tasks.retain(|task| match task {
                    Task::Child(wish) => is_kept(wish),
                    _ => true,
                });
                let is_gone = |child: &&ChildSa| !connection.children.contains(&child.config);
                return state.children().iter().filter(is_gone).map(|child| child.id).collect();
            }
            State::HalfOpen(_) | State::Closed(_) => {}
        }
        Vec::new()
    }
}

impl Head {
    /// The end of a Child SA that was asked for before the configuration was read again, if it is not configured any more.
    pub(super) fn end_of_unconfigured(&self, id: ChildId, config: &Arc<Child>) -> Option<Task> {
        let is_configured = self.connection.children.contains(config);
        (!is_configured).then_some(Task::DeleteChild(id, Down::Unconfigured))
    }
}

impl Established {
    /// Adds a Child SA that both sides have agreed on.
    pub(super) fn add_child(&mut self, head: &Head, child: ChildSa) {
        self.tasks.extend(head.end_of_unconfigured(child.id, &child.config));
        self.parentage.children.push(child);
    }
}
