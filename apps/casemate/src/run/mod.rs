//! `casemate run`: checks the configuration, sets up the system, moves packets, and undoes the setup at
//! the end.
//!
//! Nothing in the system changes until the whole configuration has been found valid. `start` contains the
//! steps of every run. With manual keys, `manual` determines the direction of each SA and
//! `datapath_builder` makes the data path. With IKE, `ike` makes an endpoint that adds and removes policies
//! at run time. [`casemate_linux::setup`] plans the changes to the system, and `controller` handles control
//! requests and events while the engine runs.

mod arguments;
pub mod cell_store;
mod controller;
mod datapath_builder;
mod description;
mod host_names;
mod ike;
mod key_log;
mod manual;
mod name_servers;
mod plan;
mod radius;
mod reload;
mod requests;
mod sa_store;
mod seen_file;
mod start;
mod takeover;
mod vici;
mod wrapping_keys;

pub use crate::tokens::TokenKeys;
pub use arguments::RunArgs;
pub use seen_file::SeenFile;

use crate::control;
use crate::failure::Failure;
use crate::output;
use casemate_linux::instance::Instance;
use casemate_linux::journal::{self, CleanUp, Leftovers};
use casemate_linux::{dns, nft, sandbox};
use clap::Args;
use start::{RunMode, SharedLeftovers};
use std::sync::PoisonError;

/// The only argument of the internal process that applies nftables scripts for an instance.
pub(crate) const NFT_RUNNER: &str = "internal-nft-runner";

/// Runs the internal nftables process until its parent ends.
pub(crate) fn nft_runner() -> Result<(), Failure> {
    nft::run_script_server().map_err(Failure::failed)
}

/// The only argument of the internal process that changes name servers for an instance.
pub(crate) const DNS_RUNNER: &str = "internal-dns-runner";

/// Runs the internal process for name servers until its parent ends.
pub(crate) fn dns_runner() -> Result<(), Failure> {
    dns::run_dns_server().map_err(Failure::failed)
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    // Before any key is in memory.
    if !args.dry_run {
        sandbox::protect_memory().map_err(Failure::failed)?;
    }
    let mode = RunMode::load(args).map_err(|failure| with_former_run(failure, args))?;
    let mut leftovers = None;
    let result = start::start(mode, args, &mut leftovers);
    // The journal was dropped, so the leftovers are final.
    result.map_err(|failure| with_leftovers(failure, leftovers))
}

/// Line of an error message if the guard stands.
const BLOCKED: &str = "protected traffic stays blocked until `casemate run` or `casemate cleanup`";

/// Adds to an error message of a start that has changed nothing that a former run has left its guard.
fn with_former_run(failure: Failure, args: &RunArgs) -> Failure {
    if control::has_left_changes(&args.tun) { failure.with_line(BLOCKED) } else { failure }
}

/// Adds the state of the guard and of the setup to an error message.
fn with_leftovers(failure: Failure, leftovers: SharedLeftovers) -> Failure {
    let leftovers =
        leftovers.map(|leftovers| leftovers.lock().unwrap_or_else(PoisonError::into_inner).clone());
    match leftovers.unwrap_or_default() {
        Leftovers::Nothing => failure,
        Leftovers::GuardStands => failure.with_line(BLOCKED),
        Leftovers::GuardMissing(reason) => failure.with_line(&format!(
            "the guard is not installed ({reason}): protected traffic leaves in clear until `casemate run`"
        )),
        Leftovers::UndoFailed(error) => {
            let next = "the change stays until `casemate run` or `casemate cleanup`";
            let is_included = failure.reason().contains(&error);
            failure.with_line(&if is_included { next.into() } else { format!("{error}\n{next}") })
        }
    }
}

const CLEANUP_EXAMPLES: &str = "\
Examples:
  casemate cleanup                  after a crash, if Casemate is not started again
  casemate cleanup --tun ipsec1

A run that is killed or ends with an error leaves its guard in place, so that protected traffic cannot leave
in clear. The next `casemate run` with the same --tun takes the guard over. This command removes the guard:
from then on, the traffic flows in clear.";

/// Arguments of `cleanup`.
#[derive(Debug, Args)]
#[command(after_help = CLEANUP_EXAMPLES)]
pub struct CleanupArgs {
    /// TUN interface of the run.
    #[arg(long, value_name = "NAME", default_value = "casemate0", value_parser = arguments::interface_name)]
    pub tun: String,
}

/// Runs `casemate cleanup`. It fails if the instance is running, or if something may be left.
pub(crate) fn cleanup(args: &CleanupArgs) -> Result<(), Failure> {
    let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
    let CleanUp { removed, problem } = journal::clean_up(&instance).map_err(Failure::failed)?;
    let warning = dns::restore_former().map_err(Failure::failed)?;
    let mut lines: String = removed.iter().map(|what| format!("removed: {what}\n")).collect();
    lines.extend(warning.map(|warning| format!("{warning}\n")));
    match problem {
        Some(problem) => output::print(&lines).and(Err(Failure::failed(problem))),
        None if lines.is_empty() => output::print("nothing to clean up\n"),
        None => output::print(&lines),
    }
}
