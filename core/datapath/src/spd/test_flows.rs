//! Flows for tests: whole packets, and later fragments, which hide ports and sometimes the protocol.

use casemate_wire::flow::{FlowKey, FlowPorts};
use core::net::IpAddr;
use std::vec::Vec;

/// The flow of a whole packet.
pub(super) fn whole(src: IpAddr, dst: IpAddr, proto: u8, ports: FlowPorts) -> FlowKey {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => FlowKey::v4(src, dst, proto, ports),
        (IpAddr::V6(src), IpAddr::V6(dst)) => FlowKey::v6(src, dst, proto, ports),
        _ => panic!("{src} and {dst} in one packet"),
    }
}

/// The flow of a later fragment, which has no ports.
pub(super) fn later(src: IpAddr, dst: IpAddr, proto: u8) -> FlowKey {
    let mut packet = Vec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            packet.extend([0x45, 0, 0, 28, 0, 1, 0, 1, 64, proto, 0, 0]);
            packet.extend(src.octets());
            packet.extend(dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            packet.extend([0x60, 0, 0, 0, 0, 16, 44, 64]);
            packet.extend(src.octets());
            packet.extend(dst.octets());
            packet.extend([proto, 0, 0, 8, 0, 0, 0, 1]);
        }
        _ => panic!("{src} and {dst} in one packet"),
    }
    packet.extend([0; 8]);
    let flow = FlowKey::parse(&packet).unwrap();
    assert_eq!(flow.ports(), None);
    flow
}

/// The flow of a later IPv6 fragment with options after the fragment header: it has no protocol either.
pub(super) fn later_opaque(src: IpAddr, dst: IpAddr) -> FlowKey {
    let flow = later(src, dst, 60);
    assert_eq!(flow.proto(), None);
    flow
}
