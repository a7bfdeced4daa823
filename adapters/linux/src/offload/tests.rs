//! What is joined and cut again is what it was; and what must not be joined stays alone.

use super::header::{HEADER_LEN, VnetHeader};
use super::segment::Layout;
use super::{Cutter, Run, join};
use casemate_wire::ip::{IpVersion, proto};

const V4: IpVersion = IpVersion::V4;
const V6: IpVersion = IpVersion::V6;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Lengths and checksums are right afterwards.
fn settle(packet: &mut [u8]) {
    let layout = Layout::of(packet).unwrap();
    let pseudo = layout.pseudo(packet, 0).unwrap();
    layout.settle(packet, pseudo).unwrap();
}

/// An IP packet with this transport header and payload, lengths and checksums right.
fn packet(version: IpVersion, protocol: u8, upper: &[u8], payload: &[u8], ident: u16) -> Vec<u8> {
    let mut packet = match version {
        V4 => {
            let mut header =
                vec![0x45, 0xb8, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
            header[4..6].copy_from_slice(&ident.to_be_bytes());
            header
        }
        V6 => {
            let mut header = vec![0x6b, 0x80, 0, 7, 0, 0, protocol, 64];
            header.extend([0xfd; 16].into_iter().chain([0xfe; 16]));
            header
        }
    };
    packet.extend(upper);
    packet.extend(payload);
    let len = packet.len();
    match version {
        V4 => packet[2..4].copy_from_slice(&(len as u16).to_be_bytes()),
        V6 => packet[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes()),
    }
    settle(&mut packet);
    packet
}

/// Options of an IPv4 packet: router alert.
const OPTIONS: [u8; 4] = [0x94, 4, 0, 0];

/// The packet with these IPv4 options, or with two IPv6 extension headers for them: hop-by-hop and destination options, both filled up
/// with PadN of these bytes.
fn extended(mut packet: Vec<u8>, options: [u8; 4]) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[0] += 1;
        packet.splice(20..20, options);
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
    } else {
        let [a, b, c, d] = options;
        let (upper, len) = (packet[6], packet.len() as u16 + 16 - 40);
        packet.splice(40..40, [60, 0, 1, 4, a, b, c, d, upper, 0, 1, 4, a, b, c, d]);
        packet[6] = 0;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
    settle(&mut packet);
    packet
}

fn tcp(version: IpVersion, sequence: u32, flags: u8, len: usize, ident: u16) -> Vec<u8> {
    let mut header = vec![0x1f, 0x90, 0xc0, 0x01, 0, 0, 0, 0, 0, 0, 0, 9, 0x80, flags, 4, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    // Timestamps.
    header.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    let payload: Vec<u8> = (0..len).map(|at| (at as u32 ^ sequence) as u8).collect();
    packet(version, proto::TCP, &header, &payload, ident)
}

fn udp(version: IpVersion, port: u16, len: usize, ident: u16) -> Vec<u8> {
    let mut header = vec![0, 53, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&port.to_be_bytes());
    packet(version, proto::UDP, &header, &vec![port as u8; len], ident)
}

/// What the kernel gets for these packets: bytes that stand for one packet or many, with how many.
fn joined(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    let mut out = |run: &Run<'_>| match run.head() {
        None => {
            let plain = VnetHeader::default().emit();
            all.extend(run.packets().map(|packet| ([&plain[..], packet].concat(), 1)));
        }
        Some((header, head)) => {
            let payloads: Vec<u8> = run.payloads().flatten().copied().collect();
            all.push(([&header[..], &head[..], &payloads[..]].concat(), run.count()));
        }
    };
    join(&packets.iter().map(Vec::as_slice).collect(), true, &mut out);
    all
}

/// The packets that bytes from the kernel stand for.
fn parted(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut cutter, mut out) = (Cutter::new(), vec![0; 65_535]);
    cutter.space()[..bytes.len()].copy_from_slice(bytes);
    let mut len = cutter.first(bytes.len(), &mut out);
    let mut packets = Vec::new();
    while let Some(found) = len {
        packets.push(out[..found].to_vec());
        len = cutter.next(&mut out);
    }
    packets
}

/// Joins and parts; answers how many packets each piece had.
fn round_trip(packets: &[Vec<u8>]) -> Vec<usize> {
    let pieces = joined(packets);
    let back: Vec<Vec<u8>> = pieces.iter().flat_map(|(bytes, _)| parted(bytes)).collect();
    assert_eq!(back, packets);
    pieces.into_iter().map(|(_, count)| count).collect()
}

#[test]
fn segments_in_a_row_go_as_one() {
    for version in [V4, V6] {
        let sizes = [1_200, 1_200, 1_200, 700];
        let mut sequence = u32::MAX - 2_000;
        let packets: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(index, len)| {
                let flags = if index == 3 { ACK | PSH } else { ACK };
                let packet = tcp(version, sequence, flags, *len, 77 + index as u16);
                sequence = sequence.wrapping_add(*len as u32);
                packet
            })
            .collect();
        assert_eq!(round_trip(&packets), [4]);
        let datagrams: Vec<_> = [500, 500, 20].iter().map(|len| udp(version, 9, *len, 0)).collect();
        let datagrams: Vec<_> = datagrams
            .into_iter()
            .enumerate()
            .map(|(index, mut packet)| {
                if version == V4 {
                    packet[4..6].copy_from_slice(&(index as u16).to_be_bytes());
                    settle(&mut packet);
                }
                packet
            })
            .collect();
        assert_eq!(round_trip(&datagrams), [3]);
    }
}

#[test]
fn flows_grow_side_by_side_and_stay_in_order() {
    let packets: Vec<_> = (0..6).map(|at| udp(V6, at % 2, 100, 0)).collect();
    let pieces = joined(&packets);
    assert_eq!(pieces.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 3]);
    // More flows than are remembered.
    let packets: Vec<_> = (0..40).map(|at| udp(V6, at % 20, 100, 0)).collect();
    let pieces = joined(&packets);
    assert_eq!(pieces.iter().map(|(_, count)| *count).sum::<usize>(), 40);
}

/// Two segments that would be joined but for a change to the second.
fn joined_if(change: impl Fn(&mut Vec<u8>)) -> usize {
    let first = tcp(V4, 1_000, ACK, 400, 5);
    let mut second = tcp(V4, 1_400, ACK, 400, 6);
    change(&mut second);
    joined(&[first, second]).len()
}

#[test]
fn what_differs_stays_alone() {
    let settled = |change: fn(&mut Vec<u8>)| {
        joined_if(|packet| {
            change(packet);
            settle(packet);
        })
    };
    assert_eq!(settled(|_| {}), 1);
    type Change = (&'static str, fn(&mut Vec<u8>));
    let changes: [Change; 12] = [
        ("TOS", |packet| packet[1] = 0x03),
        ("DF", |packet| packet[6] = 0),
        ("TTL", |packet| packet[8] = 63),
        ("source", |packet| packet[15] = 9),
        ("port", |packet| packet[21] ^= 1),
        ("number", |packet| packet[27] ^= 1),
        ("acknowledgement", |packet| packet[31] ^= 1),
        ("FIN", |packet| packet[33] |= 0x01),
        ("SYN", |packet| packet[33] |= 0x02),
        ("CWR", |packet| packet[33] |= 0x80),
        ("window", |packet| packet[34] ^= 1),
        ("timestamp", |packet| packet[47] ^= 1),
    ];
    for (name, change) in changes {
        assert_eq!(settled(change), 2, "{name}");
    }
    assert_eq!(joined_if(|packet| packet[60] ^= 1), 2, "a wrong checksum");
    assert_eq!(joined_if(|packet| packet.push(0)), 2, "bytes behind the packet");
}

#[test]
fn without_df_the_identification_counts() {
    let pair = |second| {
        let mut packets = [udp(V4, 9, 50, 5), udp(V4, 9, 50, second)];
        for packet in &mut packets {
            packet[6] = 0;
            settle(packet);
        }
        joined(&packets).len()
    };
    assert_eq!((pair(6), pair(7)), (1, 2));
}

#[test]
fn options_and_extension_headers_stand_in_each_segment() {
    for version in [V4, V6] {
        let segments: Vec<_> =
            (0..4).map(|at| extended(tcp(version, at * 1_000, ACK, 1_000, at as u16), OPTIONS)).collect();
        assert_eq!(round_trip(&segments), [4]);
        let datagrams: Vec<_> = (0..3).map(|at| extended(udp(version, 9, 300, at), OPTIONS)).collect();
        assert_eq!(round_trip(&datagrams), [3]);
    }
}

#[test]
fn other_options_do_not_go_together_and_do_not_overtake() {
    for version in [V4, V6] {
        let plain = |at: u16| udp(version, 9, 300, at);
        let packets =
            [plain(0), extended(plain(1), OPTIONS), extended(plain(2), [0x94, 4, 0, 1]), plain(3), plain(4)];
        assert_eq!(round_trip(&packets), [1, 1, 1, 2]);
    }
}

#[test]
fn bytes_behind_a_datagram_are_no_payload() {
    for version in [V4, V6] {
        // RFC 9868 section 8: options lie behind the UDP length.
        let with_options = |at: u16| {
            let mut packet = udp(version, 9, 300, at);
            let (udp_at, len_at, fixed) = if version == V4 { (20, 2, 0) } else { (40, 4, 40) };
            // With their checksum, the sum over datagram and options is right, too (RFC 9868 section 9).
            packet.extend([0xff, 0xf7, 0, 0, 0, 0, 0, 0]);
            settle(&mut packet);
            // The datagram ends before the options, and its checksum covers no more than it.
            packet[udp_at + 4..udp_at + 6].copy_from_slice(&308u16.to_be_bytes());
            let end = packet.len() - 8;
            let mut datagram = packet[..end].to_vec();
            datagram[len_at..len_at + 2].copy_from_slice(&((end - fixed) as u16).to_be_bytes());
            settle(&mut datagram);
            packet[udp_at..end].copy_from_slice(&datagram[udp_at..]);
            packet
        };
        let packets = [with_options(0), with_options(1), udp(version, 9, 308, 2)];
        assert_eq!(round_trip(&packets), [1, 1, 1]);
    }
}

#[test]
fn the_final_destination_of_a_route_stays_in_the_checksum() {
    let segments: Vec<_> = (0..3).map(|at| tcp(V6, at * 500, ACK, 500, 0)).collect();
    let (mut piece, _) = joined(&segments).remove(0);
    // The kernel has summed the final destination; the packet goes to another one first.
    let last = piece[HEADER_LEN + 24..HEADER_LEN + 40].to_vec();
    let routing = [&[6, 2, 0, 1, 0, 0, 0, 0][..], &last].concat();
    piece[HEADER_LEN + 6] = 43;
    piece[HEADER_LEN + 24..HEADER_LEN + 40].fill(0xaa);
    let len = (piece.len() - HEADER_LEN - 40 + routing.len()) as u16;
    piece[HEADER_LEN + 4..HEADER_LEN + 6].copy_from_slice(&len.to_be_bytes());
    piece.splice(HEADER_LEN + 40..HEADER_LEN + 40, routing.iter().copied());
    piece[6..8].copy_from_slice(&64u16.to_ne_bytes());
    let parts = parted(&piece);
    assert_eq!(parts.len(), 3);
    for (part, segment) in parts.iter().zip(&segments) {
        assert_eq!(part[64..], segment[40..]);
    }
}

#[test]
fn a_flow_that_ends_does_not_overtake_itself() {
    let packets = [tcp(V4, 0, ACK, 100, 1), tcp(V4, 100, ACK, 100, 2), tcp(V4, 200, ACK | 1, 50, 3)];
    assert_eq!(round_trip(&packets), [2, 1]);
    // What may not follow a short one begins anew.
    let packets = [tcp(V4, 0, ACK, 100, 1), tcp(V4, 100, ACK, 60, 2), tcp(V4, 160, ACK, 100, 3)];
    assert_eq!(round_trip(&packets), [2, 1]);
}

#[test]
fn flags_go_with_the_segment_that_they_belong_to() {
    let packets: Vec<_> = (0..3).map(|at| tcp(V4, at * 100, ACK, 100, at as u16)).collect();
    let (mut piece, _) = joined(&packets).remove(0);
    // FIN and PSH are the last one's, CWR the first one's (RFC 3168 section 6.1.2).
    piece[HEADER_LEN + 33] |= 0x01 | PSH | 0x80;
    let flags: Vec<u8> = parted(&piece).iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [ACK | 0x80, ACK, ACK | PSH | 0x01]);
}

#[test]
fn a_checksum_that_the_kernel_left_open_is_finished() {
    let whole = udp(V4, 9, 33, 0);
    let mut open = whole.clone();
    let layout = Layout::of(&open).unwrap();
    let pseudo = layout.pseudo(&open, open.len() - 20).unwrap();
    open[26..28].copy_from_slice(&(!pseudo.finish()).to_be_bytes());
    let header = [1, 0, 0, 0, 0, 0, 20, 0, 6, 0];
    assert_eq!(parted(&[&header[..], &open].concat()), [whole]);
}

#[test]
fn nonsense_from_the_kernel_is_no_packet() {
    let whole = tcp(V4, 0, ACK, 300, 0);
    // A kind that was not asked for, one of another protocol, segments of no bytes, and a header alone.
    for header in [[0, 3], [1, 4], [1, 5]] {
        let header = [&header[..], &[0, 0, 100, 0, 20, 0, 16, 0]].concat();
        assert_eq!(parted(&[&header[..], &whole].concat()), Vec::<Vec<u8>>::new());
    }
    assert_eq!(parted(&[&[1, 1, 0, 0, 0, 0, 20, 0, 16, 0][..], &whole].concat()), Vec::<Vec<u8>>::new());
    assert_eq!(parted(&[0; HEADER_LEN - 1]), Vec::<Vec<u8>>::new());
    assert_eq!(parted(&[&[1, 0, 0, 0, 0, 0, 255, 255, 16, 0][..], &whole].concat()), Vec::<Vec<u8>>::new());
}

proptest::proptest! {
    #[test]
    fn nothing_is_lost_or_changed(
        version in proptest::sample::select(vec![V4, V6]),
        parts in proptest::collection::vec((1usize..1_400, 0u8..8, proptest::bool::ANY), 1..40),
    ) {
        let (mut sequence, mut ident) = (7u32, 3u16);
        let mut size = 1_000;
        let mut packets = Vec::new();
        for (len, chance, is_udp) in parts {
            // Mostly of one length, and in a row.
            if chance == 0 {
                size = len;
            }
            let flags = if chance == 1 { ACK | PSH } else { ACK };
            if chance == 2 {
                sequence = sequence.wrapping_add(1);
            }
            packets.push(if is_udp && chance == 3 { udp(version, 5, len, ident) } else { tcp(version, sequence, flags, size, ident) });
            sequence = sequence.wrapping_add(size as u32);
            ident = ident.wrapping_add(1);
        }
        let pieces = joined(&packets);
        let mut back: Vec<_> = pieces.iter().flat_map(|(bytes, _)| parted(bytes)).collect();
        // IPv4 packets with DF may get other identifications: nobody may look at them.
        let blind = |packets: &mut Vec<Vec<u8>>| packets.iter_mut().filter(|_| version == V4).for_each(|packet| {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        });
        blind(&mut back);
        blind(&mut packets);
        let of = |packets: &[Vec<u8>], protocol: u8| -> Vec<Vec<u8>> {
            let at = if version == V4 { 9 } else { 6 };
            packets.iter().filter(|packet| packet[at] == protocol).cloned().collect()
        };
        for protocol in [proto::TCP, proto::UDP] {
            proptest::prop_assert_eq!(of(&back, protocol), of(&packets, protocol));
        }
    }
}
