//! Header summaries: flow key, length, TOS and DF bit of a packet.

use super::{FlowKey, dscp_bits};
use crate::{
    Malformed,
    dscp::Dscp,
    ip::{IpVersion, Ipv4, Ipv6, proto, v4, version},
};

/// Header fields of a packet that a gateway needs, so that the headers are parsed only once.
#[derive(Debug, Clone, Copy)]
pub struct HeaderSummary {
    /// The selectors.
    pub key: FlowKey,
    // DF, type of service, total length (32 bits). One word, because loading a word that was stored in bytes
    // stalls the CPU.
    pub(super) rest: u64,
}

impl HeaderSummary {
    /// Parses the IP packet at the start of `packet`.
    // Always inlined, and built word by word: loading a key as vectors after storing it as words stalls the
    // CPU.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        if let Some(common) = Self::parse_common_v4(packet) {
            return Ok(common);
        }
        let Self { key: FlowKey([a, b, c, d, e]), rest } = Self::parse_any(packet)?;
        Ok(Self { key: FlowKey([a, b, c, d, e]), rest })
    }

    /// Fast path for most packets: unfragmented IPv4 without options, with TCP or UDP and its ports. All
    /// fields are at fixed offsets, which halves the time.
    #[inline(always)]
    pub(super) fn parse_common_v4(packet: &[u8]) -> Option<Self> {
        let h: &[u8; 24] = packet.first_chunk()?;
        let (proto, flags) = (h[9], h[6]);
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        let is_common = h[0] == 0x45
            && flags & !v4::DF == 0
            && h[7] == 0
            && (proto == proto::TCP || proto == proto::UDP)
            && (h.len()..=packet.len()).contains(&total_len.into());
        if !is_common {
            return None;
        }
        let src = u32::from_be_bytes([h[12], h[13], h[14], h[15]]);
        let dst = u32::from_be_bytes([h[16], h[17], h[18], h[19]]);
        let ports = u32::from_be_bytes([h[20], h[21], h[22], h[23]]);
        let rest = dscp_bits(Dscp::from_tos(h[1])) | u64::from(proto) << 32 | u64::from(ports);
        let key = FlowKey([src.into(), 0, dst.into(), 0, rest]);
        Some(Self::new(key, total_len.into(), h[1], flags != 0))
    }

    /// Parses any IP packet.
    #[inline(never)]
    pub(super) fn parse_any(packet: &[u8]) -> Result<Self, Malformed> {
        match version(packet)? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet)?;
                Ok(Self::new(FlowKey::from_v4(&ip), ip.total_len().into(), ip.tos(), ip.df()))
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet)?;
                Ok(Self::new(FlowKey::from_v6(&ip)?, ip.total_len(), ip.traffic_class(), true))
            }
        }
    }

    #[inline(always)]
    fn new(key: FlowKey, total_len: usize, tos: u8, df: bool) -> Self {
        Self { key, rest: u64::from(df) << 40 | u64::from(tos) << 32 | u64::from(total_len as u32) }
    }

    /// Length of header and payload. Later bytes do not belong to the packet.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.rest as u32 as usize
    }

    /// Type of service or traffic class: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        (self.rest >> 32) as u8
    }

    /// Whether routers must not fragment the packet: the DF bit of IPv4; always true for IPv6 (RFC 8200
    /// section 5).
    #[inline]
    pub fn df(&self) -> bool {
        self.rest >> 40 != 0
    }
}
