//! The same program again, in a process whose AWS-LC is told that the processor has no AES instructions.

use super::Answer;
use super::args::AdviseArgs;
use crate::failure::Failure;
use casemate_advise::as_if::AsIf;
use casemate_stage::Mask;
use serde_json::Value;
use std::process::Command;

/// Whether this process is such a one.
pub(super) fn is_masked() -> Result<bool, Failure> {
    let mask = Mask::NO_AES.ok_or_else(|| {
        Failure::bad_input(
            "--as-if no-aes: on this architecture AWS-LC cannot be told to leave out instructions",
        )
    })?;
    Ok(mask.is_worn())
}

/// Runs the program with the same arguments under the mask. What it says is the answer.
pub(super) fn run_masked() -> Result<(), Failure> {
    let mut command = again().map_err(Failure::failed)?;
    let status = command.args(std::env::args_os().skip(1)).status().map_err(Failure::failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::failed(format!("without AES instructions: {status}")))
    }
}

/// What would be first without AES instructions, after a short look, where there are any.
pub(super) fn what_if(args: &AdviseArgs, answer: &Answer) -> Option<String> {
    let asks = answer.device.has_aes() && answer.as_if == AsIf::default() && !answer.goal.is_exact();
    if !asks || args.quick || args.lines.is_some() {
        return None;
    }
    let mut command = again().ok()?;
    command.args(["advise", "--as-if", "no-aes", "--quick", "--json", "--goal", args.goal.word()]);
    let flags = [("--integrity-only", args.integrity_only), ("--host-to-host", args.host_to_host)];
    command.args(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    command.args(args.packet_size.map(|size| format!("--packet-size={size}")));
    command.args(args.profile.as_ref().map(|profile| format!("--profile={profile}")));
    let output = command.output().ok()?;
    let other: Value = serde_json::from_slice(&output.stdout).ok()?;
    let first = other.get("ranking")?.get(0)?.get("suite")?.as_str()?;
    let own = answer.first()?.to_string();
    Some(if first == own {
        format!("Without AES instructions {first} would be first as well (--as-if no-aes).")
    } else {
        format!("Without AES instructions {first} would be first (--as-if no-aes).")
    })
}

fn again() -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.envs(Mask::NO_AES.map(Mask::variable));
    Ok(command)
}
