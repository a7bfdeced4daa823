//! A failed start of `casemate run` leaves nothing behind and says so, unless a previous run left its
//! guard.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, TempDir};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use testnet::{Host, Side, TestNet};

const BLOCKED: &str = "stays blocked until";

/// A connection with this start action; `trap` blocks its traffic from the start.
fn conf(action: &str) -> String {
    format!(
        "connections {{ t {{\n remote_addrs = {}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = {action}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        Side::Right.outer(true),
        Side::Left.outer(true)
    )
}

/// What instances have left on a host.
#[derive(Debug, PartialEq, Eq)]
struct Leftovers {
    /// Output of `nft list ruleset`, which contains the guards.
    guards: String,
    /// Output of `ip rule`.
    rules: String,
    /// Names of the files in `/run/casemate`.
    files: Vec<String>,
}

fn left_behind(host: &Host) -> Leftovers {
    let netns = host.run(|| std::fs::metadata("/proc/thread-self/ns/net")).unwrap().ino();
    let ours = format!("net{netns}-");
    let files = std::fs::read_dir("/run/casemate").into_iter().flatten().flatten();
    let mut files: Vec<String> = files
        .map(|file| file.file_name().into_string().unwrap())
        .filter(|name| name.starts_with(&ours))
        .collect();
    files.sort();
    let guards = host.stdout_of("nft", &["--stateless", "list", "ruleset"]);
    Leftovers { guards, rules: host.stdout_of("ip", &["rule"]), files }
}

/// The error output of a start that must fail.
fn fails(host: &Host, args: &[&str]) -> String {
    fails_with(1, host, args)
}

/// The error output of a start that must fail with this exit status.
fn fails_with(status: i32, host: &Host, args: &[&str]) -> String {
    let file = host.file("conf");
    let mut all = vec!["run", "--config", file.to_str().unwrap()];
    all.extend(args);
    let output = host.casemate(&all);
    assert_eq!(output.status.code(), Some(status));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn failed_start_leaves_nothing_except_an_older_guard() {
    let Some(net) = TestNet::build("it_leaves_nothing_unless_a_former_run") else { return };
    let host = &net.left;
    std::fs::write(host.file("conf"), conf("trap")).unwrap();
    let before = left_behind(host);
    for port in [500, 4500] {
        let taken = host.run(|| UdpSocket::bind(("0.0.0.0", port))).unwrap();
        let stderr = fails(host, &[]);
        assert!(
            stderr.contains("in use") && !stderr.contains(BLOCKED) && !stderr.contains("cleanup"),
            "{stderr}"
        );
        assert!(stderr.contains(&format!("(process {}) has it", std::process::id())), "{stderr}");
        assert_eq!(left_behind(host), before, "port {port}");
        assert!(host.pings(Side::Right.outer(true), 8), "traffic is not blocked");
        drop(taken);
    }
    let left = host.run_config(&conf("trap"), None);
    assert!(!host.pings_at_once(Side::Right.outer(true), 8));
    left.crash();
    let guard = left_behind(host).guards;
    let taken = host.run(|| UdpSocket::bind(("0.0.0.0", 4500))).unwrap();
    let stderr = fails(host, &[]);
    assert!(stderr.contains(BLOCKED) && stderr.contains("casemate cleanup"), "{stderr}");
    assert!(left_behind(host).guards.contains("casemate_casemate0") && guard.contains("casemate_casemate0"));
    assert!(
        !host.pings_at_once(Side::Right.outer(true), 8),
        "traffic that a previous run protected stays blocked"
    );
    drop(taken);
    host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert_eq!(left_behind(host), before);
}

/// As `systemctl restart` after a slip in the file: the run before has left its guard, and has no socket.
#[test]
fn a_start_with_a_wrong_file_says_that_an_older_guard_blocks() {
    let Some(net) = TestNet::build("a_start_with_a_wrong_file") else { return };
    let host = &net.left;
    std::fs::write(host.file("conf"), "connections { t { remote_adrs = 1 } }\n").unwrap();
    let stderr = fails_with(2, host, &[]);
    assert!(!stderr.contains(BLOCKED), "{stderr}");
    assert!(host.run_config(&conf("trap"), None).end_for_restart().success());
    std::fs::write(host.file("conf"), "connections { t { remote_adrs = 1 } }\n").unwrap();
    let stderr = fails_with(2, host, &[]);
    assert!(stderr.contains("did you mean `remote_addrs`") && stderr.contains(BLOCKED), "{stderr}");
    for command in [&["status"][..], &["why", "t"]] {
        let stderr = String::from_utf8(host.casemate(command).stderr).unwrap();
        assert!(stderr.contains("`casemate cleanup --tun casemate0` removes them"), "{stderr}");
    }
    host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    let stderr = String::from_utf8(host.casemate(&["status"]).stderr).unwrap();
    assert!(!stderr.contains("cleanup"), "{stderr}");
}

/// A second instance with another interface names the first one.
#[test]
fn second_instance_is_told_who_has_the_port() {
    let Some(net) = TestNet::build("the_port_of_another_instance") else { return };
    let host = &net.left;
    let first = host.run_config(&conf("trap"), None);
    let stderr = fails(host, &["--tun", "second0"]);
    assert!(stderr.contains(&format!("casemate (process {}) has it", first.pid())), "{stderr}");
    assert!(first.stop().success());
}

#[test]
fn start_without_privileges_says_what_is_needed() {
    let Some(net) = TestNet::build("a_user_who_is_not_root") else { return };
    let host = &net.left;
    std::fs::write(host.file("conf"), conf("trap")).unwrap();
    let before = left_behind(host);
    let file = host.file("conf");
    for (capabilities, missing) in
        [("-all", "CAP_NET_ADMIN and CAP_NET_RAW are missing"), ("-net_raw", "CAP_NET_RAW is missing")]
    {
        // The user stays root, so that the file stays readable.
        let bounds = ["--bounding-set", capabilities, "--inh-caps", capabilities];
        let run = [env!("CARGO_BIN_EXE_casemate"), "run", "--config", file.to_str().unwrap()];
        let output = host.output("setpriv", &[&bounds[..], &run].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{capabilities}: {stderr}");
        assert!(stderr.contains(missing), "{capabilities}: {stderr}");
        assert_eq!(left_behind(host), before);
    }
}

#[test]
fn older_guard_without_a_journal_stays() {
    let Some(net) = TestNet::build("a_former_guard_whose_journal_is_gone") else { return };
    let host = &net.left;
    let rules = host.stdout_of("ip", &["rule"]);
    host.run_config(&conf("trap"), None).crash();
    host.stdout_of("ip", &["rule", "delete", "lookup", "50510"]);
    let Leftovers { guards: guard, files, .. } = left_behind(host);
    files.iter().for_each(|name| std::fs::remove_file(format!("/run/casemate/{name}")).unwrap());
    let before = left_behind(host);
    let taken = host.run(|| UdpSocket::bind(("0.0.0.0", 4500))).unwrap();
    // As with a service manager, each start finds the leftovers of the last one.
    for _ in 0..2 {
        let stderr = fails(host, &[]);
        assert!(stderr.contains(BLOCKED) && stderr.contains("casemate cleanup"), "{stderr}");
        assert_eq!(left_behind(host), before);
        assert!(
            !host.pings_at_once(Side::Right.outer(true), 8),
            "traffic that a previous run protected stays blocked"
        );
    }
    drop(taken);
    let left = host.run_config(&conf("trap"), None);
    assert!(!host.pings_at_once(Side::Right.outer(true), 8));
    assert!(guard.contains("casemate_casemate0"));
    left.crash();
    host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    let after = left_behind(host);
    assert_eq!((&*after.guards, &after.rules), ("", &rules));
    host.run_config(&conf("trap"), None).crash();
    host.stdout_of("ip", &["rule", "delete", "lookup", "50510"]);
    left_behind(host)
        .files
        .iter()
        .for_each(|name| std::fs::remove_file(format!("/run/casemate/{name}")).unwrap());
    let cleaned = host.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["cleanup"]);
    assert!(cleaned.contains("removed: guard casemate0"), "{cleaned}");
    assert_eq!(left_behind(host).guards, "");
}

#[test]
fn wrong_interface_name_or_missing_privileges_leave_nothing() {
    let Some(net) = TestNet::build("a_wrong_name_of_the_interface_and_a_user") else { return };
    let host = &net.left;
    std::fs::write(host.file("conf"), conf("trap")).unwrap();
    let before = left_behind(host);
    for name in ["a-name-that-is-too-long", "a/b", ""] {
        let stderr = fails_with(2, host, &["--tun", name]);
        assert!(!stderr.contains(BLOCKED), "{stderr}");
        assert_eq!(left_behind(host), before, "{name}");
    }
    // A directory where an unprivileged user may create files, and a configuration that this user can
    // read.
    let scratch = TempDir::new("without-privileges").unwrap();
    let readable = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    readable(scratch.path(), 0o1777);
    let file = scratch.file("conf");
    std::fs::write(&file, conf("trap")).unwrap();
    readable(&file, 0o644);
    let program = scratch.file("casemate");
    std::fs::copy(env!("CARGO_BIN_EXE_casemate"), &program).unwrap();
    readable(&program, 0o755);
    let program = Program::new(program).arg("run").arg("--config").arg(&file).env("TMPDIR", scratch.path());
    let mut program = program.configure(|command| command.env_remove("XDG_RUNTIME_DIR").current_dir("/"));
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        program = program.configure(|command| command.uid(65_534).gid(65_534));
    }
    let output = program.output();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(!stderr.contains(BLOCKED) && !stderr.contains("cleanup"), "{stderr}");
    assert!(stderr.contains("mode 0644 gives other users access to the keys in it"), "{stderr}");
    let mut names: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["casemate", "conf"]);
}
