//! Protection of one packet with one SA (RFC 4303 section 3.3, RFC 4302 section 3.3), except for ESP
//! encryption, which is done for a whole run. `outbound` calls it with a reserved sequence number.

use crate::dummy::UniformHeader;
use crate::encapsulation::Encapsulation;
use crate::esp::TextEnd;
use crate::sa::{ProtocolKey, SaKeys};
use crate::seq::Reserved;
use crate::tunnel::InnerHeader;
use crate::{DropReason, ah, esp, transport};
use casemate_crypto::Rng;
use casemate_sa::Mode;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};
use casemate_wire::udp::{self, UdpHeader};

/// What depends on the length of a packet.
#[derive(Clone, Copy)]
pub(crate) struct SizePlan {
    pub(crate) will_be_fragmented: bool,
    /// As [`TextEnd::extra_padding`].
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
    /// Protects the packet, which begins with `header`.
    #[inline]
    pub(crate) fn protect(
        &self,
        keys: &SaKeys,
        packet: &mut Packet<'_>,
        header: &InnerHeader,
        seq: Reserved,
        size: SizePlan,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        let SizePlan { will_be_fragmented, extra_padding } = size;
        match (keys.mode, &keys.key) {
            (Mode::Tunnel, ProtocolKey::Esp(key)) => {
                self.pad_traffic_flow(packet)?;
                let front = self.frame_esp(
                    packet,
                    key,
                    &seq,
                    TextEnd { next_header: header.protocol(), extra_padding },
                    rng,
                )?;
                self.outer.push(
                    packet,
                    self.outer_protocol(),
                    header,
                    will_be_fragmented,
                    seq.low() as u16,
                )?;
                Ok(self.framed_esp(packet, self.outer.len(), front, seq))
            }
            (Mode::Transport, ProtocolKey::Esp(key)) => {
                let point = transport::insert_point(packet.data())?;
                check_not_fragment(&point)?;
                let udp = if self.encap.is_some() { udp::HEADER_LEN } else { 0 };
                let gap = key.sizes.front().saturating_add(udp);
                transport::open_gap(packet, point.headers, gap).map_err(no_room)?;
                let front = self.frame_esp(
                    packet,
                    key,
                    &seq,
                    TextEnd { next_header: point.protocol, extra_padding },
                    rng,
                )?;
                transport::restore_headers(packet, &point, self.outer_protocol(), will_be_fragmented)?;
                Ok(self.framed_esp(packet, point.headers, front, seq))
            }
            (Mode::Tunnel, ProtocolKey::Ah(key)) => {
                ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, header.protocol())
                    .map_err(no_room)?;
                self.outer.push(packet, ah::PROTOCOL, header, will_be_fragmented, seq.low() as u16)?;
                ah::sign(packet, self.outer.len(), key, seq, keys.esn)?;
                Ok(Framed { to_seal: None, udp_payload: None })
            }
            (Mode::Transport, ProtocolKey::Ah(key)) => {
                let point = transport::insert_point(packet.data())?;
                check_not_fragment(&point)?;
                transport::open_gap(packet, point.headers, key.header_len(self.align)).map_err(no_room)?;
                ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, point.protocol)
                    .map_err(no_room)?;
                transport::restore_headers(packet, &point, ah::PROTOCOL, will_be_fragmented)?;
                ah::sign(packet, point.headers, key, seq, keys.esn)?;
                Ok(Framed { to_seal: None, udp_payload: None })
            }
        }
    }

    /// Turns the bytes in `packet` into a dummy packet of the same length: ESP with the next header "no next
    /// header" (RFC 4303 section 2.6). AH has no dummy packets.
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
        let udp = self.frame_esp(
            packet,
            key,
            &seq,
            TextEnd { next_header: proto::NO_NEXT, extra_padding: 0 },
            rng,
        )?;
        self.push_dummy_header(keys.mode, packet, self.outer_protocol(), uniform_header, seq.low() as u16)?;
        Ok(self.framed_esp(packet, self.outer.len(), udp, seq))
    }

    /// The protocol in the IP header in front of ESP.
    const fn outer_protocol(&self) -> u8 {
        if self.encap.is_some() { proto::UDP } else { proto::ESP }
    }

    /// Adds ESP around the payload, and a UDP header if the SA uses UDP encapsulation. Returns the length of
    /// the UDP header, or 0.
    #[inline]
    fn frame_esp(
        &self,
        packet: &mut Packet<'_>,
        key: &esp::EspKey,
        seq: &Reserved,
        end: TextEnd,
        rng: &mut dyn Rng,
    ) -> Result<usize, DropReason> {
        esp::frame(packet, key, self.spi.get(), seq, self.iv_mask, end, rng).map_err(no_room)?;
        let Some(encap) = self.encap else { return Ok(0) };
        let payload_len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
        // RFC 3948 section 2.1: the checksum SHOULD be zero for IPv4. For IPv6 it is computed after
        // encryption.
        let header = UdpHeader { src_port: encap.src_port, dst_port: encap.dst_port, payload_len };
        header.emit(packet.prepend().map_err(no_room)?).map_err(|_| DropReason::TooLong)?;
        Ok(udp::HEADER_LEN)
    }

    fn framed_esp(&self, packet: &Packet<'_>, headers: usize, udp: usize, seq: Reserved) -> Framed {
        let at = headers.saturating_add(udp);
        debug_assert!(at < packet.len());
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
