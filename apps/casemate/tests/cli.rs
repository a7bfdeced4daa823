//! The command line as a process: exit status, output streams, completions and manual pages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate_test_support::{Program, write_program};
use common::TempDir;
use std::process::Output;

fn casemate(args: &[&str]) -> Output {
    Program::new(env!("CARGO_BIN_EXE_casemate")).args(args).output()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_and_version_succeed() {
    let version = casemate(&["--version"]);
    assert_eq!((version.status.code(), text(&version.stdout).as_str()), (Some(0), "casemate 0.1.0\n"));
    for args in [&["--help"][..], &["help"], &["run", "--help"], &["help", "run"], &["inspect", "--help"]] {
        let help = casemate(args);
        assert_eq!((help.status.code(), help.stderr.len()), (Some(0), 0));
        assert!(text(&help.stdout).contains("Examples:\n  casemate "), "{}", text(&help.stdout));
    }
}

#[test]
fn wrong_arguments_exit_with_status_2() {
    for (args, part) in [
        (&["frobnicate"][..], "casemate: unrecognized subcommand 'frobnicate'"),
        (&["inspect"], "casemate: the following required arguments were not provided"),
        (
            &["inspect", "x"],
            "casemate: the following required arguments were not provided:\n  \
             <--xfrm <FILE>|--ike-keys <FILE>>",
        ),
        (&["inspect", "x", "--xfrm", "y", "--bogus"], "casemate: unexpected argument '--bogus'"),
        (&["man", "/nonexistent"], "casemate: /nonexistent: a directory was expected\n"),
        (&["inspect", "x", "--xfrm", "/nonexistent"], "casemate: /nonexistent: No such file or directory"),
        (
            &["run", "--dry-run", "--xfrm", "/nonexistent"],
            "casemate: /nonexistent: No such file or directory",
        ),
        (
            &["run", "--dry-run", "--config", "/nonexistent"],
            "casemate: /nonexistent: No such file or directory",
        ),
        (
            &["calls", "--line", "128"],
            "casemate: invalid value '128' for '--line <RATE>': the unit is missing",
        ),
    ] {
        let output = casemate(args);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{args:?}");
        assert!(text(&output.stderr).starts_with(part), "{}", text(&output.stderr));
    }
    let nothing = casemate(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("Usage: casemate <COMMAND>"), "{}", text(&nothing.stderr));
}

#[test]
fn every_wrong_line_of_a_file_is_reported() {
    let scratch = TempDir::new("wrong-file").unwrap();
    let file = scratch.file("keys.xfrm");
    std::fs::write(&file, "ip xfrm state add\n\nip xfrm policy add dir sideways\n").unwrap();
    let path = file.to_str().unwrap();
    let output = casemate(&["inspect", "/nonexistent", "--xfrm", path]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "casemate: {path}:1: the state has no src: src ADDRESS was expected\n\
         casemate: {path}:3: `sideways` after `dir`: in, out or fwd was expected\n"
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let script = casemate(&["completions", shell]);
        assert!(script.status.success());
        assert!(text(&script.stdout).contains("no-replay"), "{shell}");
    }
    let scratch = TempDir::new("man").unwrap();
    let directory = scratch.path();
    assert!(casemate(&["man", directory.to_str().unwrap()]).status.success());
    for page in ["casemate.1", "casemate-run.1", "casemate-inspect.1"] {
        let page = std::fs::read_to_string(scratch.file(page)).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
}

/// `casemate lab` and `casemate advise` run the program `casemate-lab` of the same directory.
#[test]
fn lab_and_advise_run_the_program_beside_casemate() {
    let scratch = TempDir::new("lab-program").unwrap();
    let [program, lab_program] = ["casemate", "casemate-lab"].map(|name| scratch.file(name));
    write_program(&program, &std::fs::read(env!("CARGO_BIN_EXE_casemate")).unwrap());
    let run = |args: &[&str]| Program::new(&program).args(args).output();
    for command in ["lab", "advise"] {
        let missing = run(&[command, "--help"]);
        let error = text(&missing.stderr);
        assert_eq!(missing.status.code(), Some(1));
        let path = lab_program.display();
        assert!(error.starts_with(&format!("casemate: {path}: not installed: ")), "{error}");
        assert!(error.contains("\ncasemate: `cargo build --release -p casemate-lab-app` in "), "{error}");
        let copy = format!("builds target/release/casemate-lab: copy it to {}\n", scratch.path().display());
        assert!(error.ends_with(&copy), "{error}");
    }
    assert!(run(&["completions", "bash"]).status.success());
    write_program(&lab_program, b"#!/bin/sh\necho \"$@\"\nexit 7\n");
    for args in [
        &["lab", "run", "streams", "--quick"][..],
        &["lab", "--help"],
        &["help", "lab"],
        &["advise", "--goal", "cpu", "-h"],
        &["completions", "bash"],
    ] {
        let output = run(args);
        assert_eq!((output.status.code(), text(&output.stdout).trim_end()), (Some(7), &*args.join(" ")));
    }
}
