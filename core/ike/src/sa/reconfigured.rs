//! What an IKE SA has, or is to have, and is not wanted any more: because the configuration was read again,
//! or by command.

use super::{Established, Head, IkeSa, State, Task};
use crate::child::{ChildSa, Wish};
use crate::config::{Child, Connection};
use crate::{ChildId, Down};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;

impl IkeSa {
    /// The IKE SA goes on under a connection that differs in its children only. Returns the Child SAs that
    /// are no longer configured.
    pub(crate) fn reconfigure(&mut self, connection: &Arc<Connection>) -> Vec<ChildId> {
        self.head.connection = connection.clone();
        let State::Established(state) = &self.state else { return Vec::new() };
        let is_gone = |child: &&ChildSa| !connection.children.contains(&child.config);
        state.children().iter().filter(is_gone).map(|child| child.id).collect()
    }

    /// The Child SAs that are to be set up again here after they ended, each with the time and the attempts
    /// in a row that failed.
    pub(crate) fn again(&self) -> impl Iterator<Item = (&Arc<Child>, Instant, u8)> {
        let tasks = match &self.state {
            State::Established(state) => Some(state.tasks.iter()),
            _ => None,
        };
        tasks.into_iter().flatten().filter_map(|task| match task {
            Task::Child(wish) if wish.again => Some((&wish.config, wish.postponed.until, wish.attempts)),
            _ => None,
        })
    }

    /// Takes back the wishes for the Child SAs that are meant, as far as the peer was not asked for them.
    pub(crate) fn cancel(&mut self, is_meant: &dyn Fn(&Arc<Child>) -> bool) -> Vec<Arc<Child>> {
        let mut cancelled = Vec::new();
        let mut is_kept = |wish: &Wish| {
            let is_cancelled = wish.replaces.is_none() && is_meant(&wish.config);
            cancelled.extend(is_cancelled.then(|| wish.config.clone()));
            !is_cancelled
        };
        match &mut self.state {
            State::InitSent(state) => state.wishes.retain(is_kept),
            State::AuthSent(state) => state.others.retain(is_kept),
            State::Established(state) => state.tasks.retain(|task| match task {
                Task::Child(wish) => is_kept(wish),
                _ => true,
            }),
            State::HalfOpen(_) | State::Closed(_) => {}
        }
        cancelled
    }

    /// Whether it was begun, no peer is known yet, and no Child SA is wanted of it.
    pub(crate) fn is_begun_for_nothing(&self) -> bool {
        matches!(&self.state, State::InitSent(state) if state.wishes.is_empty())
    }
}

impl Head {
    /// The end of a Child SA that was asked for before the configuration was read again, if it is not
    /// configured any more.
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
