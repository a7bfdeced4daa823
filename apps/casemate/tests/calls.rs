//! `casemate calls` as a process: the examples of its manual page are correct, and wrong arguments are
//! reported.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::Program;
use serde_json::Value;
use std::process::Output;

fn calls(args: &str) -> Output {
    let words = args.split_whitespace();
    Program::new(env!("CARGO_BIN_EXE_casemate")).arg("calls").args(words).output()
}

fn stdout(args: &str) -> String {
    let output = calls(args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &str) -> Value {
    serde_json::from_str(&stdout(&format!("{args} --json"))).unwrap()
}

/// The number of calls with one suite.
fn of_suite(args: &str) -> u64 {
    json(args)["choices"][0]["calls"].as_u64().unwrap()
}

/// Every command in the manual page is followed by its exact output.
#[test]
fn manual_shows_the_output_of_the_program() {
    let page = include_str!("../../../docs/manual/calls.md");
    let blocks: Vec<&str> = page.split("```console\n$ casemate calls ").skip(1).collect();
    assert!(blocks.len() >= 3, "{}", blocks.len());
    for block in blocks {
        let (shown, _) = block.split_once("```").unwrap();
        let (args, output) = shown.split_once('\n').unwrap();
        let printed = stdout(args);
        assert_eq!(output.trim_end(), printed.trim_end(), "casemate calls {args} prints:\n{printed}");
    }
}

#[test]
fn known_numbers_of_calls() {
    let table = json("--line 128k --payload 40");
    let calls = |name: &str| {
        let choices = table["choices"].as_array().unwrap();
        choices.iter().find(|choice| choice["name"] == name).unwrap()["calls"].as_u64()
    };
    assert_eq!(calls("IP"), Some(4));
    assert_eq!(calls("SRTP"), Some(3));
    assert_eq!(calls("ESP tunnel, aes128gcm16"), Some(2));
    assert_eq!(calls("ESP tunnel, 3des-sha1"), Some(2));
    assert_eq!(calls("ESP tunnel, aes128ccm8iiv"), Some(2));
    assert_eq!(calls("ROHC, ESP tunnel, aes128ccm8iiv"), Some(3));
    // With header compression and without UDP checksum, as many calls as in clear.
    assert_eq!(of_suite("--line 128k --payload 40 --suite aes128ccm8iiv --rohc"), 3);
    assert_eq!(of_suite("--line 128k --payload 40 --suite aes128ccm8iiv --rohc --no-udp-checksum"), 4);
    assert_eq!(of_suite("--line 128k --payload 40 --suite aes128ccm8iiv --no-udp-checksum"), 2);
    // G.729, 24 bytes of G.723.1 every 30 ms, and 160 of G.711.
    assert_eq!(of_suite("--line 128k --suite aes128gcm16"), 2);
    assert_eq!(of_suite("--line 128k --suite aes128gcm16 --codec g723"), 4);
    assert_eq!(of_suite("--line 128k --suite aes128gcm16 --codec g711"), 1);
    assert_eq!(of_suite("--line 64k --suite aes128gcm16 --mode transport --codec g723"), 2);
}

#[test]
fn the_paper_has_two_misprints() {
    let paper = json("--paper");
    let rows = paper["rows"].as_array().unwrap();
    let numbers = |whose: &str, what: &str| {
        rows.iter().map(|row| row[whose][what].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers("printed", "calls"), [7, 4, 2, 2]);
    assert_eq!(numbers("exact", "calls"), [7, 4, 2, 2]);
    assert_eq!(numbers("printed", "packet"), [45, 80, 122, 134]);
    assert_eq!(numbers("exact", "packet"), [45, 80, 124, 136]);
    assert_eq!(rows.iter().filter(|row| row["misprint"].is_string()).count(), 2);
}

#[test]
fn quality_is_shown_if_known() {
    let one = |args: &str| json(args)["choices"][0].clone();
    let good = one("--line 10M --codec g711 --suite aes128gcm16");
    assert!(good["mos"].as_f64().unwrap() > 4.3, "{good}");
    let poor = one("--line 10M --codec g711 --suite aes128gcm16 --loss 5% --delay 300ms");
    assert!(poor["mos"].as_f64() < good["mos"].as_f64(), "{poor}");
    for args in ["--line 10M --codec opus", "--line 10M --payload 60", "--line 16k --codec g711"] {
        let args = format!("{args} --suite aes128gcm16");
        assert_eq!(
            (one(&args)["r"].clone(), one(&args)["mos"].clone()),
            (Value::Null, Value::Null),
            "{args}"
        );
        assert!(stdout(&args).contains("quality           no"), "{args}");
    }
}

#[test]
fn wrong_arguments_show_what_was_expected() {
    for (args, part) in [
        ("", "--line <RATE>"),
        ("--line fast", "bits per second such as 128k, 2M or 1G were expected"),
        ("--line 128k --codec mp3", "one of g711, g722, g723, g726, g729, gsm-efr, ilbc, opus was expected"),
        (
            "--line 128k --frame 15ms",
            "casemate: --frame: a multiple of 10ms, which is one frame, was expected for G.729A",
        ),
        ("--line 128k --payload 40 --frame 0ms", "a time above 0 was expected"),
        ("--line 128k --suite aes128", "an integrity algorithm was expected"),
        ("--line 128k --suite aes128gcm16-aes256gcm16", "the algorithms of one SA were expected"),
        ("--line 128k --mode bridge", "tunnel or transport was expected"),
        (
            "--line 128k --suite aes128gcm16 --rohc --mode transport",
            "casemate: --rohc: --mode tunnel was expected, because RFC 5856 compresses the headers inside a tunnel",
        ),
        ("--line 128k --rohc", "--suite <WORDS>"),
        ("--line 128k --ipv6 --no-udp-checksum", "cannot be used with"),
        ("--line 128k --loss 1", "a percentage such as 1% or 0.5% was expected"),
        ("--line 128k --paper", "cannot be used with"),
    ] {
        let output = calls(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args}");
        assert!(stderr.contains(part), "{args}: {stderr}");
    }
}
