//! Two namespaces with a link between them, and an address behind each, which the tunnel has to reach.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use crate::{Error, Netns, Result, run};
use std::io;
use std::time::Duration;

/// Addresses of the ends on the link.
pub const WIRE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Addresses behind the ends.
pub const BEHIND: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
/// MTU of tunnels that have no opinion: WireGuard's.
pub const TUNNEL_MTU: u32 = 1_420;

/// How often, and for how long, the first echo is tried.
const TRIES: u32 = 20;
const TRY: Duration = Duration::from_secs(3);

/// The namespaces; they are gone with it.
pub struct Arena {
    /// The one that sends, and the one that receives.
    pub ends: [Netns; 2],
}

impl Arena {
    /// The namespaces, with the link and the addresses.
    pub fn new() -> Result<Self> {
        let ends = [Netns::new()?, Netns::new()?];
        ends[0].ip(&format!("link add wire type veth peer name wire netns {}\n", ends[1].pid()))?;
        for (end, netns) in ends.iter().enumerate() {
            let (wire, behind) = (WIRE[end], BEHIND[end]);
            netns.ip(&format!(
                "link set wire up\naddr add {wire}/24 dev wire\naddr add {behind}/32 dev lo\n"
            ))?;
        }
        Ok(Self { ends })
    }

    /// Brings the interface of a tunnel up and leads what is for the other side into it.
    pub fn route_into(&self, end: usize, interface: &str) -> Result<()> {
        let (own, other) = (BEHIND[end], BEHIND[1 - end]);
        self.ends[end].ip(&format!(
            "link set {interface} mtu {TUNNEL_MTU} up\nroute add {other}/32 dev {interface} src {own}\n"
        ))
    }

    /// Leads what is for the other side over the link: for no tunnel, and for tunnels that look at what leaves there.
    pub fn route_over_link(&self, end: usize) -> Result<()> {
        let (own, other, via) = (BEHIND[end], BEHIND[1 - end], WIRE[1 - end]);
        self.ends[end].ip(&format!("route add {other}/32 via {via} src {own}\n"))
    }

    /// Does something in the network of an end, such as opening sockets that stay there.
    pub fn inside<T: Send>(&self, end: usize, act: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
        self.ends[end].inside(act)
    }

    /// Packets that have come to an end over the link so far.
    pub fn arrived(&self, end: usize) -> Result<u64> {
        let file = format!("/proc/{}/net/dev", self.ends[end].pid());
        let table = std::fs::read_to_string(&file).map_err(Error::in_front(&file))?;
        let of_wire = table.lines().find_map(|line| line.trim_start().strip_prefix("wire:"));
        let packets = of_wire.and_then(|numbers| numbers.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| Error::new(format!("{file} does not count the link's packets")))
    }

    /// Waits until an echo comes back through the tunnel.
    pub fn wait_until_connected(&self) -> Result<()> {
        self.wait_for_echo_of(BEHIND[1])
    }

    /// Waits until an echo comes back from an address behind the second end.
    pub fn wait_for_echo_of(&self, address: &str) -> Result<()> {
        let mut said = String::new();
        for _ in 0..TRIES {
            let words = ["-c", "1", "-W", "1", "-I", BEHIND[0], address];
            let output = run(&self.ends[0], TRY, "ping", &words)?;
            if output.status == 0 {
                return Ok(());
            }
            said = output.stdout;
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::new(format!("no echo comes back: {}", said.trim_end())))
    }
}
