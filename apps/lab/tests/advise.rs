//! `casemate advise` as a process: its output loads with the program's own parsers, and its manual page
//! is correct.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_advise::goal::Goal;
use casemate_advise::rules::Profile;
use casemate_app::swanctl::{Config, SystemEnvironment};
use casemate_app::xfrm::XfrmFile;
use casemate_strongswan::proposal;
use casemate_test_support::{Program, TempDir};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

fn advise(args: &[&str]) -> Output {
    let program = Program::new(env!("CARGO_BIN_EXE_casemate-lab")).args(["advise", "--quick"]).args(args);
    // It measures, which takes minutes on a slow machine.
    program.limit(Duration::from_secs(600)).output()
}

fn stdout_of(args: &[&str]) -> String {
    let output = advise(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(&[&["--json"][..], args].concat())).unwrap()
}

fn suites(answer: &Value) -> Vec<&str> {
    answer["ranking"].as_array().unwrap().iter().map(|rank| rank["suite"].as_str().unwrap()).collect()
}

#[test]
fn every_goal_gives_a_ranking_without_forbidden_suites() {
    for goal in Goal::ALL {
        let answer = json(&["--goal", goal.word()]);
        let suites = suites(&answer);
        assert!(suites.len() >= 4, "{suites:?}");
        assert!(
            !suites
                .iter()
                .any(|suite| suite.contains("DES") || suite.contains("MD5") || suite.contains("NULL"))
        );
        assert!(answer["refused"].as_array().unwrap().len() > 30);
        for one in answer["settings"]["esp_proposals"].as_str().unwrap().split(',') {
            proposal::parse_esp(one).unwrap();
        }
    }
}

#[test]
fn two_casemates_save_bytes() {
    let settings = |args: &[&str]| json(&[&["--goal", "calls"][..], args].concat())["settings"].clone();
    let both = settings(&[]);
    assert_eq!(both["rohc"], true);
    let (first, others) = both["esp_proposals"].as_str().unwrap().split_once(',').unwrap();
    assert!(first.contains("ccm8iiv") && !others.contains("iiv"), "{both}");
    let other = settings(&["--other-peer"]);
    assert_eq!(other["rohc"], false);
    assert!(!other["esp_proposals"].as_str().unwrap().contains("iiv"), "{other}");
}

#[test]
fn ml_kem_is_an_additional_key_exchange_with_a_classical_second_proposal() {
    let answer = json(&["--goal", "battery"]);
    let (first, second) = answer["settings"]["proposals"].as_str().unwrap().split_once(',').unwrap();
    assert_eq!(first, format!("{second}-ke1_mlkem768"));
    let exchange = &answer["additional_key_exchange"];
    assert_eq!((&exchange["method"], &exchange["recommended"]), (&"ml-kem-768".into(), &true.into()));
    assert!(
        exchange["bytes"].as_u64().unwrap() > 1_184 + 1_088
            && exchange["responder_us"].as_f64().unwrap() > 1.0
    );
    let methods = answer["key_exchanges"].as_array().unwrap();
    for method in ["ml-kem-512", "ml-kem-768", "ml-kem-1024", "Curve25519"] {
        assert!(methods.iter().any(|cost| cost["method"] == method), "{methods:?}");
    }
    let cnsa2 = json(&["--profile", "cnsa2"]);
    let proposals = cnsa2["settings"]["proposals"].as_str().unwrap();
    assert_eq!(proposals, "aes256gcm16-prfsha384-ecp384-ke1_mlkem1024");
    let profile = cnsa2["profiles"].as_array().unwrap().last().unwrap();
    assert!(profile["unmet"][0].as_str().unwrap().contains("ML-DSA-87"), "{profile}");
    // The costs are multiplied by the ratio of the clock rates.
    let slow = json(&["--as-if", "clock=1MHz", "--goal", "battery"]);
    assert_eq!(slow["additional_key_exchange"]["recommended"], false);
    assert!(!slow["settings"]["proposals"].as_str().unwrap().contains("ke1_"));
}

/// The measurement itself, in a process of its own as `advise` starts it.
#[test]
fn streams_through_esp_in_udp_and_esp_are_measured() {
    let program = Program::new(env!("CARGO_BIN_EXE_casemate-lab"));
    let output = program.args(["advise", "--measure-encapsulation", "aes128gcm16"]).output();
    let error = String::from_utf8_lossy(&output.stderr);
    let cannot_run = ["casemate not found", "unshare", "/dev/net/tun", "nft"];
    if !output.status.success() && cannot_run.iter().any(|reason| error.contains(reason)) {
        casemate_test_support::skip(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["esp_gbit_per_second", "udp_gbit_per_second"] {
        let samples = measured[key].as_array().unwrap();
        assert_eq!(samples.len(), 9, "{measured}");
        assert!(samples.iter().all(|sample| sample.as_f64().unwrap() > 0.0), "{measured}");
    }
    let (ratio, interval) = (&measured["ratio"], &measured["interval"]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&interval[0]) <= number(ratio) && number(ratio) <= number(&interval[1]), "{measured}");
}

#[test]
fn reason_why_esp_in_udp_is_not_measured() {
    for (args, reason) in [
        (&[][..], "--quick leaves it out"),
        (&["--nat"], "behind a NAT, ESP is always in UDP"),
        (&["--other-peer"], "only Casemate knows `encap = auto` (--other-peer)"),
    ] {
        let answer = json(args);
        assert_eq!(answer["encapsulation"]["not_measured"], reason);
        assert_eq!(answer["settings"]["encap"], "no");
    }
    let text = stdout_of(&[]);
    assert!(text.contains("(encap = auto)\n  not measured: --quick leaves it out\n"), "{text}");
}

#[test]
fn explain_shows_samples() {
    let answer = json(&["--explain", "--packet-size", "300"]);
    let first = &answer["finalists"][0];
    let sizes: Vec<u64> = first["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|samples| samples["size"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [64, 256, 300, 576, 1024, 1420]);
    let rounds = first["samples"][5]["open_ns"].as_array().unwrap().len();
    assert_eq!(first["samples"][0]["seal_ns"].as_array().unwrap().len().clamp(5, 9), rounds);
    assert!(first["line_ns"]["slope"].as_f64().unwrap() > 0.0);
    assert!(json(&[])["finalists"].is_null());
}

#[test]
fn integrity_only_is_advised_only_on_request() {
    let answer = json(&["--integrity-only", "--goal", "cpu"]);
    assert!(suites(&answer).iter().any(|suite| suite.contains("NULL")), "{answer:#}");
}

/// The lines lack hosts and secrets; with these they are a complete configuration.
#[test]
fn lines_for_swanctl_load() {
    let scratch = TempDir::new("advise-swanctl").unwrap();
    for args in [
        &[][..],
        &["--profile", "cnsa", "--host-to-host"],
        &["--profile", "suite-b-128"],
        &["--goal", "bytes"],
    ] {
        let lines = stdout_of(&[&["--lines", "swanctl"][..], args].concat());
        let hosts = "  gateway {\n    local_addrs = 192.0.2.1\n    remote_addrs = 192.0.2.2\n    local {\n auth = psk\n }\n    \
                     remote {\n auth = psk\n }\n";
        let whole = lines.replacen("  gateway {\n", hosts, 1);
        let file = scratch.file("swanctl.conf");
        let secret = "secrets {\n ike-1 {\n secret = \"sixteen letters and more\"\n }\n}\n";
        std::fs::write(&file, format!("{whole}{secret}")).unwrap();
        let config =
            Config::load(&file, &SystemEnvironment).unwrap_or_else(|error| panic!("{error}\n{lines}"));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
}

#[test]
fn lines_for_xfrm_load_without_counter_modes() {
    for args in [&[][..], &["--nat", "--ipv6"], &["--host-to-host", "--integrity-only"]] {
        let lines = stdout_of(&[&["--lines", "xfrm"][..], args].concat());
        assert!(lines.contains("SHOULD NOT be used (RFC 8221 section 3)"));
        let file = XfrmFile::parse(lines.as_bytes()).unwrap_or_else(|problems| panic!("{problems:?}"));
        let states: Vec<_> = file.states.iter().map(|state| &state.value).collect();
        assert_eq!(states.len(), 2);
        assert!(states.iter().all(|sa| !sa.transform.iv_is_counter()), "{lines}");
        assert_ne!(states[0].transform, states[1].transform, "each direction has its own keys");
        // The policies of the second host are comments.
        let expected = if args.contains(&"--host-to-host") { 2 } else { 3 };
        let second: String = lines.replace("# ip xfrm policy", "ip xfrm policy");
        let both = XfrmFile::parse(second.as_bytes()).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!((file.policies.len(), both.policies.len()), (expected, 2 * expected));
        assert!(both.warnings.is_empty(), "{:?}", both.warnings);
    }
}

/// Without the instructions, AES of AWS-LC is several times slower than its ChaCha20. On an overloaded
/// machine the measurements may tie, so the test has three attempts.
#[test]
fn without_aes_instructions_another_suite_is_first() {
    if cfg!(not(target_arch = "x86_64")) {
        casemate_test_support::skip("the cost of AES without instructions is known for x86-64 only");
        return;
    }
    let mut tries = std::iter::repeat_with(|| json(&["--as-if", "no-aes"])).take(3);
    let found = tries.find(|answer| suites(answer)[0] == "ENCR_CHACHA20_POLY1305");
    assert_eq!(found.unwrap()["as_if"], "without AES instructions (measured)");
}

#[test]
fn wrong_arguments_are_named() {
    let scratch = TempDir::new("advise-wrong").unwrap();
    let file = scratch.file("own.toml");
    std::fs::write(&file, "name = \"own\"\ntitle = 3\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, part) in [
        (&["--profile", file][..], format!("casemate: {file}:2: `title`: a text in quotes was expected\n")),
        (&["--goal", "speed"], "one of throughput, latency, cpu, battery, bytes, calls was expected".into()),
        (&["--as-if", "no-sha"], "no-aes or clock=700MHz was expected".into()),
        (&["--packet-size", "1500"], "1500 is not in 40..=1420".into()),
    ] {
        let output = advise(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.contains(&part), "{args:?}: {errors}");
    }
}

#[test]
fn manual_lists_all_goals_and_profiles() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/advise.md");
    let page = std::fs::read_to_string(page).unwrap();
    for goal in Goal::ALL {
        let measured = if goal.is_exact() { "arithmetic |" } else { "yes |" };
        let row = format!("| `{}` |", goal.word());
        assert!(page.lines().any(|line| line.starts_with(&row) && line.ends_with(measured)), "{row}");
    }
    for profile in Profile::built_in().unwrap() {
        assert!(page.contains(&format!("| `{}` |", profile.name)), "{}", profile.name);
    }
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(Profile::parse("advise.md", example).unwrap().name, "own");
}
