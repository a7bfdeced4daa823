//! The part of the controller that continues the SAs of a former owner: a former run of this machine, or
//! another node of the cell.

use super::cell_store::CellWatch;
use super::controller::RunController;
use crate::config_source::LoadedConfig;
use crate::control::{Reply, outcome};
use crate::log::level::Level;
use crate::output;
use casemate_cell::KeeperRole;
use casemate_ike::config::Connection;
use casemate_linux::setup::ConfiguredTraffic;
use casemate_linux::{EndpointContext, EndpointHandle, Error, FormerState};
use std::mem;
use std::sync::Arc;

/// What the controller has of this node of a cell; nothing without a cell.
#[derive(Default)]
pub(super) struct CellNodeState {
    pub(super) watch: Option<CellWatch>,
    /// The configuration of a node that does not own the SAs.
    pub(super) standby: Option<Box<LoadedConfig>>,
    /// Clients that wait until the node is drained, or is not any more.
    pub(super) drain_replies: Vec<Reply>,
}

impl RunController {
    /// Continues the IKE SAs of a former run when the configuration is applied.
    pub(super) fn continue_from(&mut self, former: Option<FormerState>) {
        let Some(FormerState { records, unreadable, changes_key }) = former else { return };
        if changes_key {
            let text = "the store: its data keys are encrypted again, with the first wrapping key";
            self.log.program(Level::Info, text);
        }
        if unreadable > 0 {
            let what = output::counted(unreadable, "IKE SA", "IKE SAs");
            let text = format!(
                "{what} in the store cannot be read: their data keys are missing, or the version of this \
                 program has changed; their peers negotiate again"
            );
            self.log.program(Level::Warning, &text);
        }
        self.former = records;
    }

    /// Follows the store of a cell. Returns whether there is one.
    pub(super) fn follow_cell(&mut self, cell: Option<CellWatch>) -> bool {
        self.cell_node.watch = cell;
        self.cell_node.watch.is_some()
    }

    /// Applies the configuration of a node that has become the owner of its cell, with the SAs of the former
    /// one.
    pub(super) fn take_over(
        &mut self,
        former: FormerState,
        handle: &EndpointHandle<'_>,
    ) -> Result<(), String> {
        let Some(loaded) = self.cell_node.standby.take() else { return Ok(()) };
        self.continue_from(Some(former));
        self.apply(*loaded, &mut handle.lock())
    }

    /// Keeps a configuration until this node becomes the owner of its cell. Until then, traffic that another
    /// node may protect is blocked, apart from what the configuration passes in clear.
    pub(super) fn stand_by(
        &mut self,
        loaded: LoadedConfig,
        context: &mut EndpointContext,
    ) -> Result<(), String> {
        let shunts = loaded.connections.iter().filter_map(shunts_only).collect();
        let configured = context.with(|endpoint, context| endpoint.configure(shunts, &[], context));
        configured.map_err(|error| error.to_string())?;
        context.block_traffic(ConfiguredTraffic::of(&loaded.connections, &loaded.pools));
        self.cell_node.standby = Some(Box::new(loaded));
        Ok(())
    }

    /// Answers the clients that wait until this node of a cell is drained, or is not any more.
    pub(super) fn report_drained(&mut self, drained: Result<bool, String>) {
        let failure = || self.cell_node.watch.as_ref().and_then(CellWatch::last_failure);
        let result = drained.map(drop).map_err(|error| {
            let why = failure().map_or(String::new(), |why| format!(": {why}"));
            format!("{error}{why}; the node goes on as before: try again")
        });
        if let Err(error) = &result {
            self.log.program(Level::Warning, &format!("cell: {error}"));
        }
        for reply in mem::take(&mut self.cell_node.drain_replies) {
            let _ = reply.send(outcome(&result));
        }
    }

    /// The error that ends a run, and why the store of a cell is damaged, if it is.
    pub(super) fn explained(&self, error: &Error) -> String {
        let damage = self.cell_node.watch.as_ref().and_then(CellWatch::damage);
        damage.map_or_else(|| error.to_string(), |damage| format!("{error}: {damage}"))
    }

    /// Logs a new role of this node of a cell.
    pub(super) fn report_role(&mut self, role: KeeperRole, owner: Option<&str>) {
        let (level, text) = cell_role(role, owner);
        self.log.program(level, &text);
    }
}

/// The connection without its children; `None` if it has no shunts.
fn shunts_only(connection: &Arc<Connection>) -> Option<Arc<Connection>> {
    let connection = Connection { children: Vec::new(), ..Connection::clone(connection) };
    (!connection.shunts.is_empty()).then(|| Arc::new(connection))
}

/// The line of the log about a new role of this node of a cell.
fn cell_role(role: KeeperRole, owner: Option<&str>) -> (Level, String) {
    let (level, text) = match (role, owner) {
        (KeeperRole::Starting, _) => (Level::Info, "looks for the owner of its SAs".into()),
        (KeeperRole::NameTaken, _) => (
            Level::Warning,
            "waits: another node has the same name, or the former process of this one is not forgotten yet"
                .into(),
        ),
        (KeeperRole::Standby, Some(owner)) => (Level::Info, format!("stands by: {owner} owns the SAs")),
        (KeeperRole::Standby, None) => (Level::Info, "stands by".into()),
        (KeeperRole::Drained, _) => {
            (Level::Warning, "is drained: it does not own the SAs until `casemate cell join`".into())
        }
        (KeeperRole::Owner, _) => (Level::Info, "owns the SAs".into()),
        (KeeperRole::Fenced, _) => (
            Level::Warning,
            "cannot renew its lease: IKE waits, and ESP goes on with the reserved sequence numbers".into(),
        ),
        (KeeperRole::Lost, _) => (Level::Warning, "does not own the SAs any more".into()),
    };
    (level, format!("cell: this node {text}"))
}
