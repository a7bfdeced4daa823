//! ICMP error messages (RFC 792, RFC 1191, RFC 1812; for IPv6 RFC 4443): the ones that IPsec sends, and all received.
//!
//! A message is type, code, checksum, one word, and the start of the packet that it complains about. Called by the data
//! path for "packet too big" and refusals. When one may be sent or believed is decided there.

use core::net::Ipv6Addr;

use crate::{
    Malformed,
    checksum::{Sum, pseudo_v6},
    ip::{IpVersion, proto, v4, v6},
};

/// Length of the message without the quoted packet.
pub const HEADER_LEN: usize = 8;
/// The most of a packet that an ICMPv4 error quotes: all of it that fits into 576 bytes (RFC 1812 section 4.3.2.3).
pub const MAX_QUOTE_V4: usize = 576 - v4::HEADER_LEN - HEADER_LEN;
/// The most of a packet that an ICMPv6 error quotes: all of it that fits into the least MTU (RFC 4443 section 2.4 (c)).
pub const MAX_QUOTE_V6: usize = v6::MIN_MTU - v6::HEADER_LEN - HEADER_LEN;

/// Whether messages of this type report an error, and so quote a packet.
#[inline]
pub fn is_error(version: IpVersion, kind: u8) -> bool {
    match version {
        // RFC 1122 section 3.2.2: unreachable, source quench, redirect, time exceeded, parameter problem.
        IpVersion::V4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        // RFC 4443 section 2.1: the high-order bit tells.
        IpVersion::V6 => kind < 128,
    }
}

/// What an error message says, whatever the IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The packet is longer than the next hop's MTU. ICMPv4 routers older than RFC 1191 say 0.
    TooBig {
        /// The next hop's MTU.
        mtu: u32,
    },
    /// Forbidden by policy.
    Prohibited,
    /// Unreachable for another reason.
    Unreachable,
    /// Hop limit or reassembly time ran out.
    TimeExceeded,
    /// A field is wrong.
    ParameterProblem {
        /// Offset of the field in the quoted packet.
        pointer: u32,
    },
    /// Any other error.
    Other,
}

/// An error message without the packet that it quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    version: IpVersion,
    kind: u8,
    code: u8,
    word: u32,
}

impl IcmpError {
    /// "Fragmentation needed and DF set", or "packet too big". ICMPv4 can say at most 65,535.
    #[inline]
    pub fn too_big(version: IpVersion, mtu: u32) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 3, code: 4, word: mtu.min(0xffff) },
            IpVersion::V6 => Self { version, kind: 2, code: 0, word: mtu },
        }
    }

    /// "Communication administratively prohibited" (RFC 4301 section 5.1 names both).
    #[inline]
    pub fn prohibited(version: IpVersion) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 3, code: 13, word: 0 },
            IpVersion::V6 => Self { version, kind: 1, code: 1, word: 0 },
        }
    }

    /// "Time to live exceeded in transit", or "hop limit exceeded".
    #[inline]
    pub fn hop_limit_exceeded(version: IpVersion) -> Self {
        Self { version, kind: time_exceeded(version), code: 0, word: 0 }
    }

    /// "Fragment reassembly time exceeded".
    #[inline]
    pub fn reassembly_time_exceeded(version: IpVersion) -> Self {
        Self { version, kind: time_exceeded(version), code: 1, word: 0 }
    }

    /// "Parameter problem" with the erroneous field at `pointer`; ICMPv4 can point at the first 256 bytes.
    #[inline]
    pub fn parameter_problem(version: IpVersion, code: u8, pointer: u32) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 12, code, word: pointer.min(0xff) << 24 },
            IpVersion::V6 => Self { version, kind: 4, code, word: pointer },
        }
    }

    /// Whether this is ICMPv4 or ICMPv6.
    #[inline]
    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// The type.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// The code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// What the message says.
    #[inline]
    pub fn cause(&self) -> Cause {
        match (self.version, self.kind, self.code) {
            (IpVersion::V4, 3, 4) => Cause::TooBig { mtu: self.word & 0xffff },
            (IpVersion::V6, 2, _) => Cause::TooBig { mtu: self.word },
            // Network, host and communication administratively prohibited.
            (IpVersion::V4, 3, 9 | 10 | 13) | (IpVersion::V6, 1, 1) => Cause::Prohibited,
            (IpVersion::V4, 3, _) | (IpVersion::V6, 1, _) => Cause::Unreachable,
            (IpVersion::V4, 11, _) | (IpVersion::V6, 3, _) => Cause::TimeExceeded,
            (IpVersion::V4, 12, _) => Cause::ParameterProblem { pointer: self.word >> 24 },
            (IpVersion::V6, 4, _) => Cause::ParameterProblem { pointer: self.word },
            _ => Cause::Other,
        }
    }

    /// Splits an ICMPv4 message into the error and the packet that it quotes, the end of which may be missing.
    pub fn parse_v4(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        Self::parse(IpVersion::V4, Sum::ZERO, message)
    }

    /// Splits an ICMPv6 message, sent from `src` to `dst`, into the error and the packet that it quotes, the end of which
    /// may be missing.
    pub fn parse_v6(message: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<(Self, &[u8]), Malformed> {
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        Self::parse(IpVersion::V6, pseudo_v6(src, dst, proto::ICMPV6, len), message)
    }

    fn parse(version: IpVersion, pseudo: Sum, message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (&[kind, code, _, _, a, b, c, d], quoted) =
            message.split_first_chunk().ok_or(Malformed::new("ICMP header", "must have 8 bytes"))?;
        if !is_error(version, kind) {
            return Err(Malformed::new("ICMP type", "must be that of an error message"));
        }
        if !pseudo.add_bytes(message).is_valid() {
            return Err(Malformed::new("ICMP checksum", "must match the message"));
        }
        Ok((Self { version, kind, code, word: u32::from_be_bytes([a, b, c, d]) }, quoted))
    }

    /// Writes an ICMPv4 message that quotes as much of `packet` as is allowed and `out` has room for; returns the
    /// message's length. `None` if `out` has not even room for the header, or this is an ICMPv6 error.
    pub fn emit_v4(&self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.version != IpVersion::V4 {
            return None;
        }
        self.emit(packet, MAX_QUOTE_V4, out, |_| Sum::ZERO)
    }

    /// Writes an ICMPv6 message from `src` to `dst` that quotes as much of `packet` as is allowed and `out` has room for;
    /// returns the message's length. `None` if `out` has not even room for the header, or this is an ICMPv4 error.
    pub fn emit_v6(&self, packet: &[u8], src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
        if self.version != IpVersion::V6 {
            return None;
        }
        self.emit(packet, MAX_QUOTE_V6, out, |len| pseudo_v6(src, dst, proto::ICMPV6, len))
    }

    fn emit(&self, packet: &[u8], max: usize, out: &mut [u8], pseudo: impl Fn(u32) -> Sum) -> Option<usize> {
        let room = out.len().checked_sub(HEADER_LEN)?;
        let quoted = packet.get(..max.min(room)).unwrap_or(packet);
        let len = quoted.len().checked_add(HEADER_LEN)?;
        let message = out.get_mut(..len)?;
        message.get_mut(HEADER_LEN..)?.copy_from_slice(quoted);
        self.emit_around_quote(message, pseudo(u32::try_from(len).ok()?))?;
        Some(len)
    }

    /// Makes a message of `message`, which holds the quoted packet from byte 8 on already: for errors that are made in the
    /// packet's own buffer. `pseudo` is the sum of the pseudo header, zero for ICMPv4. `None` if there is no room for the
    /// header.
    pub fn emit_around_quote(&self, message: &mut [u8], pseudo: Sum) -> Option<()> {
        let (header, quote) = message.split_first_chunk_mut::<HEADER_LEN>()?;
        let [a, b, c, d] = self.word.to_be_bytes();
        *header = [self.kind, self.code, 0, 0, a, b, c, d];
        let sum = pseudo.add_bytes(header).add_bytes(quote);
        [header[2], header[3]] = sum.finish().to_be_bytes();
        Some(())
    }
}

#[inline]
fn time_exceeded(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => 11,
        IpVersion::V6 => 3,
    }
}

#[cfg(test)]
mod tests;
