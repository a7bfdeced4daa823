//! The program `casemate-lab` has all commands, in completions and manual pages too.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::{Program, TempDir};
use std::fs;
use std::process::Output;

fn program(args: &[&str]) -> Output {
    Program::new(env!("CARGO_BIN_EXE_casemate-lab")).args(args).output()
}

#[test]
fn help_is_that_of_casemate() {
    for (args, usage) in [
        (&["--help"][..], "Usage: casemate <COMMAND>"),
        (&["lab", "--help"], "Usage: casemate lab <COMMAND>"),
        (&["lab", "run", "--help"], "Usage: casemate lab run [OPTIONS] <NAME>..."),
        (&["advise", "--help"], "Usage: casemate advise [OPTIONS]"),
        (&["run", "--help"], "Usage: casemate run [OPTIONS]"),
    ] {
        let help = program(args);
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && text.contains(usage), "{args:?}: {text}");
    }
    let wrong = program(&["advise", "--goal", "beauty"]);
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text.starts_with("casemate: invalid value 'beauty' for '--goal <GOAL>'"), "{text}");
}

#[test]
fn list_reports_a_full_output() {
    let list = Program::new(env!("CARGO_BIN_EXE_casemate-lab")).args(["lab", "list"]);
    let output = list.stdout(fs::File::create("/dev/full").unwrap()).output();
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = "casemate: standard output: No space left on device (os error 28)\n";
    assert_eq!((output.status.code(), error.as_str()), (Some(1), expected));
}

#[test]
fn completions_and_manual_pages_include_lab_and_advise() {
    let script = String::from_utf8(program(&["completions", "bash"]).stdout).unwrap();
    for option in ["--quick", "--packet-size", "--save-keys"] {
        assert!(script.contains(option), "{option}");
    }
    let directory = TempDir::new("lab-man").unwrap();
    assert!(program(&["man", directory.path().to_str().unwrap()]).status.success());
    for (page, option) in
        [("casemate-lab-run.1", "quick"), ("casemate-advise.1", "goal"), ("casemate-run.1", "xfrm")]
    {
        let page = fs::read_to_string(directory.file(page)).unwrap();
        assert!(page.contains(option), "{page}");
    }
}
