//! Fragmentation of protected packets (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Fragments are cut after protection and never before it (RFC 4303 section 3.3.4, RFC 4302 section 3.3.4). Called by whoever
//! sends a packet whose verdict names a size to fragment to. Writes each fragment into the caller's buffer; no allocation.

use arrayvec::ArrayVec;
use casemate_wire::Malformed;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, ext, proto, v4, v6};
use core::fmt;

/// Every fragment but the last carries a multiple of this many bytes; offsets count in this unit.
const UNIT: usize = 8;

/// Why a packet cannot be cut into fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotFragment {
    /// The IPv4 header says "don't fragment" (RFC 791 section 2.3).
    DontFragment,
    /// The MTU has no room for what the first fragment must hold: headers and 8 bytes of data, and in IPv6 every header up
    /// to and including the first 8 bytes of the upper layer's (RFC 7112 section 5).
    MtuTooSmall {
        /// The smallest MTU that has.
        needed: usize,
    },
    /// An IPv6 packet that is a fragment already; only its source may cut it (RFC 8200 section 4.5).
    AlreadyFragment,
    /// An IPv4 fragment that can belong to no datagram: it ends beyond 65,535 bytes, or has an odd length without being the
    /// last (RFC 791 section 3.2).
    BadFragment,
    /// No valid packet.
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
            Self::AlreadyFragment => f.write_str("an IPv6 fragment cannot be cut again"),
            Self::BadFragment => f.write_str("the packet is a fragment of no possible datagram"),
            Self::Malformed(malformed) => malformed.fmt(f),
        }
    }
}

impl core::error::Error for CannotFragment {}

/// Takes the DF bit of an IPv4 packet away, so that it may be cut: for whoever knows that its sender left cutting to him, whatever the
/// bit says (RFC 791 section 3.2).
pub fn permit(packet: &mut [u8]) {
    if ip::version(packet) == Ok(IpVersion::V4)
        && let Ok(mut ip) = Ipv4::parse(packet)
        && ip.df()
    {
        ip.set_df(false);
        ip.fill_checksum();
    }
}

/// Whether routers may cut a packet of others on its way: IPv4 without DF (RFC 791 section 3.2, RFC 8200 section 5).
pub fn is_cut_by_routers(packet: &[u8]) -> bool {
    ip::version(packet) == Ok(IpVersion::V4) && Ipv4::parse(packet).is_ok_and(|ip| !ip.df())
}

/// The fragments of one packet, one by one.
#[derive(Debug, Clone)]
pub struct Fragments<'p> {
    headers: Headers<'p>,
    mtu: usize,
    // What is still to be sent, and where it stands in the whole datagram. Invariant: at + rest.len() <= 65535.
    rest: &'p [u8],
    at: u16,
}

type V4Header = ArrayVec<u8, { v4::MAX_HEADER_LEN }>;

/// What stands before each slice of data.
#[derive(Debug, Clone)]
enum Headers<'p> {
    /// The packet fits and goes as it is.
    None,
    V4 {
        // The packet's own header, until the first fragment is written.
        first: Option<&'p [u8]>,
        later: V4Header,
        // Whether the packet itself has fragments behind it.
        more: bool,
    },
    V6 {
        // RFC 8200 section 4.5: the per-fragment headers.
        per_fragment: &'p [u8],
        // Their last next header field, and what it names.
        named_at: usize,
        next_header: u8,
        ident: u32,
    },
}

impl<'p> Fragments<'p> {
    /// Cuts `packet` into fragments of at most `mtu` bytes. A packet that fits comes out whole and unchanged.
    ///
    /// `ident` is for IPv6. An IPv4 packet keeps the identification of its header, which an ICV may cover (RFC 4302
    /// section 3.3.3.1.1.1).
    pub fn new(packet: &'p [u8], mtu: usize, ident: u32) -> Result<Self, CannotFragment> {
        match ip::version(packet)? {
            IpVersion::V4 => Self::cut_v4(packet, mtu),
            IpVersion::V6 => Self::cut_v6(packet, mtu, ident),
        }
    }

    /// Writes the next fragment to the start of `out` and returns its length; `None` after the last.
    ///
    /// `out` must have room for the MTU. Where it is too short for the fragment, `None` comes early and
    /// [`Self::is_finished`] stays false.
    pub fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let headers_len = self.headers.len();
        let room = self.mtu.saturating_sub(headers_len);
        // Only the last fragment may have a length that is no multiple of 8.
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

    /// Whether every fragment was written.
    pub const fn is_finished(&self) -> bool {
        self.rest.is_empty()
    }

    fn whole(packet: &'p [u8], mtu: usize) -> Self {
        Self { headers: Headers::None, mtu, rest: packet, at: 0 }
    }

    fn cut_v4(packet: &'p [u8], mtu: usize) -> Result<Self, CannotFragment> {
        let ip = Ipv4::parse(packet)?;
        let (len, header_len) = (usize::from(ip.total_len()), ip.header_len());
        let packet = packet.get(..len).unwrap_or_default();
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
        let (first, rest) = packet.split_at_checked(header_len).unwrap_or_default();
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
        let packet = packet.get(..ip.total_len()).unwrap_or_default();
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
        let (per_fragment, rest) = packet.split_at_checked(place.at).unwrap_or_default();
        let headers =
            Headers::V6 { per_fragment, named_at: place.named_at, next_header: place.next_header, ident };
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

    /// Writes the headers of a fragment with `data_len` bytes from `at` on; `out` is exactly as long as they are.
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
            &Self::V6 { per_fragment, named_at, next_header, ident } => {
                let (headers, fragment) = out.split_last_chunk_mut::<{ ext::FRAGMENT_LEN }>()?;
                headers.copy_from_slice(per_fragment);
                *headers.get_mut(named_at)? = proto::FRAGMENT;
                let payload_len = self.len().checked_sub(v6::HEADER_LEN)?.checked_add(data_len)?;
                Ipv6::parse_quoted(headers).ok()?.set_payload_len(payload_len.try_into().ok()?);
                let header = ext::Fragment { at: per_fragment.len(), offset: at, more: !last, ident };
                header.emit(next_header, fragment);
            }
        }
        Some(())
    }
}

/// The IPv4 header of every fragment but the first: with the options that are to be copied (RFC 791 section 3.1).
fn later_header(ip: &Ipv4<&[u8]>) -> Result<V4Header, CannotFragment> {
    let mut header: V4Header = ip.header().iter().copied().take(v4::HEADER_LEN).collect();
    for option in ip.options_iter() {
        let option = option?;
        if option.copied() {
            let end = option.at.saturating_add(option.len);
            header.extend(ip.header().get(option.at..end).unwrap_or_default().iter().copied());
        }
    }
    // The rest of the last 32-bit word is "end of option list", which is zero.
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
