//! `casemate cleanup` after a crash: damaged journals, left files, and interfaces with unusual names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Output;
use testnet::{Host, TUN, TestNet, WIRE};

/// Protects packets to every address, also to the peer, so that packets of the peer need a loose reverse
/// path filter.
const XFRM: &str = "\
ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 reqid 1 mode tunnel \
enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f \
auth-trunc 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128
ip xfrm policy add src 10.1.0.0/16 dst 0.0.0.0/0 dir out \
tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode tunnel
";

fn netns_inode(host: &Host) -> u64 {
    host.run(|| fs::metadata("/proc/thread-self/ns/net")).unwrap().ino()
}

/// A file of the instance `casemate0`.
fn instance_file(host: &Host, suffix: &str) -> PathBuf {
    format!("/run/casemate/net{}-{TUN}.{suffix}", netns_inode(host)).into()
}

/// Names of the files of the instance `casemate0`. An ended namespace may have left others.
fn instance_files(host: &Host) -> Vec<String> {
    let ours = format!("net{}-{TUN}.", netns_inode(host));
    let names = fs::read_dir("/run/casemate").unwrap().map(|file| file.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(&ours)).collect()
}

fn rp_filter(host: &Host, interface: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
    host.run(|| fs::read_to_string(path)).unwrap().trim().into()
}

fn set_strict(host: &Host, interface: &str) {
    host.run(|| fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "1")).unwrap();
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn damaged_lines_of_a_journal_are_reported_and_the_rest_is_undone() {
    let Some(net) = TestNet::build("damaged_lines_of_a_journal") else { return };
    let host = &net.left;
    let before = host.stdout_of("ip", &["rule"]);
    set_strict(host, WIRE);
    host.run_xfrm(XFRM).crash();
    assert_eq!(rp_filter(host, WIRE), "2");
    let journal = instance_file(host, "journal");
    let text = fs::read_to_string(&journal).unwrap();
    let damaged = text.replace("\nrule 4", "\nrulX\u{1b} 4").replace("\nsysctl ", "\nsysctX ");
    assert!(damaged.contains("rulX") && damaged.contains("sysctX"), "{text}");
    fs::write(&journal, damaged).unwrap();
    let (path, file) = (journal.display().to_string(), host.file("xfrm"));
    let run = host.casemate(&["run", "--xfrm", file.to_str().unwrap()]);
    let error = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{error}");
    assert!(error.contains(&path) && error.contains("casemate cleanup"), "{error}");
    assert!(
        host.stdout_of("nft", &["list", "tables"]).contains(TUN),
        "a start that is refused changes nothing"
    );
    for is_first in [true, false] {
        let cleanup = host.casemate(&["cleanup"]);
        let (removed, error) = (String::from_utf8_lossy(&cleanup.stdout), stderr(&cleanup));
        assert_eq!(cleanup.status.code(), Some(1), "{removed}{error}");
        assert_eq!(removed.contains("removed: guard casemate0"), is_first, "{removed}");
        assert!(error.contains(&path) && error.contains("line ") && error.contains("ip rule"), "{error}");
        assert!(error.contains(r"`rulX\u{1b} 4 ") && error.contains("`sysctX net/"), "{error}");
        assert_eq!(host.stdout_of("nft", &["list", "tables"]), "");
        assert!(journal.exists(), "the journal shows what to check");
    }
    // The administrator follows the advice.
    host.stdout_of("ip", &["rule", "delete", "lookup", "50510"]);
    fs::remove_file(&journal).unwrap();
    assert_eq!(host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]), "nothing to clean up\n");
    assert!(host.run_xfrm(XFRM).stop().success());
    assert_eq!(host.stdout_of("ip", &["rule"]), before);
}

/// Only the guard shows then that there was a run.
#[test]
fn cleanup_says_what_a_run_may_have_left_whose_journal_is_lost() {
    let Some(net) = TestNet::build("lost_journal") else { return };
    let host = &net.left;
    let before = host.stdout_of("ip", &["rule"]);
    host.run_xfrm(XFRM).crash();
    host.stdout_of("ip", &["tuntap", "add", "dev", "ipsec42", "mode", "tun"]);
    fs::write(instance_file(host, "journal"), "").unwrap();
    let cleanup = host.casemate(&["cleanup"]);
    let (removed, error) = (String::from_utf8_lossy(&cleanup.stdout), stderr(&cleanup));
    assert_eq!(cleanup.status.code(), Some(1), "{removed}{error}");
    assert!(removed.contains("removed: guard casemate0"), "{removed}");
    for command in ["ip -4 rule del lookup 50510", "ip link delete ipsec42"] {
        assert!(error.contains(&format!("`{command}`")), "{error}");
        host.stdout_of("sh", &["-c", command]);
    }
    assert_eq!(host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]), "nothing to clean up\n");
    assert_eq!(host.stdout_of("ip", &["rule"]), before);
}

#[test]
fn cleanup_removes_all_files_of_the_instance() {
    let Some(net) = TestNet::build("cleanup_removes_all_files") else { return };
    let host = &net.left;
    host.run_xfrm(XFRM).crash();
    fs::write(instance_file(host, "new"), "casemate promises 1\n").unwrap();
    assert!(instance_file(host, "sock").exists());
    for command in [&["status"][..], &["why", "gw"]] {
        let refused = host.casemate(command);
        let error = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(
            error.contains("`casemate cleanup --tun ") && error.contains("`casemate run --tun "),
            "{error}"
        );
    }
    host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(instance_files(host), [""; 0]);
}

#[test]
fn cleanup_beside_a_running_instance_says_to_stop_it() {
    let Some(net) = TestNet::build("cleanup_beside_a_running_instance") else { return };
    let running = net.left.run_xfrm(XFRM);
    let files = instance_files(&net.left);
    let refused = net.left.casemate(&["cleanup"]);
    let error = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("is running") && error.contains("stop it"), "{error}");
    assert!(!error.contains("free name"), "{error}");
    assert_eq!(instance_files(&net.left), files);
    let file = net.left.file("xfrm");
    let planned = net.left.casemate(&["run", "--dry-run", "--xfrm", file.to_str().unwrap()]);
    assert!(stderr(&planned).contains("a restart uses those of the instance again"), "{}", stderr(&planned));
    assert!(running.stop().success());
}

/// Linux forbids only the names `.` and `..`.
#[test]
fn reverse_path_filter_of_an_interface_with_dots_is_restored() {
    let Some(net) = TestNet::build("interface_with_dots") else { return };
    let host = &net.left;
    for args in [
        "link add a..b type veth peer name peer0",
        "link set a..b up",
        "address add 198.51.100.1/24 dev a..b",
    ] {
        host.stdout_of("ip", &args.split(' ').collect::<Vec<_>>());
    }
    set_strict(host, "a..b");
    host.run_xfrm(&XFRM.replace("192.0.2.", "198.51.100.")).crash();
    assert_eq!(rp_filter(host, "a..b"), "2");
    host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(rp_filter(host, "a..b"), "1");
}
