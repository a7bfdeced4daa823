//! `casemate run` on two hosts with a router between them whose second link is narrow and which reports
//! nothing: path MTU probes find what the path takes (docs/decisions/0091-path-mtu-probes.md).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::AsFd;
use testnet::{Host, Running, Side, TestNet};

/// The link between the router and the far host.
const FAR_LINK: &str = "wire1";
/// MTU of the link between the router and the far host.
const NARROW: u16 = 1_400;
/// Address of the far host behind the router, and of the router there.
const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:1::2"];
const ROUTER: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];
/// Inner address of the far host.
const FAR_INNER: [&str; 2] = ["10.3.0.1", "fd03::1"];
const TCP_BYTES: usize = 300_000;

/// The near host, `net.left`; the router, `net.right`; and the far host.
struct BlackHole {
    net: TestNet,
    far: Host,
    v4: bool,
}

impl BlackHole {
    fn build(test: &str, v4: bool) -> Option<Self> {
        let net = TestNet::build(test)?;
        let far = net.add_host();
        net.right.run(|| Netlink::open()?.add_veth(FAR_LINK, FAR_LINK, far.netns.as_fd())).unwrap();
        let index = usize::from(!v4);
        let at = |host: &Host, mtu, addr: &str| {
            let addr: IpAddr = addr.parse().unwrap();
            let set = || {
                let mut netlink = Netlink::open()?;
                let wire = netlink.link(FAR_LINK)?.index;
                netlink.set_up(wire, mtu)?;
                netlink.add_address(wire, addr, if v4 { 24 } else { 64 })
            };
            host.run(set).unwrap();
        };
        at(&net.right, NARROW.into(), ROUTER[index]);
        // The far host knows of no narrow link, either.
        at(&far, 1_500, FAR[index]);
        let inner: IpAddr = FAR_INNER[index].parse().unwrap();
        let add_inner = || {
            let mut netlink = Netlink::open()?;
            let lo = netlink.link("lo")?.index;
            netlink.set_up(lo, 65_536)?;
            netlink.add_address(lo, inner, if v4 { 32 } else { 128 })?;
            Ok::<(), Error>(())
        };
        far.run(add_inner).unwrap();
        let family = if v4 { "-4" } else { "-6" };
        far.stdout_of("ip", &[family, "route", "add", "default", "via", ROUTER[index]]);
        let near_router = Side::Right.outer(v4).to_string();
        let (network, forwarding) = match v4 {
            true => ("198.51.100.0/24", "/proc/sys/net/ipv4/ip_forward"),
            false => ("2001:db8:1::/64", "/proc/sys/net/ipv6/conf/all/forwarding"),
        };
        net.left.stdout_of("ip", &[family, "route", "add", network, "via", &near_router]);
        net.right.run(|| std::fs::write(forwarding, "1")).unwrap();
        // The far host's frames of up to 1,500 bytes would not arrive at the router.
        let rules = "table inet silent { chain out { type filter hook output priority 0; \
                     icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
        net.right.stdout_of("nft", &[rules]);
        let black_hole = Self { net, far, v4 };
        assert!(black_hole.net.left.pings(black_hole.far_outer(), 8), "the router forwards nothing");
        Some(black_hole)
    }

    fn far_outer(&self) -> IpAddr {
        FAR[usize::from(!self.v4)].parse().unwrap()
    }

    fn far_inner(&self) -> IpAddr {
        FAR_INNER[usize::from(!self.v4)].parse().unwrap()
    }

    fn conf(&self, is_near: bool, keys: &str) -> String {
        let (near, far) = (Side::Left.outer(self.v4), self.far_outer());
        let (near_ts, far_ts) = (Side::Left.inner(self.v4), self.far_inner());
        let (own, peer, own_ts, peer_ts, names) = match is_near {
            true => (near, far, near_ts, far_ts, ["near", "far"]),
            false => (far, near, far_ts, near_ts, ["far", "near"]),
        };
        let [own_name, peer_name] = names;
        let action = if is_near { "start" } else { "none" };
        format!(
            "connections {{ t {{\n local_addrs = {own}\n remote_addrs = {peer}\n {keys}\n\
             local {{ auth = psk\n id = {own_name} }}\n remote {{ auth = psk\n id = {peer_name} }}\n\
             children {{ c {{ local_ts = {own_ts}\n remote_ts = {peer_ts}\n start_action = {action} }} }} }} }}\n\
             secrets {{ ike {{ secret = \"a secret of the two\" }} }}\n"
        )
    }

    /// Starts both hosts and waits until the tunnel passes short packets.
    fn start(&self, keys: &str) -> [Running; 2] {
        let far = self.far.run_config(&self.conf(false, keys), None);
        let near = self.net.left.run_config(&self.conf(true, keys), None);
        self.net.left.wait_until(|_| self.net.left.pings_at_once(self.far_inner(), 8));
        [near, far]
    }

    /// Path MTU of the outbound SA of the near host, and where it comes from.
    fn path_mtu(status: &Value) -> Option<(u64, String)> {
        let sa = status["sas"].as_array()?.iter().find(|sa| sa["direction"] == "out")?;
        let path = &sa["path_mtu"];
        Some((path["bytes"].as_u64()?, path["source"].as_str()?.to_owned()))
    }
}

fn probes_find_the_path(v4: bool, keys: &str) {
    let Some(black_hole) = BlackHole::build("path-mtu", v4) else { return };
    let [near, far] = black_hole.start(keys);
    let found = Some((NARROW.into(), "probe".to_owned()));
    black_hole.net.left.wait_until(|status| BlackHole::path_mtu(status) == found);
    // The far host sends the long packets, too.
    black_hole.far.wait_until(|status| BlackHole::path_mtu(status).is_some_and(|(mtu, _)| mtu <= 1_400));
    assert!(black_hole.net.left.tcp_round_trip(&black_hole.far, black_hole.far_inner(), TCP_BYTES));
    let peer = black_hole.far_outer();
    let line = format!("path MTU to {peer} is {NARROW} bytes: longer packets are lost");
    testnet::eventually("the log reports the path MTU", || near.log().contains(&line));
    assert!(near.stop().success() && far.stop().success());
}

#[test]
fn v4() {
    probes_find_the_path(true, "");
}

#[test]
fn v6() {
    probes_find_the_path(false, "");
}

#[test]
fn v4_in_udp() {
    probes_find_the_path(true, "encap = yes");
}

#[test]
fn v6_in_udp() {
    probes_find_the_path(false, "encap = yes");
}

/// The same path without probes loses long packets: the tests above can fail.
#[test]
fn without_probes_long_packets_are_lost() {
    let Some(black_hole) = BlackHole::build("path-mtu-off", true) else { return };
    let [near, far] = black_hole.start("path_mtu_probes = no");
    assert!(!black_hole.net.left.pings_at_once(black_hole.far_inner(), 1_390));
    let found = BlackHole::path_mtu(&black_hole.net.left.status());
    assert_eq!(found, Some((1_500, "link".to_owned())));
    drop((near, far));
}
