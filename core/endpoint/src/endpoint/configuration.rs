//! A new configuration: what it ends, and what it begins.

use super::Endpoint;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::InsertError;
use casemate_ike::config::{ChildConfig, Connection, Pool};
use casemate_ike::{Context, DownReason, Host, Ike};

/// A child of a new configuration, and its connection.
pub(super) type NewChild = (Arc<Connection>, Arc<ChildConfig>);

/// Initiates a child whose `start_action` demands it.
pub(super) type StartChild =
    fn(&mut Ike, &Arc<Connection>, &Arc<ChildConfig>, &mut dyn Host, &mut Context<'_>);

impl Endpoint {
    /// Replaces the connections and pools, with their traps and shunts. Closes SAs of connections that are
    /// removed or changed. Initiates new children whose `start_action` demands it. If the SPD has no room for
    /// the traps, nothing changes.
    pub fn configure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        context: &mut Context<'_>,
    ) -> Result<(), InsertError> {
        let new = self.replace_configuration(connections, pools, context)?;
        self.initiate_new(new, Ike::initiate_or_retry, context);
        self.handle_timeouts(context);
        Ok(())
    }

    /// Replaces the connections and pools. Returns the children that are new and to be initiated at once.
    pub(super) fn replace_configuration(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        context: &mut Context<'_>,
    ) -> Result<Vec<NewChild>, InsertError> {
        let before = self.ike.connections().to_vec();
        let by_name: BTreeMap<&str, &Arc<Connection>> =
            before.iter().map(|connection| (connection.name.as_str(), connection)).collect();
        // Unchanged children are not initiated again, even if they are down.
        let is_unchanged = |connection: &Connection, child: &ChildConfig| {
            let known = by_name.get(connection.name.as_str());
            let known = known.filter(|old| old.differs_in_children_only(connection));
            known.is_some_and(|old| old.children.iter().any(|old| **old == *child))
        };
        let mut to_initiate = Vec::new();
        for connection in &connections {
            let starts = connection.children.iter().filter(|child| child.start_action.at_once);
            let new = starts.filter(|child| !is_unchanged(connection, child));
            to_initiate.extend(new.map(|child| (connection.clone(), child.clone())));
        }
        let specs = self.kept_traps(&connections, context.routes);
        self.replace_traps(&before, &connections, specs, context)?;
        self.named_peers.configure(&connections, context.routes);
        self.children.configure_counters(&connections);
        let removed = self.ike.configure(connections, pools);
        self.schedule_addr_check(context);
        for ike in removed.ikes {
            self.with_ike(|engine, host| engine.terminate(ike, DownReason::Unconfigured, host, context));
        }
        for child in removed.children {
            self.with_ike(|ike, host| ike.terminate_child(child, DownReason::Unconfigured, host, context));
        }
        Ok(to_initiate)
    }

    /// Initiates new children.
    pub(super) fn initiate_new(
        &mut self,
        children: Vec<NewChild>,
        start: StartChild,
        context: &mut Context<'_>,
    ) {
        for (connection, child) in children {
            self.with_ike(|ike, host| start(ike, &connection, &child, host, context));
        }
    }
}
