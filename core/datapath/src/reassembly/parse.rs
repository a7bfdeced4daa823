//! One parsed fragment of either IP version: its data, its position, and the key of its datagram.

use super::{MAX_HEADERS, ReassemblyError, TIMEOUT_V4, TIMEOUT_V6};
use crate::ecn::Ecn;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, ext, proto, v6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// What parsing has checked.
const PARSED: &str = "a parsed packet contains its headers and its data";

/// The fields that identify the datagram of a fragment (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    V4 { src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, ident: u16 },
    V6 { src: Ipv6Addr, dst: Ipv6Addr, ident: u32 },
}

impl Key {
    pub(super) const fn src(&self) -> IpAddr {
        match self {
            Self::V4 { src, .. } => IpAddr::V4(*src),
            Self::V6 { src, .. } => IpAddr::V6(*src),
        }
    }

    pub(super) const fn timeout(&self) -> Duration {
        match self {
            Self::V4 { .. } => TIMEOUT_V4,
            Self::V6 { .. } => TIMEOUT_V6,
        }
    }
}

/// A fragment that is valid by itself, or a whole packet.
#[derive(Debug)]
pub(super) struct ParsedFragment<'p> {
    pub(super) key: Key,
    /// The IPv4 header, or all IPv6 headers before the fragment header.
    pub(super) headers: &'p [u8],
    /// Offset in `headers` of the protocol field, and its value without the fragment header.
    pub(super) next_header_at: usize,
    pub(super) next_header: u8,
    /// The data, and its position in the datagram. Invariant: with the headers of this fragment, the datagram
    /// is not longer than IP allows.
    pub(super) data: &'p [u8],
    pub(super) start: u16,
    pub(super) end: u16,
    /// Whether more fragments follow.
    pub(super) more: bool,
    pub(super) ecn: Ecn,
}

impl<'p> ParsedFragment<'p> {
    pub(super) fn parse(packet: &'p [u8]) -> Result<Self, ReassemblyError> {
        match ip::version(packet)? {
            IpVersion::V4 => Self::parse_v4(packet),
            IpVersion::V6 => Self::parse_v6(packet),
        }
    }

    /// Whether this is the whole datagram.
    pub(super) const fn is_whole(&self) -> bool {
        self.start == 0 && !self.more
    }

    /// Minimum length of the datagram in bytes.
    pub(super) fn datagram_len(&self) -> usize {
        self.headers.len().saturating_add(self.end.into())
    }

    fn parse_v4(packet: &'p [u8]) -> Result<Self, ReassemblyError> {
        let ip = Ipv4::parse(packet)?;
        // The whole datagram gets a new checksum, which must not hide a damaged header.
        if !ip.verify_checksum() {
            return Err(ReassemblyError::BadChecksum);
        }
        let packet = packet.get(..ip.total_len().into()).or_broken_default(PARSED);
        let (headers, data) = packet.split_at_checked(ip.header_len()).or_broken_default(PARSED);
        let protocol = ip.protocol();
        let fragment = Self {
            key: Key::V4 { src: ip.src(), dst: ip.dst(), protocol, ident: ip.ident() },
            headers,
            next_header_at: 9,
            next_header: protocol,
            data,
            start: ip.frag_offset(),
            end: end(ip.frag_offset(), data, headers.len())?,
            more: ip.mf(),
            ecn: Ecn::from_tos(ip.tos()),
        };
        fragment.check()?;
        // RFC 3128: no fragment may begin inside the part of the TCP header that filters look at.
        let inside_tcp = protocol == proto::TCP && fragment.start == 8;
        if inside_tcp || fragment.is_first() && data.len() < upper_header_len(protocol) {
            return Err(ReassemblyError::TinyFirst);
        }
        Ok(fragment)
    }

    fn parse_v6(packet: &'p [u8]) -> Result<Self, ReassemblyError> {
        let ip = Ipv6::parse(packet)?;
        let packet = packet.get(..ip.total_len()).or_broken_default(PARSED);
        let (mut next_header_at, mut found) = (v6::NEXT_HEADER_AT, None);
        for header in ip.headers() {
            let header = header?;
            if let Some(fragment_header) = header.fragment() {
                found = Some((fragment_header, header.next_header));
                break;
            }
            next_header_at = header.at;
        }
        let Some((fragment_header, next_header)) = found else { return Self::whole_v6(&ip, packet) };
        let (headers, rest) = packet.split_at_checked(fragment_header.at).or_broken_default(PARSED);
        let data = rest.get(ext::FRAGMENT_LEN..).or_broken_default(PARSED);
        // The payload length, which must not exceed 65,535, does not include the fixed header.
        let extensions_len = headers.len().saturating_sub(v6::HEADER_LEN);
        let fragment = Self {
            key: Key::V6 { src: ip.src(), dst: ip.dst(), ident: fragment_header.ident },
            headers,
            next_header_at,
            next_header,
            data,
            start: fragment_header.offset,
            end: end(fragment_header.offset, data, extensions_len)?,
            more: fragment_header.more,
            ecn: Ecn::from_tos(ip.traffic_class()),
        };
        fragment.check()?;
        if fragment.is_first() && !has_all_headers(&ip, packet) {
            return Err(ReassemblyError::TinyFirst);
        }
        Ok(fragment)
    }

    /// A packet without a fragment header.
    fn whole_v6(ip: &Ipv6<&[u8]>, packet: &'p [u8]) -> Result<Self, ReassemblyError> {
        let (headers, data) = packet.split_at_checked(v6::HEADER_LEN).or_broken_default(PARSED);
        Ok(Self {
            key: Key::V6 { src: ip.src(), dst: ip.dst(), ident: 0 },
            headers,
            next_header_at: v6::NEXT_HEADER_AT,
            next_header: ip.next_header(),
            data,
            start: 0,
            end: end(0, data, 0)?,
            more: false,
            ecn: Ecn::from_tos(ip.traffic_class()),
        })
    }

    /// Whether this is the first of several fragments.
    const fn is_first(&self) -> bool {
        self.start == 0 && self.more
    }

    fn check(&self) -> Result<(), ReassemblyError> {
        if self.headers.len() > MAX_HEADERS {
            return Err(ReassemblyError::HeadersTooLong);
        }
        if self.more && !self.data.len().is_multiple_of(8) {
            return Err(ReassemblyError::Misaligned);
        }
        if self.data.is_empty() && !self.is_whole() {
            return Err(ReassemblyError::Empty);
        }
        Ok(())
    }
}

/// The end of `data` from offset `start` on. An error if it and `counted` bytes of headers exceed 65,535.
fn end(start: u16, data: &[u8], counted: usize) -> Result<u16, ReassemblyError> {
    let end = u16::try_from(data.len()).ok().and_then(|len| start.checked_add(len));
    end.filter(|&end| counted.saturating_add(end.into()) <= usize::from(u16::MAX))
        .ok_or(ReassemblyError::TooBig)
}

/// RFC 7112 section 5: the first fragment contains all headers, including the upper-layer header.
fn has_all_headers(ip: &Ipv6<&[u8]>, packet: &[u8]) -> bool {
    // Fails if an extension header exceeds the fragment.
    ip.chain().is_ok_and(|chain| {
        let upper = packet.get(chain.last.at..).or_broken_default(PARSED);
        upper.len() >= upper_header_len(chain.last.next_header)
    })
}

/// Number of bytes of the upper-layer header that the first fragment must contain.
const fn upper_header_len(protocol: u8) -> usize {
    match protocol {
        // RFC 1858: up to and including the flags, rounded up.
        proto::TCP => 16,
        proto::NO_NEXT => 0,
        // Ports of UDP; SPI and sequence number of ESP; type, code and identifier of ICMP; SPI of AH.
        _ => 8,
    }
}
