//! Protected traffic between two hosts: their addresses, SAs with manual keys, policies, and a packet.

use crate::peers::SeededRng;
use casemate_crypto::{AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_sa::{AddrRange, Instant, Mode, SaParams, Selector, SpdId, Spi, Transform};
use casemate_wire::packet::Packet;
use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};
use core::slice::from_mut;

/// Address of the left host.
pub(crate) const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// Address of the right host.
pub(crate) const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Source and destination of packets.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
}

impl Path {
    /// From [`LEFT`] to [`RIGHT`].
    pub(crate) const TO_RIGHT: Self = Self { src: LEFT, dst: RIGHT };
    /// From [`RIGHT`] to [`LEFT`].
    #[cfg(feature = "selftest")]
    pub(crate) const TO_LEFT: Self = Self { src: RIGHT, dst: LEFT };
}

/// ESP with AES-128-GCM.
pub(crate) fn gcm() -> Transform {
    let suite = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    Transform::Esp { suite, encr: key(20), integ: key(0) }
}

/// ESP with AES-128-CBC and HMAC-SHA2-256.
pub(crate) fn cbc() -> Transform {
    let mac = MacAlg::standard(MacKind::HmacSha256);
    Transform::Esp {
        suite: EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac),
        encr: key(16),
        integ: key(32),
    }
}

/// AH with HMAC-SHA2-256.
pub(crate) fn ah() -> Transform {
    Transform::Ah { suite: AhSuite(MacAlg::standard(MacKind::HmacSha256)), integ: key(32) }
}

const KEY: [u8; 40] = *b"What these keys protect is worth nothing";

/// Returns a fixed key of at most 40 bytes.
pub(crate) fn key(len: usize) -> SecretBytes {
    SecretBytes::new(black_box(KEY).get(..len).unwrap_or_default())
}

/// Returns the parameters of an SA in transport mode between two addresses.
pub(crate) fn params(number: u32, path: Path, transform: &Transform) -> Option<SaParams> {
    let spi = Spi::new(number.saturating_add(0x1000))?;
    Some(SaParams::new(spi, path.src, path.dst, Mode::Transport, transform.clone()))
}

/// Returns the policy that protects all traffic from one address to the other.
pub(crate) fn policy(Path { src, dst }: Path, transform: &Transform, mode: Mode) -> Option<Policy> {
    let protocol = transform.protocol();
    let template = Template { protocol, mode, src: Some(src), dst: Some(dst), reqid: 0 };
    Some(Policy {
        spd: SpdId::MAIN,
        selector: Selector::between(AddrRange::single(src), AddrRange::single(dst)),
        action: Action::Protect(Bundle::new(&[template]).ok()?),
        priority: 0,
    })
}

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
pub(crate) fn round_trip(from: &mut Datapath, to: &mut Datapath, path: Path, now: Instant) -> Option<()> {
    let mut buffer = [0; size_of::<Buffer>()];
    let mut packet = packet(&mut buffer)?;
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (path.src, path.dst) else { return None };
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
    from.outbound(now, &mut SeededRng(3), from_mut(packet), from_mut(&mut verdict));
    matches!(verdict, Outbound::Send(_)).then_some(())
}

/// Decrypts a packet and checks the policy.
pub(crate) fn receive(to: &mut Datapath, packet: &mut Packet<'_>, now: Instant) -> Option<()> {
    let mut verdict = Inbound::Drop(DropReason::NoRoom);
    to.inbound(now, from_mut(packet), from_mut(&mut verdict));
    matches!(verdict, Inbound::Deliver(_)).then_some(())
}
