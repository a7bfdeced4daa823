//! A small world to measure in: what the loads have in common besides the tunnel.

use casemate_crypto::{EspSuite, Rng};
use casemate_datapath::{Config, Datapath};
use casemate_measure::tunnel::{self, HOSTS, TunnelSpec};
use casemate_sa::{AddrRange, Limits};
use std::net::Ipv4Addr;

/// A random source that costs next to nothing, so that what is measured is not the random source.
pub(crate) struct Counting(u64);

impl Counting {
    pub(crate) const fn new() -> Self {
        Self(1)
    }

    /// The next number, spread over all 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

impl Rng for Counting {
    fn public(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}

/// A tunnel between two gateways on servers, with a replay window of 1,024 packets.
pub(crate) fn spec(suite: EspSuite) -> TunnelSpec {
    TunnelSpec::networks(suite, Limits { replay_window: 1_024, ..Limits::SERVER })
}

/// A data path without SAs and policies.
pub(crate) fn empty() -> Datapath {
    Datapath::new(Config::server(0x5EED))
}

/// The network of `len` bits that `addr` is in.
pub(crate) fn network(addr: Ipv4Addr, len: u8) -> AddrRange {
    AddrRange::prefix(addr.into(), len).unwrap()
}

/// A UDP packet of `len` bytes from a host of the near network to one of the far network.
pub(crate) fn udp(len: usize) -> Vec<u8> {
    let mut packet = ipv4(17, HOSTS, len);
    let udp_len = (len - 20) as u16;
    packet[20..28].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, (udp_len >> 8) as u8, udp_len as u8, 0, 0]);
    packet
}

/// An IPv4 packet of `len` bytes, all but the header zero.
pub(crate) fn ipv4(protocol: u8, ends: [Ipv4Addr; 2], len: usize) -> Vec<u8> {
    tunnel::ipv4(protocol, ends, len).unwrap()
}
