//! One datagram in reassembly, and its buffer: `[ head room | headers | data | tail room ]`.

use super::eviction::SlotOwner;
use super::parse::{Key, ParsedFragment};
use super::{MAX_HEADERS, ReassemblyError};
use crate::HEAD_ROOM;
use crate::ecn::{self, Ecn};
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use casemate_sa::Instant;
use casemate_wire::invariant::{self, OrBroken};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, v6};
use casemate_wire::packet::Packet;
use core::net::{IpAddr, Ipv4Addr};

/// Maximum number of fragments of one datagram. 64 suffice for the longest datagram over links of 1,050 bytes
/// and more.
pub const MAX_FRAGMENTS: usize = 64;
/// Offset of the data. The headers end here, whatever their length.
const DATA_AT: usize = HEAD_ROOM.saturating_add(MAX_HEADERS);

const HAS_ROOM: &str = "the buffer has room for a whole datagram";

#[derive(Debug)]
pub(super) struct Slot {
    buf: Box<[u8]>,
    pub(super) state: State,
    /// The sender of the datagram; of a free slot, its last sender.
    pub(super) owner: SlotOwner,
    /// Number of slots with this owner.
    pub(super) owner_slots: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a slot has room for the largest; a box would allocate for each datagram"
)]
pub(super) enum State {
    Free,
    /// Some fragments have arrived.
    Partial(Partial),
    /// The datagram is dropped, and so are its later fragments (RFC 5722 section 4).
    Rejected {
        key: Key,
        since: Instant,
        error: ReassemblyError,
    },
}

#[derive(Debug)]
pub(super) struct Partial {
    key: Key,
    since: Instant,
    ranges: Ranges,
    /// Length of the data, known from the last fragment.
    total: Option<u16>,
    /// Length of the headers, known from the first fragment.
    headers_len: Option<usize>,
    ecn: Ecn,
}

impl State {
    pub(super) const fn key(&self) -> Option<&Key> {
        match self {
            Self::Free => None,
            Self::Partial(Partial { key, .. }) | Self::Rejected { key, .. } => Some(key),
        }
    }

    /// Arrival time of the datagram's first fragment.
    pub(super) const fn since(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::Partial(Partial { since, .. }) | Self::Rejected { since, .. } => Some(*since),
        }
    }
}

impl Slot {
    /// A free slot, one of `slots`.
    pub(super) const fn new(buf: Box<[u8]>, slots: usize) -> Self {
        let no_addr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self { buf, state: State::Free, owner: SlotOwner::Unknown(no_addr), owner_slots: slots }
    }

    /// Frees the slot after the time limit. Counts datagrams that were not dropped before.
    pub(super) fn expire(&mut self, now: Instant, timed_out: &mut usize) {
        let (key, since, partial) = match &self.state {
            State::Free => return,
            State::Partial(Partial { key, since, .. }) => (key, since, true),
            State::Rejected { key, since, .. } => (key, since, false),
        };
        if now.since(*since) >= key.timeout() {
            self.state = State::Free;
            *timed_out = timed_out.saturating_add(partial.into());
        }
    }

    /// Adds a fragment of this slot's datagram, or the first fragment of a new datagram to a free slot.
    /// Returns whether the datagram is complete.
    pub(super) fn add(
        &mut self,
        now: Instant,
        fragment: &ParsedFragment<'_>,
    ) -> Result<bool, ReassemblyError> {
        if let State::Free = self.state {
            self.state = State::Partial(Partial::new(now, fragment));
        }
        let partial = match &mut self.state {
            State::Partial(partial) => partial,
            State::Rejected { error, .. } => return Err(*error),
            State::Free => {
                invariant::report("a slot with a fragment is not free");
                return Ok(false);
            }
        };
        let added = partial.add(&mut self.buf, fragment);
        if let Err(error) = added {
            self.state = State::Rejected { key: partial.key, since: partial.since, error };
        }
        added
    }

    /// Returns the complete datagram and frees the slot.
    pub(super) fn take(&mut self, max_bytes: usize) -> Result<Packet<'_>, ReassemblyError> {
        let State::Partial(Partial { total: Some(total), headers_len: Some(headers_len), ecn, .. }) =
            self.state
        else {
            invariant::report("the lengths of a complete datagram are known");
            return Err(ReassemblyError::InconsistentLength);
        };
        self.state = State::Free;
        let packet = finish(&mut self.buf, headers_len, total, ecn)?;
        // Only now the length of the headers is certain.
        if packet.len() > max_bytes { Err(ReassemblyError::TooBig) } else { Ok(packet) }
    }
}

impl Partial {
    fn new(now: Instant, fragment: &ParsedFragment<'_>) -> Self {
        Self {
            key: fragment.key,
            since: now,
            ranges: Ranges::new(),
            total: None,
            headers_len: None,
            ecn: fragment.ecn,
        }
    }

    /// Adds the fragment. Returns whether the datagram is complete; an error drops the datagram.
    fn add(&mut self, buf: &mut [u8], fragment: &ParsedFragment<'_>) -> Result<bool, ReassemblyError> {
        if !self.agrees_on_length(fragment) {
            return Err(ReassemblyError::InconsistentLength);
        }
        match self.ranges.add(fragment.start, fragment.end) {
            RangeInsert::New => {}
            // RFC 8200 section 4.5: exact duplicates may be ignored. Other bytes in the same range are an
            // overlap.
            RangeInsert::Known if data(buf, fragment) == fragment.data => return Ok(false),
            RangeInsert::Known | RangeInsert::Overlap => return Err(ReassemblyError::Overlap),
            RangeInsert::Full => return Err(ReassemblyError::TooManyFragments),
        }
        self.ecn = ecn::combine(self.ecn, fragment.ecn).ok_or(ReassemblyError::CongestionMark)?;
        write_data(buf, fragment);
        if fragment.start == 0 {
            write_headers(buf, fragment);
            self.headers_len = Some(fragment.headers.len());
        }
        if !fragment.more {
            self.total = Some(fragment.end);
        }
        // No fragment exceeds the last one, so no hole means complete.
        Ok(self.total.is_some() && self.ranges.is_contiguous())
    }

    fn agrees_on_length(&self, fragment: &ParsedFragment<'_>) -> bool {
        match (self.total, fragment.more) {
            (Some(total), true) => fragment.end < total,
            (Some(total), false) => fragment.end == total,
            (None, true) => true,
            (None, false) => self.ranges.end() < fragment.end,
        }
    }
}

/// The received byte ranges of a datagram, one for each fragment, in order. Ranges do not overlap. They are
/// not merged, so that a copy can be distinguished from an overlap.
#[derive(Debug)]
struct Ranges(ArrayVec<(u16, u16), MAX_FRAGMENTS>);

/// Result of adding a range.
#[derive(Debug, PartialEq, Eq)]
enum RangeInsert {
    /// All bytes are new.
    New,
    /// Exactly this range exists.
    Known,
    /// Some of the bytes exist.
    Overlap,
    /// The maximum number of ranges is reached.
    Full,
}

impl Ranges {
    const fn new() -> Self {
        Self(ArrayVec::new_const())
    }

    /// Adds the bytes from `start` up to, but not including, `end`.
    fn add(&mut self, start: u16, end: u16) -> RangeInsert {
        let index = self.0.partition_point(|range| range.0 < start);
        let (before, after) =
            self.0.split_at_checked(index).or_broken_default("the index is inside the list");
        if after.first() == Some(&(start, end)) {
            return RangeInsert::Known;
        }
        if before.last().is_some_and(|range| range.1 > start)
            || after.first().is_some_and(|range| range.0 < end)
        {
            return RangeInsert::Overlap;
        }
        match self.0.try_insert(index, (start, end)) {
            Ok(()) => RangeInsert::New,
            Err(_) => RangeInsert::Full,
        }
    }

    /// End of the last range.
    fn end(&self) -> u16 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// Whether every byte up to the end has been received.
    fn is_contiguous(&self) -> bool {
        let mut reached = 0;
        self.0.iter().all(|range| core::mem::replace(&mut reached, range.1) == range.0)
    }
}

/// Copies a packet that is not a fragment to `buf`.
pub(super) fn whole<'b>(
    buf: &'b mut [u8],
    fragment: &ParsedFragment<'_>,
) -> Result<Packet<'b>, ReassemblyError> {
    write_data(buf, fragment);
    write_headers(buf, fragment);
    finish(buf, fragment.headers.len(), fragment.end, fragment.ecn)
}

/// The bytes of the buffer at the position of the fragment's data.
fn data<'b>(buf: &'b [u8], fragment: &ParsedFragment<'_>) -> &'b [u8] {
    buf.get(DATA_AT..)
        .and_then(|data| data.get(fragment.start.into()..fragment.end.into()))
        .or_broken_default(HAS_ROOM)
}

fn write_data(buf: &mut [u8], fragment: &ParsedFragment<'_>) {
    let data =
        buf.get_mut(DATA_AT..).and_then(|data| data.get_mut(fragment.start.into()..fragment.end.into()));
    if let Some(data) = data.or_report(HAS_ROOM) {
        data.copy_from_slice(fragment.data);
    }
}

/// Writes the headers in front of the data, without the fragment header.
fn write_headers(buf: &mut [u8], fragment: &ParsedFragment<'_>) {
    let start = DATA_AT.saturating_sub(fragment.headers.len());
    if let Some(headers) = buf.get_mut(start..DATA_AT).or_report(HAS_ROOM) {
        headers.copy_from_slice(fragment.headers);
        let named = headers.get_mut(fragment.next_header_at);
        if let Some(named) = named.or_report("the headers contain their protocol field") {
            *named = fragment.next_header;
        }
    }
}

/// Updates length and fragment fields of the headers.
fn finish(buf: &mut [u8], headers_len: usize, total: u16, ecn: Ecn) -> Result<Packet<'_>, ReassemblyError> {
    let len = headers_len.saturating_add(total.into());
    let start = DATA_AT.saturating_sub(headers_len);
    let mut packet = Packet::new(buf, start, len).ok_or(ReassemblyError::TooBig)?;
    let bytes = packet.data_mut();
    match ip::version(bytes)? {
        IpVersion::V4 => {
            let total_len = u16::try_from(len).map_err(|_| ReassemblyError::TooBig)?;
            let mut ip = Ipv4::parse_quoted(bytes)?;
            ip.set_total_len(total_len);
            ip.set_fragment(0, false);
            ip.set_ecn(ecn as u8);
            ip.fill_checksum();
        }
        IpVersion::V6 => {
            let payload_len = len.saturating_sub(v6::HEADER_LEN);
            let payload_len = u16::try_from(payload_len).map_err(|_| ReassemblyError::TooBig)?;
            let mut ip = Ipv6::parse_quoted(bytes)?;
            ip.set_payload_len(payload_len);
            ip.set_ecn(ecn as u8);
        }
    }
    Ok(packet)
}
