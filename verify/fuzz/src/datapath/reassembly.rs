//! Reassembly, compared with a model that keeps each byte in a map.

use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::ecn::Ecn;
use casemate_datapath::reassembly::{
    MAX_FRAGMENTS, Reassembler, Reassembly, ReassemblyError, Sender, TIMEOUT_V4, TIMEOUT_V6,
};
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM, ecn};
use casemate_sa::Instant;
use casemate_test_support::hosts::{Ends, packets};
use casemate_wire::ip::{Ipv4, Ipv6, proto};
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(crate) const TARGET: Target = Target {
    name: "reassembly",
    about: "reassembly: fragments in any order, duplicated, overlapping or late, compared with a naive model",
    max_len: 1_024,
    run,
    seeds,
    dictionary: &[],
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
                let fragment = Fragment::read(&mut input);
                let expected = model.push(now, &fragment);
                assert_eq!(push(&mut reassembler, now, &fragment), expected, "{fragment:?} after {model:#?}");
                // Expired slots may stay in use until they are needed.
                assert!(reassembler.in_use() >= model.datagrams.len());
            }
        }
    }
    let end = now.after(TIMEOUT_V6);
    assert_eq!((reassembler.expire(end), reassembler.in_use()), (model.expire(end), 0));
}

/// Random bytes must not panic, and must not result in a packet that is too long.
fn push_raw(reassembler: &mut Reassembler, now: Instant, bytes: &[u8]) {
    for _ in 0..2 {
        if let Reassembly::Whole(whole) = reassembler.push(now, bytes, Sender::Unknown) {
            assert!(whole.len() <= MAX_BYTES);
        }
    }
}

/// Fragment, or complete packet.
#[derive(Debug, Clone, PartialEq)]
struct Fragment {
    is_v4: bool,
    ident: u8,
    start: u16,
    data: Vec<u8>,
    more: bool,
    ecn: u8,
    /// Whether there are 8 bytes of destination options before the fragment header, or of IPv4 options.
    has_headers: bool,
}

impl Fragment {
    fn read(input: &mut Input<'_>) -> Self {
        let (name, shape) = (input.u8(), input.u8());
        let (start, len) = (u16::from(input.u8()) * 8, usize::from(input.u8()));
        let start = if shape & 0x80 == 0 { start % 256 } else { start };
        // Mostly a valid length: a multiple of 8 if more fragments follow.
        let len = if shape & 0x40 == 0 { len & !7 } else { len };
        // Two different contents, to distinguish duplicates from overlaps.
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

    /// Unfragmented packet with this data.
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

    /// Fragment on the wire.
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

fn push(reassembler: &mut Reassembler, now: Instant, fragment: &Fragment) -> Outcome {
    match reassembler.push(now, &fragment.fragment(), Sender::Known) {
        Reassembly::Whole(packet) => {
            assert!(packet.head_room() >= HEAD_ROOM && packet.tail_room() >= TAIL_ROOM);
            Outcome::Whole(packet.data().to_vec())
        }
        Reassembly::Held => Outcome::Held,
        Reassembly::Dropped(error) => Outcome::Dropped(error),
    }
}

/// Expected state of the reassembler.
#[derive(Debug, Default)]
struct Model {
    datagrams: BTreeMap<DatagramKey, Datagram>,
    timed_out: usize,
}

/// Identifies a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DatagramKey {
    is_v4: bool,
    ident: u8,
}

#[derive(Debug)]
struct Datagram {
    slot: usize,
    started: Instant,
    timeout: Duration,
    bytes: BTreeMap<usize, u8>,
    fragments: Vec<Fragment>,
    failed: Option<ReassemblyError>,
}

impl Model {
    fn expire(&mut self, now: Instant) -> usize {
        self.remove_expired(now);
        std::mem::take(&mut self.timed_out)
    }

    fn remove_expired(&mut self, now: Instant) {
        let timed_out = &mut self.timed_out;
        self.datagrams.retain(|_, datagram| {
            let is_over = now.since(datagram.started) >= datagram.timeout;
            *timed_out += usize::from(is_over && datagram.failed.is_none());
            !is_over
        });
    }

    /// Slot of a datagram; evicts another datagram if no slot is free. All datagrams of one IP version
    /// have the same source.
    fn slot_for(&mut self, key: DatagramKey) -> usize {
        if let Some(datagram) = self.datagrams.get(&key) {
            return datagram.slot;
        }
        let free = (0..SLOTS).find(|slot| self.datagrams.values().all(|datagram| datagram.slot != *slot));
        free.unwrap_or_else(|| {
            let share = |is_v4: bool| self.datagrams.keys().filter(|key| key.is_v4 == is_v4).count();
            let weight = |(held, datagram): &(&DatagramKey, &Datagram)| {
                (share(held.is_v4), held.is_v4 == key.is_v4, Reverse(datagram.started), datagram.slot)
            };
            let victim = *self.datagrams.iter().max_by_key(weight).unwrap().0;
            self.datagrams.remove(&victim).unwrap().slot
        })
    }

    fn push(&mut self, now: Instant, fragment: &Fragment) -> Outcome {
        if let Err(error) = check_alone(fragment) {
            return Outcome::Dropped(error);
        }
        if fragment.is_whole() {
            return Outcome::Whole(fragment.packet(&fragment.data, fragment.ecn));
        }
        self.remove_expired(now);
        let key = DatagramKey { is_v4: fragment.is_v4, ident: fragment.ident };
        let slot = self.slot_for(key);
        let datagram = self.datagrams.entry(key).or_insert_with(|| Datagram {
            slot,
            started: now,
            timeout: fragment.timeout(),
            bytes: BTreeMap::new(),
            fragments: Vec::new(),
            failed: None,
        });
        match datagram.push(fragment) {
            Ok(None) => Outcome::Held,
            Ok(Some(whole)) => {
                self.datagrams.remove(&key);
                if whole.len() > MAX_BYTES {
                    return Outcome::Dropped(ReassemblyError::TooBig);
                }
                Outcome::Whole(whole)
            }
            Err(error) => {
                datagram.failed = Some(error);
                Outcome::Dropped(error)
            }
        }
    }
}

/// Checks a fragment without its context.
fn check_alone(fragment: &Fragment) -> Result<(), ReassemblyError> {
    if fragment.more && !fragment.data.len().is_multiple_of(8) {
        return Err(ReassemblyError::Misaligned);
    }
    if fragment.data.is_empty() && !fragment.is_whole() {
        return Err(ReassemblyError::Empty);
    }
    if fragment.headers_len() + fragment.end() > MAX_BYTES {
        return Err(ReassemblyError::TooBig);
    }
    Ok(())
}

impl Datagram {
    fn push(&mut self, fragment: &Fragment) -> Result<Option<Vec<u8>>, ReassemblyError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.fragments.iter().any(|held| contradicts(held, fragment) || contradicts(fragment, held)) {
            return Err(ReassemblyError::InconsistentLength);
        }
        let range = |fragment: &Fragment| (fragment.start, fragment.end());
        if let Some(held) = self.fragments.iter().find(|held| range(held) == range(fragment)) {
            return if held.data == fragment.data { Ok(None) } else { Err(ReassemblyError::Overlap) };
        }
        if (fragment.start.into()..fragment.end()).any(|at| self.bytes.contains_key(&at)) {
            return Err(ReassemblyError::Overlap);
        }
        if self.fragments.len() == MAX_FRAGMENTS {
            return Err(ReassemblyError::TooManyFragments);
        }
        self.bytes.extend((fragment.start.into()..).zip(fragment.data.iter().copied()));
        self.fragments.push(fragment.clone());
        let mut marks = self.fragments.iter().map(|fragment| Ecn::from_tos(fragment.ecn));
        let first = marks.next().unwrap();
        let ecn = marks.try_fold(first, ecn::combine).ok_or(ReassemblyError::CongestionMark)?;
        let Some(last) = self.fragments.iter().find(|fragment| !fragment.more) else { return Ok(None) };
        let whole: Option<Vec<u8>> = (0..last.end()).map(|at| self.bytes.get(&at).copied()).collect();
        let Some(data) = whole else { return Ok(None) };
        let first = self.fragments.iter().find(|fragment| fragment.start == 0).unwrap();
        Ok(Some(first.packet(&data, ecn as u8)))
    }
}

/// Whether `last` ends the datagram at an offset that `other` contradicts.
fn contradicts(last: &Fragment, other: &Fragment) -> bool {
    let is_beyond = if other.more { other.end() >= last.end() } else { other.end() != last.end() };
    !last.more && is_beyond
}

fn seeds() -> Vec<Vec<u8>> {
    let fragment = |name: u8, shape: u8, start: u8, len: u8| vec![8, name, shape, start, len];
    let (first, last) = (|name| fragment(name, 0, 0, 64), |name| fragment(name, 0x41, 8, 21));
    let raw = [&[1, 40][..], &packets::ip([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 50, &[5; 20], false)]
        .concat();
    vec![
        [first(0), last(0), last(1), first(1)].concat(),
        [first(2), fragment(2, 0x10, 0, 64), fragment(2, 0x20, 0, 64), last(2)].concat(),
        [first(3), vec![0, 39, 2], last(3), first(5), first(7), raw].concat(),
        Script::default().bytes(&fragment(1, 6, 0, 64)).bytes(&fragment(1, 0x43, 8, 9)).finish(),
    ]
}
