//! The end of a Child SA: a trap for its traffic (`close_action = trap`, `dpd_action = trap`), or a retry by
//! IKE, which can be cancelled.

use super::Endpoint;
use super::queries::is_named;
use crate::children::InstalledConfig;
use crate::policy::SpdWriter;
use crate::traps::TrapSpec;
use crate::{Notice, TrapError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::{AddrPattern, ChildConfig, CloseAction, Connection};
use casemate_ike::{ChildId, Context, DownReason, IkeSaId, Routes};

impl Endpoint {
    /// Cancels the pending retries of a connection or child with this name, as
    /// [`sas_by_name`](Self::sas_by_name) finds it, and removes its traps, except those of `start_action`.
    /// Returns whether there were any.
    pub fn cancel(&mut self, name: &str, context: &mut Context<'_>) -> bool {
        let mut any = false;
        for connection in self.ike.connections().to_vec() {
            let is_whole = connection.name == name;
            let is_named_child = |child: &&Arc<ChildConfig>| is_named(name, &connection, child);
            for child in connection.children.iter().filter(is_named_child) {
                any |=
                    self.with_ike(|ike, host| ike.cancel(&connection.name, Some(&child.name), host, context));
            }
            if is_whole {
                any |= self.with_ike(|ike, host| ike.cancel(&connection.name, None, host, context));
            }
            for child in connection.children.iter().filter(|child| is_whole || is_named_child(child)) {
                any |= self.release(&connection, child);
            }
        }
        self.handle_timeouts(context);
        any
    }

    /// Removes a Child SA. If its traffic is to be trapped, the trap is installed before the policies of the
    /// Child SA are removed.
    pub(super) fn child_down(
        &mut self,
        id: ChildId,
        reason: DownReason,
        origin: IkeSaId,
        context: &Context<'_>,
    ) {
        let ended = self.children.config_of(id);
        let spec = ended.as_ref().and_then(|ended| self.trap_after(id, ended, reason, context));
        let is_set = spec.as_ref().is_none_or(|spec| self.set_trap(spec, context).is_ok());
        let (children, mut sas) = self.sa_writer();
        children.remove(id, reason, origin, &mut sas, context);
        if let Some(spec) = spec.filter(|_| !is_set) {
            // The SPD has more room now.
            if let Err(error) = self.set_trap(&spec, context) {
                let (connection, child) = (spec.connection, spec.child);
                self.notices.push_back(Notice::TrapNotInstalled { connection, child, error });
            }
        }
        if let Some(InstalledConfig { connection, child }) = ended {
            self.traps.child_removed(&connection.name, &child.name);
            self.rearm(&connection, &child);
            if reason == DownReason::Local {
                // An earlier end may have left a trap.
                self.release(&connection, &child);
            }
        }
    }

    /// The trap to set after a Child SA, with the current configuration of its child. `None` if another Child
    /// SA carries the same traffic or a trap exists.
    fn trap_after(
        &self,
        id: ChildId,
        ended: &InstalledConfig,
        reason: DownReason,
        context: &Context<'_>,
    ) -> Option<TrapSpec> {
        let (connection, child) = configured_child(self.ike.connections(), &ended.connection, &ended.child)?;
        // A trap is useful only if IKE can initiate. Peers without a fixed address, such as road warriors,
        // may be many.
        let is_reachable = connection.remote_addrs.iter().any(AddrPattern::is_single);
        let is_covered = self.traps.has(&connection.name, &child.name) || self.children.has_sibling(id);
        if !child.traps_after(reason) || !child.policies || !is_reachable || is_covered {
            return None;
        }
        let remote = self.children.remote_traffic(id)?;
        Some(if connection.differs_in_children_only(&ended.connection) {
            TrapSpec::for_ended_child(connection, child, remote, context.routes)
        } else {
            TrapSpec::from_config(connection, child, context.routes)
        })
    }

    /// Adds a trap.
    fn set_trap(&mut self, spec: &TrapSpec, context: &Context<'_>) -> Result<(), TrapError> {
        let Self { traps, datapath, notices, reqids, children, .. } = self;
        traps.add(&mut SpdWriter { datapath, notices }, spec.clone(), reqids.next())?;
        for (connection, child) in children.configs() {
            if connection.name == spec.connection.name && child.name == spec.child.name {
                traps.child_up(&connection.name, &child.name);
            }
        }
        if self.next_addr_check.is_none() && traps.have_dynamic_addrs() {
            self.next_addr_check = Some(context.now);
        }
        Ok(())
    }

    /// Removes a trap of an ended Child SA. A trap of `start_action` stays. Returns whether there was a trap.
    fn release(&mut self, connection: &Connection, child: &ChildConfig) -> bool {
        let Self { traps, datapath, notices, .. } = self;
        traps.release(&mut SpdWriter { datapath, notices }, &connection.name, &child.name)
    }

    /// Traps of ended Child SAs to keep: the new configuration has the child, with an action that sets traps.
    pub(super) fn kept_traps(&self, connections: &[Arc<Connection>], routes: &dyn Routes) -> Vec<TrapSpec> {
        let kept = |spec: TrapSpec| {
            let (connection, child) = configured_child(connections, &spec.connection, &spec.child)?;
            let is_kept =
                child.has_action(CloseAction::Trap) && child.policies && !child.start_action.on_traffic;
            is_kept.then(|| spec.reconfigured(connection, child, routes))
        };
        self.traps.ended_child_specs().filter_map(kept).collect()
    }
}

/// Child and connection with the same names in the current configuration.
fn configured_child<'c>(
    connections: &'c [Arc<Connection>],
    connection: &Connection,
    child: &ChildConfig,
) -> Option<(&'c Arc<Connection>, &'c Arc<ChildConfig>)> {
    let connection = connections.iter().find(|known| known.name == connection.name)?;
    Some((connection, connection.children.iter().find(|known| known.name == child.name)?))
}
