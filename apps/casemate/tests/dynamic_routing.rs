//! Dynamic routing over route-based tunnels: BIRD on both hosts speaks OSPF and BGP through two tunnels.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Process, Program};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testnet::{Host, Side, TestNet};

/// Longest time until a protocol of this test has noticed a change. Its timers are seconds.
const CONVERGENCE: Duration = Duration::from_secs(40);

/// Directory of Debian's package bird2, which `cargo xtask test` unpacks there.
fn bird_directory() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_casemate")).ancestors().nth(2)?;
    let directory = target.join("bird2/usr/sbin");
    if !directory.join("bird").is_file() {
        casemate_test_support::skip("BIRD (Debian package bird2, which `cargo xtask test` unpacks)");
        return None;
    }
    Some(directory)
}

const fn number(side: Side) -> u8 {
    match side {
        Side::Left => 1,
        Side::Right => 2,
    }
}

/// The address of a host in a tunnel.
fn in_tunnel(side: Side, tunnel: u8) -> IpAddr {
    [10, 255, tunnel, number(side)].into()
}

/// An address of the host in the network that only BGP announces.
fn in_network(side: Side) -> IpAddr {
    [10, 100 + number(side), 0, 1].into()
}

/// Two tunnels for all traffic, `one` with the interface `ipsec1` and `two` with `ipsec2`.
fn conf(side: Side) -> String {
    let tunnel = |name: &str, id: u8| {
        format!(
            "{name} {{\n local_addrs = {}\n remote_addrs = {}\n\
             local {{ auth = psk\n id = {side:?}-{name} }}\n\
             remote {{ auth = psk\n id = {:?}-{name} }}\n\
             children {{ {name} {{ local_ts = 0.0.0.0/0, ::/0\n remote_ts = 0.0.0.0/0, ::/0\n\
             if_id_in = {id}\n if_id_out = {id} }} }} }}\n",
            side.outer(true),
            side.other().outer(true),
            side.other(),
        )
    };
    format!(
        "connections {{\n{}{} }}\nsecrets {{ ike {{ secret = \"a secret of the two\" }} }}\n",
        tunnel("one", 1),
        tunnel("two", 2)
    )
}

/// The configuration of BIRD: OSPFv2 and OSPFv3 for the addresses of `lo`, BGP for a network. The first
/// tunnel is preferred. docs/manual/route-based.md shows that of the left host.
fn bird_conf(side: Side) -> String {
    let (own, peer) = (number(side), number(side.other()));
    let ospf = |version: &str, channel: &str| {
        format!(
            "protocol ospf {version} {{ {channel} {{ import all; export where source = RTS_DEVICE; }};\n\
             area 0 {{\n\
             interface \"ipsec1\" {{ type ptp; cost 10; hello 1; dead count 4; }};\n\
             interface \"ipsec2\" {{ type ptp; cost 20; hello 1; dead count 4; }};\n }}; }}\n"
        )
    };
    let bgp = |tunnel: u8, preference: u8| {
        format!(
            "protocol bgp b{tunnel} {{ local {} as 6500{own}; neighbor {} as 6500{peer}; direct;\n\
             connect retry time 1; connect delay time 1; error wait time 1, 2; hold time 6;\n\
             ipv4 {{ import all; export where source = RTS_STATIC; preference {preference}; }}; }}\n",
            in_tunnel(side, tunnel),
            in_tunnel(side.other(), tunnel),
        )
    };
    format!(
        "router id {};\nprotocol device {{ scan time 1; }}\n\
         protocol direct {{ ipv4; ipv6; interface \"lo\"; }}\n\
         protocol kernel {{ ipv4 {{ export where source = RTS_OSPF_EXT2 || source = RTS_BGP; }}; }}\n\
         protocol kernel {{ ipv6 {{ export where source = RTS_OSPF_EXT2; }}; }}\n\
         protocol static {{ ipv4; route 10.10{own}.0.0/24 blackhole; }}\n{}{}{}{}",
        in_tunnel(side, 1),
        ospf("v2", "ipv4"),
        ospf("v3", "ipv6"),
        bgp(1, 120),
        bgp(2, 110),
    )
}

fn start_bird(host: &Host, directory: &Path) -> Process {
    let conf = host.file("bird.conf");
    std::fs::write(&conf, bird_conf(host.side)).unwrap();
    let log = host.file("bird.log");
    let program = Program::new(directory.join("bird"))
        .args(["-f", "-c"])
        .arg(conf)
        .arg("-s")
        .arg(host.file("bird.ctl"))
        .log_to(&log);
    program.start_with(|command| host.netns.spawn(command))
}

fn birdc(host: &Host, directory: &Path, command: &str) -> String {
    let control = host.file("bird.ctl").display().to_string();
    let program = directory.join("birdcl").display().to_string();
    let output = host.output(&program, &["-s", &control, "show", command]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The interface of the route to an address.
fn interface_to(host: &Host, to: IpAddr) -> String {
    let output = host.output("ip", &["route", "get", &to.to_string()]);
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = line.split_whitespace().skip_while(|word| *word != "dev").skip(1);
    words.next().unwrap_or_default().to_owned()
}

/// Waits until the routes to all these addresses lead into an interface.
fn wait_for_routes(host: &Host, to: &[IpAddr], interface: &str, explain: impl Fn() -> String) {
    let start = Instant::now();
    while !to.iter().all(|to| interface_to(host, *to) == interface) {
        assert!(start.elapsed() < CONVERGENCE, "no route into {interface}: {}", explain());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn casemate(host: &Host, args: &[&str]) {
    let output = host.casemate(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Packets that the Child SA of this connection has sent.
fn sent(host: &Host, connection: &str) -> u64 {
    let status = host.status();
    let mut of = status["ike_sas"].as_array().unwrap().iter().filter(|sa| sa["name"] == connection);
    of.next().unwrap()["children"][0]["packets_out"].as_u64().unwrap()
}

#[test]
fn ospf_and_bgp_route_into_tunnels_and_around_a_tunnel_that_is_down() {
    let Some(directory) = bird_directory() else { return };
    let Some(net) = TestNet::build("dynamic_routing") else { return };
    let right = net.right.run_config(&conf(Side::Right), None);
    let left = net.left.run_config(&conf(Side::Left), None);
    for host in [&net.left, &net.right] {
        for tunnel in [1, 2] {
            let addr = format!("{}/30", in_tunnel(host.side, tunnel));
            host.stdout_of("ip", &["addr", "add", &addr, "dev", &format!("ipsec{tunnel}")]);
        }
        let network = format!("{}/24", in_network(host.side));
        host.stdout_of("ip", &["link", "add", "lan", "type", "veth", "peer", "name", "lan-end"]);
        for end in ["lan", "lan-end"] {
            host.stdout_of("ip", &["link", "set", end, "up"]);
        }
        host.stdout_of("ip", &["addr", "add", &network, "dev", "lan"]);
    }
    for tunnel in ["one", "two"] {
        casemate(&net.left, &["initiate", tunnel]);
    }
    let _birds = [&net.left, &net.right].map(|host| start_bird(host, &directory));
    let explain = || {
        let show = |command| birdc(&net.left, &directory, command);
        let routes = net.left.stdout_of("ip", &["addr"]) + &net.left.stdout_of("ip", &["route"]);
        let (shown, log) = (show("protocols all"), std::fs::read_to_string(net.left.file("bird.log")));
        format!("{shown}\n{routes}\n{log:?}\n{}{}", left.log(), right.log())
    };
    // By OSPFv2, OSPFv3 and BGP.
    let side = Side::Right;
    let learned = [side.inner(true), side.inner(false), in_network(side)];
    let back = [Side::Left.inner(true), Side::Left.inner(false), in_network(Side::Left)];
    let wait = |interface| {
        wait_for_routes(&net.left, &learned, interface, explain);
        wait_for_routes(&net.right, &back, interface, explain);
    };
    let ping = || {
        for to in learned {
            assert!(net.left.pings(to, 1_000), "{to}: {}", explain());
        }
    };
    wait("ipsec1");
    let before = sent(&net.left, "one");
    ping();
    assert!(sent(&net.left, "one") >= before + 3, "{}", explain());
    // When the preferred tunnel fails, the routes change to the second tunnel; when it is back, they return.
    casemate(&net.left, &["terminate", "one"]);
    wait("ipsec2");
    let before = sent(&net.left, "two");
    ping();
    assert!(sent(&net.left, "two") >= before + 3, "{}", explain());
    casemate(&net.left, &["initiate", "one"]);
    wait("ipsec1");
    ping();
}
