//! What follows the end of a Child SA: its traffic is held (`close_action = trap`, `dpd_action = trap`), or
//! IKE sets it up again, which can be cancelled.

use super::{Endpoint, Means};
use crate::host::Routes;
use crate::names::is_named;
use crate::policy::Spds;
use crate::traps::Held;
use crate::{HoldError, Notice};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{Child, Connection, OnClose};
use casemate_ike::{ChildId, Down, IkeSaId};

impl Endpoint {
    /// Cancels what is to be set up again and has this name: a connection, or a child as
    /// [`named`](Self::named) takes it. Its traffic is not held any more either, except by `start_action`. Returns whether
    /// there was something.
    pub fn cancel(&mut self, name: &str, means: &mut Means<'_>) -> bool {
        let mut any = false;
        for connection in self.ike.connections().to_vec() {
            let is_whole = connection.name == name;
            let is_meant = |child: &&Arc<Child>| is_named(name, &connection, child);
            for child in connection.children.iter().filter(is_meant) {
                any |= self.with_ike(means, |ike, env| ike.cancel(&connection.name, Some(&child.name), env));
            }
            if is_whole {
                any |= self.with_ike(means, |ike, env| ike.cancel(&connection.name, None, env));
            }
            for child in connection.children.iter().filter(|child| is_whole || is_meant(child)) {
                any |= self.release(&connection, child);
            }
        }
        self.serve(means);
        any
    }

    /// A Child SA has ended. If its traffic is to be held, the trap is there before the policies of the Child
    /// SA go.
    pub(super) fn child_down(&mut self, id: ChildId, why: Down, origin: IkeSaId, means: &Means<'_>) {
        let ended = self.children.origin(id);
        let held = ended.as_ref().and_then(|origin| self.held(id, origin, why, means));
        let is_held = held.as_ref().is_none_or(|held| self.hold(held, means).is_ok());
        let (children, mut bench) = self.bench(means);
        children.remove(id, why, origin, &mut bench);
        if let Some(held) = held.filter(|_| !is_held) {
            // There is more room in the SPD now.
            if let Err(why) = self.hold(&held, means) {
                let (connection, child) = (held.connection, held.child);
                self.notices.push_back(Notice::NotHeld { connection, child, why });
            }
        }
        if let Some((connection, child)) = ended {
            self.traps.went_down(&connection.name, &child.name);
            self.rearm(&connection, &child);
            if why == Down::Local {
                // An earlier end may have left a trap.
                self.release(&connection, &child);
            }
        }
    }

    /// What is to be held after a Child SA: the traffic of its child as it is configured now. `None` if another Child SA
    /// carries the same traffic, or a trap has it already.
    fn held(
        &self,
        id: ChildId,
        (connection, child): &(Arc<Connection>, Arc<Child>),
        why: Down,
        means: &Means<'_>,
    ) -> Option<Held> {
        let former = connection;
        let (connection, child) = configured_child(self.ike.connections(), connection, child)?;
        // Only what can be begun from here is worth a trap: others, such as road warriors, may be many.
        let is_reachable = connection.remote_addrs.iter().any(|pattern| pattern.single().is_some());
        let is_covered = self.traps.has(&connection.name, &child.name) || self.children.has_twin(id);
        if !child.holds_after(why) || !child.policies || !is_reachable || is_covered {
            return None;
        }
        let (_, remote) = self.children.traffic(id)?;
        Some(if connection.differs_in_children_only(former) {
            Held::after((connection, child), remote, means.routes)
        } else {
            Held::configured(connection, child, means.routes)
        })
    }

    /// Sets the trap.
    fn hold(&mut self, held: &Held, means: &Means<'_>) -> Result<(), HoldError> {
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

    /// The traffic of a child is not held any more, if that was so because a Child SA ended. What `start_action` holds
    /// stays. Returns whether there was something.
    fn release(&mut self, connection: &Connection, child: &Child) -> bool {
        let Self { traps, datapath, notices, .. } = self;
        traps.release(&mut Spds { datapath, notices }, &connection.name, &child.name)
    }

    /// Traps of former Child SAs whose children these connections still have, with an action that holds.
    pub(super) fn still_held(&self, connections: &[Arc<Connection>], routes: &dyn Routes) -> Vec<Held> {
        let kept = |held: Held| {
            let (connection, child) = configured_child(connections, &held.connection, &held.child)?;
            let is_kept = child.has_action(OnClose::Trap) && child.policies && !child.start.on_traffic;
            is_kept.then(|| held.reconfigured((connection, child), routes))
        };
        self.traps.held().filter_map(kept).collect()
    }
}

/// The child of this name in the connection of this name.
fn configured_child<'c>(
    connections: &'c [Arc<Connection>],
    connection: &Connection,
    child: &Child,
) -> Option<(&'c Arc<Connection>, &'c Arc<Child>)> {
    let connection = connections.iter().find(|known| known.name == connection.name)?;
    Some((connection, connection.children.iter().find(|known| known.name == child.name)?))
}
