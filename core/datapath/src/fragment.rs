//! Fragmentation of protected packets (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Packets are fragmented after protection, never before it (RFC 4303 section 3.3.4, RFC 4302 section 3.3.4).
//! The sender of a packet calls this module if the verdict has a fragment size. Each fragment is written to
//! the caller's buffer; nothing is allocated.

use arrayvec::ArrayVec;
use casemate_wire::Malformed;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, ext, proto, v4, v6};
use core::fmt;

/// What parsing has checked.
const PARSED: &str = "a parsed packet contains its headers and its data";

/// Unit of fragment offsets in bytes. Every fragment but the last carries a multiple of it.
const UNIT: usize = 8;

/// Why a packet cannot be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotFragment {
    /// The IPv4 header has DF set (RFC 791 section 2.3).
    DontFragment,
    /// The MTU is too small for the first fragment: headers and 8 bytes of data, and in IPv6 every header up
    /// to and including the first 8 bytes of the upper-layer header (RFC 7112 section 5).
    MtuTooSmall {
        /// The smallest MTU that works.
        needed: usize,
    },
    /// The packet is an IPv6 fragment; only its source may fragment (RFC 8200 section 4.5).
    AlreadyFragment,
    /// The packet is an invalid IPv4 fragment: it ends beyond 65,535 bytes, or it is not the last one and its
    /// length is no multiple of 8 (RFC 791 section 3.2).
    BadFragment,
    /// The packet does not parse.
    Malformed(Malformed),
}

impl From<Malformed> for CannotFragment {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for CannotFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DontFragment => f.write_str("the packet must not be fragmented"),
            Self::MtuTooSmall { needed } => write!(f, "the first fragment needs an MTU of {needed}"),
            Self::AlreadyFragment => f.write_str("an IPv6 fragment must not be fragmented again"),
            Self::BadFragment => f.write_str("the fragment is invalid: wrong length or offset"),
            Self::Malformed(malformed) => malformed.fmt(f),
        }
    }
}

impl core::error::Error for CannotFragment {}

/// Clears the DF bit of an IPv4 packet. Only for packets whose sender left fragmentation to the caller,
/// whatever the bit says (RFC 791 section 3.2).
pub fn clear_df(packet: &mut [u8]) {
    if ip::version(packet) == Ok(IpVersion::V4)
        && let Ok(mut ip) = Ipv4::parse(packet)
        && ip.df()
    {
        ip.set_df(false);
        ip.fill_checksum();
    }
}

/// Whether routers may fragment the packet: IPv4 without DF (RFC 791 section 3.2, RFC 8200 section 5).
pub fn routers_may_fragment(packet: &[u8]) -> bool {
    ip::version(packet) == Ok(IpVersion::V4) && Ipv4::parse(packet).is_ok_and(|ip| !ip.df())
}

/// The fragments of one packet, one after the other.
#[derive(Debug, Clone)]
pub struct Fragments<'p> {
    headers: Headers<'p>,
    mtu: usize,
    // The data still to be sent, and its offset in the datagram. Invariant: at + rest.len() <= 65535.
    rest: &'p [u8],
    at: u16,
}

type V4Header = ArrayVec<u8, { v4::MAX_HEADER_LEN }>;

/// The headers in front of each piece of data.
#[derive(Debug, Clone)]
enum Headers<'p> {
    /// The packet fits and stays whole.
    None,
    V4 {
        // The packet's own header, until the first fragment is written.
        first: Option<&'p [u8]>,
        later: V4Header,
        // Whether the packet is itself a fragment, and not the last one.
        more: bool,
    },
    V6 {
        // The per-fragment headers (RFC 8200 section 4.5).
        per_fragment: &'p [u8],
        // Offset and original value of their last next header field.
        next_header_at: usize,
        next_header: u8,
        ident: u32,
    },
}

impl<'p> Fragments<'p> {
    /// Splits `packet` into fragments of at most `mtu` bytes. A packet that fits stays whole and unchanged.
    ///
    /// `ident` is the identification of IPv6 fragments. An IPv4 packet keeps its own identification, which an
    /// ICV may cover (RFC 4302 section 3.3.3.1.1.1).
    pub fn new(packet: &'p [u8], mtu: usize, ident: u32) -> Result<Self, CannotFragment> {
        match ip::version(packet)? {
            IpVersion::V4 => Self::cut_v4(packet, mtu),
            IpVersion::V6 => Self::cut_v6(packet, mtu, ident),
        }
    }

    /// Writes the next fragment to the start of `out` and returns its length; `None` after the last.
    ///
    /// `out` must have at least `mtu` bytes. If it is too short for the fragment, the result is `None` and
    /// [`Self::is_finished`] stays false.
    pub fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let headers_len = self.headers.len();
        let room = self.mtu.saturating_sub(headers_len);
        // Only the last fragment may have a length that is not a multiple of 8.
        let take = if self.rest.len() <= room { self.rest.len() } else { room & !(UNIT - 1) };
        let (data, rest) = self.rest.split_at_checked(take).filter(|(data, _)| !data.is_empty())?;
        let len = headers_len.checked_add(take)?;
        let (headers, body) = out.get_mut(..len)?.split_at_mut_checked(headers_len)?;
        self.headers.write(headers, data.len(), self.at, rest.is_empty())?;
        body.copy_from_slice(data);
        self.headers.advance();
        self.rest = rest;
        self.at = self.at.saturating_add(u16::try_from(take).ok()?);
        Some(len)
    }

    /// Whether all fragments are written.
    pub const fn is_finished(&self) -> bool {
        self.rest.is_empty()
    }

    fn whole(packet: &'p [u8], mtu: usize) -> Self {
        Self { headers: Headers::None, mtu, rest: packet, at: 0 }
    }

    fn cut_v4(packet: &'p [u8], mtu: usize) -> Result<Self, CannotFragment> {
        let ip = Ipv4::parse(packet)?;
        let (len, header_len) = (usize::from(ip.total_len()), ip.header_len());
        let packet = packet.get(..len).or_broken_default(PARSED);
        if len <= mtu {
            return Ok(Self::whole(packet, mtu));
        }
        if ip.df() {
            return Err(CannotFragment::DontFragment);
        }
        let needed = header_len.saturating_add(UNIT);
        if mtu < needed {
            return Err(CannotFragment::MtuTooSmall { needed });
        }
        let (first, rest) = packet.split_at_checked(header_len).or_broken_default(PARSED);
        let at = ip.frag_offset();
        let misaligned = ip.mf() && !rest.len().is_multiple_of(UNIT);
        if misaligned || rest.len() > usize::from(u16::MAX.saturating_sub(at)) {
            return Err(CannotFragment::BadFragment);
        }
        let headers = Headers::V4 { first: Some(first), later: later_header(&ip)?, more: ip.mf() };
        Ok(Self { headers, mtu, rest, at })
    }

    fn cut_v6(packet: &'p [u8], mtu: usize, ident: u32) -> Result<Self, CannotFragment> {
        let ip = Ipv6::parse(packet)?;
        let packet = packet.get(..ip.total_len()).or_broken_default(PARSED);
        if packet.len() <= mtu {
            return Ok(Self::whole(packet, mtu));
        }
        let chain = ip.chain()?;
        if chain.fragment.is_some() {
            return Err(CannotFragment::AlreadyFragment);
        }
        let needed = chain.last.at.saturating_add(ext::FRAGMENT_LEN).saturating_add(UNIT);
        if mtu < needed {
            return Err(CannotFragment::MtuTooSmall { needed });
        }
        let place = chain.transport;
        let (per_fragment, rest) = packet.split_at_checked(place.at).or_broken_default(PARSED);
        let headers = Headers::V6 {
            per_fragment,
            next_header_at: place.next_header_at,
            next_header: place.next_header,
            ident,
        };
        Ok(Self { headers, mtu, rest, at: 0 })
    }
}

impl Headers<'_> {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::V4 { first, later, .. } => first.unwrap_or(later).len(),
            Self::V6 { per_fragment, .. } => per_fragment.len().saturating_add(ext::FRAGMENT_LEN),
        }
    }

    fn advance(&mut self) {
        if let Self::V4 { first, .. } = self {
            *first = None;
        }
    }

    /// Writes the headers of a fragment with `data_len` bytes of data from `at` on. `out` has exactly the
    /// length of the headers.
    fn write(&self, out: &mut [u8], data_len: usize, at: u16, last: bool) -> Option<()> {
        match self {
            Self::None => {}
            Self::V4 { first, later, more } => {
                let header = first.unwrap_or(later);
                out.copy_from_slice(header);
                let total_len = header.len().checked_add(data_len)?;
                let mut ip = Ipv4::parse_quoted(out).ok()?;
                ip.set_total_len(total_len.try_into().ok()?);
                ip.set_fragment(at, *more || !last);
                ip.fill_checksum();
            }
            &Self::V6 { per_fragment, next_header_at, next_header, ident } => {
                let (headers, fragment) = out.split_last_chunk_mut::<{ ext::FRAGMENT_LEN }>()?;
                headers.copy_from_slice(per_fragment);
                *headers.get_mut(next_header_at)? = proto::FRAGMENT;
                let payload_len = self.len().checked_sub(v6::HEADER_LEN)?.checked_add(data_len)?;
                Ipv6::parse_quoted(headers).ok()?.set_payload_len(payload_len.try_into().ok()?);
                let header = ext::FragmentHeader { at: per_fragment.len(), offset: at, more: !last, ident };
                header.emit(next_header, fragment);
            }
        }
        Some(())
    }
}

/// The IPv4 header of all fragments but the first, with the options to be copied (RFC 791 section 3.1).
fn later_header(ip: &Ipv4<&[u8]>) -> Result<V4Header, CannotFragment> {
    let mut header: V4Header = ip.header().iter().copied().take(v4::HEADER_LEN).collect();
    for option in ip.options_iter() {
        let option = option?;
        if option.copied() {
            let end = option.at.saturating_add(option.len);
            let bytes = ip.header().get(option.at..end).or_broken_default(PARSED);
            header.extend(bytes.iter().copied());
        }
    }
    // Pads the last 32-bit word with "end of option list", which is zero.
    let words = header.len().div_ceil(4);
    header.extend(core::iter::repeat_n(
        v4::Ipv4Option::END,
        words.saturating_mul(4).saturating_sub(header.len()),
    ));
    if let Some(version_and_words) = header.first_mut() {
        *version_and_words = 0x40 | (words & 0x0f) as u8;
    }
    Ok(header)
}

#[cfg(test)]
mod tests;
