//! What follows the end of a Child SA: its traffic is held (`close_action = trap`, `dpd_action = trap`), or
//! IKE sets it up again, which can be cancelled.

use super::{Endpoint, Means};
use crate::Notice;
use crate::names::is_named;
use crate::policy::Spds;
use crate::traps::Held;
use alloc::sync::Arc;
use casemate_datapath::spd::InsertError;
use casemate_ike::config::{Child, Connection, OnClose};
use casemate_ike::{ChildId, Down};

impl Endpoint {
    /// Cancels what is to be set up again and has this name: a connection, or a child as
    /// [`named`](Self::named) takes it. Returns whether there was something.
    pub fn cancel(&mut self, name: &str, means: &mut Means<'_>) -> bool {
        let mut any = false;
        for connection in self.ike.connections().to_vec() {
            let whole = (connection.name == name).then_some(None);
            let children = connection.children.iter().filter(|child| is_named(name, &connection, child));
            for child in children.map(|child| Some(&*child.name)).chain(whole) {
                any |= self.with_ike(means, |ike, env| ike.cancel(&connection.name, child, env));
            }
        }
        self.serve(means);
        any
    }

    /// A Child SA has ended. If its traffic is to be held, the trap is there before the policies of the Child
    /// SA go.
    pub(super) fn child_down(&mut self, id: ChildId, why: Down, means: &Means<'_>) {
        let ended = self.children.origin(id);
        let held = ended.as_ref().filter(|(_, child)| child.action_after(why) == OnClose::Trap);
        let held = held.and_then(|(connection, child)| self.held(id, connection, child, means));
        let is_held = held.as_ref().is_none_or(|held| self.hold(held, means).is_ok());
        let (children, mut bench) = self.bench(means);
        children.remove(id, why, &mut bench);
        if let Some(held) = held.filter(|_| !is_held) {
            // There is more room in the SPD now.
            if self.hold(&held, means).is_err() {
                let (connection, child) = (held.connection, held.child);
                self.notices.push_back(Notice::NotHeld { connection, child });
            }
        }
        if let Some((connection, child)) = ended {
            self.traps.went_down(&connection.name, &child.name);
            self.rearm(&connection, &child);
        }
    }

    /// What is to be held after a Child SA; `None` if a trap has it already, or its child is not configured as it was any more.
    fn held(&self, id: ChildId, connection: &Connection, child: &Child, means: &Means<'_>) -> Option<Held> {
        let mut connections = self.ike.connections().iter();
        let connection = connections.find(|known| known.name == connection.name)?;
        let child = connection.children.iter().find(|known| ***known == *child)?;
        // Only what can be begun from here is worth a trap: others, such as road warriors, may be many.
        let is_reachable = connection.remote_addrs.iter().any(|pattern| pattern.single().is_some());
        let is_new = !self.traps.has(&connection.name, &child.name);
        let (_, remote) = self.children.traffic(id)?;
        let held = Held::after((connection, child), remote, means.routes);
        (is_reachable && is_new && child.policies).then_some(held)
    }

    /// Sets the trap.
    fn hold(&mut self, held: &Held, means: &Means<'_>) -> Result<(), InsertError> {
        let Self { traps, datapath, notices, reqids, children, .. } = self;
        traps.add(&mut Spds { datapath, notices }, held.clone(), reqids.next())?;
        let is_its = |origin: &(&Connection, &Child)| {
            origin.0.name == held.connection.name && origin.1.name == held.child.name
        };
        children
            .origins()
            .filter(is_its)
            .for_each(|_| traps.came_up(&held.connection.name, &held.child.name));
        if self.follow_at.is_none() && traps.follow_routes() {
            self.follow_at = Some(means.now);
        }
        Ok(())
    }

    /// Traps of former Child SAs that these connections still have, as they were.
    pub(super) fn still_held(&self, connections: &[Arc<Connection>]) -> alloc::vec::Vec<Held> {
        let kept = |held: Held| {
            let connection = connections.iter().find(|known| known.name == held.connection.name)?;
            let child = connection.children.iter().find(|known| **known == held.child)?;
            Some(Held { connection: connection.clone(), child: child.clone(), ..held })
        };
        self.traps.held().filter_map(kept).collect()
    }
}
