//! One datagram in the making, and the buffer that it is made in: `[ head room | headers | data | tail room ]`.

use super::piece::{Key, Piece};
use super::ranges::{Added, Ranges};
use super::share::Account;
use super::{MAX_HEADERS, ReassemblyError};
use crate::HEAD_ROOM;
use crate::ecn::{self, Ecn};
use alloc::boxed::Box;
use casemate_sa::Instant;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, v6};
use casemate_wire::packet::Packet;
use core::net::{IpAddr, Ipv4Addr};

/// Where the data begins; the headers end here, however long they are.
const DATA_AT: usize = HEAD_ROOM.saturating_add(MAX_HEADERS);

#[derive(Debug)]
pub(super) struct Slot {
    buf: Box<[u8]>,
    pub(super) state: State,
    /// Whose datagram it is; of a free slot, whose it was.
    pub(super) account: Account,
    /// How many slots have this account.
    pub(super) share: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a slot has room for the largest; a box would allocate for each datagram"
)]
pub(super) enum State {
    Free,
    /// Some fragments are there.
    Partial(Partial),
    /// RFC 5722 section 4: also the fragments that are still to come are dropped.
    Dead {
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
            Self::Partial(Partial { key, .. }) | Self::Dead { key, .. } => Some(key),
        }
    }

    /// When the datagram's first fragment came.
    pub(super) const fn since(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::Partial(Partial { since, .. }) | Self::Dead { since, .. } => Some(*since),
        }
    }
}

impl Slot {
    /// A free slot, one of `slots`.
    pub(super) const fn new(buf: Box<[u8]>, slots: usize) -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self { buf, state: State::Free, account: Account::Stranger(nobody), share: slots }
    }

    /// Frees the slot if its time is over; counts datagrams that were not dropped before.
    pub(super) fn expire(&mut self, now: Instant, timed_out: &mut usize) {
        let (key, since, partial) = match &self.state {
            State::Free => return,
            State::Partial(Partial { key, since, .. }) => (key, since, true),
            State::Dead { key, since, .. } => (key, since, false),
        };
        if now.since(*since) >= key.timeout() {
            self.state = State::Free;
            *timed_out = timed_out.saturating_add(partial.into());
        }
    }

    /// Adds a fragment of this slot's datagram, or the first one of a new datagram to a free slot. Whether nothing is
    /// missing any more.
    pub(super) fn add(&mut self, now: Instant, piece: &Piece<'_>) -> Result<bool, ReassemblyError> {
        if let State::Free = self.state {
            self.state = State::Partial(Partial::new(now, piece));
        }
        let partial = match &mut self.state {
            State::Partial(partial) => partial,
            State::Dead { error, .. } => return Err(*error),
            State::Free => return Ok(false),
        };
        let added = partial.add(&mut self.buf, piece);
        if let Err(error) = added {
            self.state = State::Dead { key: partial.key, since: partial.since, error };
        }
        added
    }

    /// The whole datagram; frees the slot.
    pub(super) fn take(&mut self, max_bytes: usize) -> Result<Packet<'_>, ReassemblyError> {
        let State::Partial(Partial { total: Some(total), headers_len: Some(headers_len), ecn, .. }) =
            self.state
        else {
            return Err(ReassemblyError::InconsistentLength);
        };
        self.state = State::Free;
        let packet = finish(&mut self.buf, headers_len, total, ecn)?;
        // Only now is it known which headers belong to how much data.
        if packet.len() > max_bytes { Err(ReassemblyError::TooBig) } else { Ok(packet) }
    }
}

impl Partial {
    fn new(now: Instant, piece: &Piece<'_>) -> Self {
        Self {
            key: piece.key,
            since: now,
            ranges: Ranges::new(),
            total: None,
            headers_len: None,
            ecn: piece.ecn,
        }
    }

    /// Takes the piece in; an error kills the datagram. Whether nothing is missing any more.
    fn add(&mut self, buf: &mut [u8], piece: &Piece<'_>) -> Result<bool, ReassemblyError> {
        if !self.agrees_on_length(piece) {
            return Err(ReassemblyError::InconsistentLength);
        }
        match self.ranges.add(piece.start, piece.end) {
            Added::New => {}
            // RFC 8200 section 4.5: exact duplicates may be ignored. Those with other bytes are no duplicates.
            Added::Known if data(buf, piece) == piece.data => return Ok(false),
            Added::Known | Added::Overlap => return Err(ReassemblyError::Overlap),
            Added::Full => return Err(ReassemblyError::TooManyFragments),
        }
        self.ecn = ecn::combine(self.ecn, piece.ecn).ok_or(ReassemblyError::CongestionMark)?;
        write_data(buf, piece);
        if piece.start == 0 {
            write_headers(buf, piece);
            self.headers_len = Some(piece.headers.len());
        }
        if !piece.more {
            self.total = Some(piece.end);
        }
        // Nothing goes beyond the last fragment.
        Ok(self.total.is_some() && self.ranges.have_no_hole())
    }

    fn agrees_on_length(&self, piece: &Piece<'_>) -> bool {
        match (self.total, piece.more) {
            (Some(total), true) => piece.end < total,
            (Some(total), false) => piece.end == total,
            (None, true) => true,
            (None, false) => self.ranges.end() < piece.end,
        }
    }
}

/// A packet that is whole by itself, copied into `buf`.
pub(super) fn whole<'b>(buf: &'b mut [u8], piece: &Piece<'_>) -> Result<Packet<'b>, ReassemblyError> {
    write_data(buf, piece);
    write_headers(buf, piece);
    finish(buf, piece.headers.len(), piece.end, piece.ecn)
}

/// The buffer's bytes where the piece's data belongs.
fn data<'b>(buf: &'b [u8], piece: &Piece<'_>) -> &'b [u8] {
    buf.get(DATA_AT..).and_then(|data| data.get(piece.start.into()..piece.end.into())).unwrap_or_default()
}

fn write_data(buf: &mut [u8], piece: &Piece<'_>) {
    let data = buf.get_mut(DATA_AT..).and_then(|data| data.get_mut(piece.start.into()..piece.end.into()));
    if let Some(data) = data {
        data.copy_from_slice(piece.data);
    }
}

/// Writes the headers in front of the data, as if there had never been a fragment header.
fn write_headers(buf: &mut [u8], piece: &Piece<'_>) {
    let start = DATA_AT.saturating_sub(piece.headers.len());
    if let Some(headers) = buf.get_mut(start..DATA_AT) {
        headers.copy_from_slice(piece.headers);
        if let Some(named) = headers.get_mut(piece.named_at) {
            *named = piece.next_header;
        }
    }
}

/// Makes the headers say that they stand before all of the data.
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
