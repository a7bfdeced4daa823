//! Updown scripts: commands that run when the Child SAs of a child come up and go down.
//!
//! [`environment`] makes the variables of a script, [`state`] decides when which script runs, and
//! [`casemate_linux::updown`] runs it in another process. docs/decisions/0112-updown.md.

mod environment;
mod escape;
mod state;

pub(crate) use state::Updown;

use crate::failure::Failure;
use crate::swanctl::{UpdownScript, UpdownScripts};
use casemate_ike::config::Connection;
use casemate_linux::updown::run_updown_server;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first argument of the internal process that runs scripts; the commands follow.
pub(crate) const RUNNER: &str = "internal-updown-runner";

/// Runs the internal process until its parent ends.
pub(crate) fn run_scripts() -> Result<(), Failure> {
    let commands = std::env::args_os().skip(2).map(|command| command.into_string().unwrap_or_default());
    run_updown_server(commands.collect()).map_err(Failure::failed)
}

/// The scripts of a configuration, by connection and child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptTable(BTreeMap<String, UpdownScripts>);

impl ScriptTable {
    /// The scripts of these connections, in the same order.
    pub(crate) fn new(connections: &[Arc<Connection>], scripts: Vec<UpdownScripts>) -> Self {
        let of_all = connections.iter().zip(scripts).filter(|(_, scripts)| !scripts.is_empty());
        Self(of_all.map(|(connection, scripts)| (connection.name.clone(), scripts)).collect())
    }

    /// The script of a child.
    fn get(&self, connection: &str, child: &str) -> Option<&UpdownScript> {
        self.0.get(connection)?.get(child)
    }

    /// Every command once.
    fn commands(&self) -> Vec<Arc<str>> {
        let commands = self.0.values().flat_map(BTreeMap::values).map(|script| script.command.clone());
        commands.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The full name of the first key `updown` whose command is not among the known ones.
    pub(crate) fn first_unknown(&self, is_known: impl Fn(&str) -> bool) -> Option<String> {
        let keys = self.0.iter().flat_map(|(name, scripts)| scripts.iter().map(move |one| (name, one)));
        let mut unknown = keys.filter(|(_, (_, script))| !is_known(&script.command));
        unknown.next().map(|(name, (child, _))| format!("connections.{name}.children.{child}.updown"))
    }
}
