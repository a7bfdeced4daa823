//! The remaining privileges of a running instance, and that it still works with them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::TempDir;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testnet::{Running, Side, TestNet, casemate};

/// CAP_NET_ADMIN, the only capability of the process that runs `nft`.
const NET_ADMIN: u64 = 1 << 12;
/// Capabilities of the instance: CAP_NET_ADMIN and CAP_NET_RAW.
const KEPT: u64 = NET_ADMIN | 1 << 13;

/// CAP_SYS_RESOURCE, which is required to raise the limit on locked memory. Containers often lack it.
const LIFTS_LIMITS: u64 = 1 << 24;

/// A field of `/proc/PID/status`, or of that of a thread.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.split(':').next() == Some(name)).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn hex(status: &str, name: &str) -> u64 {
    u64::from_str_radix(&field(status, name), 16).unwrap()
}

/// The process IDs of the running children of a process.
fn children(parent: u32) -> Vec<u32> {
    let of = |pid: u32| -> Option<(u32, String)> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((field(&status, "PPid").parse().ok()?, field(&status, "State")))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok());
    pids.filter(|pid| of(*pid).is_some_and(|(its, state)| its == parent && state != "Z")).collect()
}

/// Checks the process that runs `nft`: there is one, with fewer privileges than its parent.
fn assert_runner_is_confined(parent: u32) {
    let [runner] = children(parent)[..] else { panic!("one child process expected: {:?}", children(parent)) };
    let status = fs::read_to_string(format!("/proc/{runner}/status")).unwrap();
    for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(hex(&status, set), NET_ADMIN, "{set}: {status}");
    }
    assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1".into(), "2".into()));
    let environment = fs::read(format!("/proc/{runner}/environ")).unwrap();
    assert_eq!(environment, b"", "{}", String::from_utf8_lossy(&environment));
}

fn assert_confined(running: &Running) {
    assert_runner_is_confined(running.pid());
    let process = format!("/proc/{}", running.pid());
    let main = fs::read_to_string(format!("{process}/status")).unwrap();
    assert_eq!(hex(&main, "CapEff"), KEPT, "{main}");
    for task in fs::read_dir(format!("{process}/task")).unwrap() {
        // A thread may have ended.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(hex(&status, set) & !KEPT, 0, "{set}: {status}");
        }
        assert_eq!(
            (field(&status, "NoNewPrivs"), field(&status, "Seccomp")),
            ("1".into(), "2".into()),
            "{status}"
        );
    }
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let locks = hex(&own, "CapEff") & LIFTS_LIMITS != 0;
    assert_eq!(field(&main, "VmLck") != "0", locks, "keys are locked in memory if the limits allow");
    assert_eq!(running.log().contains("memory cannot be locked"), !locks);
    let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    assert!(!running.log().contains("seccomp"), "{}", running.log());
}

fn xfrm(side: Side) -> String {
    let mut text = String::new();
    for (from, spi) in [(Side::Left, 0x1001), (Side::Right, 0x1002)] {
        let (src, dst) = (from.outer(true), from.other().outer(true));
        let key = format!("{spi:08x}").repeat(5);
        text += &format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 64 \
             aead 'rfc4106(gcm(aes))' 0x{key} 128\n\
             xfrm policy add src {} dst {} dir {} tmpl src {src} dst {dst} proto esp mode tunnel\n",
            from.inner(true),
            from.other().inner(true),
            if from == side { "out" } else { "in" },
        );
    }
    text
}

#[test]
fn manual_keys_need_two_capabilities_and_few_system_calls() {
    let Some(net) = TestNet::build("privileges_manual") else { return };
    let [left, right] = [&net.left, &net.right].map(|host| host.run_xfrm(&xfrm(host.side)));
    for running in [&left, &right] {
        assert_confined(running);
    }
    assert!(net.left.pings(Side::Right.inner(true), 3_000));
    assert!(net.left.tcp_round_trip(&net.right, Side::Right.inner(true), 1 << 20));
    assert_eq!(net.left.status()["drops"].as_object().map(|drops| drops.is_empty()), Some(false));
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(net.left.stdout_of("nft", &["list", "tables"]), "");
}

fn conf(side: Side) -> String {
    format!(
        "connections {{\n t {{\n  version = 2\n  local_addrs = {}\n  remote_addrs = {}\n  \
         proposals = aes128gcm16-prfsha256-x25519\n  local {{\n   auth = psk\n  }}\n  remote {{\n   auth = psk\n  }}\n  \
         children {{\n   c {{\n    local_ts = {}/32\n    remote_ts = {}/32\n    esp_proposals = aes128gcm16\n   }}\n  }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n  secret = \"a secret of two hosts\"\n }}\n}}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// Everything after the start works: IKE, routes and filter of a Child SA, rekeying, reload, and the end.
#[test]
fn ike_works_with_reduced_privileges() {
    let Some(net) = TestNet::build("privileges_ike") else { return };
    let scratch = TempDir::new("privileges").unwrap();
    // The thread that writes the store of SAs is confined as well.
    let [left, right] = [&net.left, &net.right].map(|host| {
        let (path, store) = (host.file("conf"), scratch.file(&format!("{:?}", host.side)));
        fs::write(&path, conf(host.side)).unwrap();
        host.start(casemate().arg("run").arg("--config").arg(path).arg("--store").arg(store))
    });
    let run_ok = |args: &[&str]| {
        let output = net.left.casemate(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {stderr}: {}", left.log());
    };
    for _ in 0..2 {
        run_ok(&["initiate", "c"]);
        assert!(net.left.pings(Side::Right.inner(true), 100), "{}", left.log());
        assert!(net.left.stdout_of("nft", &["list", "tables"]).contains("casemate"));
        run_ok(&["rekey", "c"]);
        run_ok(&["rekey", "--ike", "t"]);
        run_ok(&["reload"]);
        assert!(net.left.pings(Side::Right.inner(true), 3_000), "{}", left.log());
        assert!(net.left.tcp_round_trip(&net.right, Side::Right.inner(true), 1 << 20));
        for running in [&left, &right] {
            assert_confined(running);
        }
        run_ok(&["terminate", "t"]);
        net.right.wait_until(|status| status["ike_sas"].as_array().is_some_and(Vec::is_empty));
    }
    for log in [left.log(), right.log()] {
        assert!(!log.contains("Operation not permitted") && !log.contains("panicked"), "{log}");
    }
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(net.left.stdout_of("nft", &["list", "tables"]), "");
    assert!(!net.left.stdout_of("ip", &["rule"]).contains("50510"));
}

/// After a crash the guard remains and no process is left; the next start and its end work as usual.
#[test]
fn nft_runner_ends_after_a_crash_and_the_guard_stays() {
    let Some(net) = TestNet::build("the_runner_of_nft_ends_with_a_crash") else { return };
    let guard = || net.left.stdout_of("nft", &["list", "tables"]);
    for _ in 0..2 {
        let left = net.left.run_xfrm(&xfrm(Side::Left));
        let [runner] = children(left.pid())[..] else { panic!("one child process expected") };
        left.crash();
        let end = Instant::now() + Duration::from_secs(20);
        while fs::exists(format!("/proc/{runner}")).unwrap() {
            assert!(Instant::now() < end, "the runner outlives its parent");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(guard().contains("casemate"), "{}", guard());
    }
    // Signals of a terminal or service manager must not end the runner before its parent, which needs it
    // to remove the guard.
    let left = net.left.run_xfrm(&xfrm(Side::Left));
    let [runner] = children(left.pid())[..] else { panic!("one child process expected") };
    for signal in ["-INT", "-TERM", "-HUP"] {
        net.left.stdout_of("kill", &[signal, &runner.to_string()]);
    }
    assert!(left.stop().success());
    assert_eq!(guard(), "");
}

/// The guard cannot be restored, and the error message says so.
#[test]
fn end_of_the_nft_runner_without_a_guard_is_reported() {
    let Some(net) = TestNet::build("a_run_whose_runner_of_nft_ends_while") else { return };
    let mut left = net.left.run_xfrm(&xfrm(Side::Left));
    let [runner] = children(left.pid())[..] else { panic!("one child process expected") };
    let runner = runner.to_string();
    net.left.stdout_of("kill", &["-STOP", &runner]);
    net.left.stdout_of("nft", &["flush", "ruleset"]);
    net.left.stdout_of("kill", &["-KILL", &runner]);
    assert_eq!(left.wait().code(), Some(1));
    let log = left.log();
    assert!(log.contains("the guard is not installed") && log.contains("leaves in clear until"), "{log}");
    assert!(!log.contains("stays blocked"), "{log}");
    assert_eq!(net.left.stdout_of("nft", &["list", "ruleset"]), "");
    let again = net.left.run_xfrm(&xfrm(Side::Left));
    assert!(net.left.stdout_of("nft", &["list", "ruleset"]).contains("casemate"));
    assert!(again.stop().success());
}

/// Without the runner, the guard can no longer be changed, so the run ends.
#[test]
fn end_of_the_nft_runner_ends_the_run_and_the_guard_stays() {
    let Some(net) = TestNet::build("a_run_whose_runner_of_nft_has_ended") else { return };
    let mut left = net.left.run_xfrm(&xfrm(Side::Left));
    let guard = || net.left.filter();
    let before = guard();
    let [runner] = children(left.pid())[..] else { panic!("one child process expected") };
    net.left.stdout_of("kill", &["-KILL", &runner.to_string()]);
    let status = left.wait();
    let log = left.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("the process that runs nft: it has ended"), "{log}");
    assert!(log.contains("stays blocked until `casemate run` or `casemate cleanup`"), "{log}");
    assert_eq!(guard(), before);
    net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(guard(), "");
}
