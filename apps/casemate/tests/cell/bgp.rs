//! Routers learn the addresses of a cell by BGP from FRR, which runs on the gateways and on the routers. The
//! namespaces of the outside and of the inside bridge are the routers.

use crate::gateways::Addresses;
use crate::net::{CellNet, INSIDE_ROUTED, NODES, OUTSIDE_VIRTUAL, ip};
use crate::other_programs::{Disruption, Logs, ROUNDS, disrupt, manual_block, start_script};
use crate::testbed::Testbed;
use crate::testnet::Host;
use casemate_test_support::{Process, skip};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

const DIRECTORY: &str = "/usr/lib/frr";
const OUTSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const INSIDE_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 254);
/// Networks behind the peers.
const REMOTE: &str = "10.2.0.0/15";
/// FRR gives routes of the kernel with this metric the distance 255, so that any other route is better.
const WORST_METRIC: &str = "4278198272";

/// A router and what it needs.
struct Router<'n> {
    host: &'n Host,
    address: Ipv4Addr,
    number: u32,
    /// Addresses of the gateways on the bridge.
    gateways: [Ipv4Addr; NODES],
    /// Destination that no gateway leads to, until one announces a route.
    destination: String,
}

impl Router<'_> {
    /// Makes the namespace of a bridge a router. Without a route of BGP, it drops packets to the cell, and
    /// does not ask for the address on the bridge.
    fn prepare(&self) {
        ip(self.host, &format!("address add {}/24 dev bridge0", self.address));
        ip(self.host, &format!("route add blackhole {} metric {WORST_METRIC}", self.destination));
        // A redirect would show the hosts a way without the router.
        for (name, value) in [("ip_forward", "1"), ("conf/all/send_redirects", "0")] {
            self.host.run(|| fs::write(format!("/proc/sys/net/ipv4/{name}"), value)).unwrap();
        }
        let of_bridge = "/proc/sys/net/ipv4/conf/bridge0/send_redirects";
        self.host.run(|| fs::write(of_bridge, "0")).unwrap();
    }

    fn configuration(&self) -> String {
        let neighbor = |gateway: &Ipv4Addr| {
            format!(" neighbor {gateway} remote-as 65001\n neighbor {gateway} timers 1 3\n")
        };
        let neighbors: String = self.gateways.iter().map(neighbor).collect();
        let Self { address, number, .. } = self;
        format!("router bgp {number}\n bgp router-id {address}\n no bgp ebgp-requires-policy\n{neighbors}")
    }
}

/// Starts FRR on a host, with the files of its processes in a directory that no other process sees.
fn start_frr(host: &Host, bgp: &str, routes: &str) -> Process {
    for (name, text) in [("bgpd", bgp), ("staticd", routes), ("zebra", "")] {
        fs::write(host.file(&format!("{name}.conf")), text).unwrap();
    }
    // FRR runs as its own user. Its crash logs are below /var/tmp.
    let copies: String = ["bgpd", "staticd", "zebra"]
        .map(|name| format!("cp {} /run/frr/{name}.conf\n", host.file(&format!("{name}.conf")).display()))
        .concat();
    let script = format!(
        "set -e\nmount -t tmpfs tmpfs /run\nmkdir /run/frr\nmount -t tmpfs -o mode=1777 tmpfs /var/tmp\n\
         {copies}chown -R frr:frr /run/frr\n\
         {DIRECTORY}/zebra -f /run/frr/zebra.conf -P 0 --log stdout &\n\
         until test -S /run/frr/zserv.api; do sleep 0.05; done\n\
         {DIRECTORY}/staticd -f /run/frr/staticd.conf -P 0 --log stdout &\n\
         {DIRECTORY}/bgpd -f /run/frr/bgpd.conf -P 0 --log stdout &\nwait\n"
    );
    start_script(host, "frr", &script)
}

/// Starts FRR on the routers and the gateways. Reports the skipped test and returns `None` if FRR is not
/// installed.
fn start_all(net: &CellNet) -> Option<Vec<Process>> {
    if !Path::new(DIRECTORY).join("bgpd").is_file() {
        skip("FRR (Debian package frr)");
        return None;
    }
    let three = |[a, b, c]: [u8; 3]| [11, 12, 13].map(|last| Ipv4Addr::new(a, b, c, last));
    let outside = Router {
        host: &net.outside.host,
        address: OUTSIDE_ROUTER,
        number: 65_000,
        gateways: three([192, 0, 2]),
        destination: OUTSIDE_VIRTUAL.to_string(),
    };
    let inside = Router {
        host: &net.inside.host,
        address: INSIDE_ROUTER,
        number: 65_002,
        gateways: three([10, 1, 0]),
        destination: REMOTE.to_owned(),
    };
    [&outside, &inside].into_iter().for_each(Router::prepare);
    for peer in [&net.peer, &net.charon] {
        ip(peer, &format!("route add {OUTSIDE_VIRTUAL} via {OUTSIDE_ROUTER}"));
    }
    ip(&net.inner, &format!("route replace default via {INSIDE_ROUTER}"));
    let mut processes = vec![
        start_frr(outside.host, &outside.configuration(), ""),
        start_frr(inside.host, &inside.configuration(), &format!("ip route {REMOTE} {INSIDE_ROUTED}\n")),
    ];
    let manual = manual_block("router bgp 65001").replace("198.51.100.1", &OUTSIDE_VIRTUAL.to_string());
    for (host, address) in net.gateways.iter().zip(outside.gateways) {
        let own = format!("router-id {address}\n");
        processes.push(start_frr(host, &manual.replace("router-id 192.0.2.11\n", &own), ""));
    }
    Some(processes)
}

fn routers_follow_the_owner(test: &str, rounds: usize) {
    let Some(net) = CellNet::build(test) else { return };
    let Some(routers) = start_all(&net) else { return };
    let _logs = Logs(&routers);
    let Some(mut testbed) = Testbed::cell_with_addresses(&net, Addresses::Routed) else { return };
    for (disruption, limit) in [
        (Disruption::Kill, Duration::from_secs(5)),
        (Disruption::Stop, Duration::from_secs(2)),
        (Disruption::PowerOff, Duration::from_secs(6)),
        (Disruption::CutServers, Duration::from_secs(4)),
        (Disruption::Suspend, Duration::from_secs(5)),
    ] {
        disrupt(&net, &mut testbed, disruption, rounds, limit);
    }
    testbed.finish();
}

#[test]
fn routers_learn_the_addresses_of_the_owner() {
    routers_follow_the_owner("routers_learn_the_addresses_of_the_owner", 1);
}

#[test]
#[ignore = "takes minutes: cargo xtask cell"]
fn routers_learn_the_addresses_of_many_owners() {
    routers_follow_the_owner("routers_learn_the_addresses_of_many_owners", ROUNDS);
}
