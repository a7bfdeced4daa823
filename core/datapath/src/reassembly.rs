//! Reassembly of incoming fragments before ESP and AH (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Called for packets with the verdict `Reassemble`. Fragments may be malicious: an overlap discards the
//! datagram (RFC 5722), a first fragment must contain all headers (RFC 7112), and atomic fragments are
//! processed alone (RFC 6946). All memory is allocated at the start. If all slots are used, a new datagram
//! evicts one of the sender with the most slots; senders without an SA are evicted first.

mod eviction;
mod parse;
mod slot;

use crate::{DropReason, HEAD_ROOM, TAIL_ROOM};
use alloc::boxed::Box;
use alloc::vec;
use casemate_sa::Instant;
use casemate_wire::Malformed;
use casemate_wire::packet::Packet;
use core::fmt;
use core::time::Duration;
use parse::ParsedFragment;
use slot::{Slot, State};

pub use eviction::Sender;
pub use slot::MAX_FRAGMENTS;

/// Maximum length in bytes of an IPv4 header, or of an IPv6 header with the extension headers before the
/// fragment header.
pub const MAX_HEADERS: usize = 256;
/// Time limit for the fragments of an IPv4 datagram (RFC 791 section 3.2 suggests 15 s, RFC 1122 section
/// 3.3.2 at least 60 s; most stacks use 30 s).
pub const TIMEOUT_V4: Duration = Duration::from_secs(30);
/// Time limit for the fragments of an IPv6 packet (RFC 8200 section 4.5).
pub const TIMEOUT_V6: Duration = Duration::from_secs(60);

/// Result for one fragment.
#[derive(Debug)]
pub enum Reassembly<'r> {
    /// The datagram is complete (or the packet was not a fragment). The whole packet is in the reassembler's
    /// buffer, with [`HEAD_ROOM`] and [`TAIL_ROOM`] around it.
    Whole(Packet<'r>),
    /// The fragment is stored until the others arrive, or is a copy of a stored fragment.
    Held,
    /// The fragment is dropped.
    Dropped(ReassemblyError),
}

/// Why a fragment was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReassemblyError {
    /// The IP header, or an extension header before the fragment header, does not parse.
    Malformed(Malformed),
    /// The checksum of the IPv4 header is wrong.
    BadChecksum,
    /// The fragment is not the last, and its length is not a multiple of 8.
    Misaligned,
    /// The fragment has no data.
    Empty,
    /// The first fragment does not contain the upper-layer header, or a header before it is malformed (RFC
    /// 7112 section 5); or a later fragment begins inside the TCP header (RFC 3128).
    TinyFirst,
    /// The datagram would be longer than IP or this reassembler allows.
    TooBig,
    /// The headers of each fragment are longer than [`MAX_HEADERS`] bytes.
    HeadersTooLong,
    /// The fragment overlaps another one. The whole datagram is dropped (RFC 5722 section 4).
    Overlap,
    /// The fragments disagree about the length of the datagram. The whole datagram is dropped.
    InconsistentLength,
    /// The datagram has more than [`MAX_FRAGMENTS`] fragments. The whole datagram is dropped.
    TooManyFragments,
    /// A fragment has a congestion mark, but another one says that the transport does not support ECN. The
    /// whole datagram is dropped (RFC 3168 section 5.3).
    CongestionMark,
    /// All slots are used by senders with precedence.
    TooManyDatagrams,
}

impl ReassemblyError {
    /// The drop reason for this error.
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::Malformed(_) | Self::BadChecksum => DropReason::MalformedHeader,
            Self::Misaligned
            | Self::Empty
            | Self::TooBig
            | Self::HeadersTooLong
            | Self::InconsistentLength => DropReason::FragmentMalformed,
            Self::TinyFirst => DropReason::FragmentTiny,
            Self::Overlap => DropReason::FragmentOverlap,
            Self::TooManyFragments | Self::TooManyDatagrams => DropReason::FragmentTableFull,
            Self::CongestionMark => DropReason::EcnInvalid,
        }
    }
}

impl From<Malformed> for ReassemblyError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for ReassemblyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(malformed) => return malformed.fmt(f),
            Self::BadChecksum => "the IPv4 header checksum is wrong",
            Self::Misaligned => "a fragment before the last has a length that is no multiple of 8",
            Self::Empty => "the fragment is empty",
            Self::TinyFirst => "the first fragment must hold all headers",
            Self::TooBig => "the datagram is too long",
            Self::HeadersTooLong => "the fragment's headers are too long",
            Self::Overlap => "fragments overlap",
            Self::InconsistentLength => "fragments disagree about the datagram's length",
            Self::TooManyFragments => "too many fragments of one datagram",
            Self::CongestionMark => "a fragment of a datagram without ECN support carries a congestion mark",
            Self::TooManyDatagrams => "too many datagrams in reassembly",
        })
    }
}

impl core::error::Error for ReassemblyError {}

/// Reassembly queue: datagrams of which some fragments have arrived.
#[derive(Debug)]
pub struct Reassembler {
    slots: Box<[Slot]>,
    // Buffer for packets that are not fragments.
    spare: Box<[u8]>,
    max_bytes: usize,
    timed_out: usize,
    evicted: usize,
}

impl Reassembler {
    /// A queue for `slots` datagrams of up to `max_bytes` each, headers included.
    ///
    /// Allocates `max_bytes` and about a kilobyte for each slot and for one more buffer.
    pub fn new(slots: usize, max_bytes: usize) -> Self {
        let overhead = const { HEAD_ROOM.saturating_add(MAX_HEADERS).saturating_add(TAIL_ROOM) };
        let buffer = || vec![0; max_bytes.saturating_add(overhead)].into_boxed_slice();
        let slots = core::iter::repeat_with(|| Slot::new(buffer(), slots)).take(slots).collect();
        Self { slots, spare: buffer(), max_bytes, timed_out: 0, evicted: 0 }
    }

    /// Takes one packet. Returns a packet that is not a fragment at once.
    pub fn push(&mut self, now: Instant, packet: &[u8], sender: Sender) -> Reassembly<'_> {
        match self.try_push(now, packet, sender) {
            Ok(Some(whole)) => Reassembly::Whole(whole),
            Ok(None) => Reassembly::Held,
            Err(error) => Reassembly::Dropped(error),
        }
    }

    /// Removes datagrams whose time limit is over. Returns how many since the last call, without those that
    /// were dropped before for another reason.
    pub fn expire(&mut self, now: Instant) -> usize {
        for slot in &mut self.slots {
            slot.expire(now, &mut self.timed_out);
        }
        core::mem::take(&mut self.timed_out)
    }

    /// Number of datagrams evicted since the last call: drops with [`DropReason::FragmentTableFull`].
    pub fn take_evicted(&mut self) -> usize {
        core::mem::take(&mut self.evicted)
    }

    /// Number of used slots, including slots of dropped datagrams whose later fragments are to be dropped as
    /// well.
    pub fn in_use(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot.state, State::Free)).count()
    }

    fn try_push(
        &mut self,
        now: Instant,
        packet: &[u8],
        sender: Sender,
    ) -> Result<Option<Packet<'_>>, ReassemblyError> {
        let (fragment, max_bytes) = (ParsedFragment::parse(packet)?, self.max_bytes);
        if fragment.datagram_len() > max_bytes {
            return Err(ReassemblyError::TooBig);
        }
        if fragment.is_whole() {
            // RFC 6946 section 4: independent of other fragments with the same identification.
            return slot::whole(&mut self.spare, &fragment).map(Some);
        }
        let slot = self.slot_for(now, &fragment, sender).ok_or(ReassemblyError::TooManyDatagrams)?;
        if slot.add(now, &fragment)? { slot.take(max_bytes).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests;
