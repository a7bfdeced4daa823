//! `casemate cleanup`: takes back what a run left behind that did not end in an orderly way.

use crate::cli::CleanupArgs;
use crate::failure::Failure;
use casemate_linux::instance::Instance;
use casemate_linux::journal;

/// Runs the command. It refuses to touch an instance that runs.
pub(crate) fn cleanup(args: &CleanupArgs) -> Result<(), Failure> {
    let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
    let undone = journal::clean_up(&instance).map_err(Failure::failed)?;
    match undone.as_slice() {
        [] => println!("nothing was left behind"),
        undone => undone.iter().for_each(|what| println!("removed: {what}")),
    }
    Ok(())
}
