use super::*;
use crate::ecn::Ecn;
use crate::fragment::Fragments;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, proto};
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

const T0: Instant = Instant::from_secs(100);
const ESP: u8 = proto::ESP;

/// One fragment, to be written as IPv4 or IPv6.
#[derive(Debug, Clone, PartialEq)]
struct Frag {
    version: IpVersion,
    ident: u16,
    protocol: u8,
    start: u16,
    data: Vec<u8>,
    more: bool,
    ecn: Ecn,
}

impl Frag {
    fn end(&self) -> usize {
        usize::from(self.start) + self.data.len()
    }

    fn bytes(&self) -> Vec<u8> {
        match self.version {
            IpVersion::V4 => self.v4(&[]),
            IpVersion::V6 => self.v6(&[]),
        }
    }

    fn v4(&self, options: &[u8]) -> Vec<u8> {
        let len = (20 + options.len() + self.data.len()) as u16;
        let mut packet = vec![0; 20];
        packet[0] = 0x45 + (options.len() / 4) as u8;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet.extend(options);
        packet.extend(&self.data);
        let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
        ip.set_tos(0xb8 | self.ecn as u8);
        ip.set_ident(self.ident);
        ip.set_fragment(self.start, self.more);
        ip.set_ttl(60);
        ip.set_protocol(self.protocol);
        ip.set_src([192, 0, 2, 1].into());
        ip.set_dst([192, 0, 2, 2].into());
        ip.fill_checksum();
        packet
    }

    /// With these hop-by-hop options, if any, before the fragment header.
    fn v6(&self, hop_by_hop: &[u8]) -> Vec<u8> {
        let payload_len = (hop_by_hop.len() + 8 + self.data.len()) as u16;
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, if hop_by_hop.is_empty() { 44 } else { 0 }, 64];
        packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        packet.extend([0xfd; 16]);
        packet.extend([0xfe; 16]);
        Ipv6::parse_quoted(&mut packet[..]).unwrap().set_traffic_class(0xb8 | self.ecn as u8);
        packet.extend(hop_by_hop);
        let [hi, lo] = (self.start | u16::from(self.more)).to_be_bytes();
        packet.extend([self.protocol, 0xff, hi, lo, 0, 0]);
        packet.extend(self.ident.to_be_bytes());
        packet.extend(&self.data);
        packet
    }
}

fn frag(version: IpVersion, ident: u16, start: u16, data: Vec<u8>, more: bool) -> Frag {
    Frag { version, ident, protocol: ESP, start, data, more, ecn: Ecn::NotEct }
}

fn v4(start: u16, len: usize, more: bool) -> Frag {
    frag(IpVersion::V4, 1, start, bytes_at(start.into(), len), more)
}

fn v6(start: u16, len: usize, more: bool) -> Frag {
    frag(IpVersion::V6, 1, start, bytes_at(start.into(), len), more)
}

/// The bytes of a test datagram from `start` on.
fn bytes_at(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

/// Result of a push, without the borrow.
#[derive(Debug, PartialEq)]
enum PushResult {
    Whole(Vec<u8>),
    Held,
    Dropped(ReassemblyError),
}

fn push_at(r: &mut Reassembler, now: Instant, packet: &[u8]) -> PushResult {
    match r.push(now, packet, Sender::Unknown) {
        Reassembly::Whole(packet) => {
            assert!(packet.head_room() >= HEAD_ROOM && packet.tail_room() >= TAIL_ROOM);
            PushResult::Whole(packet.data().to_vec())
        }
        Reassembly::Held => PushResult::Held,
        Reassembly::Dropped(error) => PushResult::Dropped(error),
    }
}

fn push(r: &mut Reassembler, packet: &[u8]) -> PushResult {
    push_at(r, T0, packet)
}

/// Upper-layer data of a whole packet. Checks the header.
fn payload(packet: &[u8]) -> Vec<u8> {
    match ip::version(packet).unwrap() {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).unwrap();
            assert!(ip.verify_checksum() && !ip.is_fragment());
            assert_eq!(usize::from(ip.total_len()), packet.len());
            ip.payload().to_vec()
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).unwrap();
            let chain = ip.chain().unwrap();
            assert!(chain.fragment.is_none());
            assert_eq!((ip.total_len(), chain.last.next_header), (packet.len(), ESP));
            packet[chain.last.at..].to_vec()
        }
    }
}

/// The naive model: all bytes in a map, all fragments in a list.
#[derive(Default)]
struct ReassemblyModel(HashMap<(bool, u16), Datagram>);

#[derive(Default)]
struct Datagram {
    bytes: HashMap<usize, u8>,
    fragments: Vec<Frag>,
    dead: Option<ReassemblyError>,
}

impl ReassemblyModel {
    fn push(&mut self, f: &Frag) -> PushResult {
        let key = (f.version == IpVersion::V4, f.ident);
        if f.start == 0 && !f.more {
            return PushResult::Whole(f.data.clone());
        }
        let datagram = self.0.entry(key).or_default();
        match datagram.push(f) {
            Ok(Some(whole)) => {
                self.0.remove(&key);
                PushResult::Whole(whole)
            }
            Ok(None) => PushResult::Held,
            Err(error) => {
                datagram.dead = Some(error);
                PushResult::Dropped(error)
            }
        }
    }
}

impl Datagram {
    fn push(&mut self, f: &Frag) -> Result<Option<Vec<u8>>, ReassemblyError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let is_beyond =
            |a: &Frag, last: &Frag| !last.more && (a.end() > last.end() || a.more && a.end() == last.end());
        let differs = |a: &Frag, b: &Frag| !a.more && !b.more && a.end() != b.end();
        if self.fragments.iter().any(|held| is_beyond(f, held) || is_beyond(held, f) || differs(f, held)) {
            return Err(ReassemblyError::InconsistentLength);
        }
        if self.fragments.contains(f) {
            return Ok(None);
        }
        if (f.start.into()..f.end()).any(|i| self.bytes.contains_key(&i)) {
            return Err(ReassemblyError::Overlap);
        }
        if self.fragments.len() == MAX_FRAGMENTS {
            return Err(ReassemblyError::TooManyFragments);
        }
        self.bytes.extend((f.start.into()..).zip(f.data.iter().copied()));
        self.fragments.push(f.clone());
        let Some(last) = self.fragments.iter().find(|held| !held.more) else { return Ok(None) };
        Ok((0..last.end()).map(|i| self.bytes.get(&i).copied()).collect())
    }
}

/// All fragments of a datagram, cut at these multiples of 8.
fn cut(version: IpVersion, ident: u16, len: usize, cuts: &[usize]) -> Vec<Frag> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut * 8).filter(|&cut| cut < len).collect();
    ends.extend([len]);
    ends.sort();
    ends.dedup();
    let starts = [0].into_iter().chain(ends.iter().copied());
    let fragment = |(start, &end): (usize, &usize)| {
        let data = bytes_at(start + usize::from(ident) * 64, end - start);
        frag(version, ident, start as u16, data, end < len)
    };
    starts.zip(&ends).map(fragment).collect()
}

/// Fragments of a few datagrams in any order, some of them repeated, changed or invented.
fn traffic() -> impl Strategy<Value = Vec<Frag>> {
    let datagram = (any::<bool>(), 9usize..400, prop::collection::vec(1usize..50, 0..9));
    let extra = (any::<prop::sample::Index>(), 0u8..8, 0u16..50, 1usize..150);
    (prop::collection::vec(datagram, 1..5), prop::collection::vec(extra, 0..4)).prop_flat_map(
        |(datagrams, extras)| {
            let mut all = vec![];
            for (ident, (is_v4, len, cuts)) in datagrams.iter().enumerate() {
                let version = if *is_v4 { IpVersion::V4 } else { IpVersion::V6 };
                all.extend(cut(version, ident as u16, *len, cuts));
            }
            for (index, how, start, len) in extras {
                let mut f = index.get(&all).clone();
                match how {
                    // An exact copy.
                    0..=3 => {}
                    4 => f.data[0] ^= 1,
                    5 => {
                        f.more = !f.more;
                        f.data.resize(f.data.len().next_multiple_of(8), 0);
                    }
                    6 => f.data = bytes_at(f.start.into(), (len * 8).min(800)),
                    _ => {
                        let len = if f.more { len.next_multiple_of(8) } else { len };
                        (f.start, f.data) = (start * 8, bytes_at(0, len.max(8)));
                    }
                }
                all.push(f);
            }
            Just(all).prop_shuffle()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_naive_model(traffic in traffic()) {
        let (mut model, mut r) = (ReassemblyModel::default(), Reassembler::new(8, 2_000));
        for f in &traffic {
            let outcome = match push(&mut r, &f.bytes()) {
                PushResult::Whole(packet) => PushResult::Whole(payload(&packet)),
                other => other,
            };
            prop_assert_eq!(outcome, model.push(f), "{:?}", f);
            prop_assert_eq!(r.in_use(), model.0.len());
        }
    }

    #[test]
    fn reassembles_fragmented_packets(
        is_v4: bool, mtu in 100usize..1_500, len in 600usize..4_000,
        order in Just((0..64usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let whole = if is_v4 {
            v4(0, len, false).v4(&[0x88, 4, 1, 2])
        } else {
            v6(0, len, false).v6(&[proto::FRAGMENT, 0, 1, 4, 0, 0, 0, 0])
        };
        // Reassembling an atomic fragment gives a packet without a fragment header.
        let PushResult::Whole(whole) = push(&mut Reassembler::new(0, 5_000), &whole) else { panic!() };
        let mut fragments = vec![];
        let mut cutter = Fragments::new(&whole, mtu, 9).unwrap();
        let mut out = [0; 5_000];
        while let Some(len) = cutter.next(&mut out) {
            fragments.push(out[..len].to_vec());
        }
        prop_assume!(fragments.len() <= MAX_FRAGMENTS);
        let mut r = Reassembler::new(1, 5_000);
        let order: Vec<_> = order.into_iter().filter(|&i| i < fragments.len()).collect();
        for (n, &i) in order.iter().enumerate() {
            let expected = if n + 1 < order.len() { PushResult::Held } else { PushResult::Whole(whole.clone()) };
            prop_assert_eq!(push(&mut r, &fragments[i]), expected);
        }
        prop_assert_eq!(r.in_use(), 0);
    }

    #[test]
    fn any_bytes(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<bool>()), 1..20),
    ) {
        let mut r = Reassembler::new(2, 100);
        for (mut packet, is_v4) in packets {
            // Mostly valid headers of one datagram, so that the parser reads what follows them.
            if packet.len() >= 48 {
                let len = packet.len();
                if is_v4 {
                    packet[0] = 0x45 + packet[0] % 3;
                    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                    packet[4..6].fill(0);
                    packet[6] &= 0x20;
                    packet[7] &= 0x0f;
                    packet[9..20].fill(7);
                    Ipv4::parse(&mut packet[..]).unwrap().fill_checksum();
                } else {
                    packet[0] = 0x60;
                    packet[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
                    packet[6] = 44;
                    packet[8..40].fill(7);
                    packet[42] = 0;
                    packet[44..48].fill(0);
                }
            }
            if let PushResult::Whole(whole) = push(&mut r, &packet) {
                prop_assert!(whole.len() <= 100);
            }
            prop_assert!(r.in_use() <= 2);
        }
    }
}

#[test]
fn headers_come_from_the_first_fragment() {
    let mut r = Reassembler::new(1, 2_000);
    let options = [0x88, 4, 1, 2];
    assert_eq!(push(&mut r, &v4(16, 5, false).v4(&[])), PushResult::Held);
    let PushResult::Whole(whole) = push(&mut r, &v4(0, 16, true).v4(&options)) else { panic!() };
    assert_eq!(Ipv4::parse(&whole[..]).unwrap().options(), options);
    assert_eq!(payload(&whole), bytes_at(0, 21));

    // In the other order.
    assert_eq!(push(&mut r, &v4(0, 16, true).v4(&options)), PushResult::Held);
    assert_eq!(push(&mut r, &v4(16, 5, false).v4(&[1; 8])), PushResult::Whole(whole));

    let hop_by_hop = [proto::FRAGMENT, 0, 1, 4, 0, 0, 0, 0];
    let mut last = v6(16, 5, false);
    // RFC 8200 section 4.5: only the first fragment's value is used.
    last.protocol = proto::UDP;
    assert_eq!(push(&mut r, &last.v6(&[])), PushResult::Held);
    let PushResult::Whole(whole) = push(&mut r, &v6(0, 16, true).v6(&hop_by_hop)) else { panic!() };
    assert_eq!((whole.len(), whole[6], &whole[40..48]), (40 + 8 + 21, 0, &[ESP, 0, 1, 4, 0, 0, 0, 0][..]));
    assert_eq!(payload(&whole), bytes_at(0, 21));
}

#[test]
fn overlap_drops_the_datagram_until_the_timeout() {
    for (make, timeout) in [(v4 as fn(u16, usize, bool) -> Frag, TIMEOUT_V4), (v6, TIMEOUT_V6)] {
        let mut r = Reassembler::new(1, 2_000);
        let overlap = PushResult::Dropped(ReassemblyError::Overlap);
        assert_eq!(push(&mut r, &make(0, 24, true).bytes()), PushResult::Held);
        assert_eq!(push(&mut r, &make(16, 24, true).bytes()), overlap);
        let rest = make(24, 5, false).bytes();
        assert_eq!(push(&mut r, &rest), overlap, "a later fragment of the same datagram");
        let just_before = Instant::from_micros(T0.after(timeout).as_micros() - 1);
        assert_eq!(r.expire(just_before), 0);
        assert_eq!(push_at(&mut r, just_before, &rest), overlap);
        assert_eq!(
            push_at(&mut r, T0.after(timeout), &rest),
            PushResult::Held,
            "a new datagram of the same name"
        );
        assert_eq!(r.expire(T0.after(timeout)), 0, "counted as an overlap, not as a timeout");
    }
}

#[test]
fn timeout_starts_with_the_first_fragment_and_is_counted_once() {
    for (make, timeout) in [(v4 as fn(u16, usize, bool) -> Frag, TIMEOUT_V4), (v6, TIMEOUT_V6)] {
        let mut r = Reassembler::new(2, 2_000);
        let half = T0.after(timeout / 2);
        assert_eq!(push_at(&mut r, T0, &make(0, 24, true).bytes()), PushResult::Held);
        assert_eq!(push_at(&mut r, half, &make(24, 24, true).bytes()), PushResult::Held);
        assert_eq!(r.expire(half), 0);
        // The last fragment arrives too late and starts a new datagram.
        let late = T0.after(timeout);
        assert_eq!(push_at(&mut r, late, &make(48, 1, false).bytes()), PushResult::Held);
        assert_eq!((r.expire(late), r.in_use()), (1, 1));
        assert_eq!((r.expire(late), r.in_use()), (0, 1));
        assert_eq!((r.expire(late.after(timeout)), r.in_use()), (1, 0));
    }
}

/// The first fragment of a datagram from this address.
fn first_from(src: [u8; 4], ident: u16) -> Vec<u8> {
    let mut packet = Frag { ident, ..v4(0, 16, true) }.bytes();
    let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
    ip.set_src(src.into());
    ip.fill_checksum();
    packet
}

/// Pushes the rest of the datagram. Returns whether it is complete.
fn completes(r: &mut Reassembler, src: [u8; 4], ident: u16, sender: Sender) -> bool {
    let mut packet = Frag { ident, ..v4(16, 1, false) }.bytes();
    let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
    ip.set_src(src.into());
    ip.fill_checksum();
    matches!(r.push(T0, &packet, sender), Reassembly::Whole(_))
}

#[test]
fn senders_without_sa_are_evicted_first() {
    let mut r = Reassembler::new(8, 2_000);
    let (peer, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    for n in 0..100 {
        assert!(matches!(r.push(T0, &first_from([10, 0, 0, n], 1), Sender::Unknown), Reassembly::Held));
    }
    assert_eq!((r.in_use(), r.take_evicted(), r.take_evicted()), (8, 92, 0));
    for n in 0..8 {
        let held = r.push(T0, &first_from(peer, n), Sender::Known);
        assert!(matches!(held, Reassembly::Held), "{held:?}");
    }
    assert_eq!(r.take_evicted(), 8);
    let dropped = r.push(T0, &first_from([10, 0, 0, 1], 1), Sender::Unknown);
    assert!(matches!(dropped, Reassembly::Dropped(ReassemblyError::TooManyDatagrams)));
    // Another peer takes the oldest slots of the peer with the most slots.
    for n in 0..4 {
        assert!(matches!(
            r.push(T0.after(Duration::from_secs(1)), &first_from(other, n), Sender::Known),
            Reassembly::Held
        ));
    }
    for n in 0..4 {
        assert!(completes(&mut r, other, n, Sender::Known));
    }
    let left = (0..8).filter(|n| completes(&mut r, peer, *n, Sender::Known)).count();
    assert_eq!(left, 4);
}

#[test]
fn forged_fragments_of_one_peer_do_not_block_another() {
    let mut r = Reassembler::new(8, 2_000);
    let (peer, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    for n in 0..1_000 {
        let now = T0.after(Duration::from_millis(n.into()));
        assert!(matches!(r.push(now, &first_from(peer, n), Sender::Known), Reassembly::Held));
        if n == 500 {
            assert!(matches!(r.push(now, &first_from(other, n), Sender::Known), Reassembly::Held));
        }
    }
    assert!(completes(&mut r, other, 500, Sender::Known));
    // A real datagram of the forged peer survives seven new datagrams.
    assert!(completes(&mut r, peer, 999, Sender::Known));
}

/// The work for each forged fragment with the address of a peer is proportional to the number of slots.
/// Quadratic work would take minutes here.
#[test]
fn eviction_work_is_linear_in_the_slots() {
    let slots = 4_000;
    let mut r = Reassembler::new(slots.into(), 100);
    let start = std::time::Instant::now();
    for n in 0..slots * 2 {
        // Two peers, so that slots change their owner.
        let src = [192, 0, 2, 1 + u8::from(n % 3 == 0)];
        assert!(matches!(r.push(T0, &first_from(src, n), Sender::Known), Reassembly::Held));
        assert!(start.elapsed() < Duration::from_secs(10), "{n} fragments");
    }
    assert_eq!(r.take_evicted(), slots.into());
}

proptest! {
    /// The stored counts are correct whenever no slot is free.
    #[test]
    fn slot_counts_are_exact(
        steps in prop::collection::vec((0..4u8, 0..6u16, any::<bool>(), 0..40u64), 1..80),
    ) {
        let mut r = Reassembler::new(4, 2_000);
        let mut now = T0;
        for (host, ident, is_last, seconds) in steps {
            now = now.after(Duration::from_secs(if seconds > 36 { seconds } else { 0 }));
            let sender = if host == 0 { Sender::Unknown } else { Sender::Known };
            let src = [192, 0, 2, host];
            if is_last {
                completes(&mut r, src, ident, sender);
            } else {
                r.push(now, &first_from(src, ident), sender);
            }
            for slot in &r.slots {
                let count = r.slots.iter().filter(|other| other.owner == slot.owner).count();
                prop_assert_eq!(slot.owner_slots, count);
            }
        }
    }
}

#[test]
fn all_key_fields_are_compared() {
    let mut r = Reassembler::new(8, 2_000);
    assert_eq!(push(&mut r, &v4(0, 16, true).bytes()), PushResult::Held);
    let mut other_src = v4(16, 1, false).bytes();
    let mut ip = Ipv4::parse(&mut other_src[..]).unwrap();
    ip.set_src([192, 0, 2, 9].into());
    ip.fill_checksum();
    let other_protocol = Frag { protocol: proto::UDP, ..v4(16, 1, false) }.bytes();
    let other_ident = Frag { ident: 2, ..v4(16, 1, false) }.bytes();
    for other in [other_src, other_protocol, other_ident, v6(16, 1, false).bytes()] {
        assert_eq!(push(&mut r, &other), PushResult::Held);
    }
    assert_eq!(r.in_use(), 5);
    assert!(matches!(push(&mut r, &v4(16, 1, false).bytes()), PushResult::Whole(_)));
}

#[test]
fn atomic_fragments_and_whole_packets_need_no_slot() {
    // These packets need no slot and are independent of the datagram with the same key (RFC 6946 section 4).
    let mut r = Reassembler::new(1, 2_000);
    assert_eq!(push(&mut r, &v6(0, 16, true).bytes()), PushResult::Held);
    let PushResult::Whole(atomic) = push(&mut r, &v6(0, 20, false).bytes()) else { panic!() };
    assert_eq!(payload(&atomic), bytes_at(0, 20));
    assert_eq!(push(&mut r, &atomic), PushResult::Whole(atomic.clone()), "no fragment at all");
    let whole = v4(0, 20, false).bytes();
    assert_eq!(push(&mut r, &whole), PushResult::Whole(whole.clone()));
    for packet in [whole, atomic] {
        let padded = [packet.clone(), vec![0; 9]].concat();
        assert_eq!(push(&mut r, &padded), PushResult::Whole(packet), "bytes behind the packet do not count");
    }
    let padded = [v6(16, 1, false).bytes(), vec![0; 9]].concat();
    let PushResult::Whole(whole) = push(&mut r, &padded) else { panic!() };
    assert_eq!(payload(&whole), bytes_at(0, 17));
}

#[test]
fn first_fragment_must_contain_all_headers() {
    let tiny = PushResult::Dropped(ReassemblyError::TinyFirst);
    let try_one = |f: Vec<u8>| push(&mut Reassembler::new(1, 2_000), &f);
    let with = |protocol, f: Frag| Frag { protocol, ..f };
    for make in [v4 as fn(u16, usize, bool) -> Frag, v6] {
        assert_eq!(try_one(make(0, 8, true).bytes()), PushResult::Held, "8 bytes show an SPI");
        assert_eq!(try_one(with(proto::TCP, make(0, 8, true)).bytes()), tiny);
        assert_eq!(try_one(with(proto::TCP, make(0, 16, true)).bytes()), PushResult::Held);
    }
    assert_eq!(try_one(with(proto::TCP, v4(8, 40, false)).bytes()), tiny);

    // Destination options of 16 bytes, then ESP.
    let chain = |len: usize| {
        let mut f = with(proto::DEST_OPTS, v6(0, len, true));
        f.data[..4].copy_from_slice(&[ESP, 1, 1, 12]);
        f.bytes()
    };
    assert_eq!(try_one(chain(8)), tiny);
    assert_eq!(try_one(chain(16)), tiny);
    assert_eq!(try_one(chain(24)), PushResult::Held);
}

#[test]
fn length_limits() {
    use ReassemblyError::{HeadersTooLong, TooBig, TooManyFragments};
    let mut r = Reassembler::new(1, 1_000);
    // 20 bytes of header and 980 of data are the limit.
    assert_eq!(push(&mut r, &v4(976, 5, false).bytes()), PushResult::Dropped(TooBig));
    assert_eq!(push(&mut r, &v4(976, 4, false).bytes()), PushResult::Held);
    // With a longer first header they exceed it.
    let first = v4(0, 976, true).v4(&[1; 4]);
    assert_eq!(push(&mut r, &first), PushResult::Dropped(TooBig));
    assert_eq!(r.in_use(), 0);

    let mut r = Reassembler::new(2, 100_000);
    assert_eq!(push(&mut r, &v4(65_512, 3, false).bytes()), PushResult::Held);
    assert_eq!(push(&mut r, &v4(65_512, 4, false).bytes()), PushResult::Dropped(TooBig), "the ping of death");
    assert_eq!(push(&mut r, &v6(65_528, 7, false).bytes()), PushResult::Held);
    assert_eq!(push(&mut r, &v6(65_528, 8, true).bytes()), PushResult::Dropped(TooBig));

    let mut r = Reassembler::new(1, 10_000);
    let mut hop_by_hop = vec![1; 224];
    hop_by_hop[..2].copy_from_slice(&[proto::FRAGMENT, 27]);
    assert_eq!(push(&mut r, &v6(0, 8, true).v6(&hop_by_hop)), PushResult::Dropped(HeadersTooLong));

    for i in 0..MAX_FRAGMENTS as u16 {
        assert_eq!(push(&mut r, &v4(i * 16, 8, true).bytes()), PushResult::Held);
    }
    assert_eq!(push(&mut r, &v4(8, 8, true).bytes()), PushResult::Dropped(TooManyFragments));
}

#[test]
fn longest_datagrams() {
    for make in [v4 as fn(u16, usize, bool) -> Frag, v6] {
        let max = if make(0, 8, true).version == IpVersion::V4 { 65_515 } else { 65_535 };
        let mut r = Reassembler::new(1, 65_575);
        let mut start = 0;
        while start + 1_480 < max {
            assert_eq!(push(&mut r, &make(start as u16, 1_480, true).bytes()), PushResult::Held);
            start += 1_480;
        }
        let PushResult::Whole(whole) = push(&mut r, &make(start as u16, max - start, false).bytes()) else {
            panic!()
        };
        assert_eq!(payload(&whole), bytes_at(0, max));
    }
}

#[test]
fn bad_fragment_does_not_affect_the_others() {
    let mut r = Reassembler::new(1, 2_000);
    assert_eq!(push(&mut r, &v4(0, 16, true).bytes()), PushResult::Held);
    let mut broken = v4(16, 8, false).bytes();
    broken[8] ^= 1;
    let dropped = PushResult::Dropped;
    assert_eq!(push(&mut r, &broken), dropped(ReassemblyError::BadChecksum));
    assert_eq!(push(&mut r, &v4(16, 7, true).bytes()), dropped(ReassemblyError::Misaligned));
    assert_eq!(push(&mut r, &v4(16, 0, false).bytes()), dropped(ReassemblyError::Empty));
    assert!(matches!(push(&mut r, &[0x45; 12]), PushResult::Dropped(ReassemblyError::Malformed(_))));
    assert!(matches!(push(&mut r, &[]), PushResult::Dropped(ReassemblyError::Malformed(_))));
    assert!(matches!(push(&mut r, &v4(16, 8, false).bytes()), PushResult::Whole(_)));
}

#[test]
fn congestion_marks_are_kept() {
    for make in [v4 as fn(u16, usize, bool) -> Frag, v6] {
        for (a, b, whole) in [
            (Ecn::Ect0, Ecn::Ce, Some(Ecn::Ce)),
            (Ecn::Ce, Ecn::Ect1, Some(Ecn::Ce)),
            (Ecn::Ect0, Ecn::Ect0, Some(Ecn::Ect0)),
            (Ecn::NotEct, Ecn::Ce, None),
        ] {
            let mut r = Reassembler::new(1, 2_000);
            assert_eq!(push(&mut r, &Frag { ecn: a, ..make(0, 16, true) }.bytes()), PushResult::Held);
            let outcome = push(&mut r, &Frag { ecn: b, ..make(16, 1, false) }.bytes());
            match (outcome, whole) {
                (PushResult::Whole(packet), Some(ecn)) => {
                    assert_eq!(Ecn::from_packet(&packet), Ok(ecn));
                    assert_eq!(payload(&packet).len(), 17);
                }
                (outcome, _) => assert_eq!(outcome, PushResult::Dropped(ReassemblyError::CongestionMark)),
            }
        }
    }
}
