//! The program `casemate-lab` has all commands, in completions and manual pages too.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::Netns;
use casemate_test_support::{Program, TempDir};
use std::fs;
use std::process::Output;
use std::time::Duration;

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
fn device_goes_on_with_a_closed_output() {
    let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = ["lab", "device", "--unguarded", "--tap", "device0", "--address", "192.0.2.1/24"];
    let device = Program::new(env!("CARGO_BIN_EXE_casemate-lab")).args(arguments).stdout(writer);
    let mut device = device.start_with(|command| netns.spawn(command));
    // It opens the interface before it prints `ready`.
    casemate_test_support::eventually("the device has its interface, or has ended", || {
        let is_open = netns.run(|| Netlink::open().unwrap().link("device0").is_ok()).unwrap();
        (is_open || device.exit_status().is_some()).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(device.exit_status(), None);
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
