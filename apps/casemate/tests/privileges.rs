//! What a running instance has left of root's privileges, and that it still does its work.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use lab::{Lab, Running, Side};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// CAP_NET_ADMIN, all that the process that starts `nft` keeps.
const NET_ADMIN: u64 = 1 << 12;
/// With CAP_NET_RAW.
const KEPT: u64 = NET_ADMIN | 1 << 13;

/// CAP_SYS_RESOURCE, without which the limit on locked memory cannot be lifted. Containers often lack it.
const LIFTS_LIMITS: u64 = 1 << 24;

/// A field of `/proc/PID/status`, or of one thread.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.split(':').next() == Some(name)).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn hex(status: &str, name: &str) -> u64 {
    u64::from_str_radix(&field(status, name), 16).unwrap()
}

/// The numbers of a process's children that have not ended.
fn children(parent: u32) -> Vec<u32> {
    let of = |pid: u32| -> Option<(u32, String)> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((field(&status, "PPid").parse().ok()?, field(&status, "State")))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok());
    pids.filter(|pid| of(*pid).is_some_and(|(its, state)| its == parent && state != "Z")).collect()
}

/// The process that starts `nft`: one, with less than its parent.
fn assert_runner_is_confined(parent: u32) {
    let [runner] = children(parent)[..] else { panic!("one process besides: {:?}", children(parent)) };
    let status = fs::read_to_string(format!("/proc/{runner}/status")).unwrap();
    for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(hex(&status, set), NET_ADMIN, "{set}: {status}");
    }
    assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1".into(), "2".into()));
    let environment = fs::read(format!("/proc/{runner}/environ")).unwrap();
    assert_eq!(environment, b"", "{}", String::from_utf8_lossy(&environment));
}

fn assert_confined(running: &Running) {
    assert_runner_is_confined(running.child.id());
    let process = format!("/proc/{}", running.child.id());
    let main = fs::read_to_string(format!("{process}/status")).unwrap();
    assert_eq!(hex(&main, "CapEff"), KEPT, "{main}");
    for task in fs::read_dir(format!("{process}/task")).unwrap() {
        // A thread may end meanwhile.
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
    assert_eq!(field(&main, "VmLck") != "0", locks, "keys stay out of swap where the limits allow");
    assert_eq!(running.said().contains("memory cannot be locked"), !locks);
    let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    assert!(!running.said().contains("seccomp"), "{}", running.said());
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
fn manual_keys_leave_two_capabilities_and_few_system_calls() {
    let Some(lab) = Lab::build("privileges_manual") else { return };
    let [left, right] = [&lab.left, &lab.right].map(|host| host.protect(&xfrm(host.side)));
    for running in [&left, &right] {
        assert_confined(running);
    }
    assert!(lab.left.hears(Side::Right.inner(true), 3_000));
    assert!(lab.left.exchanges(&lab.right, Side::Right.inner(true), 1 << 20));
    assert_eq!(lab.left.status()["drops"].as_object().map(|drops| drops.is_empty()), Some(false));
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(lab.left.says("nft", &["list", "tables"]), "");
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

/// Everything that happens after the start: IKE, routes and filter for a Child SA, rekeying, reload, the end.
#[test]
fn with_ike_everything_works_with_what_is_left() {
    let Some(lab) = Lab::build("privileges_ike") else { return };
    let [left, right] = [&lab.left, &lab.right].map(|host| host.negotiate(&conf(host.side), None));
    let does = |args: &[&str]| {
        let output = lab.left.casemate(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}: {}", left.said());
    };
    for _ in 0..2 {
        does(&["initiate", "c"]);
        assert!(lab.left.hears(Side::Right.inner(true), 100), "{}", left.said());
        assert!(lab.left.says("nft", &["list", "tables"]).contains("casemate"));
        does(&["rekey", "c"]);
        does(&["rekey", "--ike", "t"]);
        does(&["reload"]);
        assert!(lab.left.hears(Side::Right.inner(true), 3_000), "{}", left.said());
        assert!(lab.left.exchanges(&lab.right, Side::Right.inner(true), 1 << 20));
        for running in [&left, &right] {
            assert_confined(running);
        }
        does(&["terminate", "t"]);
        lab.right.waits_until(|status| status["ike_sas"].as_array().is_some_and(Vec::is_empty));
    }
    for said in [left.said(), right.said()] {
        assert!(!said.contains("Operation not permitted") && !said.contains("panicked"), "{said}");
    }
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(lab.left.says("nft", &["list", "tables"]), "");
    assert!(!lab.left.says("ip", &["rule"]).contains("50510"));
}

/// After a crash the guard stands and no process is left; then the next start and its end work as ever.
#[test]
fn the_runner_of_nft_ends_with_a_crash_and_the_guard_stays() {
    let Some(lab) = Lab::build("the_runner_of_nft_ends_with_a_crash") else { return };
    let guard = || lab.left.says("nft", &["list", "tables"]);
    for _ in 0..2 {
        let left = lab.left.protect(&xfrm(Side::Left));
        let [runner] = children(left.child.id())[..] else { panic!("one process besides") };
        left.crash();
        let end = Instant::now() + Duration::from_secs(20);
        while fs::exists(format!("/proc/{runner}")).unwrap() {
            assert!(Instant::now() < end, "the runner outlives its parent");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(guard().contains("casemate"), "{}", guard());
    }
    // Neither a terminal nor a service manager ends it before its parent, which needs it to take the guard away.
    let left = lab.left.protect(&xfrm(Side::Left));
    let [runner] = children(left.child.id())[..] else { panic!("one process besides") };
    for signal in ["-INT", "-TERM", "-HUP"] {
        lab.left.says("kill", &[signal, &runner.to_string()]);
    }
    assert!(left.stop().success());
    assert_eq!(guard(), "");
}

/// Nobody can put the guard up again, and that is said.
#[test]
fn a_run_whose_runner_of_nft_ends_while_the_guard_is_down_says_so() {
    let Some(lab) = Lab::build("a_run_whose_runner_of_nft_ends_while") else { return };
    let mut left = lab.left.protect(&xfrm(Side::Left));
    let [runner] = children(left.child.id())[..] else { panic!("one process besides") };
    let runner = runner.to_string();
    lab.left.says("kill", &["-STOP", &runner]);
    lab.left.says("nft", &["flush", "ruleset"]);
    lab.left.says("kill", &["-KILL", &runner]);
    assert_eq!(left.child.wait().unwrap().code(), Some(1));
    let said = left.said();
    assert!(said.contains("the guard does not stand") && said.contains("leaves in clear until"), "{said}");
    assert!(!said.contains("stays blocked"), "{said}");
    assert_eq!(lab.left.says("nft", &["list", "ruleset"]), "");
    let again = lab.left.protect(&xfrm(Side::Left));
    assert!(lab.left.says("nft", &["list", "ruleset"]).contains("casemate"));
    assert!(again.stop().success());
}

/// Without the process nobody could change the guard any more.
#[test]
fn a_run_whose_runner_of_nft_has_ended_ends_and_the_guard_stays() {
    let Some(lab) = Lab::build("a_run_whose_runner_of_nft_has_ended") else { return };
    let mut left = lab.left.protect(&xfrm(Side::Left));
    let guard = || lab.left.says("nft", &["--stateless", "list", "ruleset"]);
    let before = guard();
    let [runner] = children(left.child.id())[..] else { panic!("one process besides") };
    lab.left.says("kill", &["-KILL", &runner.to_string()]);
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = left.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it runs on: {}", left.said());
        thread::sleep(Duration::from_millis(10));
    };
    let said = left.said();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the process that runs nft: it has ended"), "{said}");
    assert!(said.contains("stays blocked until `casemate run` or `casemate cleanup`"), "{said}");
    assert_eq!(guard(), before);
    lab.left.says(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(guard(), "");
}
