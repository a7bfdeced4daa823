//! Helpers for tests of an endpoint.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail, and not every test needs all of it"
)]

pub(crate) mod node;
pub(crate) mod packets;

use casemate::{Endpoint, Routes};
use casemate_datapath::Outbound;
use casemate_ike::config::AddrPattern;
use casemate_sa::{AddrRange, Instant, SpdId};
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;
use std::net::IpAddr;

pub(crate) const OWN: [u8; 4] = [192, 0, 2, 1];
pub(crate) const PEER: [u8; 4] = [192, 0, 2, 2];

pub(crate) fn only(addr: [u8; 4]) -> Vec<AddrPattern> {
    vec![AddrPattern::Range(AddrRange::single(addr.into()))]
}

/// Sends a packet with an IPv4 header and eight bytes.
pub(crate) fn send(endpoint: &mut Endpoint, now: Instant, from: [u8; 4], to: [u8; 4]) -> Outbound {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
    send_packet(endpoint, now, &[&header[..], &from, &to, &[0; 8]].concat())
}

/// Sends a packet with an IPv6 header and eight bytes.
pub(crate) fn send_v6(endpoint: &mut Endpoint, now: Instant, from: [u8; 16], to: [u8; 16]) -> Outbound {
    let header = [0x60, 0, 0, 0, 0, 8, 253, 64];
    send_packet(endpoint, now, &[&header[..], &from, &to, &[0; 8]].concat())
}

fn send_packet(endpoint: &mut Endpoint, now: Instant, bytes: &[u8]) -> Outbound {
    let mut storage = vec![0; 600];
    let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(bytes);
    endpoint.datapath_mut().outbound_reassembled(SpdId::MAIN, now, &mut TestRng::new(1), &mut packet)
}

/// No routes: the connections have fixed addresses.
pub(crate) struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// One source address on every route; `None` without routes.
pub(crate) struct OneSource(pub(crate) Option<IpAddr>);

impl Routes for OneSource {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        self.0
    }
}
