//! Two network namespaces joined by a veth pair, each with an inner address that the tunnel must reach.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::{Error, Netns, Result, run};
use std::io;
use std::time::Duration;

/// Addresses of the ends on the link.
pub const LINK_ADDRS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Inner addresses of the ends, on their loopback interfaces.
pub const INNER_ADDRS: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
/// MTU of tunnels that do not choose one: WireGuard's.
pub const TUNNEL_MTU: u32 = 1_420;

/// Number of attempts and time limit of the first ping.
const PING_ATTEMPTS: u32 = 20;
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Two namespaces joined by a veth pair. Dropping it removes them.
pub struct VethPair {
    /// Sending end and receiving end.
    pub ends: [Netns; 2],
}

impl VethPair {
    /// A pair whose ends reach each other's inner addresses. `None`, with a note, if there can be none here.
    #[cfg(test)]
    pub(crate) fn of_test() -> Option<Self> {
        if !crate::is_root() {
            casemate_test_support::skip("sockets in network namespaces need root");
            return None;
        }
        let Ok(veth) = Self::new() else {
            casemate_test_support::skip("no network namespace can be created");
            return None;
        };
        (0..2).for_each(|end| veth.route_via_link(end).unwrap());
        Some(veth)
    }

    /// Creates the namespaces, the link and the addresses.
    pub fn new() -> Result<Self> {
        let ends = [Netns::new()?, Netns::new()?];
        ends[0].ip(&format!("link add wire type veth peer name wire netns {}\n", ends[1].pid()))?;
        for (end, netns) in ends.iter().enumerate() {
            let (wire, behind) = (LINK_ADDRS[end], INNER_ADDRS[end]);
            netns.ip(&format!(
                "link set wire up\naddr add {wire}/24 dev wire\naddr add {behind}/32 dev lo\n"
            ))?;
        }
        Ok(Self { ends })
    }

    /// Brings the interface of a tunnel up and routes packets for the other end into it.
    pub fn route_via_interface(&self, end: usize, interface: &str) -> Result<()> {
        let (own, other) = (INNER_ADDRS[end], INNER_ADDRS[1 - end]);
        self.ends[end].ip(&format!(
            "link set {interface} mtu {TUNNEL_MTU} up\nroute add {other}/32 dev {interface} src {own}\n"
        ))
    }

    /// Routes packets for the other end over the link: for runs without a tunnel, and for tunnels that
    /// intercept packets on the link.
    pub fn route_via_link(&self, end: usize) -> Result<()> {
        let (own, other, via) = (INNER_ADDRS[end], INNER_ADDRS[1 - end], LINK_ADDRS[1 - end]);
        self.ends[end].ip(&format!("route add {other}/32 via {via} src {own}\n"))
    }

    /// Runs `act` in the namespace of an end. Sockets that it opens stay in the namespace.
    pub fn run_in<T: Send>(&self, end: usize, act: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
        self.ends[end].run_in(act)?.map_err(Error::context("namespace"))
    }

    /// Number of packets that an end has received over the link.
    pub fn received_packets(&self, end: usize) -> Result<u64> {
        let file = format!("/proc/{}/net/dev", self.ends[end].pid());
        let table = std::fs::read_to_string(&file).map_err(Error::context(&file))?;
        let of_wire = table.lines().find_map(|line| line.trim_start().strip_prefix("wire:"));
        let packets = of_wire.and_then(|numbers| numbers.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| Error::new(format!("{file} has no packet counter of the link")))
    }

    /// Waits until a ping through the tunnel is answered.
    pub fn wait_until_connected(&self) -> Result<()> {
        self.wait_for_ping(INNER_ADDRS[1])
    }

    /// Waits until a ping to an address behind the second end is answered.
    pub fn wait_for_ping(&self, address: &str) -> Result<()> {
        let mut said = String::new();
        for _ in 0..PING_ATTEMPTS {
            let words = ["-c", "1", "-W", "1", "-I", INNER_ADDRS[0], address];
            let output = run(&self.ends[0], PING_TIMEOUT, "ping", &words)?;
            if output.status == 0 {
                return Ok(());
            }
            said = output.stdout;
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::new(format!("no response to ping: {}", said.trim_end())))
    }
}
