//! Errors of options name the file or value, the option, and what was expected.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::Program;
use std::net::TcpListener;
use std::process::Output;
use testnet::TestNet;

/// Checks that the program fails with this status, and that its error has all `parts`.
fn check(output: &Output, code: i32, parts: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{parts:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
}

#[test]
fn missing_files() {
    const MISSING: &str = "no-such-directory/file: No such file or directory";
    for (args, option, expected) in [
        (&["run", "--dry-run", "--config"][..], "--config FILE", "swanctl.conf(5) was expected"),
        (&["run", "--dry-run", "--xfrm"], "--xfrm FILE", "lines of ip-xfrm(8) was expected"),
        (&["inspect", "/dev/null", "--xfrm"], "--xfrm FILE", "lines of ip-xfrm(8) was expected"),
        (&["inspect", "/dev/null", "--ike-keys"], "--ike-keys FILE", "ikev2_decryption_table"),
        (&["inspect", "--xfrm", "/dev/null"], "pcap or pcapng", "was expected"),
        (&["import"], "wg-quick(8)", "was expected"),
    ] {
        let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(args);
        check(&program.arg("no-such-directory/file").output(), 2, &[MISSING, option, expected]);
    }
}

#[test]
fn wrong_values() {
    const PORT: &str = "unix:/PATH, 127.0.0.1:PORT or [::1]:PORT was expected";
    const NAME: &str = "a name of 1 to 15 characters without spaces, `/`, `:` and `%` was expected";
    for (option, value, expected) in [
        ("--metrics", "localhost:9464", PORT),
        ("--metrics", "run/metrics", PORT),
        ("--metrics", "192.0.2.1:9464", "--metrics unix:/PATH or --metrics 127.0.0.1:PORT was expected"),
        ("--threads", "0", "a number from 1 to"),
        ("--threads", "many", "a number from 1 to"),
        ("--dummy-packets", "65536", "a number from 1 to 65535 was expected"),
        ("--tun", "longer-than-an-interface", NAME),
        ("--tun", "a/b", NAME),
        ("--tun", "tun%d", NAME),
    ] {
        let program = Program::new(env!("CARGO_BIN_EXE_casemate"));
        let output = program.args(["run", "--dry-run", "--xfrm", "/dev/null", option, value]).output();
        check(&output, 2, &[option, value, expected]);
    }
}

#[test]
fn addresses_and_directories_that_cannot_be_used() {
    let Some(net) = TestNet::build("option_errors") else { return };
    let conf = net.left.file("conf");
    std::fs::write(&conf, "").unwrap();
    let taken = net.left.run(|| TcpListener::bind("127.0.0.1:9464")).unwrap();
    let nowhere = net.left.file("missing").join("file");
    let nowhere = nowhere.to_str().unwrap();
    let in_file = conf.join("keys");
    for (option, value, expected) in [
        ("--metrics", "127.0.0.1:9464", "Address already in use (os error 98): another port was expected"),
        ("--metrics", nowhere, "a path in an existing directory was expected"),
        ("--vici", nowhere, "a path in an existing directory was expected"),
        ("--metrics", conf.to_str().unwrap(), "this is not a socket: another path was expected"),
        ("--vici", conf.to_str().unwrap(), "this is not a socket: another path was expected"),
        ("--save-keys", in_file.to_str().unwrap(), "a directory was expected"),
    ] {
        let output = net.left.casemate(&["run", "--config", conf.to_str().unwrap(), option, value]);
        check(&output, 1, &[value, expected, option]);
    }
    let counters = net.left.casemate(&["run", "--xfrm", conf.to_str().unwrap(), "--counters", nowhere]);
    check(&counters, 1, &[nowhere, "--counters", "a file in an existing directory was expected"]);
    drop(taken);
}
