//! Protection of one packet with one SA (RFC 4303 section 3.3, RFC 4302 section 3.3), except for ESP
//! encryption, which is done for a whole run. `outbound` calls it with a reserved sequence number.

use crate::ah::AhKey;
use crate::dummy::UniformHeader;
use crate::encapsulation::Encapsulation;
use crate::esp::{EspKey, FrameSpec, FramedEsp};
use crate::sa::{ProtocolKey, SaKeys};
use crate::seq::Reserved;
use crate::tunnel::{HeaderFields, InnerHeader};
use crate::{DropReason, ah, esp, transport};
use casemate_crypto::Rng;
use casemate_sa::Mode;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};
use casemate_wire::udp::UdpHeader;

/// What depends on the length of a packet.
#[derive(Clone, Copy)]
pub(crate) struct SizePlan {
    pub(crate) will_be_fragmented: bool,
    /// As [`FrameSpec::extra_padding`].
    pub(crate) extra_padding: u8,
}

/// A protected packet that lacks only ESP encryption and ICV.
pub(crate) struct Framed {
    /// Offset of the ESP header, and the sequence number; `None` for AH, which is complete.
    pub(crate) to_seal: Option<(usize, Reserved)>,
    /// Offset of the UDP payload, with UDP encapsulation.
    pub(crate) udp_payload: Option<u16>,
}

impl Encapsulation {
    /// Protects the packet, which begins with `header`, with ESP in tunnel mode, but leaves the room for the
    /// outer header as it is. [`Self::write_outer`] writes that header.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn protect_esp_tunnel(
        &self,
        key: &EspKey,
        packet: &mut Packet<'_>,
        header: &InnerHeader,
        seq: Reserved,
        size: SizePlan,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        self.pad_traffic_flow(packet)?;
        let (next_header, extra_padding) = (header.protocol(), size.extra_padding);
        let spec = FrameSpec { room_before: self.esp_at, next_header, extra_padding };
        self.frame_esp(packet, key, &seq, spec, rng)?;
        Ok(self.framed_esp(self.esp_at, seq))
    }

    /// Writes the outer header to the start of a packet that is otherwise complete.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn write_outer(
        &self,
        packet: &mut Packet<'_>,
        fields: HeaderFields,
        seq: u32,
    ) -> Result<(), DropReason> {
        let payload_len = packet.len().saturating_sub(self.outer.len());
        self.outer.write(packet.data_mut(), fields, payload_len, seq as u16)
    }

    /// Protects the packet, which begins with `header`.
    #[inline(never)]
    pub(crate) fn protect(
        &self,
        keys: &SaKeys,
        packet: &mut Packet<'_>,
        header: &InnerHeader,
        seq: Reserved,
        size: SizePlan,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        match (keys.mode, &keys.key) {
            (Mode::Tunnel, ProtocolKey::Esp(key)) => {
                let low = seq.low();
                let framed = self.protect_esp_tunnel(key, packet, header, seq, size, rng)?;
                self.write_outer(packet, self.outer.fields(header, size.will_be_fragmented), low)?;
                Ok(framed)
            }
            (Mode::Transport, ProtocolKey::Esp(key)) => {
                self.protect_esp_transport(key, packet, seq, size, rng)
            }
            (Mode::Tunnel, ProtocolKey::Ah(key)) => {
                self.protect_ah_tunnel(keys.esn, key, packet, header, seq, size)
            }
            (Mode::Transport, ProtocolKey::Ah(key)) => {
                self.protect_ah_transport(keys.esn, key, packet, seq, size)
            }
        }
    }

    fn protect_esp_transport(
        &self,
        key: &EspKey,
        packet: &mut Packet<'_>,
        seq: Reserved,
        size: SizePlan,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        let point = transport::insert_point(packet.data())?;
        check_not_fragment(&point)?;
        let room_before = self.esp_at.saturating_sub(self.outer.len());
        let gap = key.sizes.front().saturating_add(room_before);
        transport::open_gap(packet, point.headers, gap).map_err(no_room)?;
        let (next_header, extra_padding) = (point.protocol, size.extra_padding);
        self.frame_esp(packet, key, &seq, FrameSpec { room_before, next_header, extra_padding }, rng)?;
        transport::restore_headers(packet, &point, self.outer.protocol(), size.will_be_fragmented)?;
        Ok(self.framed_esp(point.headers.saturating_add(room_before), seq))
    }

    fn protect_ah_tunnel(
        &self,
        esn: bool,
        key: &AhKey,
        packet: &mut Packet<'_>,
        header: &InnerHeader,
        seq: Reserved,
        size: SizePlan,
    ) -> Result<Framed, DropReason> {
        ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, header.protocol())
            .map_err(no_room)?;
        packet.grow_front(self.outer.len()).map_err(no_room)?;
        self.write_outer(packet, self.outer.fields(header, size.will_be_fragmented), seq.low())?;
        ah::sign(packet, self.outer.len(), key, seq, esn)?;
        Ok(Framed { to_seal: None, udp_payload: None })
    }

    fn protect_ah_transport(
        &self,
        esn: bool,
        key: &AhKey,
        packet: &mut Packet<'_>,
        seq: Reserved,
        size: SizePlan,
    ) -> Result<Framed, DropReason> {
        let point = transport::insert_point(packet.data())?;
        check_not_fragment(&point)?;
        transport::open_gap(packet, point.headers, key.header_len(self.align)).map_err(no_room)?;
        ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, point.protocol)
            .map_err(no_room)?;
        transport::restore_headers(packet, &point, self.outer.protocol(), size.will_be_fragmented)?;
        ah::sign(packet, point.headers, key, seq, esn)?;
        Ok(Framed { to_seal: None, udp_payload: None })
    }

    /// Turns the bytes in `packet` into a dummy packet of the same length: ESP with the next header "no next
    /// header" (RFC 4303 section 2.6). AH has no dummy packets.
    #[inline(never)]
    pub(crate) fn protect_dummy(
        &self,
        keys: &SaKeys,
        packet: &mut Packet<'_>,
        uniform_header: &UniformHeader,
        seq: Reserved,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        let ProtocolKey::Esp(key) = &keys.key else { return Err(DropReason::BadNextHeader) };
        match keys.mode {
            Mode::Tunnel => self.pad_traffic_flow(packet)?,
            // The IP header of the packet is not encrypted.
            Mode::Transport => {
                let len = packet.len().saturating_sub(self.outer.len());
                packet.set_len(len).map_err(no_room)?;
            }
        }
        let spec = FrameSpec { room_before: self.esp_at, next_header: proto::NO_NEXT, extra_padding: 0 };
        self.frame_esp(packet, key, &seq, spec, rng)?;
        let fields = self.dummy_header_fields(keys.mode, uniform_header);
        self.write_outer(packet, fields, seq.low())?;
        Ok(self.framed_esp(self.esp_at, seq))
    }

    /// Adds ESP around the payload, and a UDP header in front if the SA uses UDP encapsulation.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn frame_esp(
        &self,
        packet: &mut Packet<'_>,
        key: &EspKey,
        seq: &Reserved,
        spec: FrameSpec,
        rng: &mut dyn Rng,
    ) -> Result<(), DropReason> {
        let FramedEsp { before, esp_len } =
            esp::frame(packet, key, self.spi.get(), seq, self.iv_mask, spec, rng).map_err(no_room)?;
        let Some(encap) = self.encap else { return Ok(()) };
        let payload_len = u16::try_from(esp_len).map_err(|_| DropReason::TooLong)?;
        // RFC 3948 section 2.1: the checksum SHOULD be zero for IPv4. For IPv6 it is computed after
        // encryption.
        let header = UdpHeader { src_port: encap.src_port, dst_port: encap.dst_port, payload_len };
        header.emit(before.last_chunk_mut().ok_or(DropReason::NoRoom)?).map_err(|_| DropReason::TooLong)
    }

    /// A packet whose ESP header is at `at`.
    #[inline]
    fn framed_esp(&self, at: usize, seq: Reserved) -> Framed {
        Framed { to_seal: Some((at, seq)), udp_payload: self.encap.and(u16::try_from(at).ok()) }
    }

    /// RFC 4303 section 2.7: padding after the inner packet. The receiver finds the end of the inner packet
    /// by its own length field.
    #[inline]
    fn pad_traffic_flow(&self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        let len = packet.len();
        let padded = self.overhead.padded_len(len);
        if padded != len {
            packet.set_len(padded).map_err(no_room)?;
            packet.data_mut().get_mut(len..).or_broken_default("padding makes a packet longer").fill(0);
        }
        Ok(())
    }
}

fn check_not_fragment(point: &transport::InsertPoint) -> Result<(), DropReason> {
    if point.is_fragment { Err(DropReason::Fragment) } else { Ok(()) }
}

fn no_room(NoRoom: NoRoom) -> DropReason {
    DropReason::NoRoom
}
