//! Reassembly against a model that keeps every byte in a map.

use crate::Target;
use crate::input::Input;
use crate::script::Script;
use casemate_datapath::ecn::Ecn;
use casemate_datapath::reassembly::{
    MAX_FRAGMENTS, Reassembler, Reassembly, ReassemblyError, Sender, TIMEOUT_V4, TIMEOUT_V6,
};
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM, ecn};
use casemate_datapath_tests::{Ends, packets};
use casemate_sa::Instant;
use casemate_wire::ip::{Ipv4, Ipv6, proto};
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(crate) const TARGET: Target = Target {
    name: "reassembly",
    about: "Reassembly: fragments in any order, doubled, overlapping, late, as a naive model has them",
    max_len: 1_024,
    run,
    seeds,
    words: &[],
};

const SLOTS: usize = 2;
const MAX_BYTES: usize = 1_400;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut reassembler = Reassembler::new(SLOTS, MAX_BYTES);
    let mut model = Model::default();
    let mut now = Instant::from_secs(1);
    while !input.is_empty() {
        match input.u8() % 16 {
            0 => now = now.after(Duration::from_secs(u64::from(input.u8()) % 40)),
            1 => {
                let len = usize::from(input.u8());
                push_raw(&mut Reassembler::new(SLOTS, MAX_BYTES), now, input.take(len));
            }
            2 => {
                assert_eq!(reassembler.expire(now), model.expire(now));
                assert_eq!(reassembler.in_use(), model.datagrams.len());
            }
            _ => {
                let piece = Piece::read(&mut input);
                let expected = model.push(now, &piece);
                assert_eq!(push(&mut reassembler, now, &piece), expected, "{piece:?} after {model:#?}");
                // Slots whose time is over may wait until somebody needs them.
                assert!(reassembler.in_use() >= model.datagrams.len());
            }
        }
    }
    let end = now.after(TIMEOUT_V6);
    assert_eq!((reassembler.expire(end), reassembler.in_use()), (model.expire(end), 0));
}

/// Bytes that nobody made: no more than no panic, and no packet longer than allowed.
fn push_raw(reassembler: &mut Reassembler, now: Instant, bytes: &[u8]) {
    for _ in 0..2 {
        if let Reassembly::Whole(whole) = reassembler.push(now, bytes, Sender::Stranger) {
            assert!(whole.len() <= MAX_BYTES);
        }
    }
}

/// A fragment, or a packet that is whole by itself.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    is_v4: bool,
    ident: u8,
    start: u16,
    data: Vec<u8>,
    more: bool,
    ecn: u8,
    /// 8 bytes of destination options before the fragment header, or of IPv4 options.
    has_headers: bool,
}

impl Piece {
    fn read(input: &mut Input<'_>) -> Self {
        let (name, shape) = (input.u8(), input.u8());
        let (start, len) = (u16::from(input.u8()) * 8, usize::from(input.u8()));
        let start = if shape & 0x80 == 0 { start % 256 } else { start };
        // Mostly as it has to be: a multiple of 8 where others follow.
        let len = if shape & 0x40 == 0 { len & !7 } else { len };
        // Two contents, so that a duplicate can be told from an overlap.
        let salt = u8::from(shape & 0x20 != 0);
        Self {
            is_v4: name & 1 == 0,
            ident: name >> 1 & 3,
            start,
            data: (0..len).map(|i| (usize::from(start) + i) as u8 ^ salt).collect(),
            more: shape & 1 == 0,
            ecn: shape >> 1 & 3,
            has_headers: shape & 0x10 != 0,
        }
    }

    fn end(&self) -> usize {
        usize::from(self.start) + self.data.len()
    }

    fn headers_len(&self) -> usize {
        (if self.is_v4 { 20 } else { 40 }) + if self.has_headers { 8 } else { 0 }
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && !self.more
    }

    fn timeout(&self) -> Duration {
        if self.is_v4 { TIMEOUT_V4 } else { TIMEOUT_V6 }
    }

    /// The packet with this data, as it would be without fragmentation.
    fn packet(&self, data: &[u8], ecn: u8) -> Vec<u8> {
        let version = if self.is_v4 { 4 } else { 6 };
        let (src, dst) = Ends::tunnel(version, version).inner;
        let mut packet = packets::ip(src, dst, proto::ESP, data, false);
        if self.is_v4 {
            if self.has_headers {
                packet = packets::with_v4_options(&packet, &[148, 4, 0, 0, 1, 1, 1, 0]);
            }
            let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
            ip.set_ecn(ecn);
            ip.set_ident(self.ident.into());
            ip.fill_checksum();
        } else {
            if self.has_headers {
                let options = (proto::DEST_OPTS, vec![0, 0, 1, 4, 0, 0, 0, 0]);
                packet = packets::with_v6_headers(&packet, &[options]);
            }
            Ipv6::parse(&mut packet[..]).unwrap().set_ecn(ecn);
        }
        packet
    }

    /// As it is on the wire.
    fn fragment(&self) -> Vec<u8> {
        let mut packet = self.packet(&self.data, self.ecn);
        if self.is_v4 {
            let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
            ip.set_fragment(self.start, self.more);
            ip.fill_checksum();
            return packet;
        }
        let [high, low] = (self.start | u16::from(self.more)).to_be_bytes();
        let header = [proto::ESP, 0, high, low, 0, 0, 0, self.ident];
        let at = self.headers_len();
        packet[if self.has_headers { 40 } else { 6 }] = proto::FRAGMENT;
        packet.splice(at..at, header);
        let len = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
        packet
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Whole(Vec<u8>),
    Held,
    Dropped(ReassemblyError),
}

fn push(reassembler: &mut Reassembler, now: Instant, piece: &Piece) -> Outcome {
    match reassembler.push(now, &piece.fragment(), Sender::Known) {
        Reassembly::Whole(packet) => {
            assert!(packet.head_room() >= HEAD_ROOM && packet.tail_room() >= TAIL_ROOM);
            Outcome::Whole(packet.data().to_vec())
        }
        Reassembly::Held => Outcome::Held,
        Reassembly::Dropped(error) => Outcome::Dropped(error),
    }
}

/// All that the reassembler should know.
#[derive(Debug, Default)]
struct Model {
    datagrams: BTreeMap<(bool, u8), Datagram>,
    timed_out: usize,
}

#[derive(Debug)]
struct Datagram {
    slot: usize,
    since: Instant,
    timeout: Duration,
    bytes: BTreeMap<usize, u8>,
    pieces: Vec<Piece>,
    dead: Option<ReassemblyError>,
}

impl Model {
    fn expire(&mut self, now: Instant) -> usize {
        self.forget(now);
        std::mem::take(&mut self.timed_out)
    }

    fn forget(&mut self, now: Instant) {
        let timed_out = &mut self.timed_out;
        self.datagrams.retain(|_, datagram| {
            let is_over = now.since(datagram.since) >= datagram.timeout;
            *timed_out += usize::from(is_over && datagram.dead.is_none());
            !is_over
        });
    }

    /// The slot of a datagram; another gives way if there is none. All of one IP version are from one source.
    fn slot_for(&mut self, key: (bool, u8)) -> usize {
        if let Some(datagram) = self.datagrams.get(&key) {
            return datagram.slot;
        }
        let free = (0..SLOTS).find(|slot| self.datagrams.values().all(|datagram| datagram.slot != *slot));
        free.unwrap_or_else(|| {
            let share = |is_v4: bool| self.datagrams.keys().filter(|key| key.0 == is_v4).count();
            let weight = |(held, datagram): &(&(bool, u8), &Datagram)| {
                (share(held.0), held.0 == key.0, Reverse(datagram.since), datagram.slot)
            };
            let victim = *self.datagrams.iter().max_by_key(weight).unwrap().0;
            self.datagrams.remove(&victim).unwrap().slot
        })
    }

    fn push(&mut self, now: Instant, piece: &Piece) -> Outcome {
        if let Err(error) = sound(piece) {
            return Outcome::Dropped(error);
        }
        if piece.is_whole() {
            return Outcome::Whole(piece.packet(&piece.data, piece.ecn));
        }
        self.forget(now);
        let key = (piece.is_v4, piece.ident);
        let slot = self.slot_for(key);
        let datagram = self.datagrams.entry(key).or_insert_with(|| Datagram {
            slot,
            since: now,
            timeout: piece.timeout(),
            bytes: BTreeMap::new(),
            pieces: Vec::new(),
            dead: None,
        });
        match datagram.push(piece) {
            Ok(None) => Outcome::Held,
            Ok(Some(whole)) => {
                self.datagrams.remove(&key);
                if whole.len() > MAX_BYTES {
                    return Outcome::Dropped(ReassemblyError::TooBig);
                }
                Outcome::Whole(whole)
            }
            Err(error) => {
                datagram.dead = Some(error);
                Outcome::Dropped(error)
            }
        }
    }
}

/// What can be said of a fragment alone.
fn sound(piece: &Piece) -> Result<(), ReassemblyError> {
    if piece.more && !piece.data.len().is_multiple_of(8) {
        return Err(ReassemblyError::Misaligned);
    }
    if piece.data.is_empty() && !piece.is_whole() {
        return Err(ReassemblyError::Empty);
    }
    if piece.headers_len() + piece.end() > MAX_BYTES {
        return Err(ReassemblyError::TooBig);
    }
    Ok(())
}

impl Datagram {
    fn push(&mut self, piece: &Piece) -> Result<Option<Vec<u8>>, ReassemblyError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        if self.pieces.iter().any(|held| contradict(held, piece) || contradict(piece, held)) {
            return Err(ReassemblyError::InconsistentLength);
        }
        let range = |piece: &Piece| (piece.start, piece.end());
        if let Some(held) = self.pieces.iter().find(|held| range(held) == range(piece)) {
            return if held.data == piece.data { Ok(None) } else { Err(ReassemblyError::Overlap) };
        }
        if (piece.start.into()..piece.end()).any(|at| self.bytes.contains_key(&at)) {
            return Err(ReassemblyError::Overlap);
        }
        if self.pieces.len() == MAX_FRAGMENTS {
            return Err(ReassemblyError::TooManyFragments);
        }
        self.bytes.extend((piece.start.into()..).zip(piece.data.iter().copied()));
        self.pieces.push(piece.clone());
        let mut marks = self.pieces.iter().map(|piece| Ecn::from_tos(piece.ecn));
        let first = marks.next().unwrap();
        let ecn = marks.try_fold(first, ecn::combine).ok_or(ReassemblyError::CongestionMark)?;
        let Some(last) = self.pieces.iter().find(|piece| !piece.more) else { return Ok(None) };
        let whole: Option<Vec<u8>> = (0..last.end()).map(|at| self.bytes.get(&at).copied()).collect();
        let Some(data) = whole else { return Ok(None) };
        let first = self.pieces.iter().find(|piece| piece.start == 0).unwrap();
        Ok(Some(first.packet(&data, ecn as u8)))
    }
}

/// Whether `last` says that the datagram ends where `other` shows that it does not.
fn contradict(last: &Piece, other: &Piece) -> bool {
    let is_beyond = if other.more { other.end() >= last.end() } else { other.end() != last.end() };
    !last.more && is_beyond
}

fn seeds() -> Vec<Vec<u8>> {
    let piece = |name: u8, shape: u8, start: u8, len: u8| vec![8, name, shape, start, len];
    let (first, last) = (|name| piece(name, 0, 0, 64), |name| piece(name, 0x41, 8, 21));
    let raw = [&[1, 40][..], &packets::ip([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 50, &[5; 20], false)]
        .concat();
    vec![
        [first(0), last(0), last(1), first(1)].concat(),
        [first(2), piece(2, 0x10, 0, 64), piece(2, 0x20, 0, 64), last(2)].concat(),
        [first(3), vec![0, 39, 2], last(3), first(5), first(7), raw].concat(),
        Script::default().bytes(&piece(1, 6, 0, 64)).bytes(&piece(1, 0x43, 8, 9)).done(),
    ]
}
