//! Updown scripts: their environment against that which charon gives to the same script, their order, their
//! privileges, and their errors.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{TempDir, write_program};
use charon::Charon;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use swanctl::Swanctl;
use testnet::{Side, TestNet, eventually};

/// A directory in which every user may write, and a script there that adds its environment to a file.
struct Script {
    directory: TempDir,
}

type Environment = BTreeMap<String, String>;

impl Script {
    /// The commands follow those that write the environment.
    fn new(more: &str) -> Self {
        let directory = TempDir::new("updown-script").unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let script = Self { directory };
        let text = format!("#!/bin/sh\n{{ /usr/bin/env; echo; }} >> {}.$1\n{more}\n", script.log().display());
        write_program(&script.path(), text.as_bytes());
        script
    }

    fn path(&self) -> PathBuf {
        self.directory.file("script")
    }

    fn log(&self) -> PathBuf {
        self.directory.file("environment")
    }

    /// The environments of the calls with this argument, in their order.
    fn calls(&self, argument: &str) -> Vec<Environment> {
        let text = fs::read_to_string(format!("{}.{argument}", self.log().display())).unwrap_or_default();
        let calls = text.split_terminator("\n\n").map(|call| {
            let lines = call.lines().filter_map(|line| line.split_once('='));
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        });
        calls.collect()
    }

    fn verbs(&self, argument: &str) -> Vec<String> {
        self.calls(argument).iter().map(|call| call["PLUTO_VERB"].clone()).collect()
    }

    fn wait_for(&self, argument: &str, verbs: &[&str]) {
        eventually(&format!("{argument}: {verbs:?}"), || self.verbs(argument) == verbs);
    }
}

const HOSTILE: &str = "us$er;x|y%z";
const ESCAPED: &str = "us\\044er\\073x\\174y\\045z";

/// Configurations of an initiator with virtual addresses, and of its responder.
fn mirrored(script: &Path, [initiator, responder]: [&str; 2]) -> [String; 2] {
    let (script, secrets) = (script.display(), "secrets { ike { secret = \"a secret of the two\" } }\n");
    [
        format!(
            "connections {{ t {{\n remote_addrs = 192.0.2.2\n vips = 0.0.0.0, ::\n encap = yes\n\
             local {{ auth = psk\n id = \"{HOSTILE}\" }}\n\
             remote {{ auth = psk\n id = \"C=CH, O=strong Swan-Project, CN=moon\" }}\n\
             children {{ net {{\n remote_ts = 10.2.0.0/16\n updown = {script} {initiator} 'two words'\n \
             hostaccess = yes\n }} }}\n}} }}\n{secrets}"
        ),
        format!(
            "connections {{ t {{\n remote_addrs = %any\n pools = p4, p6\n\
             local {{ auth = psk\n id = \"C=CH, O=strong Swan-Project, CN=moon\" }}\n remote {{ auth = psk \
             }}\n\
             children {{ net {{\n local_ts = 10.2.0.0/16[tcp/1000-2000], 10.2.0.0-10.2.0.9[icmp/0x0803], \
             10.2.0.1/32\n updown = {script} {responder}\n }} }}\n}} }}\n\
             pools {{ p4 {{ addrs = 10.9.0.0/24\n dns = 10.2.0.53, fd00::53 }}\n p6 {{ addrs = \
             fd00:9::/120 }} }}\n\
             {secrets}"
        ),
    ]
}

/// The part of an environment that must be the same. What differs on purpose is checked here.
fn comparable(mut call: Environment, is_casemate: bool) -> Environment {
    for shell in ["PWD", "_", "SHLVL", "OLDPWD"] {
        call.remove(shell);
    }
    let path = call.remove("PATH").unwrap();
    let interface = call.remove("PLUTO_INTERFACE").unwrap();
    if is_casemate {
        assert_eq!(path, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        assert_eq!(interface, "casemate0");
        // charon's initiator has no variables of name servers, because a plugin uses them.
        call.retain(|name, _| !name.starts_with("PLUTO_DNS"));
    } else {
        assert_eq!(interface, testnet::WIRE);
        // charon does not escape the identity.
        for id in call.values_mut().filter(|value| *value == HOSTILE) {
            *id = ESCAPED.into();
        }
    }
    call
}

#[test]
fn the_environment_is_that_of_charon() {
    let script = Script::new("");
    for casemate_starts in [true, false] {
        let Some(net) = TestNet::build("updown") else { return };
        for (host, gateway) in [(&net.left, "192.0.2.2"), (&net.right, "192.0.2.1")] {
            host.stdout_of("ip", &["route", "add", "default", "via", gateway]);
        }
        let names = if casemate_starts { ["ours-i", "charon-r"] } else { ["charon-i", "ours-r"] };
        let [initiator, responder] = mirrored(&script.path(), names);
        let (ours, other) = if casemate_starts { (&net.left, &net.right) } else { (&net.right, &net.left) };
        let (our_conf, other_conf) =
            if casemate_starts { (&initiator, &responder) } else { (&responder, &initiator) };
        let Some(charon) = Charon::start(other, other_conf) else { return };
        let running = ours.run_config(our_conf, None);
        let control = |args: &[&str], of_charon: &[&str]| {
            if casemate_starts {
                let output = ours.casemate(args);
                assert!(output.status.success(), "{} {}", running.log(), charon.log());
            } else {
                charon.swanctl.output(of_charon);
            }
        };
        control(&["initiate", "net"], &["--initiate", "--child", "net"]);
        names.iter().for_each(|name| script.wait_for(name, &["up-client"; 3]));
        control(&["terminate", "t"], &["--terminate", "--ike", "t"]);
        let all = ["up-client", "up-client", "up-client", "down-client", "down-client", "down-client"];
        names.iter().for_each(|name| script.wait_for(name, &all));
        assert!(running.stop().success());
    }
    for (ours, charons) in [("ours-i", "charon-i"), ("ours-r", "charon-r")] {
        let of = |name: &str, is_casemate| {
            let calls = script.calls(name).into_iter();
            calls.map(|call| comparable(call, is_casemate)).collect::<Vec<_>>()
        };
        let (ours, charons) = (of(ours, true), of(charons, false));
        assert_eq!(ours.len(), 6);
        for (ours, charons) in ours.iter().zip(&charons) {
            assert_eq!(ours, charons);
        }
    }
    let initiator = &script.calls("ours-i")[0];
    assert_eq!(initiator["PLUTO_MY_ID"], ESCAPED);
    assert_eq!((&*initiator["PLUTO_DNS4_1"], &*initiator["PLUTO_DNS6_1"]), ("10.2.0.53", "fd00::53"));
    assert_eq!(script.calls("ours-r")[0]["PLUTO_PEER_ID"], ESCAPED);
}

#[test]
fn a_script_runs_once_for_traffic_that_is_rekeyed_and_at_the_end() {
    let Some(net) = TestNet::build("updown-rekey") else { return };
    // Fails, with output that no log may show as it is.
    let left = Script::new("printf 'a\\033[2Jb\\n'; id -un; exit 3");
    let right = Script::new("[ \"$PLUTO_VERB\" = up-client ] && echo hello; true");
    let child = |script: &Script| format!("updown = {} x", script.path().display());
    let right_running = net.right.run_config(&Side::Right.connection(&child(&right)), None);
    let left_running = net.left.run_config(&Side::Left.connection(&child(&left)), None);
    let run = |args: &[&str]| {
        let output = net.left.casemate(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["initiate", "c"]);
    left.wait_for("x", &["up-client"]);
    right.wait_for("x", &["up-client"]);
    let spi = || net.left.status()["sas"][0]["spi"].to_string();
    for what in [&["rekey", "c"][..], &["rekey", "--ike", "t"]] {
        let before = spi();
        run(what);
        if what.len() == 2 {
            eventually("another Child SA", || spi() != before);
        }
    }
    eventually("the log", || {
        left_running.log().contains("t/c{1}: updown script for up-client: exit status 3")
    });
    let log = left_running.log();
    assert!(log.contains("the Child SA stays up") && log.contains("a\\u{1b}[2Jb"), "{log}");
    assert!(log.contains("nobody"), "{log}");
    eventually("output", || right_running.log().contains("hello"));
    assert!(net.left.pings(Side::Right.inner(true), 8), "the tunnel is up");
    // Rekeying has run no script, so that the end is next.
    assert!(left_running.stop().success());
    left.wait_for("x", &["up-client", "down-client"]);
    right.wait_for("x", &["up-client", "down-client"]);
    assert_eq!(left.calls("x")[1]["PLUTO_PEER_CLIENT"], "10.2.0.1/32");
    assert!(right_running.stop().success());
}

#[test]
fn a_script_may_change_the_packet_filter_and_a_reload_brings_no_other_script() {
    let Some(net) = TestNet::build("updown-filter") else { return };
    let table =
        "nft add table inet updown_$PLUTO_CONNECTION; iptables -I FORWARD 1 -i $PLUTO_INTERFACE -j ACCEPT";
    let script = Script::new(table);
    let child = format!("updown = {} x", script.path().display());
    let conf = Side::Left.connection(&child);
    let right = net.right.run_config(&Side::Right.connection(""), None);
    let left = net.left.run_config(&conf, None);
    assert!(net.left.casemate(&["initiate", "c"]).status.success());
    let has = |what: &str| net.left.filter().contains(what);
    eventually("the rules of the script", || has("updown_c") && has("iifname \"casemate0\""));
    // Another command, and one child without a script.
    for (with, is_accepted) in [(child.replace(" x", " y"), false), (String::new(), true)] {
        fs::write(net.left.file("conf"), conf.replace(&child, &with)).unwrap();
        let output = net.left.casemate(&["reload"]);
        assert_eq!(output.status.success(), is_accepted, "{with}: {}", left.log());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(is_accepted || error.contains("children.c.updown") && error.contains("restart"), "{error}");
    }
    // The Child SA still has the script with which it came up.
    assert!(net.left.casemate(&["terminate", "t"]).status.success());
    script.wait_for("x", &["up-client", "down-client"]);
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn a_client_of_vici_brings_no_script() {
    let Some(net) = TestNet::build("updown-vici") else { return };
    let script = Script::new("");
    let conf = Side::Left.connection(&format!("updown = {} x", script.path().display()));
    let Some(swanctl) = Swanctl::new(&net.left, &conf) else { return };
    let running = net.left.run_vici(&[]);
    let error = swanctl.fails(&["--load-all", "--noprompt"]);
    assert!(error.contains("children.c.updown") && error.contains("restart the instance"), "{error}");
    assert_eq!(net.left.status()["connections"], serde_json::json!([]), "nothing is loaded");
    assert!(running.stop().success());
}

/// A peer decides how many pairs of traffic selectors there are. Its Child SA must not carry traffic without
/// the rules of the script.
#[test]
fn a_child_sa_whose_script_cannot_be_run_is_closed() {
    let Some(net) = TestNet::build("updown-pairs") else { return };
    let script = Script::new("");
    let selectors =
        |side: u8| (0..9).map(|n| format!("10.{side}.{}.0/24", 2 * n)).collect::<Vec<_>>().join(", ");
    let conf = |side: Side, child: &str| {
        let [own, peer] = if side == Side::Left { [1, 2] } else { [2, 1] };
        let text = side.connection(child);
        let text = text
            .replace(&format!("local_ts = {}", side.inner(true)), &format!("local_ts = {}", selectors(own)));
        let remote = format!("remote_ts = {}", side.other().inner(true));
        text.replace(&remote, &format!("remote_ts = {}", selectors(peer)))
    };
    let right =
        net.right.run_config(&conf(Side::Right, &format!("updown = {} x", script.path().display())), None);
    let left = net.left.run_config(&conf(Side::Left, ""), None);
    net.left.casemate(&["initiate", "c"]);
    let why = "t/c{1}: closed, because its updown script cannot be run: 81 pairs of traffic selectors";
    eventually("the log", || right.log().contains(why));
    for host in [&net.left, &net.right] {
        host.wait_until(|status| status["sas"] == serde_json::json!([]));
    }
    assert_eq!(script.verbs("x"), [""; 0]);
    assert!(left.stop().success() && right.stop().success());
}

/// A Child SA must not come up without its script, so the run ends, and a service manager starts it again.
#[test]
fn the_end_of_the_process_that_runs_scripts_ends_the_run() {
    let Some(net) = TestNet::build("updown-runner") else { return };
    let script = Script::new("");
    let child = format!("updown = {} x", script.path().display());
    let mut right = net.right.run_config(&Side::Right.connection(&child), None);
    let is_runner = |pid: &u32| {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        file("cmdline").contains("internal-updown-runner")
            && file("status").contains(&format!("\nPPid:\t{}\n", right.pid()))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runner = pids.find(is_runner).unwrap();
    net.right.stdout_of("kill", &["-KILL", &runner.to_string()]);
    assert_eq!(right.wait().code(), Some(1), "{}", right.log());
    let log = right.log();
    assert!(log.contains("the process that runs updown scripts: it has ended"), "{log}");
    net.right.casemate(&["cleanup"]);
}

/// A peer chooses its identity, and must not prevent the script with it.
#[test]
fn a_long_identity_is_cut() {
    let Some(net) = TestNet::build("updown-identity") else { return };
    let script = Script::new("");
    let child = format!("updown = {} x", script.path().display());
    let right = net.right.run_config(&Side::Right.connection(&child).replace("id = Left", "id = %any"), None);
    let id = "$".repeat(6_000);
    let left =
        net.left.run_config(&Side::Left.connection("").replace("id = Left", &format!("id = \"{id}\"")), None);
    assert!(net.left.casemate(&["initiate", "c"]).status.success(), "{}{}", left.log(), right.log());
    script.wait_for("x", &["up-client"]);
    assert_eq!(script.calls("x")[0]["PLUTO_PEER_ID"], "\\044".repeat(512) + "\\...");
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}{}", left.log(), right.log());
    assert!(left.stop().success() && right.stop().success());
}

#[test]
fn the_log_says_which_user_may_not_run_a_script() {
    let Some(net) = TestNet::build("updown-permissions") else { return };
    let script = Script::new("");
    fs::set_permissions(script.path(), Permissions::from_mode(0o700)).unwrap();
    let child = format!("updown = {} x", script.path().display());
    let right = net.right.run_config(&Side::Right.connection(""), None);
    let left = net.left.run_config(&Side::Left.connection(&child), None);
    assert!(net.left.casemate(&["initiate", "c"]).status.success(), "{}{}", left.log(), right.log());
    let expected = "exit status 126; the Child SA stays up; scripts run as the user `nobody`: a command that \
                    this user may read and execute was expected";
    eventually("the log", || left.log().contains(expected));
    assert!(left.stop().success() && right.stop().success());
}
