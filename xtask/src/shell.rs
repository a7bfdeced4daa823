//! Running other programs, from the root of the checkout.

use crate::failure::{Failure, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The cargo that runs us.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A program to run in the root of the checkout. Nothing may wait for an answer: there is no standard input in CI.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root()).stdin(Stdio::null());
    // What cargo set for xtask itself would make every package look changed to a nested cargo.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_MANIFEST_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Shows a command, runs it and fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result {
    println!("$ {}", describe(command));
    run_unshown(command)
}

/// Runs a command whose standard output is the result, so that nothing else may be on it.
pub(crate) fn run_unshown(command: &mut Command) -> Result {
    let line = describe(command);
    let status =
        command.status().map_err(|error| Failure::new(format!("`{line}` did not start: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{line}` failed: {status}"))) }
}

/// Runs `cargo ARGUMENTS`.
pub(crate) fn run_cargo(arguments: &[&str]) -> Result {
    run(command(cargo()).args(arguments))
}

/// Runs a command silently and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = describe(command);
    let output =
        command.output().map_err(|error| Failure::new(format!("`{line}` did not start: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("`{line}` failed: {}\n{}", output.status, error.trim_end())))
}

/// Whether a command runs and succeeds; its output is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
