//! Network of a cell: three gateways between an outside and an inside bridge, two peers outside, a host
//! inside, and three servers on a bridge of their own. Each host and each bridge has a network namespace,
//! which ends with [`CellNet`].
//!
//! ```text
//!  peer .101   charon .102                              etcd1 .11   etcd2 .12   etcd3 .13
//!      |           |          192.0.2.0/24                 |           |           |   10.99.0.0/24
//!  ----+-----------+------ outside bridge --              -+-----------+-----------+-- etcd bridge
//!            out0: | .11 .12 .13; the owner: .1                        | etcd0: .21 .22 .23
//!              gw1, gw2, gw3 ------------------------------------------+
//!             in0: | .11 .12 .13; the owner: .1
//!  ----------------+------- inside bridge, 10.1.0.0/24
//!                  |
//!             inner host .100, its router is .1
//! ```

use crate::testnet::{Host, Side, check_prerequisites};
use casemate_linux::Error;
use casemate_linux::netlink::Netlink;
use casemate_test_support::{TempDir, eventually, skip};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::Path;

/// Number of gateways, and of servers.
pub(crate) const NODES: usize = 3;
/// Addresses that the owner of the cell has.
pub(crate) const OUTSIDE_VIRTUAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const INSIDE_VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Its inside address if routers learn it by BGP.
pub(crate) const INSIDE_ROUTED: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// Outer addresses of the peers.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 101);
pub(crate) const CHARON: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 102);
/// Hosts behind the peers, on their loopback interfaces, and the one behind the cell.
pub(crate) const BEHIND_PEER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
pub(crate) const BEHIND_CHARON: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
pub(crate) const INNER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 100);
/// Network of the further outer addresses of the peer, one for each of many tunnels, and of the hosts behind
/// them.
const MANY_OUTER: &str = "198.18.0.0/15";
const MANY_INNER: &str = "10.64.0.0/10";
/// Address of the etcd bridge itself, from which the test speaks to the servers.
const CONTROL: &str = "10.99.0.254/24";

/// Outer address of tunnel `n` of the peer's many tunnels, and a host behind it.
pub(crate) fn many(n: u16) -> (Ipv4Addr, Ipv4Addr) {
    let [high, low] = n.to_be_bytes();
    assert!(high < 64, "tunnel {n}: 16384 tunnels are the most");
    (Ipv4Addr::new(198, 18, high, low), Ipv4Addr::new(10, 64 + high, low, 1))
}

/// Address of a server on the etcd bridge.
pub(crate) fn server_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, 11 + index as u8)
}

/// Address of a gateway itself on the outside bridge.
fn outside_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 11 + index as u8)
}

/// How a host loses its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The interface of the host keeps its carrier, and no frame passes the bridge.
    Silent,
    /// The interface of the host loses its carrier.
    Carrier,
}

/// A bridge in a network namespace of its own.
pub(crate) struct Segment {
    pub(crate) host: Host,
}

impl Segment {
    fn build(directory: &Path, name: &str) -> Result<Self, Error> {
        let host = new_host(directory, name)?;
        let bridge = "link add bridge0 type bridge forward_delay 0 mcast_snooping 0";
        ip(&host, bridge);
        ip(&host, "link set bridge0 up");
        Ok(Self { host })
    }

    /// Connects an interface of a host, with this address, to a port with the name of the host.
    fn connect(&self, port: &str, host: &Host, interface: &str, address: Ipv4Addr) -> Result<(), Error> {
        self.host.run(|| Netlink::open()?.add_veth(port, interface, host.netns.as_fd()))?;
        // The capture sees each packet, not a batch of them (GSO).
        ip(host, &format!("link set {interface} gso_max_segs 1 up"));
        ip(host, &format!("address add {address}/24 dev {interface}"));
        ip(&self.host, &format!("link set {port} master bridge0 up"));
        Ok(())
    }

    /// Takes the link from the host at this port.
    pub(crate) fn cut(&self, port: &str, how: Cut) {
        match how {
            Cut::Silent => ip(&self.host, &format!("link set {port} nomaster")),
            Cut::Carrier => ip(&self.host, &format!("link set {port} down")),
        }
    }

    /// Gives the host at this port its link back.
    pub(crate) fn restore(&self, port: &str) {
        ip(&self.host, &format!("link set {port} master bridge0 up"));
    }
}

/// Runs `ip` on a host. Fails the test if it fails.
pub(crate) fn ip(host: &Host, arguments: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    host.stdout_of("ip", &words);
}

fn new_host(directory: &Path, name: &str) -> Result<Host, Error> {
    let directory = directory.join(name);
    fs::create_dir(&directory).unwrap();
    Host::without_cable(Side::Left, directory)
}

/// Names of the gateways, and of their ports.
pub(crate) const GATEWAYS: [&str; NODES] = ["gw1", "gw2", "gw3"];
/// Names of the servers, and of their ports.
pub(crate) const SERVERS: [&str; NODES] = ["etcd1", "etcd2", "etcd3"];
/// Ports of the outside bridge.
pub(crate) const OUTSIDE_PORTS: [&str; 5] = ["gw1", "gw2", "gw3", "peer", "charon"];

/// The network, and a directory for the files of its hosts.
pub(crate) struct CellNet {
    pub(crate) outside: Segment,
    pub(crate) inside: Segment,
    pub(crate) etcd: Segment,
    pub(crate) gateways: [Host; NODES],
    pub(crate) servers: [Host; NODES],
    pub(crate) peer: Host,
    pub(crate) charon: Host,
    pub(crate) inner: Host,
    /// Removed with the hosts.
    pub(crate) scratch: TempDir,
}

impl CellNet {
    /// Builds the network. Reports the skipped test and returns `None` if network namespaces are not
    /// permitted.
    pub(crate) fn build(test: &str) -> Option<Self> {
        let built = check_prerequisites().and_then(|()| Self::try_build(test));
        built.map_err(skip).ok()
    }

    fn try_build(test: &str) -> Result<Self, Error> {
        let scratch = TempDir::new(test).unwrap();
        let host = |name: &str| new_host(scratch.path(), name);
        let three = |names: [&str; NODES]| -> Result<[Host; NODES], Error> {
            let [first, second, third] = names.map(host);
            Ok([first?, second?, third?])
        };
        let (gateways, servers) = (three(GATEWAYS)?, three(SERVERS)?);
        let (peer, charon, inner) = (host("peer")?, host("charon")?, host("inner")?);
        let segment = |name: &str| Segment::build(scratch.path(), name);
        let (outside, inside, etcd) = (segment("outside")?, segment("inside")?, segment("etcd")?);
        let net = Self { outside, inside, etcd, gateways, servers, peer, charon, inner, scratch };
        net.connect()?;
        net.add_routes();
        net.wait_for_carriers();
        Ok(net)
    }

    fn connect(&self) -> Result<(), Error> {
        for (index, (host, port)) in self.gateways.iter().zip(GATEWAYS).enumerate() {
            let number = index as u8;
            self.outside.connect(port, host, "out0", outside_address(index))?;
            self.inside.connect(port, host, "in0", Ipv4Addr::new(10, 1, 0, 11 + number))?;
            self.etcd.connect(port, host, "etcd0", Ipv4Addr::new(10, 99, 0, 21 + number))?;
        }
        for (index, (host, port)) in self.servers.iter().zip(SERVERS).enumerate() {
            self.etcd.connect(port, host, "etcd0", server_address(index))?;
        }
        ip(&self.etcd.host, &format!("address add {CONTROL} dev bridge0"));
        self.outside.connect("peer", &self.peer, "out0", PEER)?;
        self.outside.connect("charon", &self.charon, "out0", CHARON)?;
        self.inside.connect("inner", &self.inner, "in0", INNER)
    }

    fn add_routes(&self) {
        for host in &self.gateways {
            host.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
            ip(host, &format!("route add {MANY_OUTER} via {PEER}"));
            // Without routes, no packet could leave in clear.
            for (network, via) in [(BEHIND_PEER, PEER), (BEHIND_CHARON, CHARON)] {
                ip(host, &format!("route add {network}/32 via {via}"));
            }
            ip(host, &format!("route add {MANY_INNER} via {PEER}"));
        }
        ip(&self.peer, &format!("address add {BEHIND_PEER}/32 dev lo"));
        ip(&self.charon, &format!("address add {BEHIND_CHARON}/32 dev lo"));
        for network in [MANY_OUTER, MANY_INNER] {
            ip(&self.peer, &format!("route add local {network} dev lo"));
        }
        ip(&self.inner, &format!("route add default via {INSIDE_VIRTUAL}"));
    }

    fn wait_for_carriers(&self) {
        for host in &self.gateways {
            assert!(host.pings(PEER.into(), 8) && host.pings(INNER.into(), 8), "a bridge carries no packets");
            assert!(host.pings(server_address(0).into(), 8), "the etcd bridge carries no packets");
        }
        assert!(self.charon.pings(PEER.into(), 8), "the outside bridge carries no packets");
    }

    /// Takes all links from a gateway, as if it had no power.
    pub(crate) fn cut_gateway(&self, index: usize) {
        for segment in [&self.outside, &self.inside, &self.etcd] {
            segment.cut(GATEWAYS[index], Cut::Silent);
        }
    }

    /// Gives a gateway its links back.
    pub(crate) fn restore_gateway(&self, index: usize) {
        for segment in [&self.outside, &self.inside, &self.etcd] {
            segment.restore(GATEWAYS[index]);
        }
    }

    /// Gives all gateways the outside address of the cell, on their loopback interfaces, as the manual says.
    pub(crate) fn assign_to_all(&self) {
        for host in &self.gateways {
            for (setting, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
                let path = format!("/proc/sys/net/ipv4/conf/all/{setting}");
                host.run(|| fs::write(path, value)).unwrap();
            }
            ip(host, &format!("address add {OUTSIDE_VIRTUAL}/32 dev lo"));
        }
    }

    /// Routes packets of the inner host through the owner, and those of the peers through another gateway.
    pub(crate) fn steer(&self, owner: usize, via: usize) {
        for host in [&self.peer, &self.charon] {
            ip(host, &format!("route replace {OUTSIDE_VIRTUAL}/32 via {}", outside_address(via)));
        }
        ip(&self.inner, &format!("route replace default via 10.1.0.{}", 11 + owner));
    }

    /// Routes packets of the peers through all gateways, by a hash of their addresses and ports. A packet
    /// takes another path for each of the `first`.
    pub(crate) fn steer_by_hash(&self, first: usize) {
        let path = |index: usize| format!("nexthop via {}", outside_address((first + index) % NODES));
        let paths: Vec<String> = (0..NODES).map(path).collect();
        for host in [&self.peer, &self.charon] {
            host.run(|| fs::write("/proc/sys/net/ipv4/fib_multipath_hash_policy", "1")).unwrap();
            ip(host, &format!("route replace {OUTSIDE_VIRTUAL}/32 {}", paths.join(" ")));
        }
    }

    /// Indices of the gateways that have this address.
    pub(crate) fn holders(&self, address: impl Into<IpAddr>) -> Vec<usize> {
        let address = address.into();
        let has = |host: &Host| {
            let addresses = host.run(|| Netlink::open()?.addresses()).unwrap();
            addresses.contains(&address)
        };
        (0..NODES).filter(|index| has(&self.gateways[*index])).collect()
    }

    /// Gives a gateway both virtual addresses, as a cell does that it owns.
    pub(crate) fn assign_virtual_addresses(&self, index: usize) {
        for (address, interface) in [(OUTSIDE_VIRTUAL, "out0"), (INSIDE_VIRTUAL, "in0")] {
            ip(&self.gateways[index], &format!("address add {address}/24 dev {interface}"));
        }
        eventually("the address is there", || (self.holders(INSIDE_VIRTUAL) == [index]).then_some(()));
    }

    /// Moves both virtual addresses to another gateway. Its neighbours forget the former one.
    pub(crate) fn move_virtual_addresses(&self, from: usize, to: usize) {
        for (address, interface) in [(OUTSIDE_VIRTUAL, "out0"), (INSIDE_VIRTUAL, "in0")] {
            ip(&self.gateways[from], &format!("address del {address}/24 dev {interface}"));
        }
        self.assign_virtual_addresses(to);
        for (host, interface) in [(&self.peer, "out0"), (&self.charon, "out0"), (&self.inner, "in0")] {
            ip(host, &format!("neighbour flush dev {interface}"));
        }
    }
}
