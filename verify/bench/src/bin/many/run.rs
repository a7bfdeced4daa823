//! One measurement: gateways with a number of tunnels, their memory, and packets through all tunnels.

use casemate_interop::{Background, ENCAP_PORT, Error, Result};
use casemate_testbed::Meter;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::packet_rate::{self, PORT, PacketRate};
use casemate_testbed::sys;
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

/// Length of a packet, IPv4 header included, and of its headers. Packets are small because the measurement
/// is about the look-up of SAs.
const LENGTH: usize = 256;
const HEADERS: usize = 28;

/// Longest time that a full queue may block the sender.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);

/// Result of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) traffic: PacketRate,
    /// Resident bytes of the first gateway before the first packet, and after the last one.
    pub(crate) idle: u64,
    pub(crate) used: u64,
}

/// Sends packets to `addresses` in turn, also with one tunnel, so that only the number of tunnels differs.
pub(crate) fn run(
    gateway: &Gateway,
    (tunnels, addresses): (u32, u32),
    seconds: Duration,
    directory: &Path,
) -> Result<Turn> {
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let arena = VethPair::new()?;
    let (own, via) = (INNER_ADDRS[0], LINK_ADDRS[1]);
    arena.ends[0].ip(&format!("route add {NETWORK} via {via} src {own}\n"))?;
    arena.ends[1]
        .ip(&format!("route add local {NETWORK} dev lo\nroute add {own}/32 via {}\n", LINK_ADDRS[0]))?;
    let start = |end: usize| {
        let file = directory.join(format!("{end}.xfrm"));
        fs::write(&file, xfrm(end, tunnels)).map_err(Error::context(file.display()))?;
        let counters = directory.join(format!("{end}.counters"));
        gateway.start(&arena, end, ["--xfrm".into(), file, "--counters".into(), counters], directory)
    };
    let processes: Vec<Background> = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
    let memory = || sys::resident_memory(processes[0].pid()).map_err(Error::context("a gateway"));
    let idle = memory()?;
    arena.wait_for_ping(&address(0).to_string())?;
    let traffic = packet_rate::measure(&arena, &Meter::new(&processes), seconds, || open(addresses))?;
    Ok(Turn { traffic, idle, used: memory()? })
}

/// Sends one packet to each address in turn.
fn open(addresses: u32) -> io::Result<impl FnMut()> {
    let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    let mut next = 0;
    Ok(move || {
        next = (next + 1) % addresses;
        // A packet that cannot be sent counts as lost.
        let _ = socket.send_to(&[0; LENGTH - HEADERS], SocketAddrV4::new(address(next), PORT));
    })
}

/// Destination addresses of the packets: one for each possible tunnel.
pub(crate) const NETWORK: &str = "10.128.0.0/16";

/// Destination address number `n`.
pub(crate) fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + n)
}

/// SAs and policies of one end, with AES-GCM in UDP. A single tunnel covers all addresses; otherwise each
/// tunnel covers one address.
pub(crate) fn xfrm(end: usize, tunnels: u32) -> String {
    let mut lines = String::new();
    for n in 0..tunnels {
        let far = if tunnels == 1 { NETWORK.into() } else { format!("{}/32", address(n)) };
        let near = format!("{}/32", INNER_ADDRS[0]);
        for from in [0, 1] {
            let (src, dst) = (LINK_ADDRS[from], LINK_ADDRS[1 - from]);
            let (behind, other) = if from == 0 { (&near, &far) } else { (&far, &near) };
            let direction = if from == end { "out" } else { "in" };
            // Each SA has its own key. The keys protect nothing.
            let (spi, key) = (0x100 + n, 2 * n + from as u32);
            let _ = write!(
                lines,
                "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 1024 \
                 aead 'rfc4106(gcm(aes))' 0x{key:040x} 128 encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0 \
                 reqid {reqid}\n\
                 xfrm policy add src {behind} dst {other} dir {direction} \
                 tmpl src {src} dst {dst} proto esp mode tunnel reqid {reqid}\n",
                reqid = n + 1
            );
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_app::xfrm::XfrmFile;

    #[test]
    fn every_tunnel_has_an_sa_and_a_policy_in_each_direction() {
        let file = XfrmFile::parse(xfrm(0, 300).as_bytes()).unwrap();
        assert_eq!((file.states.len(), file.policies.len()), (600, 600));
        assert_eq!(address(299), Ipv4Addr::new(10, 128, 1, 43));
    }
}
