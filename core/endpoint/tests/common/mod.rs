//! Helpers for tests of an endpoint.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail, and not every test needs all of it"
)]

pub(crate) mod node;

use casemate::{Endpoint, Routes};
use casemate_crypto::Rng;
use casemate_datapath::Outbound;
use casemate_ike::config::AddrPattern;
use casemate_sa::{AddrRange, Instant};
use casemate_wire::packet::Packet;
use std::net::IpAddr;

pub(crate) const OWN: [u8; 4] = [192, 0, 2, 1];
pub(crate) const PEER: [u8; 4] = [192, 0, 2, 2];

pub(crate) fn only(addr: [u8; 4]) -> Vec<AddrPattern> {
    vec![AddrPattern::Range(AddrRange::single(addr.into()))]
}

/// Sends a packet with an IPv4 header and eight bytes.
pub(crate) fn send(endpoint: &mut Endpoint, now: Instant, (from, to): ([u8; 4], [u8; 4])) -> Outbound {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
    send_packet(endpoint, now, &[&header[..], &from, &to, &[0; 8]].concat())
}

/// Sends a packet with an IPv6 header and eight bytes.
pub(crate) fn send_v6(endpoint: &mut Endpoint, now: Instant, (from, to): ([u8; 16], [u8; 16])) -> Outbound {
    let header = [0x60, 0, 0, 0, 0, 8, 253, 64];
    send_packet(endpoint, now, &[&header[..], &from, &to, &[0; 8]].concat())
}

fn send_packet(endpoint: &mut Endpoint, now: Instant, bytes: &[u8]) -> Outbound {
    let mut storage = vec![0; 600];
    let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(bytes);
    endpoint.datapath_mut().outbound_reassembled(now, &mut Dice(1), &mut packet)
}

/// Repeatable random source.
pub(crate) struct Dice(pub(crate) u64);

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    /// SplitMix64, one byte of each number.
    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed ^ mixed >> 27) as u8;
        }
    }
}

/// No routes: the connections have fixed addresses.
pub(crate) struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}
