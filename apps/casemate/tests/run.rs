//! `casemate run` between two hosts: traffic of their own kernels, what is set up, and what is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::Capture;
use lab::{Host, Lab, Side, TUN, WIRE, uninterrupted};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x%20 128";
const CBC: &str = "enc 'cbc(aes)' 0x%16 auth-trunc 'hmac(sha256)' 0x%32 128";
const CHACHA: &str = "flag esn aead 'rfc7539esp(chacha20,poly1305)' 0x%36 128";
const AH: &str = "auth-trunc 'hmac(sha256)' 0x%32 128";

/// What both hosts do.
#[derive(Debug, Clone, Copy)]
struct Plan {
    protocol: &'static str,
    mode: &'static str,
    algorithms: &'static str,
    v4: bool,
    /// Of the packets inside.
    inner_v4: bool,
    encap: bool,
}

impl Plan {
    const fn new(protocol: &'static str, mode: &'static str, algorithms: &'static str, v4: bool) -> Self {
        Self { protocol, mode, algorithms, v4, inner_v4: v4, encap: false }
    }

    fn is_tunnel(&self) -> bool {
        self.mode == "tunnel"
    }

    /// The address that the traffic of `side` has.
    fn user(&self, side: Side) -> std::net::IpAddr {
        if self.is_tunnel() { side.inner(self.inner_v4) } else { side.outer(self.v4) }
    }

    fn state(&self, from: Side) -> String {
        let Self { protocol, mode, algorithms, .. } = self;
        let (src, dst) = (from.outer(self.v4), from.other().outer(self.v4));
        let spi = if from == Side::Left { 0x1001 } else { 0x1002 };
        let encap = if self.encap { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
        let sel = if self.inner_v4 == self.v4 {
            String::new()
        } else {
            format!(" sel src {} dst {}", self.user(from), self.user(from.other()))
        };
        let line = format!(
            "xfrm state add src {src} dst {dst} proto {protocol} spi {spi:#x} mode {mode} replay-window 128{encap}{sel} \
             {algorithms}\n"
        );
        // `%20` stands for a key of 20 bytes, another one for each direction.
        line.split('%').enumerate().fold(String::new(), |text, (n, part)| {
            let digits = if n == 0 { 0 } else { 2 };
            let (len, rest) = part.split_at(digits);
            let key = format!("{:02x}", spi & 0xff).repeat(len.parse().unwrap_or(0));
            text + &key + rest
        })
    }

    fn file_for(&self, side: Side) -> String {
        let mut text = self.state(Side::Left) + &self.state(Side::Right);
        for from in [side, side.other()] {
            let dir = if from == side { "out" } else { "in" };
            let ends = format!(" src {} dst {}", from.outer(self.v4), from.other().outer(self.v4));
            text += &format!(
                "xfrm policy add src {} dst {} dir {dir} tmpl{ends} proto {} mode {}\n",
                self.user(from),
                self.user(from.other()),
                self.protocol,
                self.mode
            );
        }
        text
    }

    fn start(&self, host: &Host) -> lab::Running {
        host.protect(&self.file_for(host.side))
    }
}

fn drops(status: &Value) -> Vec<(String, u64)> {
    let drops = status["drops"].as_object().unwrap().iter();
    drops
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn sa<'a>(status: &'a Value, direction: &str) -> &'a Value {
    status["sas"].as_array().unwrap().iter().find(|sa| sa["direction"] == direction).unwrap()
}

/// How many ICMP errors the host has sent. IPv4 and IPv6 count in different files and forms.
fn errors_sent(host: &Host) -> u64 {
    let read = |path: &'static str| host.run(|| std::fs::read_to_string(path)).unwrap();
    let (v4, v6) = (read("/proc/thread-self/net/snmp"), read("/proc/thread-self/net/snmp6"));
    let mut icmp = v4.lines().filter(|line| line.starts_with("Icmp:")).map(str::split_whitespace);
    let named = icmp.next().unwrap().zip(icmp.next().unwrap());
    let named = named.chain(v6.lines().filter_map(|line| line.split_once(' ')));
    let errors = ["OutDestUnreachs", "Icmp6OutDestUnreachs", "Icmp6OutParmProblems"];
    named
        .filter(|(name, _)| errors.contains(name))
        .map(|(_, count)| count.trim().parse::<u64>().unwrap())
        .sum()
}

/// Nothing of Casemate is left on the host.
fn assert_clean(host: &Host) {
    for version in ["-4", "-6"] {
        let rules = host.says("ip", &[version, "rule"]);
        assert!(!rules.contains("50510"), "{rules}");
    }
    assert_eq!(host.says("nft", &["list", "tables"]), "");
    assert!(!host.output("ip", &["link", "show", TUN]).status.success());
}

#[test]
fn every_kind_of_sa_carries_pings_of_all_sizes_and_tcp() {
    let Some(lab) = Lab::build("every_kind_of_sa_carries_pings_of_all_sizes_and_tcp") else { return };
    let mixed = Plan { inner_v4: false, ..Plan::new("esp", "tunnel", CBC, true) };
    for plan in [
        Plan::new("esp", "tunnel", GCM, true),
        Plan::new("esp", "tunnel", GCM, false),
        Plan::new("esp", "transport", GCM, true),
        Plan::new("esp", "transport", CHACHA, false),
        Plan::new("esp", "transport", CBC, true),
        Plan::new("ah", "transport", AH, true),
        Plan::new("ah", "transport", AH, false),
        Plan::new("ah", "tunnel", AH, true),
        Plan { encap: true, ..Plan::new("esp", "tunnel", GCM, true) },
        Plan { encap: true, ..Plan::new("esp", "transport", CBC, false) },
        mixed,
        Plan { v4: false, inner_v4: true, ..mixed },
    ] {
        let (left, right) = (plan.start(&lab.left), plan.start(&lab.right));
        let errors = errors_sent(&lab.right);
        let (here, there) = (plan.user(Side::Left), plan.user(Side::Right));
        for size in [1, 56, 1200, 1400, 1500, 9000] {
            assert!(lab.left.hears(there, size), "{plan:?}: {size} bytes: {}{}", left.said(), right.said());
        }
        assert!(lab.right.hears(here, 9000), "{plan:?}");
        assert!(lab.left.exchanges(&lab.right, there, 300_000), "{plan:?}");
        for host in [&lab.left, &lab.right] {
            let status = host.status();
            assert_eq!(
                drops(&status).iter().filter(|(name, _)| name != "too-big").count(),
                0,
                "{plan:?}: {status}"
            );
            assert!(sa(&status, "in")["packets"].as_u64().unwrap() > 100, "{plan:?}: {status}");
        }
        assert_eq!(errors_sent(&lab.right), errors, "{plan:?}: the kernel answers what is not for it");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
        assert_clean(&lab.left);
    }
}

#[test]
fn status_tells_of_sas_policies_and_drops() {
    let Some(lab) = Lab::build("status_tells_of_sas_policies_and_drops") else { return };
    let plan = Plan::new("esp", "tunnel", GCM, true);
    let (left, right) = (plan.start(&lab.left), plan.start(&lab.right));
    for _ in 0..5 {
        assert!(lab.left.hears(plan.user(Side::Right), 100));
    }
    let status = lab.left.status();
    assert_eq!(status["tun"], TUN);
    let out = sa(&status, "out");
    let provider = if casemate_ipsec_mb::IPSEC_MB.available().is_ok() { "ipsec-mb" } else { "aws-lc" };
    for (name, value) in [
        ("spi", "0x00001001"),
        ("src", "192.0.2.1"),
        ("dst", "192.0.2.2"),
        ("protocol", "esp"),
        ("mode", "tunnel"),
        ("provider", provider),
    ] {
        assert_eq!(out[name], value, "{name}");
    }
    assert_eq!((out["packets"].as_u64(), out["seq"].as_u64()), (Some(5), Some(5)));
    // Five IPv4 packets with ICMP headers.
    assert_eq!(out["bytes"].as_u64(), Some(5 * 128));
    let window = &sa(&status, "in")["window"];
    assert_eq!((&window["size"], &window["recent"]), (&Value::from(128), &Value::from("0x000000000000001f")));
    assert_eq!(status["policies"].as_array().unwrap().len(), 2);
    assert!(!status.to_string().contains("0101010101"), "a key is shown");
    let text = String::from_utf8(lab.left.casemate(&["status"]).stdout).unwrap();
    assert!(text.contains("0x00001001") && text.contains("Policies"), "{text}");
    assert!(left.stop().success() && right.stop().success());
    let output = lab.left.casemate(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no instance is running"), "{said}");
}

#[test]
fn dummy_packets_flow_beside_real_ones_and_reach_nobody() {
    let Some(lab) = Lab::build("dummy_packets_flow_beside_real_ones_and_reach_nobody") else { return };
    for plan in [
        Plan::new("esp", "tunnel", GCM, true),
        Plan::new("esp", "transport", CBC, false),
        Plan { encap: true, ..Plan::new("esp", "tunnel", CHACHA, true) },
    ] {
        let right = plan.start(&lab.right);
        let left = lab.left.protect_with(&plan.file_for(Side::Left), &["--dummy-packets", "400"]);
        let errors = errors_sent(&lab.right);
        lab.right.waits_until(|status| sa(status, "in")["packets"].as_u64().unwrap() > 300);
        assert!(lab.left.hears(plan.user(Side::Right), 1_000), "{plan:?}");
        let (here, there) = (lab.left.status(), lab.right.status());
        let sent = sa(&here, "out")["packets"].as_u64().unwrap();
        let received = sa(&there, "in")["packets"].as_u64().unwrap();
        assert!(sent > 300 && received > 300, "{plan:?}: {sent} sent, {received} received");
        assert!(
            sa(&there, "out")["packets"].as_u64().unwrap() < 20,
            "{plan:?}: the other side was not asked"
        );
        assert_eq!((drops(&here), drops(&there)), (vec![], vec![]), "{plan:?}");
        assert_eq!(errors_sent(&lab.right), errors, "{plan:?}: the kernel was shown a dummy packet");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
    }
}

/// What an observer sees of an ESP packet from left in this Ethernet frame: TOS, DF, TTL, whether UDP has a checksum, and whether the
/// identification is the sequence number's.
fn visible(frame: &[u8]) -> Option<(u8, bool, u8, bool, bool)> {
    let ip = frame.get(14..)?;
    if frame[12..14] != [8, 0] || ip[12..16] != [192, 0, 2, 1] {
        return None;
    }
    let (esp, has_checksum) = match ip[9] {
        50 => (&ip[20..], false),
        17 if ip[20..22] == 4500u16.to_be_bytes() => (&ip[28..], ip[26..28] != [0, 0]),
        _ => return None,
    };
    Some((ip[1], ip[6] & 0x40 != 0, ip[8], has_checksum, ip[4..6] == esp[6..8]))
}

#[test]
fn nothing_on_the_wire_tells_dummies_from_real_packets() {
    let Some(lab) = Lab::build("nothing_on_the_wire_tells_dummies_from_real_packets") else { return };
    for plan in [
        Plan::new("esp", "tunnel", GCM, true),
        Plan::new("esp", "transport", CBC, true),
        Plan { encap: true, ..Plan::new("esp", "tunnel", CHACHA, true) },
    ] {
        let right = plan.start(&lab.right);
        let left = lab.left.protect_with(&plan.file_for(Side::Left), &["--dummy-packets", "400"]);
        lab.right.waits_until(|status| sa(status, "in")["packets"].as_u64().unwrap() > 20);
        let capture = lab.right.run(|| Capture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
        let socket = lab.left.run(|| UdpSocket::bind((plan.user(Side::Left), 0))).unwrap();
        let (mut frame, mut count, mut seen) = ([0; 2_000], 0, BTreeMap::new());
        for round in 0..30 {
            // In bursts of one length, which would leave in one system call.
            socket2::SockRef::from(&socket).set_tos_v4([0, 0xb8][round % 2]).unwrap();
            for _ in 0..10 {
                socket.send_to(&[7; 500], (plan.user(Side::Right), 9)).unwrap();
            }
            // Dummy packets come all the time, so the number is always reached.
            while count <= (round + 1) * 20 {
                let len = capture.next(&mut frame, Duration::from_secs(20)).unwrap();
                let len = len.unwrap_or_else(|| panic!("{plan:?}: no packet after {count}"));
                if let Some(visible) = visible(&frame[..len]) {
                    *seen.entry(visible).or_insert(0) += 1;
                    count += 1;
                }
            }
        }
        let kinds: Vec<_> = seen.keys().copied().collect();
        assert_eq!(kinds, [(0, true, 64, false, true)], "{plan:?}: {seen:?}");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
    }
}

#[test]
fn a_crash_leaves_the_guard_up_and_the_next_start_takes_over() {
    let Some(lab) = Lab::build("a_crash_leaves_the_guard_up_and_the_next_start_takes_over") else { return };
    let plan = Plan::new("esp", "transport", GCM, true);
    let there = plan.user(Side::Right);
    assert!(lab.left.hears(there, 8), "in clear, before");
    let (left, right) = (plan.start(&lab.left), plan.start(&lab.right));
    assert!(lab.left.hears(there, 8));
    left.crash();
    assert!(!lab.left.hears_at_once(there, 8), "no clear text leaves after a crash");
    assert!(lab.left.says("ip", &["rule"]).contains("lookup 50510"), "the crash left something to clean up");

    let left = plan.start(&lab.left);
    assert!(left.said().contains("took over the guard"), "{}", left.said());
    assert_eq!(lab.left.says("ip", &["rule"]).matches("lookup 505").count(), 1);
    assert!(lab.left.hears(there, 8));
    let seq = sa(&lab.left.status(), "out")["seq"].as_u64().unwrap();
    assert!(seq > 131_072, "goes on behind the block that the crash lost: {seq}");
    assert!(left.stop().success());
    assert!(right.stop().success());
    assert_clean(&lab.left);
    assert!(lab.left.hears(there, 8), "in clear, afterwards");
}

#[test]
fn clear_text_is_dropped_on_both_ways() {
    let Some(lab) = Lab::build("clear_text_is_dropped_on_both_ways") else { return };
    let plan = Plan::new("esp", "transport", GCM, true);
    let left = plan.start(&lab.left);
    // The right host protects nothing: its packets arrive in clear.
    assert!(!lab.right.hears_at_once(plan.user(Side::Left), 8));
    // A socket that is bound to the cable goes past the routes.
    let bound = |host: &Host| {
        let dst = plan.user(Side::Right);
        host.run(|| {
            let socket = std::net::UdpSocket::bind((plan.user(Side::Left), 0))?;
            socket2_bind(&socket);
            socket.send_to(b"in clear", (dst, 9))
        })
    };
    let sent = bound(&lab.left);
    let counters = lab.left.says("nft", &["list", "table", "inet", "casemate_casemate0"]);
    let dropped =
        counters.lines().filter(|line| line.contains("drop") && !line.contains("packets 0")).count();
    assert_eq!(dropped, 2, "sent {sent:?}: {counters}");
    assert!(left.stop().success());
    assert!(lab.right.hears(plan.user(Side::Left), 8), "in clear, afterwards");
}

/// From the moment of `ready` on: whoever starts us may send at once.
#[test]
fn what_waits_for_a_peer_is_never_sent_in_clear() {
    let Some(lab) = Lab::build("what_waits_for_a_peer_is_never_sent_in_clear") else { return };
    let right = Side::Right.outer(true);
    let conf = format!(
        "connections {{ t {{\n remote_addrs = {right}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = trap\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        Side::Left.outer(true)
    );
    let left = lab.left.negotiate(&conf, None);
    assert!(!lab.left.hears_at_once(right, 8), "{}", left.said());
    // The same of a connection that is added later, from the moment on when `reload` says so.
    std::fs::write(lab.left.file("conf"), "connections {\n}\n").unwrap();
    assert!(lab.left.casemate(&["reload"]).status.success());
    assert!(lab.left.hears(right, 8), "nobody wants it protected");
    std::fs::write(lab.left.file("conf"), &conf).unwrap();
    assert!(lab.left.casemate(&["reload"]).status.success());
    assert!(!lab.left.hears_at_once(right, 8), "{}", left.said());
    assert!(left.stop().success());
    assert!(lab.left.hears(right, 8), "in clear, afterwards");
}

fn socket2_bind(socket: &std::net::UdpSocket) {
    let socket = socket2::SockRef::from(socket);
    socket.bind_device(Some(WIRE.as_bytes())).unwrap();
}

#[test]
fn strict_reverse_path_filtering_is_loosened_and_set_back() {
    let test = "strict_reverse_path_filtering_is_loosened_and_set_back";
    let Some(lab) = Lab::build(test) else { return };
    let path = format!("/proc/sys/net/ipv4/conf/{WIRE}/rp_filter");
    let read = || lab.left.run(|| std::fs::read_to_string(&path)).unwrap();
    for name in ["all", WIRE] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        lab.left.run(|| std::fs::write(path, "1")).unwrap();
    }
    let plan = Plan::new("esp", "transport", GCM, true);
    let (left, right) = (plan.start(&lab.left), plan.start(&lab.right));
    assert_eq!(read(), "2\n");
    // Forget the peer's Ethernet address, so that it has to be asked for again.
    lab.left.says("ip", &["neigh", "flush", "all"]);
    lab.right.says("ip", &["neigh", "flush", "all"]);
    assert!(lab.left.hears(plan.user(Side::Right), 100), "{}", left.said());
    assert!(lab.right.hears(plan.user(Side::Left), 100));
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(read(), "1\n");
}

#[test]
fn a_link_that_becomes_narrower_is_noticed() {
    let Some(lab) = Lab::build("a_link_that_becomes_narrower_is_noticed") else { return };
    for plan in [Plan::new("esp", "tunnel", GCM, true), Plan::new("esp", "transport", CBC, false)] {
        let (left, right) = (plan.start(&lab.left), plan.start(&lab.right));
        assert!(lab.left.hears_first(plan.user(Side::Right), 1300));
        for host in [&lab.left, &lab.right] {
            host.says("ip", &["link", "set", WIRE, "mtu", "1300"]);
        }
        assert!(lab.left.hears(plan.user(Side::Right), 1300), "{plan:?} {}", left.said());
        assert!(lab.left.exchanges(&lab.right, plan.user(Side::Right), 100_000), "{plan:?}");
        for host in [&lab.left, &lab.right] {
            host.says("ip", &["link", "set", WIRE, "mtu", "1500"]);
        }
        assert!(left.stop().success() && right.stop().success());
    }
}

#[test]
fn a_dry_run_shows_every_change_and_makes_none() {
    let Some(lab) = Lab::build("a_dry_run_shows_every_change_and_makes_none") else { return };
    let plan = Plan::new("esp", "tunnel", GCM, true);
    let file = lab.left.file("xfrm");
    std::fs::write(&file, plan.file_for(Side::Left)).unwrap();
    let counters = lab.left.file("counters");
    let args =
        ["run", "--dry-run", "--xfrm", file.to_str().unwrap(), "--counters", counters.to_str().unwrap()];
    let output = lab.left.casemate(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    for line in [
        "ip tuntap add dev casemate0 mode tun",
        "ip link set dev casemate0 mtu 1446 up",
        "ip -4 route add 10.2.0.1/32 dev casemate0 table 50510 src 10.1.0.1",
        "ip -4 rule add pref 220 not fwmark 50510 lookup 50510",
    ] {
        assert!(said.lines().any(|shown| shown == line), "no `{line}` in:\n{said}");
    }
    assert_clean(&lab.left);
    assert!(!counters.exists());

    // What it shows are commands: typed into a shell they work.
    let mut child = Command::new("sh");
    child.stdin(std::process::Stdio::piped()).args(["-e", "-s"]);
    let mut child = lab.left.netns.spawn(&mut child).unwrap();
    child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
}

#[test]
fn what_is_wrong_is_refused_and_nothing_is_applied() {
    let Some(lab) = Lab::build("what_is_wrong_is_refused_and_nothing_is_applied") else { return };
    let file = lab.left.file("xfrm");
    // Otherwise a warning comes first.
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let plan = Plan::new("esp", "tunnel", GCM, true);
    let refusal = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut args = vec!["run", "--xfrm", file.to_str().unwrap()];
        args.extend(more);
        let output = lab.left.casemate(&args);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
        assert_clean(&lab.left);
        String::from_utf8(output.stderr).unwrap()
    };
    let here = file.display().to_string();
    let counter_mode = refusal(&plan.file_for(Side::Left), &[]);
    assert!(counter_mode.starts_with(&format!("casemate: {here}:1: spi 0x00001001 has")), "{counter_mode}");
    assert!(counter_mode.contains("--counters FILE"), "{counter_mode}");
    let wrong = refusal(&plan.file_for(Side::Left).replace("dir in", "dir up"), &[]);
    assert!(wrong.contains(&format!("{here}:4: ")), "{wrong}");
    // Right in each line, but not together: ESP in UDP on more ports than there may be.
    let many: String = (0..9)
        .map(|n| {
            let plan = Plan { encap: true, ..Plan::new("esp", "tunnel", CBC, true) };
            plan.state(Side::Right)
                .replace("0x1002", &format!("0x200{n}"))
                .replace("4500", &format!("{}", 4500 + n))
        })
        .collect();
    let many = refusal(&many, &[]);
    assert!(many.contains(&format!("{here}:9: ")), "{many}");
}

#[test]
fn a_second_instance_is_kept_from_the_first_ones_things() {
    let Some(lab) = Lab::build("a_second_instance_is_kept_from_the_first_ones_things") else { return };
    let plan = Plan::new("esp", "tunnel", GCM, true);
    let left = plan.start(&lab.left);
    let file = lab.left.file("xfrm");
    let run = |more: &[&str]| {
        let mut args = vec!["run", "--xfrm", file.to_str().unwrap()];
        args.extend(more);
        let output = lab.left.casemate(&args);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let counters = lab.left.file("counters");
    let shared = run(&["--tun", "other0", "--counters", counters.to_str().unwrap()]);
    assert!(shared.contains("another process keeps its counters there"), "{shared}");
    let own = lab.left.file("counters2");
    let twice = run(&["--counters", own.to_str().unwrap()]);
    assert!(twice.contains("another instance with this TUN interface is running"), "{twice}");
    assert_eq!(lab.left.status()["tun"], TUN, "the first one lives on");
    assert!(left.stop().success());
    assert_clean(&lab.left);
}

/// Numbered datagrams in bursts that one thread cannot keep up with, so that others take turns with it. Long ones come before short ones:
/// whoever reads those is done sooner, and has to wait.
#[test]
fn one_flow_keeps_its_order_over_many_threads() {
    const BURST: u32 = 300;
    const BURSTS: u32 = 80;
    let Some(lab) = Lab::build("one_flow_keeps_its_order_over_many_threads") else { return };
    let plan = Plan { encap: true, ..Plan::new("esp", "tunnel", GCM, true) };
    let start = |host: &Host| host.protect_with(&plan.file_for(host.side), &["--threads", "3"]);
    let _running = (start(&lab.left), start(&lab.right));
    let (here, there) = (plan.user(Side::Left), plan.user(Side::Right));
    let bind = |host: &Host, addr| host.run(|| UdpSocket::bind((addr, 9_000))).unwrap();
    let (from, to) = (bind(&lab.left, here), bind(&lab.right, there));
    from.connect((there, 9_000)).unwrap();
    // Room for a burst: with the default the socket itself would lose some of them.
    socket2::SockRef::from(&to).set_recv_buffer_size(1 << 20).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (tell, arrived) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut datagram = [0; 1_500];
            for number in 0..BURST * BURSTS {
                let received = uninterrupted(|| to.recv(&mut datagram));
                received.unwrap_or_else(|error| panic!("datagram {number}: {error}"));
                assert_eq!(u32::from_be_bytes(*datagram.first_chunk().unwrap()), number);
                if (number + 1).is_multiple_of(BURST) {
                    tell.send(()).unwrap();
                }
            }
        });
        for number in 0..BURST * BURSTS {
            let mut datagram = [0; 1_200];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            let len = if number % BURST < BURST / 3 { 1_200 } else { 40 };
            from.send(&datagram[..len]).unwrap();
            if (number + 1).is_multiple_of(BURST) {
                arrived.recv().expect("all of the burst arrive");
            }
        }
    });
    let (here, there) = (lab.left.status(), lab.right.status());
    assert_eq!((drops(&here), drops(&there)), (vec![], vec![]));
    assert_eq!(sa(&here, "out")["seq"], BURST * BURSTS);
}
