//! Reassembly of incoming fragments, before ESP and AH see them (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Called for packets whose verdict is `Reassemble`. Hostile fragments are the rule, not the exception:
//! overlaps kill their datagram (RFC 5722), a first fragment shows its headers (RFC 7112), atomic fragments
//! go by themselves (RFC 6946). Every byte is allocated at the start. When all slots are taken, a datagram of
//! the sender with the most slots gives way, and senders without an SA give way to those with one.

mod piece;
mod ranges;
mod share;
mod slot;

use crate::{DropReason, HEAD_ROOM, TAIL_ROOM};
use alloc::boxed::Box;
use alloc::vec;
use casemate_sa::Instant;
use casemate_wire::Malformed;
use casemate_wire::packet::Packet;
use core::fmt;
use core::time::Duration;
use piece::Piece;
use slot::{Slot, State};

pub use ranges::MAX_FRAGMENTS;
pub use share::Sender;

/// The longest IPv4 header, or IPv6 header with extension headers before the fragment header, that is taken.
pub const MAX_HEADERS: usize = 256;
/// How long the fragments of an IPv4 datagram may take (RFC 791 section 3.2 suggests 15 s, RFC 1122 section 3.3.2 at least
/// 60 s; 30 s is what most stacks do).
pub const TIMEOUT_V4: Duration = Duration::from_secs(30);
/// How long the fragments of an IPv6 packet may take (RFC 8200 section 4.5).
pub const TIMEOUT_V6: Duration = Duration::from_secs(60);

/// What became of a fragment.
#[derive(Debug)]
pub enum Reassembly<'r> {
    /// It was the last one missing (or no fragment at all): the whole packet, in the reassembler's buffer, with [`HEAD_ROOM`]
    /// and [`TAIL_ROOM`] around it.
    Whole(Packet<'r>),
    /// Kept until the others come, or a copy of one that is kept.
    Held,
    /// Dropped.
    Dropped(ReassemblyError),
}

/// Why a fragment was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReassemblyError {
    /// The IP header, or an extension header before the fragment header, is wrong.
    Malformed(Malformed),
    /// The checksum of the IPv4 header is wrong.
    BadChecksum,
    /// A fragment that is not the last carries no multiple of 8 bytes.
    Misaligned,
    /// A fragment without data.
    Empty,
    /// The first fragment does not hold the upper layer's header, or what stands before it is wrong (RFC 7112 section 5);
    /// or a later one begins inside the TCP header (RFC 3128).
    TinyFirst,
    /// The datagram would be longer than IP or this reassembler allows.
    TooBig,
    /// More than [`MAX_HEADERS`] bytes of headers in every fragment.
    HeadersTooLong,
    /// Overlaps another fragment, with the whole datagram dropped (RFC 5722 section 4).
    Overlap,
    /// The fragments disagree about the datagram's length, with the whole datagram dropped.
    InconsistentLength,
    /// More than [`MAX_FRAGMENTS`] fragments of one datagram, with the whole datagram dropped.
    TooManyFragments,
    /// Congestion was marked on a fragment of a datagram that does not understand it (RFC 3168 section 5.3), with the whole
    /// datagram dropped.
    CongestionMark,
    /// Every slot holds another datagram, of senders that come first.
    TooManyDatagrams,
}

impl ReassemblyError {
    /// The entry in the table of drop reasons.
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
            Self::Misaligned => "only the last fragment may have a length that is no multiple of 8",
            Self::Empty => "the fragment is empty",
            Self::TinyFirst => "the first fragment must hold all headers",
            Self::TooBig => "the datagram is too long",
            Self::HeadersTooLong => "the fragment's headers are too long",
            Self::Overlap => "fragments overlap",
            Self::InconsistentLength => "fragments disagree about the datagram's length",
            Self::TooManyFragments => "too many fragments of one datagram",
            Self::CongestionMark => "congestion marked on a datagram that does not understand it",
            Self::TooManyDatagrams => "too many datagrams in reassembly",
        })
    }
}

impl core::error::Error for ReassemblyError {}

/// Datagrams of which some fragments have arrived.
#[derive(Debug)]
pub struct Reassembler {
    slots: Box<[Slot]>,
    // For packets that are whole by themselves.
    spare: Box<[u8]>,
    max_bytes: usize,
    timed_out: usize,
    evicted: usize,
}

impl Reassembler {
    /// Room for `slots` datagrams of up to `max_bytes` each, headers included.
    ///
    /// Takes `max_bytes` and about a kilobyte for each slot, and for one more buffer.
    pub fn new(slots: usize, max_bytes: usize) -> Self {
        let rooms = const { HEAD_ROOM.saturating_add(MAX_HEADERS).saturating_add(TAIL_ROOM) };
        let buffer = || vec![0; max_bytes.saturating_add(rooms)].into_boxed_slice();
        let slots = core::iter::repeat_with(|| Slot::new(buffer(), slots)).take(slots).collect();
        Self { slots, spare: buffer(), max_bytes, timed_out: 0, evicted: 0 }
    }

    /// Takes one packet. What is no fragment comes back at once.
    pub fn push(&mut self, now: Instant, packet: &[u8], sender: Sender) -> Reassembly<'_> {
        match self.try_push(now, packet, sender) {
            Ok(Some(whole)) => Reassembly::Whole(whole),
            Ok(None) => Reassembly::Held,
            Err(error) => Reassembly::Dropped(error),
        }
    }

    /// Gives up datagrams whose time is over; returns how many since the last call. Those that were dropped for another
    /// reason before do not count.
    pub fn expire(&mut self, now: Instant) -> usize {
        for slot in &mut self.slots {
            slot.expire(now, &mut self.timed_out);
        }
        core::mem::take(&mut self.timed_out)
    }

    /// How many datagrams gave way to others since the last call: drops of [`DropReason::FragmentTableFull`].
    pub fn take_evicted(&mut self) -> usize {
        core::mem::take(&mut self.evicted)
    }

    /// How many slots are taken, by datagrams in reassembly or by the memory of those that were dropped.
    pub fn in_use(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot.state, State::Free)).count()
    }

    fn try_push(
        &mut self,
        now: Instant,
        packet: &[u8],
        sender: Sender,
    ) -> Result<Option<Packet<'_>>, ReassemblyError> {
        let (piece, max_bytes) = (Piece::parse(packet)?, self.max_bytes);
        if piece.datagram_len() > max_bytes {
            return Err(ReassemblyError::TooBig);
        }
        if piece.is_whole() {
            // RFC 6946 section 4: without regard to other fragments of the same identification.
            return slot::whole(&mut self.spare, &piece).map(Some);
        }
        let slot = self.slot_for(now, &piece, sender).ok_or(ReassemblyError::TooManyDatagrams)?;
        if slot.add(now, &piece)? { slot.take(max_bytes).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests;
