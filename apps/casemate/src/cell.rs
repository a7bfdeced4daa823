//! `casemate cell`: the nodes of a cell, and which of them may own its SAs.

use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  casemate cell status     the nodes of the cell, and which of them owns the SAs
  casemate cell drain      before work on this machine: another node takes over at once
  casemate cell join       afterwards: this node may own the SAs again

A node of a cell is a gateway whose configuration has the section `cell`. Each command concerns the node of
this machine.";

/// Time for a response of the instance.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `cell`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CellArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CellCommand,
}

/// What to do with a node of a cell.
#[derive(Debug, Subcommand)]
pub enum CellCommand {
    /// Show the nodes of the cell, and which of them owns the SAs.
    Status {
        /// Print a JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Hand the SAs over to another node, and do not own them again until `join`.
    ///
    /// A node that owns the SAs ends with exit status 1, so that a service manager starts it again; the next
    /// run stands by. Without another node, the tunnels stand still until `join`.
    Drain,
    /// Let this node own the SAs again.
    Join,
}

/// Runs the command.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    match args.command {
        CellCommand::Status { json } => status(json),
        CellCommand::Drain => control::command(&Request::Drain { is_drained: true }, TIMEOUT),
        CellCommand::Join => control::command(&Request::Drain { is_drained: false }, TIMEOUT),
    }
}

fn status(json: bool) -> Result<(), Failure> {
    let cell = control::query(&Request::Cell, TIMEOUT)?;
    if !cell.is_object() {
        let why = "the instance is not a node of a cell: its configuration has no section `cell`";
        return Err(Failure::failed(why));
    }
    match json {
        true => output::print(&format!("{cell}\n")),
        false => output::print(&table(&cell)),
    }
}

/// The cell as text: this node, its problems, and all nodes.
fn table(cell: &Value) -> String {
    let mut text = String::new();
    describe(&mut text, cell);
    text.push('\n');
    let nodes = cell.get("nodes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name_of = |node: &Value| node.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let width = nodes.iter().map(|node| name_of(node).len()).max().unwrap_or_default();
    for node in nodes {
        let show = |name| node.get(name).and_then(Value::as_str);
        let forward = show("forward").map(|address| format!(", forwarding address {address}"));
        let state = show("state").unwrap_or_default();
        let _ = writeln!(text, "{:width$}  {state}{}", name_of(node), forward.unwrap_or_default());
    }
    text
}

/// Sentences about this node, for people.
pub(crate) fn describe(text: &mut String, cell: &Value) {
    let count = |name| cell.get(name).and_then(Value::as_u64).unwrap_or_default();
    let show = |name| cell.get(name).and_then(Value::as_str).unwrap_or_default();
    let _ = write!(text, "Node {} of the cell {}", show("node"), show("name"));
    let _ = match (show("role"), show("owner")) {
        ("owner", _) => {
            let sas = output::counted(count("ike_sas"), "IKE SA", "IKE SAs");
            writeln!(text, " owns {sas}, as owner number {}.", count("takeovers"))
        }
        ("fenced", _) => writeln!(
            text,
            " owns the SAs but cannot renew its lease: IKE waits, and ESP goes on with the reserved sequence \
             numbers."
        ),
        ("standby", owner) => writeln!(text, " stands by while {owner} owns the SAs."),
        ("drained", "") => writeln!(text, " is drained, and no node owns the SAs."),
        ("drained", owner) => writeln!(text, " is drained while {owner} owns the SAs."),
        ("name-taken", _) => writeln!(text, " waits, because another process has its name."),
        _ => writeln!(text, " looks for the owner of the SAs."),
    };
    if let Some(problem) = cell.get("problem").and_then(Value::as_str) {
        let held = output::counted(count("held_messages"), "IKE message waits", "IKE messages wait");
        let _ = writeln!(text, "The store fails: {problem}. Nothing new is negotiated; {held}.");
    }
    if cell.get("needs_second_key").and_then(Value::as_bool) == Some(true) {
        let _ = writeln!(text, "The data keys in the store are encrypted with its second wrapping key.");
    }
    if let Some(forward) = cell.get("forward").filter(|forward| forward.is_object()) {
        let count = |name| forward.get(name).and_then(Value::as_u64).unwrap_or_default();
        let sent = output::counted(count("sent"), "packet", "packets");
        let [received, rejected, dropped] = ["received", "rejected", "dropped"].map(count);
        let _ = writeln!(
            text,
            "It has forwarded {sent} to owners, and handled {received} that other nodes have forwarded; \
             {dropped} were lost, and {rejected} datagrams were not from a node."
        );
    }
    if count("low_reserves") > 0 {
        let sas = output::counted(count("low_reserves"), "Child SA", "Child SAs");
        let _ = writeln!(text, "{sas} will soon have no reserved sequence numbers left.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(role: &str, owner: Option<&str>) -> Value {
        json!({
            "name": "berlin", "node": "gw2", "role": role, "owner": owner, "takeovers": 3, "ike_sas": 1,
            "low_reserves": 2, "held_messages": 0, "problem": null,
            "forward": {"address": "10.99.0.22:4510", "sent": 1, "received": 2, "rejected": 3, "dropped": 4},
            "nodes": [
                {"name": "gw1", "state": "owner", "forward": "10.99.0.21:4510"},
                {"name": "gw10", "state": "drained, down", "forward": null},
            ],
        })
    }

    #[test]
    fn a_table_names_this_node_and_all_nodes() {
        let text = table(&cell("standby", Some("gw1")));
        assert_eq!(
            text,
            "Node gw2 of the cell berlin stands by while gw1 owns the SAs.\n\
             It has forwarded 1 packet to owners, and handled 2 that other nodes have forwarded; 4 were \
             lost, and 3 datagrams were not from a node.\n\
             2 Child SAs will soon have no reserved sequence numbers left.\n\n\
             gw1   owner, forwarding address 10.99.0.21:4510\ngw10  drained, down\n"
        );
    }

    #[test]
    fn each_role_has_a_sentence() {
        for (role, owner, expected) in [
            ("owner", Some("gw2"), "owns 1 IKE SA, as owner number 3."),
            ("fenced", Some("gw2"), "cannot renew its lease"),
            ("drained", Some("gw1"), "is drained while gw1 owns the SAs."),
            ("drained", None, "is drained, and no node owns the SAs."),
            ("name-taken", None, "another process has its name"),
            ("starting", None, "looks for the owner"),
        ] {
            let text = table(&cell(role, owner));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_still_needed_is_named() {
        let mut shown = cell("owner", Some("gw2"));
        for (is_needed, lines) in [(false, 0), (true, 1)] {
            shown["needs_second_key"] = is_needed.into();
            assert_eq!(table(&shown).matches("second wrapping key").count(), lines);
        }
    }
}
