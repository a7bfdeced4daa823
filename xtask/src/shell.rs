//! Runs other programs in the root of the checkout.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Root of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Path of the cargo that runs this program.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Command that runs in the root of the checkout. Standard input is empty: in CI, no program may wait for
/// input.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root()).stdin(Stdio::null());
    // With the variables that cargo sets for xtask, a nested cargo would consider every package changed.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_MANIFEST_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Prints a command, runs it, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result {
    println!("$ {}", describe(command));
    run_unshown(command)
}

/// Runs a command without printing it, for commands whose standard output is the result.
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

/// Runs a command and returns its standard output.
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

/// Prints a command, runs it, and returns its standard output. Its standard error stays visible.
pub(crate) fn output_with_progress(command: &mut Command) -> Result<Vec<u8>> {
    let line = describe(command);
    println!("$ {line}");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("`{line}` did not start: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Failure::new(format!("`{line}` failed: {}", output.status)))
}

/// Whether a command runs successfully. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Result of a task.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// Message that names the cause and the next step.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// Failure with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Failure with one finding per line below a headline. `Ok` if there are no findings.
    pub(crate) fn unless_empty(findings: &[String], headline: &str) -> Result {
        if findings.is_empty() {
            return Ok(());
        }
        Err(Self(format!("{headline}:\n  {}", findings.join("\n  "))))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
