//! Common parts of the loads, except for the tunnel.

use casemate_crypto::{EspSuite, Rng};
use casemate_datapath::{Config, Datapath};
use casemate_measure::tunnel::{self, HOSTS, TunnelSpec};
use casemate_sa::{AddrRange, Limits};
use std::net::Ipv4Addr;

/// Fast random source, whose cost is negligible in the measurements.
pub(crate) struct CountingRng(u64);

impl CountingRng {
    pub(crate) const fn new() -> Self {
        Self(1)
    }

    /// Next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    /// Number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

impl Rng for CountingRng {
    fn public(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}

/// Tunnel between two gateways with the limits of a server and a replay window of 1,024 packets.
pub(crate) fn tunnel_spec(suite: EspSuite) -> TunnelSpec {
    TunnelSpec::between_networks(suite, Limits { replay_window: 1_024, ..Limits::SERVER })
}

/// Data path without SAs and policies.
pub(crate) fn empty_datapath() -> Datapath {
    Datapath::new(Config::server(0x5EED))
}

/// Network of prefix length `len` that contains `addr`.
pub(crate) fn network(addr: Ipv4Addr, len: u8) -> AddrRange {
    AddrRange::prefix(addr.into(), len).unwrap()
}

/// UDP packet of `len` bytes from a host of the near network to a host of the far network.
pub(crate) fn udp_packet(len: usize) -> Vec<u8> {
    let mut packet = ipv4_packet(17, HOSTS, len);
    let udp_len = (len - 20) as u16;
    packet[20..28].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, (udp_len >> 8) as u8, udp_len as u8, 0, 0]);
    packet
}

/// IPv4 packet of `len` bytes with a zero payload.
pub(crate) fn ipv4_packet(protocol: u8, ends: [Ipv4Addr; 2], len: usize) -> Vec<u8> {
    tunnel::ipv4(protocol, ends, len).unwrap()
}
