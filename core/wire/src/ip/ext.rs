//! IPv6 extension headers (RFC 8200 section 4): the chain from the fixed header to the upper-layer protocol.
//!
//! Skips hop-by-hop options, routing, fragment and destination options, as RFC 4301 section 4.4.1.1 asks by default;
//! everything else, ESP and AH included, counts as upper layer. Called for every IPv6 packet that is classified and by
//! transport mode. Limits: [`MAX_HEADERS`] headers, and one fragment header: with two of them, a packet could be a
//! fragment to one reader and whole to another (RFC 8200 section 4.1: each header SHOULD occur at most once).

use super::{Ipv6, proto, v6};
use crate::Malformed;

/// More extension headers than this are refused.
pub const MAX_HEADERS: u8 = 16;

/// Length of the fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// Which extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Options that every hop examines.
    HopByHop,
    /// Routing header of any type.
    Routing,
    /// Fragment header.
    Fragment,
    /// Options for the destination.
    DestOpts,
}

impl Kind {
    /// The kind of extension header that `next_header` names; `None` if it names the upper layer.
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

/// One extension header. Offsets count from the start of the packet.
#[derive(Debug, Clone, Copy)]
pub struct ExtHeader<'a> {
    /// Which one.
    pub kind: Kind,
    /// Where it begins; its own next header field is its first byte.
    pub at: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What follows it.
    pub next_header: u8,
}

impl<'a> ExtHeader<'a> {
    /// The options of a hop-by-hop or destination options header; no option in the other kinds.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        let rest = match self.kind {
            Kind::HopByHop | Kind::DestOpts => self.bytes.get(2..).unwrap_or_default(),
            Kind::Routing | Kind::Fragment => &[],
        };
        Options { rest, at: self.at.saturating_add(2) }
    }

    /// The fields of a fragment header.
    #[inline]
    pub fn fragment(&self) -> Option<Fragment> {
        let h: &[u8; FRAGMENT_LEN] = self.bytes.first_chunk().filter(|_| self.kind == Kind::Fragment)?;
        let word = u16::from_be_bytes([h[2], h[3]]);
        Some(Fragment {
            at: self.at,
            offset: word & !7,
            more: word & 1 != 0,
            ident: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
        })
    }

    /// The fields of a routing header.
    #[inline]
    pub fn routing(&self) -> Option<Routing<'a>> {
        let (h, data) = self.bytes.split_first_chunk::<4>().filter(|_| self.kind == Kind::Routing)?;
        Some(Routing { kind: h[2], segments_left: h[3], data, data_at: self.at.saturating_add(4) })
    }
}

/// The fragment header's fields (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Where the fragment header begins.
    pub at: usize,
    /// Where this fragment's data stands in the whole fragmentable part, in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification.
    pub ident: u32,
}

impl Fragment {
    /// Whether the "fragment" is the whole packet (RFC 6946).
    #[inline]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes a fragment header in front of fragmentable data that begins with `next_header`.
    #[inline]
    pub fn emit(&self, next_header: u8, out: &mut [u8; FRAGMENT_LEN]) {
        let [o0, o1] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [i0, i1, i2, i3] = self.ident.to_be_bytes();
        *out = [next_header, 0, o0, o1, i0, i1, i2, i3];
    }
}

/// The routing header's fields (RFC 8200 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing<'a> {
    /// Routing type.
    pub kind: u8,
    /// Route segments that remain to be visited.
    pub segments_left: u8,
    /// The type-specific data.
    pub data: &'a [u8],
    /// Where the type-specific data begins in the packet.
    pub data_at: usize,
}

/// A place in the header chain: what stands there and which field names it. Offsets count from the packet's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The protocol number of what stands there.
    pub next_header: u8,
    /// Where it begins.
    pub at: usize,
    /// Where the next header field lies that holds `next_header`.
    pub named_at: usize,
}

impl Place {
    // Behind the fixed header.
    #[inline]
    fn first(next_header: u8) -> Self {
        Self { next_header, at: v6::HEADER_LEN, named_at: v6::NEXT_HEADER_AT }
    }
}

/// What the walk over the extension headers found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// What follows the last extension header; in a later fragment, what the fragment header claims, see [`Chain::upper`].
    pub last: Place,
    /// Where ESP or AH is inserted in transport mode: behind hop-by-hop, routing and fragment header and the destination
    /// options before them; other destination options go inside (RFC 4303 section 3.1.1, RFC 4302 section 3.1.1). In a
    /// packet without fragment header also where one belongs (RFC 8200 section 4.5).
    pub transport: Place,
    /// The fragment header, if there is one.
    pub fragment: Option<Fragment>,
}

impl Chain {
    // The chain of a packet without extension headers.
    #[inline]
    pub(super) fn bare(upper: u8) -> Self {
        let place = Place::first(upper);
        Self { last: place, transport: place, fragment: None }
    }

    /// The upper-layer protocol; `None` where a later fragment hides it: OPAQUE in RFC 4301 section 4.4.1.1.
    #[inline]
    pub fn upper(&self) -> Option<u8> {
        Kind::of(self.last.next_header).is_none().then_some(self.last.next_header)
    }

    /// Whether this is a fragment other than the first: no header follows its fragment header.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|f| f.offset != 0)
    }
}

/// Parses `packet` and walks over its extension headers.
#[inline]
pub fn walk(packet: &[u8]) -> Result<Chain, Malformed> {
    Ipv6::parse(packet)?.chain()
}

/// The extension headers of a packet, one by one. Ends before the upper layer, behind the fragment header of a later
/// fragment, or with an error.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    packet: &'a [u8],
    next: Place,
    left: u8,
    has_fragment: bool,
    done: bool,
}

impl<'a> Headers<'a> {
    #[inline]
    pub(super) fn new(packet: &'a [u8], next_header: u8) -> Self {
        Self { packet, next: Place::first(next_header), left: MAX_HEADERS, has_fragment: false, done: false }
    }

    #[inline(never)]
    pub(super) fn walk(mut self) -> Result<Chain, Malformed> {
        let (mut transport, mut fragment) = (self.next, None);
        while let Some(header) = self.next() {
            let header = header?;
            fragment = header.fragment().or(fragment);
            if header.kind != Kind::DestOpts {
                transport = self.next;
            }
        }
        Ok(Chain { last: self.next, transport, fragment })
    }

    fn take(&mut self, kind: Kind) -> Result<ExtHeader<'a>, Malformed> {
        let at = self.next.at;
        // RFC 8200 section 4.1: hop-by-hop options stand directly behind the IPv6 header only.
        if kind == Kind::HopByHop && at != v6::HEADER_LEN {
            return Err(Malformed::new("IPv6 hop-by-hop options", "must come first"));
        }
        if kind == Kind::Fragment && core::mem::replace(&mut self.has_fragment, true) {
            return Err(Malformed::new("IPv6 fragment header", "must come once"));
        }
        self.left =
            self.left.checked_sub(1).ok_or(Malformed::new("IPv6 extension headers", "must be at most 16"))?;
        let short = Malformed::new("IPv6 extension header", "must lie inside the packet");
        let rest = self.packet.get(at..).ok_or(short)?;
        let &[next_header, units] = rest.first_chunk().ok_or(short)?;
        let len = match kind {
            // Its second byte is reserved.
            Kind::Fragment => FRAGMENT_LEN,
            _ => usize::from(units).saturating_add(1) << 3,
        };
        let bytes = rest.get(..len).ok_or(short)?;
        self.next = Place { next_header, at: at.saturating_add(len), named_at: at };
        Ok(ExtHeader { kind, at, bytes, next_header })
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Result<ExtHeader<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let kind = Kind::of(self.next.next_header).filter(|_| !self.done)?;
        let header = self.take(kind);
        self.done = match &header {
            Ok(header) => header.fragment().is_some_and(|f| f.offset != 0),
            Err(_) => true,
        };
        Some(header)
    }
}

/// One option of a hop-by-hop or destination options header (RFC 8200 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// The option type.
    pub kind: u8,
    /// Where the option's data begins in the packet.
    pub data_at: usize,
    /// The option's data.
    pub data: &'a [u8],
}

impl Ipv6Option<'_> {
    const PAD1: u8 = 0;

    /// Whether the data may change on the way (third-highest bit of the type).
    #[inline]
    pub fn may_change(&self) -> bool {
        self.kind & 0x20 != 0
    }
}

/// Options one by one; Pad1 is not shown, a malformed option ends the iteration with an error.
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
mod tests;
