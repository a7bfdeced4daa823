//! Valid, truncated and malformed files of every kind.

use super::*;
use proptest::prelude::*;

/// The fields of a frame.
type Seen = (u64, u64, u16, Vec<u8>, usize);

fn read(file: &[u8]) -> (Vec<Seen>, Option<String>) {
    let mut seen = Vec::new();
    let mut reader = match CaptureReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (seen, Some(error.to_string())),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => seen.push((f.number, f.nanos, f.link, f.data.to_vec(), f.wire_len)),
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error.to_string())),
        }
    }
}

fn error(file: &[u8]) -> String {
    read(file).1.expect("an error was expected")
}

/// Concatenated fields in one byte order.
struct Bytes {
    big: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new() }
    }

    fn u16(mut self, value: u16) -> Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    fn block(self, kind: u32, body: Self) -> Self {
        let len = body.bytes.len() as u32 + 12;
        self.u32(kind).u32(len).raw(&body.bytes).u32(len)
    }
}

fn pcap(big: bool, magic: u32) -> Bytes {
    Bytes::new(big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(0x2000_0001)
}

fn section(big: bool) -> Bytes {
    Bytes::new(big)
        .block(0x0A0D_0D0A, Bytes::new(big).u32(0x1A2B_3C4D).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX))
}

fn interface(file: Bytes, link: u16, options: &[u8]) -> Bytes {
    let big = file.big;
    file.block(1, Bytes::new(big).u16(link).u16(0).u32(0).raw(options))
}

fn enhanced(file: Bytes, id: u32, units: u64, packet: &[u8], wire_len: u32) -> Bytes {
    let big = file.big;
    let mut padded = packet.to_vec();
    padded.resize(packet.len().next_multiple_of(4), 0);
    let body = Bytes::new(big).u32(id).u32((units >> 32) as u32).u32(units as u32).u32(packet.len() as u32);
    file.block(6, body.u32(wire_len).raw(&padded))
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for (big, magic, unit) in [
        (false, 0xA1B2_C3D4, 1_000),
        (true, 0xA1B2_C3D4, 1_000),
        (false, 0xA1B2_3C4D, 1),
        (true, 0xA1B2_3C4D, 1),
    ] {
        let file = pcap(big, magic).u32(7).u32(8).u32(3).u32(5).raw(b"abc").u32(9).u32(0).u32(0).u32(0).bytes;
        let first = (1, 7_000_000_000 + 8 * unit, 1, b"abc".to_vec(), 5);
        assert_eq!(read(&file), (vec![first, (2, 9_000_000_000, 1, vec![], 0)], None));
    }
}

#[test]
fn pcapng_in_both_byte_orders() {
    for big in [false, true] {
        let option = Bytes::new(big).u16(9).u16(1).raw(&[9, 0, 0, 0]).u16(14).u16(8);
        let offset: i64 = -2;
        let option = option.raw(&if big { offset.to_be_bytes() } else { offset.to_le_bytes() }).u32(0).bytes;
        let file = interface(interface(section(big), 1, &[]), 101, &option);
        let file = enhanced(enhanced(file, 0, 5, b"abcde", 6), 1, 5_000_000_007, b"xy", 2);
        // A name block is skipped; a simple packet belongs to interface 0; a new section resets the
        // interfaces.
        let file = file.block(4, Bytes::new(big).u32(0));
        let file = file.block(3, Bytes::new(big).u32(2).raw(b"zz\0\0"));
        let file = interface(Bytes::new(big).raw(&file.bytes).raw(&section(big).bytes), 228, &[]);
        let file = enhanced(file, 0, 1, b"q", 1).bytes;
        let expected = vec![
            (1, 5_000, 1, b"abcde".to_vec(), 6),
            (2, 3_000_000_007, 101, b"xy".to_vec(), 2),
            (3, 0, 1, b"zz".to_vec(), 2),
            (4, 1_000, 228, b"q".to_vec(), 1),
        ];
        assert_eq!(read(&file), (expected, None));
    }
}

#[test]
fn timestamps_in_powers_of_two() {
    for (resolution, units, nanos) in
        [(0x80u8, 3, 3_000_000_000), (0x81, 3, 1_500_000_000), (0, 3, 3_000_000_000), (12, 5_000, 5)]
    {
        let file = interface(section(false), 1, &[9, 0, 1, 0, resolution, 0, 0, 0]);
        assert_eq!(read(&enhanced(file, 0, units, b"", 0).bytes).0[0].1, nanos);
    }
}

#[test]
fn files_that_are_not_captures() {
    assert!(error(b"").starts_with("the file is empty: a pcap or pcapng capture was expected"));
    assert!(error(b"\x7fELF....").starts_with("the file begins with 7f 45 4c 46: a pcap or pcapng"));
    assert!(error(b"\x1f").starts_with("the file begins with 1f 00 00 00"));
}

#[test]
fn truncated_files_report_the_offset() {
    let whole = pcap(false, 0xA1B2_C3D4).u32(0).u32(0).u32(3).u32(3).raw(b"abc").bytes;
    assert_eq!(
        error(&whole[..10]),
        "the capture is truncated: it ends inside the file header that begins at byte 0"
    );
    for cut in [25, 39, 42] {
        let message = "the capture is truncated: it ends inside the packet that begins at byte 24";
        assert_eq!(read(&whole[..cut]), (vec![], Some(message.into())), "{cut}");
    }
    let ng = enhanced(interface(section(true), 1, &[]), 0, 0, b"abcd", 4).bytes;
    let last = ng.len() - 36;
    for cut in [last + 1, last + 7, last + 30, ng.len() - 1] {
        let message =
            format!("the capture is truncated: it ends inside the block that begins at byte {last}");
        assert_eq!(read(&ng[..cut]), (vec![], Some(message)), "{cut}");
    }
}

#[test]
fn malformed_blocks_report_offset_and_rule() {
    let start = interface(section(false), 1, &[]).bytes;
    let after = |tail: Bytes| error(&[start.as_slice(), &tail.bytes].concat());
    let n = Bytes::new;
    let at = format!("the capture is malformed at byte {}: ", start.len());
    assert_eq!(
        after(n(false).u32(6).u32(13)),
        format!("{at}a block's length of at least 12 bytes and a multiple of 4 was expected")
    );
    assert_eq!(
        after(n(false).u32(6).u32(8)),
        format!("{at}a block's length of at least 12 bytes and a multiple of 4 was expected")
    );
    assert_eq!(
        after(n(false).u32(6).u32(0xFFFF_FFFC)),
        format!("{at}a length of at most 16 MiB was expected")
    );
    assert_eq!(
        after(n(false).u32(5).u32(12).u32(16)),
        format!("{at}the same length at the end of the block as at its beginning was expected")
    );
    assert_eq!(
        after(n(false).block(6, n(false).u32(0))),
        format!("{at}a packet block of at least 32 bytes was expected")
    );
    assert_eq!(
        after(enhanced(n(false), 1, 0, b"", 0)),
        format!("{at}an interface block was expected before the packets of its interface")
    );
    let lies = n(false).u32(0).u32(0).u32(0).u32(5).u32(5).raw(b"abcd");
    assert_eq!(
        after(n(false).block(6, lies)),
        format!("{at}a captured length of no more than the block's was expected")
    );
    assert_eq!(
        after(n(false).block(3, n(false).u32(5).raw(b"abcd"))),
        format!("{at}a packet length of no more than the block's was expected")
    );
    assert_eq!(
        after(n(false).block(1, n(false).u32(1))),
        format!("{at}an interface block of at least 20 bytes was expected")
    );
    assert_eq!(
        after(n(false).u32(0x0A0D_0D0A).u32(28).u32(5)),
        format!("{at}a section's byte-order magic 1a 2b 3c 4d was expected")
    );
}

#[test]
fn malformed_options_of_an_interface_are_errors() {
    let at = format!("the capture is malformed at byte {}: ", section(false).bytes.len());
    for (options, rule) in [
        (&[9, 0, 2, 0, 9, 9, 0, 0][..], "an if_tsresol option of 1 byte was expected"),
        (&[14, 0, 4, 0, 1, 0, 0, 0], "an if_tsoffset option of 8 bytes was expected"),
        (&[9, 0, 5, 0, 9, 0, 0, 0], "options that end with their block were expected"),
    ] {
        assert_eq!(error(&interface(section(false), 1, options).bytes), format!("{at}{rule}"));
    }
    // Other options, and what follows the end of the options, are not read.
    let other = [2, 0, 3, 0, b'e', b't', b'h', 0, 0, 0, 0, 0, 9, 0, 99, 0];
    assert_eq!(read(&interface(section(false), 1, &other).bytes), (vec![], None));
}

#[test]
fn link_types() {
    let ip: &[u8] = &[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    let mut v6 = vec![0x60, 0, 0, 0, 0, 1, 17, 64];
    v6.resize(41, 7);
    let frame = |head: &[u8], tail: &[u8]| [head, ip, tail].concat();
    for (link, head) in [
        (1, vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0]),
        (1, vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0xA8, 0, 1, 0x81, 0, 0, 2, 8, 0]),
        (101, vec![]),
        (12, vec![]),
        (14, vec![]),
        (228, vec![]),
        (113, vec![0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
        (276, vec![8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]),
        (0, vec![2, 0, 0, 0]),
        (108, vec![0, 0, 0, 2]),
    ] {
        assert_eq!(ip_packet(link, &frame(&head, b"padding")), Ok(ip), "{link}");
    }
    assert_eq!(ip_packet(229, &[v6.as_slice(), &[0; 3]].concat()), Ok(v6.as_slice()));
    assert_eq!(ip_packet(229, &v6[..40]), Err(NotIp::Cut { captured: 40, expected: 41 }));
    assert_eq!(ip_packet(101, &ip[..3]), Err(NotIp::Cut { captured: 3, expected: 20 }));
    let arp = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 6, 0, 1];
    assert_eq!(ip_packet(1, &arp), Err(NotIp::Other));
    assert_eq!(ip_packet(1, &arp[..13]), Err(NotIp::Other));
    assert_eq!(ip_packet(101, &[0x55; 40]), Err(NotIp::Other));
    assert!(
        ip_packet(127, &arp)
            .unwrap_err()
            .to_string()
            .starts_with("frames of link type 127 are not supported: Ethernet")
    );
}

proptest! {
    #[test]
    fn written_captures_are_read_back(packets in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..99), ".{0,9}"), 0..9)) {
        let mut file = Vec::new();
        let mut writer = CaptureWriter::new(&mut file).unwrap();
        for (nanos, packet, comment) in &packets {
            writer.packet(*nanos, packet, comment).unwrap();
        }
        writer.finish().unwrap();
        let expected = (1..).zip(packets).map(|(n, (nanos, packet, _))| (n, nanos, 101, packet.clone(), packet.len()));
        prop_assert_eq!(read(&file), (expected.collect(), None));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(kind in 0..4usize, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let start = match kind {
            0 => vec![],
            1 => pcap(false, 0xA1B2_C3D4).bytes,
            2 => section(true).bytes,
            _ => interface(section(false), 1, &[]).bytes,
        };
        let (seen, _) = read(&[start, bytes].concat());
        for (.., link, packet, _) in seen {
            let _ = ip_packet(link, &packet);
        }
    }

    #[test]
    fn corrupted_captures_do_not_panic(at in 0..150usize, value: u8) {
        let mut file = enhanced(interface(section(false), 1, &[9, 0, 1, 0, 9, 0, 0, 0]), 0, 5, b"abcde", 6).bytes;
        let at = at % file.len();
        file[at] = value;
        let _ = read(&file);
    }
}
