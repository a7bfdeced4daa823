//! One packet under one SA (RFC 4303 section 3.3, RFC 4302 section 3.3): everything but ESP's encryption, which waits for its
//! run. Called by `outbound` with a reserved number.

use crate::dummy::Look;
use crate::framing::Framing;
use crate::seq::Reserved;
use crate::shared::{Engine, Shared};
use crate::tunnel::Inner;
use crate::{DropReason, ah, esp, transport};
use casemate_crypto::Rng;
use casemate_sa::Mode;
use casemate_wire::ip::proto;
use casemate_wire::packet::{NoRoom, Packet};
use casemate_wire::udp::{self, UdpHeader};

/// A packet in its final form, but for ESP's encryption and ICV.
pub(crate) struct Framed {
    /// Where the ESP header stands and the number it carries; `None` for AH, which is finished.
    pub(crate) to_seal: Option<(usize, Reserved)>,
    /// Where the UDP payload starts, with UDP encapsulation.
    pub(crate) udp_payload: Option<u16>,
}

impl Framing {
    /// Builds the protected packet around the one in `packet`, which begins with `header`.
    #[inline]
    pub(crate) fn protect(
        &self,
        shared: &Shared,
        packet: &mut Packet<'_>,
        header: &Inner,
        seq: Reserved,
        will_be_cut: bool,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        match (shared.mode, &shared.engine) {
            (Mode::Tunnel, Engine::Esp(key)) => {
                self.pad_traffic_flow(packet)?;
                let front = self.frame_esp(packet, key, &seq, header.protocol(), rng)?;
                self.outer.push(packet, self.carrier(), header, will_be_cut, seq.low() as u16)?;
                Ok(self.framed_esp(packet, self.outer.len(), front, seq))
            }
            (Mode::Transport, Engine::Esp(key)) => {
                let place = transport::place(packet.data())?;
                refuse_fragment(&place)?;
                let udp = if self.encap.is_some() { udp::HEADER_LEN } else { 0 };
                let gap = key.sizes.front().saturating_add(udp);
                transport::lift(packet, place.headers, gap).map_err(no_room)?;
                let front = self.frame_esp(packet, key, &seq, place.protocol, rng)?;
                transport::lower(packet, &place, self.carrier(), will_be_cut)?;
                Ok(self.framed_esp(packet, place.headers, front, seq))
            }
            (Mode::Tunnel, Engine::Ah(key)) => {
                ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, header.protocol())
                    .map_err(no_room)?;
                self.outer.push(packet, ah::PROTOCOL, header, will_be_cut, seq.low() as u16)?;
                ah::sign(packet, self.outer.len(), key, seq, shared.esn)?;
                Ok(Framed { to_seal: None, udp_payload: None })
            }
            (Mode::Transport, Engine::Ah(key)) => {
                let place = transport::place(packet.data())?;
                refuse_fragment(&place)?;
                transport::lift(packet, place.headers, key.header_len(self.align)).map_err(no_room)?;
                ah::insert(packet, key, self.align, self.spi.get(), &seq, self.iv_mask, place.protocol)
                    .map_err(no_room)?;
                transport::lower(packet, &place, ah::PROTOCOL, will_be_cut)?;
                ah::sign(packet, place.headers, key, seq, shared.esn)?;
                Ok(Framed { to_seal: None, udp_payload: None })
            }
        }
    }

    /// Turns the bytes in `packet` into a dummy packet: ESP whose next header says that nothing is in it (RFC 4303 section
    /// 2.6), as long as the packet would be. AH has no such thing.
    pub(crate) fn protect_dummy(
        &self,
        shared: &Shared,
        packet: &mut Packet<'_>,
        look: &Look,
        seq: Reserved,
        rng: &mut dyn Rng,
    ) -> Result<Framed, DropReason> {
        let Engine::Esp(key) = &shared.engine else { return Err(DropReason::BadNextHeader) };
        match shared.mode {
            Mode::Tunnel => self.pad_traffic_flow(packet)?,
            // The header of a packet stays outside.
            Mode::Transport => {
                let len = packet.len().saturating_sub(self.outer.len());
                packet.set_len(len).map_err(no_room)?;
            }
        }
        let udp = self.frame_esp(packet, key, &seq, proto::NO_NEXT, rng)?;
        self.push_dummy_header(shared.mode, packet, self.carrier(), look, seq.low() as u16)?;
        Ok(self.framed_esp(packet, self.outer.len(), udp, seq))
    }

    /// The protocol that the IP header in front of ESP names.
    const fn carrier(&self) -> u8 {
        if self.encap.is_some() { proto::UDP } else { proto::ESP }
    }

    /// ESP around the payload, and UDP around that if the SA wants it. Answers the length of UDP header, if any.
    #[inline]
    fn frame_esp(
        &self,
        packet: &mut Packet<'_>,
        key: &esp::EspKey,
        seq: &Reserved,
        next_header: u8,
        rng: &mut dyn Rng,
    ) -> Result<usize, DropReason> {
        esp::frame(packet, key, self.spi.get(), seq, self.iv_mask, next_header, rng).map_err(no_room)?;
        let Some(encap) = self.encap else { return Ok(0) };
        let payload_len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
        // RFC 3948 section 2.1: the checksum SHOULD be zero for IPv4. For IPv6 it is filled in when the text is sealed.
        let header = UdpHeader { src_port: encap.src_port, dst_port: encap.dst_port, payload_len };
        header.emit(packet.prepend().map_err(no_room)?).map_err(|_| DropReason::TooLong)?;
        Ok(udp::HEADER_LEN)
    }

    fn framed_esp(&self, packet: &Packet<'_>, headers: usize, udp: usize, seq: Reserved) -> Framed {
        let at = headers.saturating_add(udp);
        debug_assert!(at < packet.len());
        Framed { to_seal: Some((at, seq)), udp_payload: self.encap.and(u16::try_from(at).ok()) }
    }

    /// RFC 4303 section 2.7: bytes after the inner packet, which the receiver finds by the inner packet's own length.
    #[inline]
    fn pad_traffic_flow(&self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        let len = packet.len();
        let padded = self.growth.padded_len(len);
        if padded != len {
            packet.set_len(padded).map_err(no_room)?;
            packet.data_mut().get_mut(len..).unwrap_or_default().fill(0);
        }
        Ok(())
    }
}

fn refuse_fragment(place: &transport::Place) -> Result<(), DropReason> {
    if place.is_fragment { Err(DropReason::Fragment) } else { Ok(()) }
}

fn no_room(NoRoom: NoRoom) -> DropReason {
    DropReason::NoRoom
}
