//! Builds an ESP packet around a payload, and removes ESP from an opened packet, in place (RFC 4303 sections
//! 2.4, 3.3.2, 3.4.4).

use super::EspKey;
use super::{AeadIv, EspCipher, IvUse};
use crate::DropReason;
use crate::seq::Reserved;
use casemate_crypto::{EspSuite, Rng};
use casemate_wire::esp::{
    EspHeader, EspPlaintext, EspTrailer, HEADER_LEN, TRAILER_LEN, is_default_padding, pad_len,
};
use casemate_wire::packet::{NoRoom, Packet};

/// Sizes of a suite in bytes.
#[derive(Clone, Copy)]
pub(crate) struct EspSizes {
    iv: u8,
    icv: u8,
    /// Alignment of the text; at least 4 (RFC 4303 section 2.4).
    pad_to: u8,
}

/// What goes around the payload of a packet, besides what every packet of its SA has.
#[derive(Clone, Copy)]
pub(crate) struct FrameSpec {
    /// Bytes to make room for in front of the ESP header.
    pub(crate) room_before: usize,
    pub(crate) next_header: u8,
    /// Bytes of padding besides those that align the text; a multiple of the alignment, at most 240.
    pub(crate) extra_padding: u8,
}

/// A framed packet.
pub(crate) struct FramedEsp<'p> {
    /// The room in front, whose content is undefined.
    pub(crate) before: &'p mut [u8],
    /// Length of the ESP packet, from the SPI to the ICV.
    pub(crate) esp_len: usize,
}

/// What ESP or AH adds around a payload, in bytes.
pub(crate) struct AroundPayload {
    /// Header, IV and ICV together.
    pub(crate) fixed: usize,
    /// Trailer without padding.
    pub(crate) trailer: usize,
    /// Alignment of the text, minus one.
    pub(crate) align_mask: usize,
}

impl EspSizes {
    pub(crate) const fn of(suite: EspSuite) -> Self {
        let pad_to = if suite.pad_to() < 4 { 4 } else { suite.pad_to() as u8 };
        Self { iv: suite.iv_len() as u8, icv: suite.icv_len() as u8, pad_to }
    }

    /// Bytes from the SPI to the start of the text.
    #[inline]
    pub(crate) const fn front(self) -> usize {
        HEADER_LEN.saturating_add(self.iv as usize)
    }

    #[inline]
    pub(crate) const fn icv(self) -> usize {
        self.icv as usize
    }

    /// Sizes of what surrounds a payload.
    pub(crate) const fn around_payload(self) -> AroundPayload {
        AroundPayload {
            fixed: self.front().saturating_add(self.icv()),
            trailer: TRAILER_LEN,
            align_mask: (self.pad_to as usize).saturating_sub(1),
        }
    }

    /// Whether a received packet is long enough and its text has a valid length.
    #[inline]
    pub(crate) fn accept(self, packet_len: usize) -> bool {
        let text = packet_len.saturating_sub(self.front().saturating_add(self.icv()));
        // RFC 4303 section 2.4: the text ends on a 4-byte boundary and consists of whole blocks.
        text >= TRAILER_LEN && text & usize::from(self.pad_to).wrapping_sub(1) == 0
    }
}

/// Turns the payload in `packet` into an ESP packet that lacks only encryption and ICV.
#[cfg_attr(target_pointer_width = "64", inline(always))]
pub(crate) fn frame<'p>(
    packet: &'p mut Packet<'_>,
    key: &EspKey,
    spi: u32,
    seq: &Reserved,
    iv_mask: u64,
    spec: FrameSpec,
    rng: &mut dyn Rng,
) -> Result<FramedEsp<'p>, NoRoom> {
    let (sizes, payload_len) = (key.sizes, packet.len());
    let aligning = pad_len(payload_len, sizes.pad_to.into());
    let tail_len = |pad_len: u8| usize::from(pad_len).saturating_add(TRAILER_LEN).saturating_add(sizes.icv());
    let pad_len = match spec.extra_padding {
        0 => aligning,
        // Extra padding is not worth losing the packet.
        extra => {
            let padded = aligning.checked_add(extra);
            padded.filter(|padded| tail_len(*padded) <= packet.tail_room()).unwrap_or(aligning)
        }
    };
    packet.grow(spec.room_before.saturating_add(sizes.front()), tail_len(pad_len))?;
    let (before, esp) = packet.data_mut().split_at_mut_checked(spec.room_before).ok_or(NoRoom)?;
    let esp_len = esp.len();
    let (header, rest) = esp.split_first_chunk_mut().ok_or(NoRoom)?;
    let (iv, rest) = rest.split_at_mut_checked(sizes.iv.into()).ok_or(NoRoom)?;
    let (_payload, tail) = rest.split_at_mut_checked(payload_len).ok_or(NoRoom)?;
    EspHeader { spi, seq: seq.low() }.emit(header);
    EspTrailer { pad_len, next_header: spec.next_header }.emit_padded(tail).ok_or(NoRoom)?;
    match &key.cipher {
        EspCipher::Separate { iv: IvUse::None, .. } | EspCipher::Combined { iv: AeadIv::Implicit, .. } => {}
        EspCipher::Separate { iv: IvUse::Random, .. } => rng.public(iv),
        // RFC 4106 section 3.1, RFC 4309 section 3.1, RFC 3686 section 3.1, RFC 7634 section 2: unique for
        // each packet. The sequence number is unique; the mask separates two SAs with the same key.
        EspCipher::Combined { iv: AeadIv::Explicit, .. }
        | EspCipher::Separate { iv: IvUse::Ctr(_) | IvUse::Gmac(_), .. } => {
            *iv.first_chunk_mut().ok_or(NoRoom)? = (seq.number() ^ iv_mask).to_be_bytes();
        }
    }
    Ok(FramedEsp { before, esp_len })
}

/// Removes ESP from an opened packet whose ESP header begins at `at`. Returns the protocol of the payload.
#[inline]
pub(crate) fn unframe(packet: &mut Packet<'_>, at: usize, sizes: EspSizes) -> Result<u8, DropReason> {
    let before = at.saturating_add(sizes.front());
    let text = packet.data_between(before, sizes.icv()).ok_or(DropReason::Truncated)?;
    let EspPlaintext { payload, padding, trailer } =
        EspPlaintext::parse(text).map_err(|_| DropReason::BadPadding)?;
    // RFC 4303 section 2.4: the receiver SHOULD inspect the padding.
    if !is_default_padding(padding) {
        return Err(DropReason::BadPadding);
    }
    let payload_len = payload.len();
    packet.narrow(before, payload_len).map_err(|NoRoom| DropReason::Truncated)?;
    Ok(trailer.next_header)
}
