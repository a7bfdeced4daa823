//! The network of strongSwan's test suite: eight hosts in namespaces, and three networks.
//!
//! ```text
//!     alice, venus --- 10.1.0.0/16 --- moon --- 192.168.0.0/24 --- sun --- 10.2.0.0/16 --- bob
//!                                                  carol, dave, winnetou, alice (eth1)
//! ```
//!
//! The networks are bridges in a namespace of their own, in which tcpdump sees every packet.

use crate::change::Rule;
use crate::names::Names;
use crate::table::Protocol;
use casemate_interop::{Background, Error, Netns, Result, run};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const CAPTURE_LIMIT: Duration = Duration::from_secs(5);
/// Number of packets after which the capture ends, so that a loop does not fill the disk.
const MAX_PACKETS: &str = "100000";
/// Time until a packet that was sent is in the output of tcpdump.
const WIRE_LIMIT: Duration = Duration::from_secs(3);

/// Interface of a host.
struct Interface {
    host: &'static str,
    name: &'static str,
    bridge: &'static str,
    addresses: [&'static str; 2],
    is_up: bool,
}

/// Networks: bridge, and its addresses, which are the default gateways of hosts without another one.
const BRIDGES: [(&str, [&str; 2]); 3] = [
    ("outside", ["192.168.0.254/24", "fec0::fffe/16"]),
    ("moonside", ["10.1.0.254/16", "fec1::fffe/16"]),
    ("sunside", ["10.2.0.254/16", "fec2::fffe/16"]),
];

const INTERFACES: [Interface; 11] = [
    interface("moon", "eth0", "outside", ["192.168.0.1/24", "fec0::1/16"]),
    interface("moon", "eth1", "moonside", ["10.1.0.1/16", "fec1::1/16"]),
    interface("sun", "eth0", "outside", ["192.168.0.2/24", "fec0::2/16"]),
    interface("sun", "eth1", "sunside", ["10.2.0.1/16", "fec2::1/16"]),
    interface("carol", "eth0", "outside", ["192.168.0.100/24", "fec0::10/16"]),
    interface("dave", "eth0", "outside", ["192.168.0.200/24", "fec0::20/16"]),
    interface("winnetou", "eth0", "outside", ["192.168.0.150/24", "fec0::15/16"]),
    interface("alice", "eth0", "moonside", ["10.1.0.10/16", "fec1::10/16"]),
    Interface {
        host: "alice",
        name: "eth1",
        bridge: "outside",
        addresses: ["192.168.0.50/24", "fec0::5/16"],
        is_up: false,
    },
    interface("venus", "eth0", "moonside", ["10.1.0.20/16", "fec1::20/16"]),
    interface("bob", "eth0", "sunside", ["10.2.0.10/16", "fec2::10/16"]),
];

const fn interface(
    host: &'static str,
    name: &'static str,
    bridge: &'static str,
    addresses: [&'static str; 2],
) -> Interface {
    Interface { host, name, bridge, addresses, is_up: true }
}

/// Default gateways.
const GATEWAYS: [(&str, &str); 8] = [
    ("moon", "192.168.0.254"),
    ("sun", "192.168.0.254"),
    ("carol", "192.168.0.254"),
    ("dave", "192.168.0.254"),
    ("winnetou", "192.168.0.254"),
    ("alice", "10.1.0.1"),
    ("venus", "10.1.0.1"),
    ("bob", "10.2.0.1"),
];

/// The hosts and networks of a run.
pub(crate) struct Network {
    hosts: BTreeMap<&'static str, Netns>,
    capture: Background,
    names: Names,
    /// Namespace of the bridges.
    bridges: Netns,
}

impl Network {
    /// Creates the network, with its files in `directory`.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let bridges = Netns::new()?;
        for (bridge, addresses) in BRIDGES {
            bridges.ip(&format!("link add {bridge} type bridge\nlink set {bridge} promisc on up\n"))?;
            for address in addresses {
                bridges.ip(&format!("addr add {address} dev {bridge}{}\n", no_dad(address)))?;
            }
        }
        let mut hosts = BTreeMap::new();
        for (host, _) in GATEWAYS {
            hosts.insert(host, Netns::new()?);
        }
        let names = Names::write(directory, hosts.keys())?;
        let capture = start_capture(&bridges, &directory.join("capture"))?;
        let network = Self { hosts, capture, names, bridges };
        network.connect()?;
        Ok(network)
    }

    fn connect(&self) -> Result<()> {
        for host in self.hosts.keys() {
            // Forwarding before addresses: otherwise the host would announce them as a router. Without
            // duplicate address detection, addresses do not change any more when daemons run: MOBIKE would
            // tell the peer.
            let forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward; \
                              echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; \
                              echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
            self.run(host, "sh", &["-c", forwarding])?;
        }
        for interface in &INTERFACES {
            let Interface { host, name, bridge, addresses, is_up } = interface;
            let link = format!("{host}-{name}");
            let bridges = self.bridges.pid();
            let netns = self.netns(host)?;
            netns.ip(&format!("link add {name} type veth peer name {link} netns {bridges}\n"))?;
            self.bridges.ip(&format!("link set {link} master {bridge} up\n"))?;
            // The capture must show single packets.
            netns.ip(&format!("link set {name} gso_max_segs 1\n"))?;
            if *is_up {
                bring_up(netns, name, addresses)?;
            }
        }
        for (host, gateway) in GATEWAYS {
            self.netns(host)?.ip(&format!("route add default via {gateway}\n"))?;
        }
        Ok(())
    }

    /// Returns the namespace of a host.
    pub(crate) fn netns(&self, host: &str) -> Result<&Netns> {
        self.hosts.get(host).ok_or_else(|| Error::new(format!("no host has the name `{host}`")))
    }

    /// Runs a program on a host. It must succeed.
    pub(crate) fn run(&self, host: &str, program: &str, arguments: &[&str]) -> Result<()> {
        let output = run(self.netns(host)?, LIMIT, program, arguments)?;
        if output.status == 0 {
            return Ok(());
        }
        Err(Error::new(format!("{host}: {program} {}: {}", arguments.join(" "), output.stdout.trim_end())))
    }

    /// The names that hosts look up.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Configures an interface of a host, or removes its addresses.
    pub(crate) fn set_link(&self, host: &str, name: &str, is_up: bool) -> Result<()> {
        let netns = self.netns(host)?;
        let own = INTERFACES.iter().find(|interface| interface.host == host && interface.name == name);
        let own = own.ok_or_else(|| Error::new(format!("{host} has no interface {name}")))?;
        if is_up {
            return bring_up(netns, name, &own.addresses);
        }
        netns.ip(&format!("addr flush dev {name}\nlink set {name} down\n"))
    }

    /// Gives an interface of a host another address.
    pub(crate) fn add_address(&self, host: &str, name: &str, address: &str) -> Result<()> {
        self.netns(host)?.ip(&format!("addr add {address} dev {name}\n"))
    }

    /// Sends up to `attempts` echo requests, one a second, until one gets a reply.
    pub(crate) fn ping(&self, host: &str, to: &str, attempts: u32) -> Result<bool> {
        let netns = self.netns(host)?;
        for _ in 0..attempts {
            if run(netns, LIMIT, "ping", &["-n", "-c", "1", "-W", "1", to])?.status == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends echo requests with this number of bytes, each of which must get a reply.
    pub(crate) fn ping_all(&self, host: &str, to: &str, count: &str, size: &str) -> Result<()> {
        self.run(host, "ping", &["-n", "-q", "-c", count, "-s", size, "-W", "1", to])
    }

    /// Tries to connect to a TCP port.
    pub(crate) fn connect_tcp(&self, host: &str, to: &str, port: &str) -> Result<()> {
        let script = format!("exec 3<>/dev/tcp/{to}/{port}");
        run(self.netns(host)?, CONNECT_LIMIT, "bash", &["-c", &script]).map(drop)
    }

    /// Translates the source addresses of forwarded packets.
    pub(crate) fn translate(&self, host: &str, source: &str, protocol: &str, to: &str) -> Result<()> {
        let action = if to == "masquerade" { to.to_owned() } else { format!("snat to {to}") };
        let rules = format!(
            "add table ip scenario\n\
             add chain ip scenario out {{ type nat hook postrouting priority 100; }}\n\
             add rule ip scenario out oifname \"eth0\" ip saddr {source} ip protocol {protocol} {action}\n"
        );
        self.run(host, "nft", &[&rules])
    }

    /// Translates the source address of packets that enter a tunnel.
    pub(crate) fn map(&self, host: &str, source: &str, to: &str) -> Result<()> {
        let rules = format!(
            "add table ip scenario\n\
             add chain ip scenario mapped {{ type nat hook postrouting priority 100; }}\n\
             add rule ip scenario mapped oifname != {{ \"eth0\", \"eth1\" }} ip saddr {source} snat to {to}\n"
        );
        self.run(host, "nft", &[&rules])
    }

    /// Changes the packet filter of a host.
    pub(crate) fn change_firewall(&self, host: &str, rule: &Rule) -> Result<()> {
        let chain = |name: &str, hook: &str| {
            format!("add table ip scenario\nadd chain ip scenario {name} {{ type {hook}; }}\n")
        };
        let rules = match rule {
            Rule::Iptables { arguments } => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                return self.run(host, "iptables", &arguments);
            }
            Rule::Redirect { source, to } => {
                chain("redirected", "nat hook prerouting priority -100")
                    + &format!(
                        "add rule ip scenario redirected iifname \"eth0\" ip saddr {source} meta l4proto \
                         udp dnat to {to}\n"
                    )
            }
            Rule::Flush => {
                self.run(host, "nft", &["add table ip scenario; delete table ip scenario"])?;
                return self.run(host, "conntrack", &["-F"]);
            }
            // On the way to the host: packet sockets receive packets before the packet filter of the host.
            Rule::Block { source } => {
                return self.filter_on_bridge(&format!(
                    "add table bridge {host}\n\
                     add chain bridge {host} blocked {{ type filter hook forward priority 0; }}\n\
                     add rule bridge {host} blocked oifname \"{host}-eth0\" ip saddr {source} drop\n"
                ));
            }
            Rule::Unblock => return self.filter_on_bridge(&format!("delete table bridge {host}\n")),
            Rule::Reject { to, port } => {
                chain("rejected", "filter hook output priority 0")
                    + &format!(
                        "add rule ip scenario rejected ip daddr {to} tcp dport {port} reject with tcp reset\n"
                    )
            }
        };
        self.run(host, "nft", &[&rules])
    }

    /// Fails if an echo request between inner addresses was on the outer network in clear.
    pub(crate) fn expect_no_clear_text(&self) -> Result<()> {
        match self.capture.output().lines().find(|line| is_clear(line)) {
            None => Ok(()),
            Some(line) => Err(Error::new(format!("in clear: {line}"))),
        }
    }

    fn filter_on_bridge(&self, rules: &str) -> Result<()> {
        let output = run(&self.bridges, LIMIT, "nft", &[rules])?;
        if output.status == 0 {
            Ok(())
        } else {
            Err(Error::new(format!("nft: {}", output.stdout.trim_end())))
        }
    }

    /// Waits until the capture contains a packet of the protocol between two addresses.
    pub(crate) fn expect_on_wire(&self, protocol: Protocol, from: &str, to: &str) -> Result<()> {
        let start = Instant::now();
        while !self.capture.output().lines().any(|line| is_protected(line, protocol, from, to)) {
            if start.elapsed() > WIRE_LIMIT {
                return Err(Error::new(format!("no {protocol:?} from {from} to {to} on the wire")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn bring_up(netns: &Netns, name: &str, addresses: &[&str]) -> Result<()> {
    for address in addresses {
        netns.ip(&format!("addr add {address} dev {name}{}\n", no_dad(address)))?;
    }
    netns.ip(&format!("link set {name} up\n"))
}

fn no_dad(address: &str) -> &'static str {
    if address.contains(':') { " nodad" } else { "" }
}

fn start_capture(bridges: &Netns, output: &Path) -> Result<Background> {
    let mut command = bridges.command("tcpdump");
    // With a short snapshot length, many packets fit into the buffer.
    command.args([
        "-i",
        "any",
        "-nn",
        "-s",
        "192",
        "-l",
        "-c",
        MAX_PACKETS,
        "--immediate-mode",
        "-Z",
        "root",
    ]);
    command.arg("esp or ah or udp port 4500 or icmp");
    let mut tcpdump = Background::start("tcpdump", command, output)?;
    tcpdump.wait_until(CAPTURE_LIMIT, |output| output.contains("listening on"))?;
    Ok(tcpdump)
}

/// Whether a line of tcpdump shows a protected packet between two addresses: ESP, ESP in UDP, or AH.
fn is_protected(line: &str, protocol: Protocol, from: &str, to: &str) -> bool {
    let Some((source, rest)) = line.split_once(" > ") else { return false };
    let Some((destination, content)) = rest.split_once(": ") else { return false };
    let source = source.rsplit(' ').next().unwrap_or(source);
    let is_content = match protocol {
        Protocol::Esp => content.starts_with("ESP(") || content.starts_with("UDP-encap: ESP("),
        Protocol::Ah => content.starts_with("AH("),
    };
    is_content && is_address(source, from) && is_address(destination, to)
}

/// Whether a line of tcpdump shows an ICMP packet on the outer network from or to an inner IPv4 address.
fn is_clear(line: &str) -> bool {
    let is_inner = |text: &str| text.starts_with("10.");
    let Some((source, rest)) = line.split_once(" > ") else { return false };
    let source = source.rsplit(' ').next().unwrap_or(source);
    line.contains(" outside ") && rest.contains(": ICMP echo") && (is_inner(source) || is_inner(rest))
}

/// Whether the text is the address, with or without a port.
fn is_address(text: &str, address: &str) -> bool {
    text.strip_prefix(address).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_protected_packets() {
        let plain =
            "12:00:00.1 moon-eth0 P   IP 192.168.0.1 > 192.168.0.2: ESP(spi=0xc0,seq=0x1), length 104";
        let encapsulated = "12:00:00.1 moon-eth0 P   IP 192.168.0.1.4500 > 192.168.0.2.1024: UDP-encap: \
                            ESP(spi=0xc0), length 1";
        let found = |line, to| is_protected(line, Protocol::Esp, "192.168.0.1", to);
        assert!(found(plain, "192.168.0.2") && found(encapsulated, "192.168.0.2"));
        assert!(!found(plain, "192.168.0.20") && !found(plain, "192.168.0.1"));
        assert!(!is_protected(plain, Protocol::Ah, "192.168.0.1", "192.168.0.2"));
        let ike = "12:00:00.1 moon-eth0 P   IP 192.168.0.1.4500 > 192.168.0.2.4500: NONESP-encap: isakmp";
        assert!(!found(ike, "192.168.0.2"));
    }

    #[test]
    fn finds_clear_text() {
        let clear =
            "12:00:00.1 outside P   IP 10.1.0.10 > 10.2.0.10: ICMP echo request, id 1, seq 1, length 64";
        assert!(is_clear(clear) && !is_clear(&clear.replace("outside", "moonside")));
        assert!(!is_clear("12:00:00.1 outside P   IP 192.168.0.1 > 192.168.0.2: ICMP echo reply, id 1"));
    }
}
