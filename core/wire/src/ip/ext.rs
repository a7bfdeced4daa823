//! IPv6 extension headers (RFC 8200 section 4): the chain from the fixed header to the upper-layer protocol.
//!
//! The parser skips hop-by-hop options, routing, fragment and destination options headers, which is the
//! default of RFC 4301 section 4.4.1.1. All other headers, including ESP and AH, count as the upper layer. It
//! runs for every classified IPv6 packet, and in transport mode.
//!
//! Limits: [`MAX_HEADERS`] headers, and one fragment header. With two of them, one parser could see a
//! fragment where another sees a whole packet (RFC 8200 section 4.1: each header SHOULD occur at most once).

use super::{Ipv6, proto, v6};
use crate::Malformed;
use crate::invariant::OrBroken;

/// Maximum number of extension headers; packets with more are rejected.
pub const MAX_HEADERS: u8 = 16;

/// Length of the fragment header, in bytes.
pub const FRAGMENT_LEN: usize = 8;

/// The kind of an extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtHeaderKind {
    /// Hop-by-hop options, for every router on the path.
    HopByHop,
    /// Routing header of any routing type.
    Routing,
    /// Fragment header.
    Fragment,
    /// Options for the destination.
    DestOpts,
}

impl ExtHeaderKind {
    /// Returns the kind of extension header with the number `next_header`; `None` for an upper-layer
    /// protocol.
    #[inline]
    pub fn of(next_header: u8) -> Option<Self> {
        match next_header {
            proto::HOP_BY_HOP => Some(Self::HopByHop),
            proto::ROUTING => Some(Self::Routing),
            proto::FRAGMENT => Some(Self::Fragment),
            proto::DEST_OPTS => Some(Self::DestOpts),
            _ => None,
        }
    }
}

/// An extension header. Offsets count from the start of the packet.
#[derive(Debug, Clone, Copy)]
pub struct ExtHeader<'a> {
    /// Kind of the header.
    pub kind: ExtHeaderKind,
    /// Offset of the header. Its first byte is its next header field.
    pub at: usize,
    /// Bytes of the header.
    pub bytes: &'a [u8],
    /// Number of the header that follows.
    pub next_header: u8,
}

impl<'a> ExtHeader<'a> {
    /// Options of a hop-by-hop or destination options header; empty for other kinds.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        let rest = match self.kind {
            ExtHeaderKind::HopByHop | ExtHeaderKind::DestOpts => {
                self.bytes.get(2..).or_broken_default("an extension header has 8 bytes")
            }
            ExtHeaderKind::Routing | ExtHeaderKind::Fragment => &[],
        };
        Options { rest, at: self.at.saturating_add(2) }
    }

    /// Fields of a fragment header; `None` for other kinds.
    #[inline]
    pub fn fragment(&self) -> Option<FragmentHeader> {
        let h: &[u8; FRAGMENT_LEN] =
            self.bytes.first_chunk().filter(|_| self.kind == ExtHeaderKind::Fragment)?;
        let word = u16::from_be_bytes([h[2], h[3]]);
        Some(FragmentHeader {
            at: self.at,
            offset: word & !7,
            more: word & 1 != 0,
            ident: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
        })
    }

    /// Fields of a routing header; `None` for other kinds.
    #[inline]
    pub fn routing(&self) -> Option<Routing<'a>> {
        let (h, data) =
            self.bytes.split_first_chunk::<4>().filter(|_| self.kind == ExtHeaderKind::Routing)?;
        Some(Routing { kind: h[2], segments_left: h[3], data, data_at: self.at.saturating_add(4) })
    }
}

/// Fields of a fragment header (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Offset of the fragment header in the packet.
    pub at: usize,
    /// Offset of the fragment's data in the fragmentable part of the original packet, in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification, equal in all fragments of a packet.
    pub ident: u32,
}

impl FragmentHeader {
    /// Whether the "fragment" is the whole packet: an atomic fragment (RFC 6946).
    #[inline]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes a fragment header for fragmentable data that starts with a header of type `next_header`.
    #[inline]
    pub fn emit(&self, next_header: u8, out: &mut [u8; FRAGMENT_LEN]) {
        let [o0, o1] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [i0, i1, i2, i3] = self.ident.to_be_bytes();
        *out = [next_header, 0, o0, o1, i0, i1, i2, i3];
    }
}

/// Fields of a routing header (RFC 8200 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing<'a> {
    /// Routing type.
    pub kind: u8,
    /// Number of remaining route segments.
    pub segments_left: u8,
    /// Type-specific data.
    pub data: &'a [u8],
    /// Offset of the type-specific data in the packet.
    pub data_at: usize,
}

/// A position in the header chain: a header, and the field that contains its number. Offsets count from the
/// start of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderPosition {
    /// Protocol number of the header.
    pub next_header: u8,
    /// Offset of the header.
    pub at: usize,
    /// Offset of the next header field that contains `next_header`.
    pub next_header_at: usize,
}

impl HeaderPosition {
    // Position after the fixed header.
    #[inline]
    fn first(next_header: u8) -> Self {
        Self { next_header, at: v6::HEADER_LEN, next_header_at: v6::NEXT_HEADER_AT }
    }
}

/// Result of parsing the chain of extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Position after the last extension header. In a later fragment, the header is only claimed, see
    /// [`Chain::upper`].
    pub last: HeaderPosition,
    /// Position at which transport mode inserts ESP or AH: after the hop-by-hop, routing and fragment headers
    /// and the destination options before them. Later destination options are protected (RFC 4303 section
    /// 3.1.1, RFC 4302 section 3.1.1). In an unfragmented packet, a fragment header belongs at the same
    /// position (RFC 8200 section 4.5).
    pub transport: HeaderPosition,
    /// Fragment header, if present.
    pub fragment: Option<FragmentHeader>,
}

impl Chain {
    // Returns the chain of a packet without extension headers.
    #[inline]
    pub(super) fn without_extensions(upper: u8) -> Self {
        let place = HeaderPosition::first(upper);
        Self { last: place, transport: place, fragment: None }
    }

    /// Upper-layer protocol. `None` if a later fragment does not show it: OPAQUE in RFC 4301 section 4.4.1.1.
    #[inline]
    pub fn upper(&self) -> Option<u8> {
        ExtHeaderKind::of(self.last.next_header).is_none().then_some(self.last.next_header)
    }

    /// Whether the packet is a later fragment: no headers follow its fragment header.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|f| f.offset != 0)
    }
}

/// Parses `packet` and its extension headers.
#[inline]
pub fn parse_chain(packet: &[u8]) -> Result<Chain, Malformed> {
    Ipv6::parse(packet)?.chain()
}

/// Iterator over the extension headers of a packet. It ends at the upper layer, after the fragment header of
/// a later fragment, or after an error.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    packet: &'a [u8],
    next: HeaderPosition,
    left: u8,
    has_fragment: bool,
    done: bool,
}

impl<'a> Headers<'a> {
    #[inline]
    pub(super) fn new(packet: &'a [u8], next_header: u8) -> Self {
        Self {
            packet,
            next: HeaderPosition::first(next_header),
            left: MAX_HEADERS,
            has_fragment: false,
            done: false,
        }
    }

    #[inline(never)]
    pub(super) fn parse_chain(mut self) -> Result<Chain, Malformed> {
        let (mut transport, mut fragment) = (self.next, None);
        while let Some(header) = self.next() {
            let header = header?;
            fragment = header.fragment().or(fragment);
            if header.kind != ExtHeaderKind::DestOpts {
                transport = self.next;
            }
        }
        Ok(Chain { last: self.next, transport, fragment })
    }

    fn take(&mut self, kind: ExtHeaderKind) -> Result<ExtHeader<'a>, Malformed> {
        let at = self.next.at;
        // RFC 8200 section 4.1: hop-by-hop options are only allowed directly after the IPv6 header.
        if kind == ExtHeaderKind::HopByHop && at != v6::HEADER_LEN {
            return Err(Malformed::new("IPv6 hop-by-hop options", "must come first"));
        }
        if kind == ExtHeaderKind::Fragment && core::mem::replace(&mut self.has_fragment, true) {
            return Err(Malformed::new("IPv6 fragment header", "must come once"));
        }
        self.left =
            self.left.checked_sub(1).ok_or(Malformed::new("IPv6 extension headers", "must be at most 16"))?;
        let short = Malformed::new("IPv6 extension header", "must lie inside the packet");
        let rest = self.packet.get(at..).ok_or(short)?;
        let &[next_header, units] = rest.first_chunk().ok_or(short)?;
        let len = match kind {
            // The second byte of the fragment header is reserved.
            ExtHeaderKind::Fragment => FRAGMENT_LEN,
            _ => usize::from(units).saturating_add(1) << 3,
        };
        let bytes = rest.get(..len).ok_or(short)?;
        self.next = HeaderPosition { next_header, at: at.saturating_add(len), next_header_at: at };
        Ok(ExtHeader { kind, at, bytes, next_header })
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Result<ExtHeader<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let kind = ExtHeaderKind::of(self.next.next_header).filter(|_| !self.done)?;
        let header = self.take(kind);
        self.done = match &header {
            Ok(header) => header.fragment().is_some_and(|f| f.offset != 0),
            Err(_) => true,
        };
        Some(header)
    }
}

/// An option of a hop-by-hop or destination options header (RFC 8200 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Option type.
    pub kind: u8,
    /// Offset of the option data in the packet.
    pub data_at: usize,
    /// Option data.
    pub data: &'a [u8],
}

impl Ipv6Option<'_> {
    const PAD1: u8 = 0;

    /// Whether the data may change on the path (third-highest bit of the type). AH treats such data as
    /// mutable.
    #[inline]
    pub fn is_mutable(&self) -> bool {
        self.kind & 0x20 != 0
    }
}

/// Iterator over options. It skips Pad1 and ends after a malformed option, for which it returns an error.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    fn take(&mut self) -> Result<Ipv6Option<'a>, Malformed> {
        let short = Malformed::new("IPv6 option length", "must not run past the header");
        let (&[kind, len], rest) = self.rest.split_first_chunk().ok_or(short)?;
        let (data, rest) = rest.split_at_checked(len.into()).ok_or(short)?;
        let data_at = self.at.saturating_add(2);
        self.rest = rest;
        self.at = data_at.saturating_add(len.into());
        Ok(Ipv6Option { kind, data_at, data })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv6Option<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [Ipv6Option::PAD1, rest @ ..] = self.rest {
            self.rest = rest;
            self.at = self.at.saturating_add(1);
        }
        if self.rest.is_empty() {
            return None;
        }
        let option = self.take();
        if option.is_err() {
            self.rest = &[];
        }
        Some(option)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    // Builds a packet with these extension headers (lengths in 8-byte units), then a header `upper` with 8
    // bytes.
    fn packet(headers: &[(u8, usize)], upper: u8) -> Vec<u8> {
        let mut bytes = std::vec![0u8; 40];
        bytes[0] = 0x60;
        let mut named_at = 6;
        for &(number, units) in headers {
            bytes[named_at] = number;
            named_at = bytes.len();
            bytes.resize(named_at + units * 8, 0);
            bytes[named_at + 1] = if number == proto::FRAGMENT { 0 } else { (units - 1) as u8 };
        }
        bytes[named_at] = upper;
        bytes.extend([0xee; 8]);
        let len = (bytes.len() - 40) as u16;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    #[test]
    fn no_extension_header() {
        let chain = parse_chain(&packet(&[], proto::TCP)).unwrap();
        let place = HeaderPosition { next_header: proto::TCP, at: 40, next_header_at: 6 };
        assert_eq!(chain, Chain { last: place, transport: place, fragment: None });
        assert_eq!(chain.upper(), Some(proto::TCP));
    }

    #[test]
    fn transport_mode_protects_only_the_last_destination_options() {
        let bytes = packet(
            &[(proto::HOP_BY_HOP, 1), (proto::DEST_OPTS, 2), (proto::ROUTING, 3), (proto::DEST_OPTS, 1)],
            proto::UDP,
        );
        let chain = parse_chain(&bytes).unwrap();
        assert_eq!(
            chain.transport,
            HeaderPosition { next_header: proto::DEST_OPTS, at: 88, next_header_at: 64 }
        );
        assert_eq!(chain.last, HeaderPosition { next_header: proto::UDP, at: 96, next_header_at: 88 });
        // Without a routing header, destination options count as the last ones and are protected.
        let chain = parse_chain(&packet(&[(proto::DEST_OPTS, 1)], proto::UDP)).unwrap();
        assert_eq!(
            chain.transport,
            HeaderPosition { next_header: proto::DEST_OPTS, at: 40, next_header_at: 6 }
        );
        let chain =
            parse_chain(&packet(&[(proto::HOP_BY_HOP, 1), (proto::FRAGMENT, 1)], proto::UDP)).unwrap();
        assert_eq!(chain.transport, HeaderPosition { next_header: proto::UDP, at: 56, next_header_at: 48 });
    }

    #[test]
    fn later_fragments_hide_the_following_headers() {
        let mut bytes = packet(&[(proto::FRAGMENT, 1), (proto::DEST_OPTS, 1)], proto::TCP);
        bytes[42..48].copy_from_slice(&[0x01, 0x01, 9, 8, 7, 6]);
        let chain = parse_chain(&bytes).unwrap();
        assert_eq!(
            chain.fragment,
            Some(FragmentHeader { at: 40, offset: 256, more: true, ident: 0x09080706 })
        );
        assert!(chain.is_later_fragment());
        assert_eq!(chain.upper(), None);
        assert_eq!(chain.last.at, 48);
        bytes[42] = 0;
        let chain = parse_chain(&bytes).unwrap();
        assert!(!chain.is_later_fragment());
        assert_eq!((chain.upper(), chain.last.at), (Some(proto::TCP), 56));
    }

    #[test]
    fn invalid_chains_are_rejected() {
        let field = |bytes: &[u8]| parse_chain(bytes).unwrap_err().field;
        let many = [(proto::DEST_OPTS, 1); 17];
        assert!(parse_chain(&packet(&many[..16], proto::TCP)).is_ok());
        assert_eq!(field(&packet(&many, proto::TCP)), "IPv6 extension headers");
        assert_eq!(
            field(&packet(&[(proto::ROUTING, 1), (proto::HOP_BY_HOP, 1)], proto::TCP)),
            "IPv6 hop-by-hop options"
        );
        let mut bytes = packet(&[(proto::DEST_OPTS, 1)], proto::TCP);
        bytes[41] = 2;
        assert_eq!(field(&bytes), "IPv6 extension header");
        let twice = packet(&[(proto::FRAGMENT, 1), (proto::DEST_OPTS, 1), (proto::FRAGMENT, 1)], proto::TCP);
        assert_eq!(field(&twice), "IPv6 fragment header");
        // Bytes after the payload length do not belong to the headers.
        bytes[41] = 0;
        bytes[5] = 7;
        assert_eq!(field(&bytes), "IPv6 extension header");
    }

    #[test]
    fn an_invalid_option_ends_the_iteration() {
        let mut bytes = packet(&[(proto::HOP_BY_HOP, 2)], proto::TCP);
        bytes[42..56].copy_from_slice(&[5, 2, 0, 0, 0, 0x3e, 3, 7, 8, 9, 1, 2, 0, 0]);
        let options = |bytes: &[u8]| {
            let ip = Ipv6::parse(bytes).unwrap();
            let header = ip.headers().next().unwrap().unwrap();
            header
                .options()
                .map(|o| o.map(|o| (o.kind, o.data_at, o.data.to_vec(), o.is_mutable())))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            options(&bytes),
            [
                Ok((5, 44, std::vec![0, 0], false)),
                Ok((0x3e, 49, std::vec![7, 8, 9], true)),
                Ok((1, 54, std::vec![0, 0], false))
            ]
        );
        bytes[53] = 3;
        assert_eq!(options(&bytes).len(), 3);
        assert!(options(&bytes)[2].is_err());
        bytes[52..56].copy_from_slice(&[0, 0, 0, 5]);
        assert!(options(&bytes)[2].is_err());
    }

    #[test]
    fn routing_fields() {
        let mut bytes = packet(&[(proto::ROUTING, 3)], proto::TCP);
        bytes[42..44].copy_from_slice(&[4, 1]);
        let ip = Ipv6::parse(&bytes[..]).unwrap();
        let header = ip.headers().next().unwrap().unwrap();
        let routing = header.routing().unwrap();
        let options = ExtHeader { kind: ExtHeaderKind::DestOpts, ..header };
        assert_eq!((options.routing(), options.fragment()), (None, None));
        assert_eq!(
            (routing.kind, routing.segments_left, routing.data.len(), routing.data_at),
            (4, 1, 20, 44)
        );
        assert_eq!(header.fragment(), None);
        assert_eq!(header.options().next(), None);
    }

    proptest! {
        #[test]
        fn fragment_round_trip(next_header: u8, units in 0u16..8192, more: bool, ident: u32) {
            let fragment = FragmentHeader { at: 40, offset: units << 3, more, ident };
            let mut out = [0; FRAGMENT_LEN];
            fragment.emit(next_header, &mut out);
            let header = ExtHeader { kind: ExtHeaderKind::Fragment, at: 40, bytes: &out, next_header };
            prop_assert_eq!(header.fragment(), Some(fragment));
            prop_assert_eq!(fragment.is_atomic(), units == 0 && !more);
            prop_assert_eq!(out[0], next_header);
        }

        #[test]
        fn chains_parse_as_built(
            hop in any::<bool>(),
            middle in proptest::collection::vec(
                (prop_oneof![Just(43u8), Just(44), Just(60)], 1usize..5),
                0..8,
            ),
        ) {
            let mut headers: Vec<(u8, usize)> = if hop { std::vec![(0, 2)] } else { Vec::new() };
            // A second fragment header would be rejected.
            let mut fragments = middle.iter().filter(|header| header.0 == 44).count();
            headers.extend(middle.iter().map(|&(n, units)| match n {
                44 if fragments > 1 => {
                    fragments -= 1;
                    (43, units)
                }
                44 => (44, 1),
                n => (n, units),
            }));
            let chain = parse_chain(&packet(&headers, proto::ESP)).unwrap();
            let end = |n: usize| 40 + headers[..n].iter().map(|h| h.1 * 8).sum::<usize>();
            let named = |n: usize| if n == 0 { 6 } else { end(n - 1) };
            let outside = headers.iter().rposition(|h| h.0 != 60).map_or(0, |last| last + 1);
            prop_assert_eq!(
                (chain.last.at, chain.last.next_header_at),
                (end(headers.len()), named(headers.len()))
            );
            prop_assert_eq!(
                (chain.transport.at, chain.transport.next_header_at),
                (end(outside), named(outside))
            );
            prop_assert_eq!(chain.upper(), Some(proto::ESP));
        }

        #[test]
        fn any_bytes_never_panic(first in 0u8..64, mut bytes in proptest::collection::vec(0u8..64, 40..200)) {
            let len = (bytes.len() - 40) as u16;
            (bytes[0], bytes[6]) = (0x60, first);
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            if let Ok(ip) = Ipv6::parse(&bytes) {
                for header in ip.headers().flatten() {
                    prop_assert_eq!(&bytes[header.at..header.at + header.bytes.len()], header.bytes);
                    for option in header.options().flatten() {
                        prop_assert_eq!(
                            &bytes[option.data_at..option.data_at + option.data.len()],
                            option.data
                        );
                    }
                }
                if let Ok(chain) = ip.chain() {
                    prop_assert_eq!(bytes[chain.last.next_header_at], chain.last.next_header);
                    prop_assert_eq!(bytes[chain.transport.next_header_at], chain.transport.next_header);
                    prop_assert!(chain.transport.at <= chain.last.at && chain.last.at <= bytes.len());
                }
            }
        }
    }
}
