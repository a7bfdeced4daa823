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

/// As the service of the Debian package: the instance runs as a user of its own, and root asks it.
#[test]
fn root_reaches_the_instance_of_the_service_user_and_other_users_do_not() {
    let Some(net) = TestNet::build("root_reaches_the_service") else { return };
    let host = &net.left;
    let file = host.file("block");
    fs::write(&file, BLOCK).unwrap();
    // The kill leaves the guard, for `cleanup`. The program is copied, because its directory may be private.
    let script = "mount -t tmpfs -o mode=755 tmpfs /run
        install -d -m 700 -o 4242 -g 4242 /run/casemate
        install -m 755 $1 /run/program && install -m 600 -o 4242 $2 /run/xfrm
        run_as() { user=$1; capabilities=$2; shift 2
            exec setpriv --reuid=$user --regid=$user --clear-groups --bounding-set=-all$capabilities \\
                --inh-caps=-all$capabilities --ambient-caps=-all$capabilities \"$@\"; }
        run_as 4242 ,+net_admin,+net_raw /run/program run --xfrm /run/xfrm >/run/output &
        for n in $(seq 200); do grep -qx ready /run/output && break; sleep 0.05; done
        echo service $(run_as 4242 '' /run/program status | grep -c 10.99.0.0)
        echo root $(/run/program status | grep -c 10.99.0.0)
        echo other $(run_as 4343 '' /run/program status 2>&1 | grep -c 10.99.0.0)
        kill -KILL $!; wait
        /run/program cleanup | grep guard";
    let program = env!("CARGO_BIN_EXE_casemate");
    let all =
        ["--mount", "--propagation", "private", "sh", "-c", script, "sh", program, file.to_str().unwrap()];
    let output = host.output("timeout", &[&["30", "unshare"][..], &all].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "service 1\nroot 1\nother 0\nremoved: guard casemate0\n", "{stderr}");
    assert_eq!(host.stdout_of("nft", &["list", "tables"]), "");
}
