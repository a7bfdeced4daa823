//! What CI runs: the checks of the source, then every test.

use crate::failure::Result;
use crate::stages::Stages;
use crate::{firmware, layers, licences, lines, shell, test};

pub(crate) const ABOUT: &str = "Run what CI runs: format, layers, lines, licences, clippy, docs, then `test`
Every stage runs, whatever failed before it; the summary at the end names stages, times and failures.";

/// Runs all stages.
pub(crate) fn run(_: &[String]) -> Result {
    let mut stages = Stages::new();
    stages.run("format", || shell::run_cargo(&["fmt", "--all", "--check"]));
    stages.run("layers", || layers::run(&[]));
    stages.run("lines", || lines::run(&[]));
    stages.run("licences", || licences::run(&[]));
    stages.run("clippy", || {
        shell::run_cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"])
    });
    stages.run("clippy: firmware", firmware::clippy);
    stages.run("docs", || {
        let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
        shell::run(shell::command(shell::cargo()).args(arguments).env("RUSTDOCFLAGS", "-D warnings"))
    });
    test::add_to(&mut stages);
    stages.finish()
}
