//! ICMP error messages (RFC 792, RFC 1191, RFC 1812; for IPv6 RFC 4443): the ones that IPsec sends, and all
//! that it receives.
//!
//! A message is type, code, checksum, one word, and the start of the packet that caused the error. The data
//! path sends "packet too big" and policy rejections; it also decides when to send an error and when to trust
//! one.

use core::net::Ipv6Addr;

use crate::{
    Malformed,
    checksum::{Sum, pseudo_v6},
    ip::{IpVersion, proto, v4, v6},
};

/// Length of the message without the quoted packet, in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum length of the quote in an ICMPv4 error: the message must fit into 576 bytes (RFC 1812 section
/// 4.3.2.3).
pub const MAX_QUOTE_V4: usize = 576 - v4::HEADER_LEN - HEADER_LEN;
/// Maximum length of the quote in an ICMPv6 error: the message must fit into the minimum MTU (RFC 4443
/// section 2.4 (c)).
pub const MAX_QUOTE_V6: usize = v6::MIN_MTU - v6::HEADER_LEN - HEADER_LEN;

/// Whether messages of this type report an error, and thus quote a packet.
#[inline]
pub fn is_error(version: IpVersion, kind: u8) -> bool {
    match version {
        // RFC 1122 section 3.2.2: unreachable, source quench, redirect, time exceeded, parameter problem.
        IpVersion::V4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        // RFC 4443 section 2.1: the high-order bit is clear in errors.
        IpVersion::V6 => kind < 128,
    }
}

/// Cause of an error, for both IP versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The packet exceeds the MTU of the next hop. ICMPv4 routers older than RFC 1191 report an MTU of 0.
    TooBig {
        /// MTU of the next hop.
        mtu: u32,
    },
    /// Prohibited by policy.
    Prohibited,
    /// Unreachable for another reason.
    Unreachable,
    /// The hop limit or the reassembly time was exceeded.
    TimeExceeded,
    /// A header field is invalid.
    ParameterProblem {
        /// Offset of the field in the quoted packet.
        pointer: u32,
    },
    /// Any other error.
    Other,
}

/// An error message without its quoted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    version: IpVersion,
    kind: u8,
    code: u8,
    word: u32,
}

impl IcmpError {
    /// Creates "fragmentation needed and DF set" or "packet too big". ICMPv4 reports at most 65,535.
    #[inline]
    pub fn too_big(version: IpVersion, mtu: u32) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 3, code: 4, word: mtu.min(0xffff) },
            IpVersion::V6 => Self { version, kind: 2, code: 0, word: mtu },
        }
    }

    /// Creates "communication administratively prohibited" (both versions named in RFC 4301 section 5.1).
    #[inline]
    pub fn prohibited(version: IpVersion) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 3, code: 13, word: 0 },
            IpVersion::V6 => Self { version, kind: 1, code: 1, word: 0 },
        }
    }

    /// Creates "time to live exceeded in transit" or "hop limit exceeded".
    #[inline]
    pub fn hop_limit_exceeded(version: IpVersion) -> Self {
        Self { version, kind: time_exceeded(version), code: 0, word: 0 }
    }

    /// Creates "fragment reassembly time exceeded".
    #[inline]
    pub fn reassembly_time_exceeded(version: IpVersion) -> Self {
        Self { version, kind: time_exceeded(version), code: 1, word: 0 }
    }

    /// Creates "parameter problem" for the field at offset `pointer`; ICMPv4 can only point into the first
    /// 256 bytes.
    #[inline]
    pub fn parameter_problem(version: IpVersion, code: u8, pointer: u32) -> Self {
        match version {
            IpVersion::V4 => Self { version, kind: 12, code, word: pointer.min(0xff) << 24 },
            IpVersion::V6 => Self { version, kind: 4, code, word: pointer },
        }
    }

    /// IP version: ICMPv4 or ICMPv6.
    #[inline]
    pub fn version(&self) -> IpVersion {
        self.version
    }

    /// Type of the message.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Code of the message.
    #[inline]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Cause of the error.
    #[inline]
    pub fn cause(&self) -> Cause {
        match (self.version, self.kind, self.code) {
            (IpVersion::V4, 3, 4) => Cause::TooBig { mtu: self.word & 0xffff },
            (IpVersion::V6, 2, _) => Cause::TooBig { mtu: self.word },
            // Network, host and communication are administratively prohibited.
            (IpVersion::V4, 3, 9 | 10 | 13) | (IpVersion::V6, 1, 1) => Cause::Prohibited,
            (IpVersion::V4, 3, _) | (IpVersion::V6, 1, _) => Cause::Unreachable,
            (IpVersion::V4, 11, _) | (IpVersion::V6, 3, _) => Cause::TimeExceeded,
            (IpVersion::V4, 12, _) => Cause::ParameterProblem { pointer: self.word >> 24 },
            (IpVersion::V6, 4, _) => Cause::ParameterProblem { pointer: self.word },
            _ => Cause::Other,
        }
    }

    /// Splits an ICMPv4 message into the error and the quoted packet, which may be truncated.
    pub fn parse_v4(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        Self::parse(IpVersion::V4, Sum::ZERO, message)
    }

    /// Splits an ICMPv6 message from `src` to `dst` into the error and the quoted packet, which may be
    /// truncated.
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

    /// Writes an ICMPv4 message that quotes as much of `packet` as the RFC allows and `out` can hold. Returns
    /// the length of the message, or `None` if `out` is too small for the header or this is an ICMPv6 error.
    pub fn emit_v4(&self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.version != IpVersion::V4 {
            return None;
        }
        self.emit(packet, MAX_QUOTE_V4, out, |_| Sum::ZERO)
    }

    /// Writes an ICMPv6 message from `src` to `dst` that quotes as much of `packet` as the RFC allows and
    /// `out` can hold. Returns the length of the message, or `None` if `out` is too small for the header or
    /// this is an ICMPv4 error.
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
        self.emit_in_place(message, pseudo(u32::try_from(len).ok()?))?;
        Some(len)
    }

    /// Writes the header of `message`, which already contains the quoted packet from byte 8 on. For errors
    /// that are built in the buffer of the packet. `pseudo` is the sum of the pseudo header; zero for ICMPv4.
    /// Returns `None` if `message` is too short for the header.
    pub fn emit_in_place(&self, message: &mut [u8], pseudo: Sum) -> Option<()> {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    #[test]
    fn types_and_codes_match_the_rfcs() {
        let head = |error: IcmpError| {
            let mut out = [0; 8];
            match error.version() {
                IpVersion::V4 => error.emit_v4(&[], &mut out),
                IpVersion::V6 => error.emit_v6(&[], SRC, DST, &mut out),
            }
            .unwrap();
            (out[0], out[1], u32::from_be_bytes([out[4], out[5], out[6], out[7]]))
        };
        use IpVersion::{V4, V6};
        assert_eq!(head(IcmpError::too_big(V4, 1400)), (3, 4, 1400));
        assert_eq!(head(IcmpError::too_big(V4, 70_000)), (3, 4, 65_535));
        assert_eq!(head(IcmpError::too_big(V6, 70_000)), (2, 0, 70_000));
        assert_eq!(head(IcmpError::prohibited(V4)), (3, 13, 0));
        assert_eq!(head(IcmpError::prohibited(V6)), (1, 1, 0));
        assert_eq!(head(IcmpError::hop_limit_exceeded(V4)), (11, 0, 0));
        assert_eq!(head(IcmpError::reassembly_time_exceeded(V6)), (3, 1, 0));
        assert_eq!(head(IcmpError::parameter_problem(V4, 0, 20)), (12, 0, 20 << 24));
        assert_eq!(head(IcmpError::parameter_problem(V6, 1, 40)), (4, 1, 40));
    }

    #[test]
    fn causes() {
        use IpVersion::{V4, V6};
        let cause = |version, kind, code, word| IcmpError { version, kind, code, word }.cause();
        // RFC 4884 stores a length in the upper half of the word.
        assert_eq!(cause(V4, 3, 4, 0x0020_05dc), Cause::TooBig { mtu: 1500 });
        assert_eq!(cause(V6, 2, 0, 1280), Cause::TooBig { mtu: 1280 });
        assert_eq!(cause(V4, 3, 10, 0), Cause::Prohibited);
        assert_eq!(cause(V4, 3, 1, 0), Cause::Unreachable);
        assert_eq!(cause(V6, 1, 4, 0), Cause::Unreachable);
        assert_eq!(cause(V4, 12, 0, 0x1400_0000), Cause::ParameterProblem { pointer: 20 });
        assert_eq!(cause(V4, 5, 0, 0), Cause::Other);
        assert_eq!(cause(V6, 3, 0, 0), Cause::TimeExceeded);
    }

    #[test]
    fn quotes_are_as_long_as_allowed() {
        let packet = [0x5a; 2000];
        let mut out = [0; 2000];
        let v4 = IcmpError::prohibited(IpVersion::V4);
        let v6 = IcmpError::prohibited(IpVersion::V6);
        assert_eq!(v4.emit_v4(&packet, &mut out), Some(556));
        assert_eq!(v6.emit_v6(&packet, SRC, DST, &mut out), Some(1240));
        assert_eq!(v4.emit_v4(&packet, &mut out[..100]), Some(100));
        assert_eq!(v4.emit_v4(&packet[..28], &mut out), Some(36));
        assert_eq!(v4.emit_v4(&packet, &mut out[..7]), None);
        assert_eq!(v4.emit_v6(&packet, SRC, DST, &mut out), None);
        assert_eq!(v6.emit_v4(&packet, &mut out), None);
    }

    #[test]
    fn damaged_messages_and_non_errors_are_rejected() {
        let field = |message: &[u8]| IcmpError::parse_v4(message).unwrap_err().field;
        assert_eq!(field(&[3; 7]), "ICMP header");
        assert_eq!(field(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0]), "ICMP type");
        assert_eq!(field(&[3, 1, 0xfc, 0xff, 0, 0, 0, 0]), "ICMP checksum");
        assert!(IcmpError::parse_v4(&[3, 1, 0xfc, 0xfe, 0, 0, 0, 0]).is_ok());
        assert_eq!(IcmpError::parse_v6(&[128; 8], SRC, DST).unwrap_err().field, "ICMP type");
    }

    proptest! {
        #[test]
        fn round_trip(
            v6: bool,
            kinds in (prop_oneof![Just(3u8), Just(4), Just(5), Just(11), Just(12)], 0u8..128),
            code: u8,
            word: u32,
            packet in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let version = if v6 { IpVersion::V6 } else { IpVersion::V4 };
            let kind = if v6 { kinds.1 } else { kinds.0 };
            let error = IcmpError { version, kind, code, word };
            let mut out = [0; 400];
            let len = if v6 {
                error.emit_v6(&packet, SRC, DST, &mut out)
            } else {
                error.emit_v4(&packet, &mut out)
            };
            let message = &mut out[..len.unwrap()];
            let parse = |m: &[u8]| {
                if v6 { IcmpError::parse_v6(m, SRC, DST) } else { IcmpError::parse_v4(m) }
                    .map(|(e, q)| (e, q.to_vec()))
            };
            prop_assert_eq!(parse(message), Ok((error, packet)));
            message[3] ^= 1;
            prop_assert_eq!(parse(message).unwrap_err().field, "ICMP checksum");
        }

        #[test]
        fn any_bytes_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            kind in 0u8..13,
        ) {
            if let [first, _, hi, lo, ..] = &mut bytes[..] {
                (*first, *hi, *lo) = (kind, 0, 0);
                let [hi, lo] = Sum::of(&bytes).finish().to_be_bytes();
                (bytes[2], bytes[3]) = (hi, lo);
            }
            if let Ok((error, quoted)) = IcmpError::parse_v4(&bytes) {
                let _ = error.cause();
                prop_assert_eq!(quoted.len() + HEADER_LEN, bytes.len());
            }
            let _ = IcmpError::parse_v6(&bytes, SRC, DST);
        }
    }
}
