//! Every command ends with the exit statuses that docs/manual/run.md lists: 0, 1 for an operation that
//! failed, 2 for wrong arguments and files.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_app::cli;
use casemate_test_support::Program;
use testnet::TestNet;

/// Runs the program, and checks that an error is on standard error, with the program's name in front.
fn status(net: Option<&TestNet>, args: &[&str]) -> i32 {
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(args);
    let output = match net {
        Some(net) => net.left.output_of(program),
        None => program.output(),
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or_else(|| panic!("{args:?}: {:?}", output.status));
    assert_eq!(errors.starts_with("casemate: "), code != 0, "{args:?}: {code}, {errors}");
    code
}

/// Names of all commands of the program, without those of `casemate-lab`.
fn commands() -> Vec<String> {
    let command = cli::command(&[]);
    let names = command.get_subcommands().map(|command| command.get_name().to_owned());
    names.filter(|name| !["advise", "lab"].contains(&&**name)).collect()
}

#[test]
fn wrong_arguments_of_every_command() {
    let names = commands();
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        assert_eq!(status(None, &[name, "--no-such-option"]), 2, "{name}");
        assert_eq!(status(None, &[name, "--help"]), 0, "{name}");
    }
}

#[test]
fn files_that_are_missing() {
    for args in [
        &["run", "--config", "/nonexistent", "--dry-run"][..],
        &["run", "--xfrm", "/nonexistent", "--dry-run"],
        &["inspect", "/nonexistent", "--xfrm", "/nonexistent"],
        &["import", "/nonexistent"],
        &["man", "/nonexistent"],
        &["completions", "nonexistent"],
        &["calls", "--line", "nonexistent"],
    ] {
        assert_eq!(status(None, args), 2, "{args:?}");
    }
}

/// Valid commands fail without an instance.
#[test]
fn operations_that_fail() {
    let Some(net) = TestNet::build("exit_status") else { return };
    for args in [
        &["status"][..],
        &["why", "gw"],
        &["log"],
        &["initiate", "gw"],
        &["terminate", "gw"],
        &["rekey", "gw"],
        &["reload"],
    ] {
        assert_eq!(status(Some(&net), args), 1, "{args:?}");
    }
    for args in [&["cleanup"][..], &["calls", "--paper"], &["completions", "bash"]] {
        assert_eq!(status(Some(&net), args), 0, "{args:?}");
    }
}
