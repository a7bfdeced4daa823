//! The log of `casemate run` as text, as JSON and in the journal, and its levels.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, eventually};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use testnet::{Host, TestNet};

/// A connection to a host that does not respond.
const CONF: &str = "\
connections { gw {
 local_addrs = 192.0.2.1
 remote_addrs = 192.0.2.2
 local { auth = psk }
 remote { auth = psk }
 children { net { start_action = start } }
} }
secrets { ike { secret = \"a secret of the two hosts\" } }
";

fn program(host: &Host, options: &[&str]) -> Program {
    fs::write(host.file("conf"), CONF).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("run").arg("--config");
    program.arg(host.file("conf")).args(options).log_to(&host.file("log"))
}

/// Whether a text is a time such as `2026-11-26T06:31:11.042Z`.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|sign| if sign.is_ascii_digit() { '0' } else { sign }).collect();
    shape == "0000-00-00T00:00:00.000Z"
}

#[test]
fn lines_have_time_level_and_connection() {
    let Some(net) = TestNet::build("lines_have_time_level_and_connection") else { return };
    let running = net.left.start(program(&net.left, &[]));
    let repeated = eventually("a repeated request in the log", || {
        running.log().lines().find(|line| line.contains("sent again")).map(str::to_owned)
    });
    let (time, rest) = repeated.split_once(' ').unwrap();
    assert!(is_time(time), "{repeated}");
    assert!(rest.starts_with("casemate: info: gw[1]: IKE_SA_INIT request to 192.0.2.2:500"), "{repeated}");
    // `casemate log` shows the same line without the name of the program. It reads the clock itself.
    let shown = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["log"]);
    let kept = rest.strip_prefix("casemate: ").unwrap();
    let is_kept = |line: &str| line.split_once(' ').is_some_and(|(time, rest)| is_time(time) && rest == kept);
    assert!(shown.lines().any(is_kept), "no `{kept}` in:\n{shown}");
    assert!(running.stop().success());
}

#[test]
fn json_has_one_object_for_each_message() {
    let Some(net) = TestNet::build("json_has_one_object_for_each_message") else { return };
    let running = net.left.start(program(&net.left, &["--log-format", "json"]));
    // The second repetition has a hint.
    let repeated = eventually("a hint in the log", || {
        let log = running.log();
        let mut objects = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.find(|object| object.get("details").is_some() && object["ike_sa"] == "1")
    });
    assert!(is_time(repeated["time"].as_str().unwrap()), "{repeated}");
    assert_eq!([&repeated["level"], &repeated["subsystem"], &repeated["connection"]], ["info", "ike", "gw"]);
    assert!(repeated["message"].as_str().unwrap().contains("sent again, 2 of 6"), "{repeated}");
    assert!(repeated["details"][0].as_str().unwrap().contains("UDP port 500"), "{repeated}");
    let log = running.log();
    // Standard output has two lines of its own.
    let others: Vec<&str> = log.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!((others.len(), others[1]), (2, "ready"), "{log}");
    assert!(running.stop().success());
}

#[test]
fn levels_apply_to_each_subsystem() {
    let Some(net) = TestNet::build("levels_apply_to_each_subsystem") else { return };
    let running = net.left.start(program(&net.left, &["--log-level", "error,program=info"]));
    let shows = |words: &str| net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["log"]).contains(words);
    assert!(net.left.casemate(&["reload"]).status.success());
    assert!(shows("the configuration was read again"));
    // The history for `why` does not depend on the level.
    eventually("a repeated request", || {
        let why = net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["why", "gw"]);
        why.contains("sent again").then_some(())
    });
    assert!(!shows("sent again") && !running.log().contains("sent again"), "{}", running.log());
    assert!(running.stop().success());
    let output = net.left.output_of(Program::new(env!("CARGO_BIN_EXE_casemate")).args([
        "run",
        "--log-level",
        "info,esp=debug",
    ]));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("one of program, ike, datapath, system, application was expected"), "{error}");
}

/// A socket of the test takes the place of the journal's.
#[test]
fn journal_entries_have_fields() {
    let Some(net) = TestNet::build("journal_entries_have_fields") else { return };
    let socket = net.left.file("journal");
    let journal = UnixDatagram::bind(&socket).unwrap();
    journal.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    fs::write(net.left.file("conf"), CONF).unwrap();
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  : > /run/systemd/journal/socket && mount --bind \"$1\" /run/systemd/journal/socket && \
                  shift && exec \"$@\"";
    let program = Program::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(&socket)
        .args([env!("CARGO_BIN_EXE_casemate"), "run", "--config"])
        .arg(net.left.file("conf"))
        .log_to(&net.left.file("log"));
    // Standard error is the file, which stands for the stream of the journal.
    let file = File::open(net.left.file("log")).unwrap().metadata().unwrap();
    let running = net.left.start(program.env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino())));
    let mut buffer = vec![0; 65_536];
    let entry = (0..100)
        .map(|_| {
            let count = journal.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..count].to_vec()).unwrap()
        })
        .find(|entry| entry.contains("sent again"))
        .unwrap();
    for field in
        ["PRIORITY=6", "SYSLOG_IDENTIFIER=casemate", "CASEMATE_SUBSYSTEM=ike", "CASEMATE_CONNECTION=gw"]
    {
        assert!(entry.lines().any(|line| line == field), "no {field} in:\n{entry}");
    }
    assert!(entry.contains("\nMESSAGE=gw[1]: IKE_SA_INIT request to 192.0.2.2:500"), "{entry}");
    assert!(entry.lines().all(|line| line.contains('=')), "{entry}");
    assert!(!running.log().contains("sent again"), "{}", running.log());
    assert!(running.stop().success());
}
