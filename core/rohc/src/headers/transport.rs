//! UDP, RTP and ESP headers.

use crate::Fault;
use crate::cursor::{HeaderBytes, Packed, Reader, Write};
use arrayvec::ArrayVec;

/// Largest number of CSRC identifiers of an RTP header.
pub(crate) const MAX_CSRC: usize = 15;

const UDP_LEN: usize = 8;
const RTP_LEN: usize = 12;

/// The header behind the IP headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The packet is compressed up to its innermost IP header.
    None,
    Udp(Udp),
    Rtp(Udp, Rtp),
    Esp(Esp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Udp {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) checksum: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rtp {
    pub(crate) padding: bool,
    pub(crate) extension: bool,
    pub(crate) marker: bool,
    /// 7 bits.
    pub(crate) payload_type: u8,
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
    pub(crate) ssrc: u32,
    pub(crate) csrc: ArrayVec<u32, MAX_CSRC>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Esp {
    pub(crate) spi: u32,
    pub(crate) sequence: u32,
}

impl Transport {
    /// Length of the headers in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Udp(_) | Self::Esp(_) => UDP_LEN,
            Self::Rtp(_, rtp) => {
                UDP_LEN.saturating_add(RTP_LEN).saturating_add(rtp.csrc.len().saturating_mul(4))
            }
        }
    }

    /// Writes the headers; `len` is the number of bytes from them to the end of the packet.
    pub(super) fn write(&self, len: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        match self {
            Self::None => Ok(()),
            Self::Udp(udp) => udp.write(len, out),
            Self::Rtp(udp, rtp) => {
                udp.write(len, out)?;
                rtp.write(out)
            }
            Self::Esp(esp) => {
                out.put(&esp.spi.to_be_bytes())?;
                out.put(&esp.sequence.to_be_bytes())
            }
        }
    }

    /// Whether the fields of the static chain are equal.
    pub(super) const fn is_same_flow(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Udp(a), Self::Udp(b)) => a.has_ports_of(b),
            (Self::Rtp(a, x), Self::Rtp(b, y)) => a.has_ports_of(b) && x.ssrc == y.ssrc,
            (Self::Esp(a), Self::Esp(b)) => a.spi == b.spi,
            _ => false,
        }
    }
}

impl Udp {
    /// Parses a header whose length field covers the rest of the packet.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let datagram_len = reader.0.len();
        let (src_port, dst_port) = (reader.u16().ok()?, reader.u16().ok()?);
        let (len, checksum) = (reader.u16().ok()?, reader.u16().ok()?);
        (usize::from(len) == datagram_len).then_some(Self { src_port, dst_port, checksum })
    }

    fn write(&self, len: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        let len = u16::try_from(len).map_err(|_| Fault::TooLong)?;
        [self.src_port, self.dst_port, len, self.checksum]
            .iter()
            .try_for_each(|field| out.put(&field.to_be_bytes()))
    }

    const fn has_ports_of(&self, other: &Self) -> bool {
        self.src_port == other.src_port && self.dst_port == other.dst_port
    }
}

impl Rtp {
    /// Parses a header of version 2 with all its CSRC identifiers.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let [flags, marker_type, s0, s1] = reader.array().ok()?;
        if flags >> 6 != 2 {
            return None;
        }
        let mut rtp = Self {
            padding: flags & 0x20 != 0,
            extension: flags & 0x10 != 0,
            marker: marker_type & 0x80 != 0,
            payload_type: marker_type & 0x7f,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: reader.u32().ok()?,
            ssrc: reader.u32().ok()?,
            csrc: ArrayVec::new(),
        };
        for _ in 0..flags & 0x0f {
            rtp.csrc.try_push(reader.u32().ok()?).ok()?;
        }
        Some(rtp)
    }

    fn write(&self, out: &mut HeaderBytes) -> Result<(), Fault> {
        let count = u32::try_from(self.csrc.len()).map_err(|_| Fault::TooLong)?;
        let flags =
            Packed::default().with(2, 2).with_flag(self.padding).with_flag(self.extension).with(count, 4);
        let first = flags.with_flag(self.marker).with(self.payload_type.into(), 7);
        first.write(out)?;
        out.put(&self.sequence.to_be_bytes())?;
        [self.timestamp, self.ssrc].iter().chain(&self.csrc).try_for_each(|word| out.put(&word.to_be_bytes()))
    }

    /// Takes over all fields. The list of CSRC identifiers is copied only if it differs.
    pub(super) fn advance_to(&mut self, next: &Self) {
        (self.padding, self.extension, self.marker) = (next.padding, next.extension, next.marker);
        (self.payload_type, self.sequence) = (next.payload_type, next.sequence);
        (self.timestamp, self.ssrc) = (next.timestamp, next.ssrc);
        if self.csrc != next.csrc {
            self.csrc = next.csrc.clone();
        }
    }
}
