//! Protected packets on their way from one endpoint to another.

use super::node::Node;
use casemate_datapath::{DropReason, Inbound, Outbound};
use casemate_sa::SpdId;
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;

/// A node protects a packet with eight bytes. Returns the packet on the wire.
pub(crate) fn protect(node: &mut Node, src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
    let (bytes, mut storage) = ([&header[..], &src, &dst, &[0; 8]].concat(), vec![0; 600]);
    let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(&bytes);
    let verdict = node.endpoint.datapath_mut().outbound_reassembled(
        SpdId::MAIN,
        node.now,
        &mut TestRng::new(1),
        &mut packet,
    );
    assert!(matches!(verdict, Outbound::Send { .. }), "{verdict:?}");
    packet.data().to_vec()
}

/// A node receives a packet. Returns the reason for which it was dropped.
pub(crate) fn receive(node: &mut Node, bytes: &[u8]) -> Option<DropReason> {
    let mut storage = vec![0; 600];
    let mut packet = Packet::new(&mut storage, 100, bytes.len()).unwrap();
    packet.data_mut().copy_from_slice(bytes);
    let mut verdict = [Inbound::Drop(DropReason::MalformedHeader)];
    let now = node.now;
    node.endpoint.datapath_mut().inbound(now, std::slice::from_mut(&mut packet), &mut verdict);
    match verdict[0] {
        Inbound::Drop(reason) => Some(reason),
        _ => None,
    }
}

/// An ESP packet with an SPI that no SA has.
pub(crate) fn forged(src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    let header = [0x45, 0, 0, 60, 0, 0, 0, 0, 64, 50, 0, 0];
    [&header[..], &src, &dst, &[9; 40]].concat()
}
