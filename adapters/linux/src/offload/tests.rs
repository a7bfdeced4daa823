//! Packets that are coalesced and split again are unchanged, and packets that must not be coalesced are not.

use super::coalesce::GroHeaders;
use super::layout::Layout;
use super::{GroBatch, SegmentSplitter, coalesce};
use super::{GsoInfo, GsoType, PartialChecksum, VNET_HEADER_LEN, VnetHeader};
use casemate_wire::checksum::Sum;
use casemate_wire::ip::{IpVersion, proto};

const V4: IpVersion = IpVersion::V4;
const V6: IpVersion = IpVersion::V6;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Writes lengths and checksums.
fn finish_headers(packet: &mut [u8]) {
    let layout = Layout::of(packet).unwrap();
    let pseudo = layout.pseudo(packet, 0).unwrap();
    let len = packet.len();
    let (headers, payload) = packet.split_at_mut(layout.payload_offset);
    layout.finish_headers(headers, len, pseudo.combine(Sum::of(payload))).unwrap();
}

/// An IP packet with this transport header and payload, and with valid lengths and checksums.
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
    finish_headers(&mut packet);
    packet
}

/// Options of an IPv4 packet: router alert.
const OPTIONS: [u8; 4] = [0x94, 4, 0, 0];

/// The packet with these IPv4 options, or with two IPv6 extension headers in their place: hop-by-hop and
/// destination options, both padded with a PadN of these bytes.
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
    finish_headers(&mut packet);
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

/// What is written to the kernel for these packets: each element is one write and its number of packets.
fn coalesced(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    let mut out = |batch: &GroBatch<'_, '_>| match batch.headers() {
        None => {
            let plain = VnetHeader::default().emit();
            all.extend(batch.packets().map(|packet| ([&plain[..], packet].concat(), 1)));
        }
        Some(GroHeaders { vnet, packet }) => {
            let payloads: Vec<u8> = batch.payloads().flatten().copied().collect();
            all.push(([&vnet[..], &packet[..], &payloads[..]].concat(), batch.count()));
        }
    };
    coalesce(&packets.iter().map(Vec::as_slice).collect(), true, &mut out);
    all
}

/// The packets in one read from the kernel.
fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut splitter, mut out) = (SegmentSplitter::new(), vec![0; 65_535]);
    splitter.buffer_mut()[..bytes.len()].copy_from_slice(bytes);
    let mut len = splitter.split_first(bytes.len(), &mut out);
    let mut packets = Vec::new();
    while let Some(found) = len {
        packets.push(out[..found].to_vec());
        len = splitter.split_next(&mut out);
    }
    packets
}

/// Coalesces and splits packets. Returns the number of packets in each write.
fn round_trip(packets: &[Vec<u8>]) -> Vec<usize> {
    let pieces = coalesced(packets);
    let back: Vec<Vec<u8>> = pieces.iter().flat_map(|(bytes, _)| split(bytes)).collect();
    assert_eq!(back, packets);
    pieces.into_iter().map(|(_, count)| count).collect()
}

#[test]
fn consecutive_segments_are_coalesced() {
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
                    finish_headers(&mut packet);
                }
                packet
            })
            .collect();
        assert_eq!(round_trip(&datagrams), [3]);
    }
}

#[test]
fn several_flows_are_coalesced_at_once() {
    let packets: Vec<_> = (0..6).map(|at| udp(V6, at % 2, 100, 0)).collect();
    let pieces = coalesced(&packets);
    assert_eq!(pieces.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 3]);
    for version in [V4, V6] {
        let packets: Vec<_> = (0..128).map(|at| tcp_of(version, at % 64, u32::from(at / 64) * 100)).collect();
        let pieces = coalesced(&packets);
        assert_eq!(pieces.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2; 64]);
    }
}

/// A segment of the flow with this number.
fn tcp_of(version: IpVersion, flow: u16, sequence: u32) -> Vec<u8> {
    let mut packet = tcp(version, sequence, ACK, 100, 0);
    let port = if version == V4 { 22 } else { 42 };
    packet[port..port + 2].copy_from_slice(&flow.to_be_bytes());
    finish_headers(&mut packet);
    packet
}

#[test]
fn a_packet_without_ports_keeps_its_place() {
    let mut echo = udp(V4, 3, 100, 0);
    echo[9] = proto::ICMP;
    let packets = [udp(V4, 1, 100, 0), udp(V4, 2, 100, 0), echo, udp(V4, 1, 100, 1), udp(V4, 2, 100, 1)];
    assert_eq!(round_trip(&packets), [1; 5]);
}

/// Number of writes for two segments that would be coalesced without the change to the second.
fn writes_after(change: impl Fn(&mut Vec<u8>)) -> usize {
    let first = tcp(V4, 1_000, ACK, 400, 5);
    let mut second = tcp(V4, 1_400, ACK, 400, 6);
    change(&mut second);
    coalesced(&[first, second]).len()
}

#[test]
fn segments_with_different_headers_are_not_coalesced() {
    let settled = |change: fn(&mut Vec<u8>)| {
        writes_after(|packet| {
            change(packet);
            finish_headers(packet);
        })
    };
    assert_eq!(settled(|_| {}), 1);
    type HeaderChange = (&'static str, fn(&mut Vec<u8>));
    let changes: [HeaderChange; 12] = [
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
    assert_eq!(writes_after(|packet| packet[60] ^= 1), 2, "a wrong checksum");
    assert_eq!(writes_after(|packet| packet.push(0)), 2, "bytes behind the packet");
}

#[test]
fn without_df_identifications_must_be_consecutive() {
    let pair = |second| {
        let mut packets = [udp(V4, 9, 50, 5), udp(V4, 9, 50, second)];
        for packet in &mut packets {
            packet[6] = 0;
            finish_headers(packet);
        }
        coalesced(&packets).len()
    };
    assert_eq!((pair(6), pair(7)), (1, 2));
}

#[test]
fn each_segment_has_the_options_and_extension_headers() {
    for version in [V4, V6] {
        let segments: Vec<_> =
            (0..4).map(|at| extended(tcp(version, at * 1_000, ACK, 1_000, at as u16), OPTIONS)).collect();
        assert_eq!(round_trip(&segments), [4]);
        let datagrams: Vec<_> = (0..3).map(|at| extended(udp(version, 9, 300, at), OPTIONS)).collect();
        assert_eq!(round_trip(&datagrams), [3]);
    }
}

#[test]
fn packets_with_different_options_are_not_coalesced_and_keep_their_order() {
    for version in [V4, V6] {
        let plain = |at: u16| udp(version, 9, 300, at);
        let packets =
            [plain(0), extended(plain(1), OPTIONS), extended(plain(2), [0x94, 4, 0, 1]), plain(3), plain(4)];
        assert_eq!(round_trip(&packets), [1, 1, 1, 2]);
    }
}

#[test]
fn bytes_behind_a_datagram_are_not_coalesced() {
    for version in [V4, V6] {
        // RFC 9868 section 8: options follow the bytes that the UDP length covers.
        let with_options = |at: u16| {
            let mut packet = udp(version, 9, 300, at);
            let (udp_at, len_at, fixed) = if version == V4 { (20, 2, 0) } else { (40, 4, 40) };
            // With the option checksum, the sum over datagram and options is valid, too (RFC 9868 section 9).
            packet.extend([0xff, 0xf7, 0, 0, 0, 0, 0, 0]);
            finish_headers(&mut packet);
            // The datagram ends before the options, and its checksum covers only the datagram.
            packet[udp_at + 4..udp_at + 6].copy_from_slice(&308u16.to_be_bytes());
            let end = packet.len() - 8;
            let mut datagram = packet[..end].to_vec();
            datagram[len_at..len_at + 2].copy_from_slice(&((end - fixed) as u16).to_be_bytes());
            finish_headers(&mut datagram);
            packet[udp_at..end].copy_from_slice(&datagram[udp_at..]);
            packet
        };
        let packets = [with_options(0), with_options(1), udp(version, 9, 308, 2)];
        assert_eq!(round_trip(&packets), [1, 1, 1]);
    }
}

#[test]
fn the_checksum_covers_the_final_destination_of_a_routing_header() {
    let segments: Vec<_> = (0..3).map(|at| tcp(V6, at * 500, ACK, 500, 0)).collect();
    let (mut piece, _) = coalesced(&segments).remove(0);
    // The sum of the kernel covers the final destination; the IP header has another destination.
    let last = piece[VNET_HEADER_LEN + 24..VNET_HEADER_LEN + 40].to_vec();
    let routing = [&[6, 2, 0, 1, 0, 0, 0, 0][..], &last].concat();
    piece[VNET_HEADER_LEN + 6] = 43;
    piece[VNET_HEADER_LEN + 24..VNET_HEADER_LEN + 40].fill(0xaa);
    let len = (piece.len() - VNET_HEADER_LEN - 40 + routing.len()) as u16;
    piece[VNET_HEADER_LEN + 4..VNET_HEADER_LEN + 6].copy_from_slice(&len.to_be_bytes());
    piece.splice(VNET_HEADER_LEN + 40..VNET_HEADER_LEN + 40, routing.iter().copied());
    piece[6..8].copy_from_slice(&64u16.to_ne_bytes());
    let parts = split(&piece);
    assert_eq!(parts.len(), 3);
    for (part, segment) in parts.iter().zip(&segments) {
        assert_eq!(part[64..], segment[40..]);
    }
}

#[test]
fn packets_of_one_flow_keep_their_order() {
    let packets = [tcp(V4, 0, ACK, 100, 1), tcp(V4, 100, ACK, 100, 2), tcp(V4, 200, ACK | 1, 50, 3)];
    assert_eq!(round_trip(&packets), [2, 1]);
    // A packet behind a shorter one begins a new batch.
    let packets = [tcp(V4, 0, ACK, 100, 1), tcp(V4, 100, ACK, 60, 2), tcp(V4, 160, ACK, 100, 3)];
    assert_eq!(round_trip(&packets), [2, 1]);
}

#[test]
fn flags_stay_with_their_segment() {
    let packets: Vec<_> = (0..3).map(|at| tcp(V4, at * 100, ACK, 100, at as u16)).collect();
    let (mut piece, _) = coalesced(&packets).remove(0);
    // FIN and PSH belong to the last segment, CWR to the first (RFC 3168 section 6.1.2).
    piece[VNET_HEADER_LEN + 33] |= 0x01 | PSH | 0x80;
    let flags: Vec<u8> = split(&piece).iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [ACK | 0x80, ACK, ACK | PSH | 0x01]);
}

#[test]
fn a_partial_checksum_is_completed() {
    let whole = udp(V4, 9, 33, 0);
    let mut open = whole.clone();
    let layout = Layout::of(&open).unwrap();
    let pseudo = layout.pseudo(&open, open.len() - 20).unwrap();
    open[26..28].copy_from_slice(&(!pseudo.finish()).to_be_bytes());
    let header = [1, 0, 0, 0, 0, 0, 20, 0, 6, 0];
    assert_eq!(split(&[&header[..], &open].concat()), [whole]);
}

#[test]
fn invalid_headers_from_the_kernel_are_rejected() {
    let whole = tcp(V4, 0, ACK, 300, 0);
    // A type that was not enabled, a type of another protocol, segments of no bytes, and a header without a
    // packet.
    for header in [[0, 3], [1, 4], [1, 5]] {
        let header = [&header[..], &[0, 0, 100, 0, 20, 0, 16, 0]].concat();
        assert_eq!(split(&[&header[..], &whole].concat()), Vec::<Vec<u8>>::new());
    }
    assert_eq!(split(&[&[1, 1, 0, 0, 0, 0, 20, 0, 16, 0][..], &whole].concat()), Vec::<Vec<u8>>::new());
    assert_eq!(split(&[0; VNET_HEADER_LEN - 1]), Vec::<Vec<u8>>::new());
    assert_eq!(split(&[&[1, 0, 0, 0, 0, 0, 255, 255, 16, 0][..], &whole].concat()), Vec::<Vec<u8>>::new());
}

proptest::proptest! {
    #[test]
    fn coalescing_and_splitting_change_no_packet(
        version in proptest::sample::select(vec![V4, V6]),
        parts in proptest::collection::vec((1usize..1_400, 0u8..8, proptest::bool::ANY), 1..40),
    ) {
        let (mut sequence, mut ident) = (7u32, 3u16);
        let mut size = 1_000;
        let mut packets = Vec::new();
        for (len, chance, is_udp) in parts {
            // Mostly of one length and consecutive.
            if chance == 0 {
                size = len;
            }
            let flags = if chance == 1 { ACK | PSH } else { ACK };
            if chance == 2 {
                sequence = sequence.wrapping_add(1);
            }
            let packet = if is_udp && chance == 3 {
                udp(version, 5, len, ident)
            } else {
                tcp(version, sequence, flags, size, ident)
            };
            packets.push(packet);
            sequence = sequence.wrapping_add(size as u32);
            ident = ident.wrapping_add(1);
        }
        let pieces = coalesced(&packets);
        let mut back: Vec<_> = pieces.iter().flat_map(|(bytes, _)| split(bytes)).collect();
        // Identifications of IPv4 packets with DF may change: they have no meaning.
        let clear_ident = |packets: &mut Vec<Vec<u8>>| {
            for packet in packets.iter_mut().filter(|_| version == V4) {
                packet[4..6].fill(0);
                packet[10..12].fill(0);
            }
        };
        clear_ident(&mut back);
        clear_ident(&mut packets);
        let of = |packets: &[Vec<u8>], protocol: u8| -> Vec<Vec<u8>> {
            let at = if version == V4 { 9 } else { 6 };
            packets.iter().filter(|packet| packet[at] == protocol).cloned().collect()
        };
        for protocol in [proto::TCP, proto::UDP] {
            proptest::prop_assert_eq!(of(&back, protocol), of(&packets, protocol));
        }
    }
}

#[test]
fn header_that_was_written_is_parsed() {
    let gso = GsoInfo { kind: GsoType::Udp, size: 1_372, header_len: 28 };
    let header = VnetHeader { checksum: Some(PartialChecksum { start: 20, offset: 6 }), gso: Some(gso) };
    assert_eq!(VnetHeader::parse(&header.emit()), Some(header));
    assert_eq!(VnetHeader::parse(&[0; VNET_HEADER_LEN]), Some(VnetHeader::default()));
    // VIRTIO_NET_HDR_GSO_UDP, which means IP fragments; and TCP with CWR.
    assert_eq!(VnetHeader::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    let cwr = VnetHeader::parse(&[0, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(cwr.and_then(|header| header.gso).map(|gso| gso.kind), Some(GsoType::TcpV4));
}
