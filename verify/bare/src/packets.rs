//! Packets that cross two data paths.

use crate::peers::TestRng;
use casemate_datapath::{Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};
use core::slice::from_mut;

/// Addresses of the two hosts.
pub(crate) const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// See [`LEFT`].
pub(crate) const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Length of the packet in bytes.
pub(crate) const LEN: usize = 84;

/// Position of the addresses in an IPv4 header.
#[cfg(feature = "selftest")]
const ADDRS: core::ops::Range<usize> = 12..20;

/// An IPv4 header from [`LEFT`] to [`RIGHT`] for 64 bytes of an experimental protocol. The checksum is
/// the same in the opposite direction.
const HEADER: [u8; 20] = [0x45, 0, 0, 84, 0, 1, 0, 0, 64, 253, 0xF5, 0xA8, 192, 0, 2, 1, 192, 0, 2, 2];

/// A packet buffer with head room and tail room.
pub(crate) type Buffer = [u8; HEAD_ROOM + LEN + TAIL_ROOM];

/// Writes the packet to a buffer.
pub(crate) fn packet(buffer: &mut Buffer) -> Option<Packet<'_>> {
    let mut packet = Packet::new(buffer, HEAD_ROOM, LEN)?;
    packet.data_mut().get_mut(..HEADER.len())?.copy_from_slice(&black_box(HEADER));
    Some(packet)
}

/// Sends a packet through one data path and receives it with the other. Returns `None` if the packet is
/// not protected, or not delivered unchanged.
#[cfg(feature = "selftest")]
pub(crate) fn round_trip(
    from: &mut Datapath,
    to: &mut Datapath,
    (src, dst): (IpAddr, IpAddr),
    now: Instant,
) -> Option<()> {
    let mut buffer = [0; size_of::<Buffer>()];
    let mut packet = packet(&mut buffer)?;
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { return None };
    packet.data_mut().get_mut(ADDRS)?.copy_from_slice(&[src.octets(), dst.octets()].concat());
    let before = packet.data().to_vec();
    send(from, &mut packet, now)?;
    (packet.data() != before).then_some(())?;
    receive(to, &mut packet, now)?;
    (packet.data() == before).then_some(())
}

/// Protects a packet.
pub(crate) fn send(from: &mut Datapath, packet: &mut Packet<'_>, now: Instant) -> Option<()> {
    let mut verdict = Outbound::Drop(DropReason::NoRoom);
    from.outbound(now, &mut TestRng(3), from_mut(packet), from_mut(&mut verdict));
    matches!(verdict, Outbound::Send(_)).then_some(())
}

/// Decrypts a packet and checks the policy.
pub(crate) fn receive(to: &mut Datapath, packet: &mut Packet<'_>, now: Instant) -> Option<()> {
    let mut verdict = Inbound::Drop(DropReason::NoRoom);
    to.inbound(now, from_mut(packet), from_mut(&mut verdict));
    matches!(verdict, Inbound::Deliver(_)).then_some(())
}
