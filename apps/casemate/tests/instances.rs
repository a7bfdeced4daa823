//! Instances in one network namespace with different runtime directories, as in two containers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::process::Output;
use testnet::{Host, TUN, TestNet};

const BLOCK: &str = "ip xfrm policy add dst 10.99.0.0/16 dir out action block\n";
const BLOCK_OTHER: &str = "ip xfrm policy add dst 10.98.0.0/16 dir out action block\n";

/// Runs Casemate to its end with a private /run directory.
fn elsewhere(host: &Host, args: &[&str]) -> Output {
    let script = "mount -t tmpfs tmpfs /run && exec \"$@\"";
    let mut all = vec!["--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    all.push(env!("CARGO_BIN_EXE_casemate"));
    all.extend(args);
    host.output("unshare", &all)
}

fn guard(host: &Host) -> String {
    host.stdout_of("nft", &["list", "table", "inet", &format!("casemate_{TUN}")])
}

#[test]
fn second_instance_with_another_directory_leaves_the_guard_unchanged() {
    let Some(net) = TestNet::build("a_second_instance_elsewhere") else { return };
    let host = &net.left;
    let first = host.run_xfrm(BLOCK);
    let (before, rules) = (guard(host), host.stdout_of("ip", &["rule"]));
    assert!(before.contains("10.99.0.0"), "{before}");
    let file = host.file("other");
    fs::write(&file, BLOCK_OTHER).unwrap();
    let other = file.to_str().unwrap();
    for args in [&["run", "--xfrm", other][..], &["cleanup"]] {
        let output = elsewhere(host, args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("instance with this TUN interface is running"), "{stderr}");
        assert_eq!(guard(host), before, "{args:?}");
        assert_eq!(host.stdout_of("ip", &["rule"]), rules, "{args:?}");
    }
    assert!(first.stop().success());
    assert_eq!(host.stdout_of("nft", &["list", "tables"]), "");
}

#[test]
fn instances_with_other_interfaces_have_separate_table_numbers() {
    let Some(net) = TestNet::build("instances_with_other_interfaces") else { return };
    let host = &net.left;
    let first = host.run_xfrm(BLOCK);
    fs::write(host.file("other"), BLOCK_OTHER).unwrap();
    let file = host.file("other");
    // The instance is killed when it is ready, so that its setup remains and can be examined.
    let script = "mount -t tmpfs tmpfs /run; \"$@\" >/run/output & \
                  while ! grep -qx ready /run/output; do sleep 0.05; done; kill -KILL $!; wait";
    let program =
        [env!("CARGO_BIN_EXE_casemate"), "run", "--tun", "other0", "--xfrm", file.to_str().unwrap()];
    let mut all = vec!["--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    all.extend(program);
    host.output("timeout", &[&["20", "unshare"][..], &all].concat());
    let rules = host.stdout_of("ip", &["rule"]);
    let count = |table: &str| rules.matches(table).count();
    assert_eq!((count("lookup 50510"), count("lookup 50511")), (1, 1), "{rules}");
    assert!(host.stdout_of("nft", &["list", "ruleset"]).contains("10.98.0.0"));
    assert!(first.stop().success());
}
