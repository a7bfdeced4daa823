//! `casemate run` between two hosts: traffic of their own kernels, the setup of the system, and its
//! removal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use casemate_test_support::Program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use testnet::{Host, Side, TUN, TestNet, WIRE, retry_interrupted};

const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x%20 128";
const CBC: &str = "enc 'cbc(aes)' 0x%16 auth-trunc 'hmac(sha256)' 0x%32 128";
const CHACHA: &str = "flag esn aead 'rfc7539esp(chacha20,poly1305)' 0x%36 128";
const AH: &str = "auth-trunc 'hmac(sha256)' 0x%32 128";

/// The configuration of both hosts.
#[derive(Debug, Clone, Copy)]
struct SaPlan {
    protocol: &'static str,
    mode: &'static str,
    algorithms: &'static str,
    v4: bool,
    /// IP version of the inner packets.
    inner_v4: bool,
    encap: bool,
}

impl SaPlan {
    const fn new(protocol: &'static str, mode: &'static str, algorithms: &'static str, v4: bool) -> Self {
        Self { protocol, mode, algorithms, v4, inner_v4: v4, encap: false }
    }

    fn is_tunnel(&self) -> bool {
        self.mode == "tunnel"
    }

    /// The address of user traffic on `side`.
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
        // `%20` is replaced by a key of 20 bytes, different for each direction.
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

    fn start(&self, host: &Host) -> testnet::Running {
        host.run_xfrm(&self.file_for(host.side))
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

/// Number of ICMP errors that the host has sent. IPv4 and IPv6 have different files and formats.
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

/// Checks that nothing of Casemate is left on the host.
fn assert_clean(host: &Host) {
    for version in ["-4", "-6"] {
        let rules = host.stdout_of("ip", &[version, "rule"]);
        assert!(!rules.contains("50510"), "{rules}");
    }
    assert_eq!(host.stdout_of("nft", &["list", "tables"]), "");
    assert!(!host.output("ip", &["link", "show", TUN]).status.success());
}

#[test]
fn every_kind_of_sa_carries_pings_of_all_sizes_and_tcp() {
    let Some(net) = TestNet::build("every_kind_of_sa_carries_pings_of_all_sizes_and_tcp") else { return };
    let mixed = SaPlan { inner_v4: false, ..SaPlan::new("esp", "tunnel", CBC, true) };
    for plan in [
        SaPlan::new("esp", "tunnel", GCM, true),
        SaPlan::new("esp", "tunnel", GCM, false),
        SaPlan::new("esp", "transport", GCM, true),
        SaPlan::new("esp", "transport", CHACHA, false),
        SaPlan::new("esp", "transport", CBC, true),
        SaPlan::new("ah", "transport", AH, true),
        SaPlan::new("ah", "transport", AH, false),
        SaPlan::new("ah", "tunnel", AH, true),
        SaPlan { encap: true, ..SaPlan::new("esp", "tunnel", GCM, true) },
        SaPlan { encap: true, ..SaPlan::new("esp", "transport", CBC, false) },
        mixed,
        SaPlan { v4: false, inner_v4: true, ..mixed },
    ] {
        let (left, right) = (plan.start(&net.left), plan.start(&net.right));
        let errors = errors_sent(&net.right);
        let (here, there) = (plan.user(Side::Left), plan.user(Side::Right));
        for size in [1, 56, 1200, 1400, 1500, 9000] {
            assert!(net.left.pings(there, size), "{plan:?}: {size} bytes: {}{}", left.log(), right.log());
        }
        assert!(net.right.pings(here, 9000), "{plan:?}");
        assert!(net.left.tcp_round_trip(&net.right, there, 300_000), "{plan:?}");
        for host in [&net.left, &net.right] {
            let status = host.status();
            assert_eq!(
                drops(&status).iter().filter(|(name, _)| name != "too-big").count(),
                0,
                "{plan:?}: {status}"
            );
            assert!(sa(&status, "in")["packets"].as_u64().unwrap() > 100, "{plan:?}: {status}");
        }
        assert_eq!(errors_sent(&net.right), errors, "{plan:?}: the kernel sent ICMP errors");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
        assert_clean(&net.left);
    }
}

#[test]
fn status_shows_sas_policies_and_drops() {
    let Some(net) = TestNet::build("status_shows_sas_policies_and_drops") else { return };
    let plan = SaPlan::new("esp", "tunnel", GCM, true);
    let (left, right) = (plan.start(&net.left), plan.start(&net.right));
    for _ in 0..5 {
        assert!(net.left.pings(plan.user(Side::Right), 100));
    }
    let status = net.left.status();
    assert_eq!(status["tun"], TUN);
    let out = sa(&status, "out");
    let provider = out["provider"].as_str().unwrap();
    let first = casemate_app::providers::modern()[0].name();
    assert!(provider.starts_with(first), "{provider}");
    for (name, value) in [
        ("spi", "0x00001001"),
        ("src", "192.0.2.1"),
        ("dst", "192.0.2.2"),
        ("protocol", "esp"),
        ("mode", "tunnel"),
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
    let text = String::from_utf8(net.left.casemate(&["status"]).stdout).unwrap();
    assert!(text.contains("0x00001001") && text.contains("Policies"), "{text}");
    assert!(left.stop().success() && right.stop().success());
    let output = net.left.casemate(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("no instance is running"), "{stderr}");
}

#[test]
fn dummy_packets_are_sent_and_the_peer_discards_them() {
    let Some(net) = TestNet::build("dummy_packets_are_sent_and_the_peer_discards_them") else { return };
    for plan in [
        SaPlan::new("esp", "tunnel", GCM, true),
        SaPlan::new("esp", "transport", CBC, false),
        SaPlan { encap: true, ..SaPlan::new("esp", "tunnel", CHACHA, true) },
    ] {
        let right = plan.start(&net.right);
        let left = net.left.run_xfrm_with_args(&plan.file_for(Side::Left), &["--dummy-packets", "400"]);
        let errors = errors_sent(&net.right);
        net.right.wait_until(|status| sa(status, "in")["packets"].as_u64().unwrap() > 300);
        assert!(net.left.pings(plan.user(Side::Right), 1_000), "{plan:?}");
        let (here, there) = (net.left.status(), net.right.status());
        let sent = sa(&here, "out")["packets"].as_u64().unwrap();
        let received = sa(&there, "in")["packets"].as_u64().unwrap();
        assert!(sent > 300 && received > 300, "{plan:?}: {sent} sent, {received} received");
        assert!(sa(&there, "out")["packets"].as_u64().unwrap() < 20, "{plan:?}: the peer responded");
        assert_eq!((drops(&here), drops(&there)), (vec![], vec![]), "{plan:?}");
        assert_eq!(errors_sent(&net.right), errors, "{plan:?}: the kernel received a dummy packet");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
    }
}

/// Fields of an ESP packet that an observer sees, other than its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct VisibleFields {
    tos: u8,
    df: bool,
    ttl: u8,
    has_udp_checksum: bool,
    /// Whether the identification consists of the low bits of the sequence number.
    ident_is_sequence_number: bool,
}

/// The visible fields of an ESP packet from the left host in an Ethernet frame.
fn visible(frame: &[u8]) -> Option<VisibleFields> {
    let ip = frame.get(14..)?;
    if frame[12..14] != [8, 0] || ip[12..16] != [192, 0, 2, 1] {
        return None;
    }
    let (esp, has_udp_checksum) = match ip[9] {
        50 => (&ip[20..], false),
        17 if ip[20..22] == 4500u16.to_be_bytes() => (&ip[28..], ip[26..28] != [0, 0]),
        _ => return None,
    };
    Some(VisibleFields {
        tos: ip[1],
        df: ip[6] & 0x40 != 0,
        ttl: ip[8],
        has_udp_checksum,
        ident_is_sequence_number: ip[4..6] == esp[6..8],
    })
}

#[test]
fn dummy_packets_look_like_real_ones_on_the_wire() {
    let Some(net) = TestNet::build("dummy_packets_look_like_real_ones_on_the_wire") else { return };
    for plan in [
        SaPlan::new("esp", "tunnel", GCM, true),
        SaPlan::new("esp", "transport", CBC, true),
        SaPlan { encap: true, ..SaPlan::new("esp", "tunnel", CHACHA, true) },
    ] {
        let right = plan.start(&net.right);
        let left = net.left.run_xfrm_with_args(&plan.file_for(Side::Left), &["--dummy-packets", "400"]);
        net.right.wait_until(|status| sa(status, "in")["packets"].as_u64().unwrap() > 20);
        let capture = net.right.run(|| FrameCapture::open(Netlink::open()?.link(WIRE)?.index)).unwrap();
        let socket = net.left.run(|| UdpSocket::bind((plan.user(Side::Left), 0))).unwrap();
        let (mut frame, mut count, mut seen) = ([0; 2_000], 0, BTreeMap::new());
        for round in 0..30 {
            // Bursts of one length, which would leave in one system call.
            socket2::SockRef::from(&socket).set_tos_v4([0, 0xb8][round % 2]).unwrap();
            for _ in 0..10 {
                socket.send_to(&[7; 500], (plan.user(Side::Right), 9)).unwrap();
            }
            // Dummy packets arrive continuously, so the number is always reached.
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
        let expected = VisibleFields {
            tos: 0,
            df: true,
            ttl: 64,
            has_udp_checksum: false,
            ident_is_sequence_number: true,
        };
        assert_eq!(kinds, [expected], "{plan:?}: {seen:?}");
        assert!(left.stop().success() && right.stop().success(), "{plan:?}");
    }
}

#[test]
fn crash_keeps_the_guard_and_the_next_start_takes_over() {
    let Some(net) = TestNet::build("crash_keeps_the_guard_and_the_next_start_takes_over") else { return };
    let plan = SaPlan::new("esp", "transport", GCM, true);
    let there = plan.user(Side::Right);
    assert!(net.left.pings(there, 8), "in clear, before");
    let (left, right) = (plan.start(&net.left), plan.start(&net.right));
    assert!(net.left.pings(there, 8));
    left.crash();
    assert!(!net.left.pings_at_once(there, 8), "no cleartext leaves after a crash");
    assert!(net.left.stdout_of("ip", &["rule"]).contains("lookup 50510"), "the rule remains after the crash");

    let left = plan.start(&net.left);
    assert!(left.log().contains("took over the guard"), "{}", left.log());
    assert_eq!(net.left.stdout_of("ip", &["rule"]).matches("lookup 505").count(), 1);
    assert!(net.left.pings(there, 8));
    let seq = sa(&net.left.status(), "out")["seq"].as_u64().unwrap();
    assert!(seq > 131_072, "continues after the block that the crash lost: {seq}");
    assert!(left.stop().success());
    assert!(right.stop().success());
    assert_clean(&net.left);
    assert!(net.left.pings(there, 8), "in clear, afterwards");
}

#[test]
fn cleartext_is_dropped_in_both_directions() {
    let Some(net) = TestNet::build("cleartext_is_dropped_in_both_directions") else { return };
    let plan = SaPlan::new("esp", "transport", GCM, true);
    let left = plan.start(&net.left);
    // The right host has no policies, so its packets arrive in clear.
    assert!(!net.right.pings_at_once(plan.user(Side::Left), 8));
    // A socket that is bound to the cable bypasses the routes.
    let bound = |host: &Host| {
        let dst = plan.user(Side::Right);
        host.run(|| {
            let socket = std::net::UdpSocket::bind((plan.user(Side::Left), 0))?;
            socket2_bind(&socket);
            socket.send_to(b"in clear", (dst, 9))
        })
    };
    let sent = bound(&net.left);
    let counters = net.left.stdout_of("nft", &["list", "table", "inet", "casemate_casemate0"]);
    let dropped =
        counters.lines().filter(|line| line.contains("drop") && !line.contains("packets 0")).count();
    assert_eq!(dropped, 2, "sent {sent:?}: {counters}");
    assert!(left.stop().success());
    assert!(net.right.pings(plan.user(Side::Left), 8), "in clear, afterwards");
}

/// From the line `ready` on: the parent process may send immediately.
#[test]
fn traffic_waiting_for_a_peer_is_never_sent_in_clear() {
    let Some(net) = TestNet::build("traffic_waiting_for_a_peer_is_never_sent_in_clear") else { return };
    let right = Side::Right.outer(true);
    let conf = format!(
        "connections {{ t {{\n remote_addrs = {right}\n local_addrs = {}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n\
         children {{ c {{\n mode = transport\n start_action = trap\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        Side::Left.outer(true)
    );
    let left = net.left.run_config(&conf, None);
    assert!(!net.left.pings_at_once(right, 8), "{}", left.log());
    // The same for a connection that is added later, from the end of `reload` on.
    std::fs::write(net.left.file("conf"), "connections {\n}\n").unwrap();
    assert!(net.left.casemate(&["reload"]).status.success());
    assert!(net.left.pings(right, 8), "no policy protects it");
    std::fs::write(net.left.file("conf"), &conf).unwrap();
    assert!(net.left.casemate(&["reload"]).status.success());
    assert!(!net.left.pings_at_once(right, 8), "{}", left.log());
    assert!(left.stop().success());
    assert!(net.left.pings(right, 8), "in clear, afterwards");
}

fn socket2_bind(socket: &std::net::UdpSocket) {
    let socket = socket2::SockRef::from(socket);
    socket.bind_device(Some(WIRE.as_bytes())).unwrap();
}

#[test]
fn strict_reverse_path_filter_is_relaxed_and_restored() {
    let test = "strict_reverse_path_filter_is_relaxed_and_restored";
    let Some(net) = TestNet::build(test) else { return };
    let path = format!("/proc/sys/net/ipv4/conf/{WIRE}/rp_filter");
    let read = || net.left.run(|| std::fs::read_to_string(&path)).unwrap();
    for name in ["all", WIRE] {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        net.left.run(|| std::fs::write(path, "1")).unwrap();
    }
    let plan = SaPlan::new("esp", "transport", GCM, true);
    let (left, right) = (plan.start(&net.left), plan.start(&net.right));
    assert_eq!(read(), "2\n");
    // Flushes the neighbour tables, so that the addresses must be resolved again.
    net.left.stdout_of("ip", &["neigh", "flush", "all"]);
    net.right.stdout_of("ip", &["neigh", "flush", "all"]);
    assert!(net.left.pings(plan.user(Side::Right), 100), "{}", left.log());
    assert!(net.right.pings(plan.user(Side::Left), 100));
    assert!(left.stop().success() && right.stop().success());
    assert_eq!(read(), "1\n");
}

#[test]
fn smaller_link_mtu_is_detected() {
    let Some(net) = TestNet::build("smaller_link_mtu_is_detected") else { return };
    for plan in [SaPlan::new("esp", "tunnel", GCM, true), SaPlan::new("esp", "transport", CBC, false)] {
        let (left, right) = (plan.start(&net.left), plan.start(&net.right));
        assert!(net.left.pings_first_time(plan.user(Side::Right), 1300));
        for host in [&net.left, &net.right] {
            host.stdout_of("ip", &["link", "set", WIRE, "mtu", "1300"]);
        }
        assert!(net.left.pings(plan.user(Side::Right), 1300), "{plan:?} {}", left.log());
        assert!(net.left.tcp_round_trip(&net.right, plan.user(Side::Right), 100_000), "{plan:?}");
        for host in [&net.left, &net.right] {
            host.stdout_of("ip", &["link", "set", WIRE, "mtu", "1500"]);
        }
        assert!(left.stop().success() && right.stop().success());
    }
}

#[test]
fn dry_run_shows_every_change_and_makes_none() {
    let Some(net) = TestNet::build("dry_run_shows_every_change_and_makes_none") else { return };
    let plan = SaPlan::new("esp", "tunnel", GCM, true);
    let file = net.left.file("xfrm");
    std::fs::write(&file, plan.file_for(Side::Left)).unwrap();
    let counters = net.left.file("counters");
    let args =
        ["run", "--dry-run", "--xfrm", file.to_str().unwrap(), "--counters", counters.to_str().unwrap()];
    let output = net.left.casemate(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    for line in [
        "ip tuntap add dev casemate0 mode tun",
        "ip link set dev casemate0 mtu 1446 up",
        "ip -4 route add 10.2.0.1/32 dev casemate0 table 50510 scope global src 10.1.0.1",
        "ip -4 rule add pref 220 not fwmark 50510 lookup 50510",
    ] {
        assert!(stdout.lines().any(|shown| shown == line), "no `{line}` in:\n{stdout}");
    }
    assert_clean(&net.left);
    assert!(!counters.exists());

    // The output consists of commands that work in a shell.
    let shell = net.left.output_of(Program::new("sh").args(["-e", "-s"]).input(&*stdout));
    assert!(shell.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&shell.stderr));
}

#[test]
fn invalid_input_is_refused_and_nothing_is_applied() {
    let Some(net) = TestNet::build("invalid_input_is_refused_and_nothing_is_applied") else { return };
    let file = net.left.file("xfrm");
    // A private mode avoids a warning before the error.
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let plan = SaPlan::new("esp", "tunnel", GCM, true);
    let refusal = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let mut args = vec!["run", "--xfrm", file.to_str().unwrap()];
        args.extend(more);
        let output = net.left.casemate(&args);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
        assert_clean(&net.left);
        String::from_utf8(output.stderr).unwrap()
    };
    let here = file.display().to_string();
    let counter_mode = refusal(&plan.file_for(Side::Left), &[]);
    assert!(counter_mode.starts_with(&format!("casemate: {here}:1: spi 0x00001001 has")), "{counter_mode}");
    assert!(counter_mode.contains("--counters FILE"), "{counter_mode}");
    let wrong = refusal(&plan.file_for(Side::Left).replace("dir in", "dir up"), &[]);
    assert!(wrong.contains(&format!("{here}:4: ")), "{wrong}");
    // Each line is valid, but together they use more ports of encapsulated ESP than allowed.
    let many: String = (0..9)
        .map(|n| {
            let plan = SaPlan { encap: true, ..SaPlan::new("esp", "tunnel", CBC, true) };
            plan.state(Side::Right)
                .replace("0x1002", &format!("0x200{n}"))
                .replace("4500", &format!("{}", 4500 + n))
        })
        .collect();
    let many = refusal(&many, &[]);
    assert!(many.contains(&format!("{here}:9: ")), "{many}");
}

#[test]
fn second_instance_cannot_share_resources() {
    let Some(net) = TestNet::build("second_instance_cannot_share_resources") else { return };
    let plan = SaPlan::new("esp", "tunnel", GCM, true);
    let left = plan.start(&net.left);
    let file = net.left.file("xfrm");
    let run = |more: &[&str]| {
        let mut args = vec!["run", "--xfrm", file.to_str().unwrap()];
        args.extend(more);
        let output = net.left.casemate(&args);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let counters = net.left.file("counters");
    let shared = run(&["--tun", "other0", "--counters", counters.to_str().unwrap()]);
    assert!(shared.contains("another process uses this counter file"), "{shared}");
    let own = net.left.file("counters2");
    let twice = run(&["--counters", own.to_str().unwrap()]);
    assert!(twice.contains("another instance with this TUN interface is running"), "{twice}");
    assert_eq!(net.left.status()["tun"], TUN, "the first instance is still running");
    assert!(left.stop().success());
    assert_clean(&net.left);
}

/// Sends numbered datagrams in bursts that exceed the capacity of one thread, so that several threads
/// share the work. Long datagrams come before short ones: the threads with the short ones finish earlier
/// and must wait.
#[test]
fn one_flow_keeps_its_order_across_threads() {
    const BURST: u32 = 300;
    const BURSTS: u32 = 80;
    let Some(net) = TestNet::build("one_flow_keeps_its_order_across_threads") else { return };
    let plan = SaPlan { encap: true, ..SaPlan::new("esp", "tunnel", GCM, true) };
    let start = |host: &Host| host.run_xfrm_with_args(&plan.file_for(host.side), &["--threads", "3"]);
    let _running = (start(&net.left), start(&net.right));
    let (here, there) = (plan.user(Side::Left), plan.user(Side::Right));
    let bind = |host: &Host, addr| host.run(|| UdpSocket::bind((addr, 9_000))).unwrap();
    let (from, to) = (bind(&net.left, here), bind(&net.right, there));
    from.connect((there, 9_000)).unwrap();
    // Room for a burst: the default receive buffer would overflow.
    socket2::SockRef::from(&to).set_recv_buffer_size(1 << 20).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (tell, arrived) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut datagram = [0; 1_500];
            for number in 0..BURST * BURSTS {
                let received = retry_interrupted(|| to.recv(&mut datagram));
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
    let (here, there) = (net.left.status(), net.right.status());
    assert_eq!((drops(&here), drops(&there)), (vec![], vec![]));
    assert_eq!(sa(&here, "out")["seq"], BURST * BURSTS);
}
