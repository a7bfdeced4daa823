use super::*;
use proptest::prelude::*;

// An ICMP echo from 192.168.0.1 to 192.168.0.199; header from the Wikipedia article on the IPv4 checksum.
const PACKET: [u8; 20] =
    [0x45, 0, 0, 0x14, 0, 0, 0x40, 0, 0x40, 0x11, 0xb9, 0xc0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

fn field(bytes: &[u8]) -> &'static str {
    Ipv4::parse(bytes).unwrap_err().field
}

#[test]
fn getters_read_their_fields() {
    let mut bytes = [0u8; 30];
    bytes[..28].copy_from_slice(&[
        0x46, 0xb9, 0, 28, 0x12, 0x34, 0x20, 0x03, 64, 17, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2, //
        1, 1, 1, 0, 0xde, 0xad, 0xbe, 0xef,
    ]);
    let ip = Ipv4::parse(&bytes[..]).unwrap();
    assert_eq!((ip.header_len(), ip.total_len(), ip.tos()), (24, 28, 0xb9));
    assert_eq!((ip.dscp(), ip.ecn(), ip.ident()), (46, 1, 0x1234));
    assert_eq!((ip.df(), ip.mf(), ip.frag_offset(), ip.is_fragment()), (false, true, 24, true));
    assert_eq!((ip.ttl(), ip.protocol(), ip.checksum()), (64, 17, 0xabcd));
    assert_eq!(ip.src(), Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(ip.dst(), Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(ip.options(), [1, 1, 1, 0]);
    assert_eq!(ip.payload(), [0xde, 0xad, 0xbe, 0xef]);
}

#[test]
fn broken_lengths_are_refused() {
    assert_eq!(field(&PACKET[..19]), "IPv4 header");
    let with = |at: usize, byte| {
        let mut bytes = PACKET;
        bytes[at] = byte;
        bytes
    };
    assert_eq!(field(&with(0, 0x65)), "IPv4 version");
    assert_eq!(field(&with(0, 0x44)), "IPv4 header length");
    assert_eq!(field(&with(0, 0x46)), "IPv4 header length");
    assert_eq!(field(&with(3, 19)), "IPv4 total length");
    assert_eq!(field(&with(3, 21)), "IPv4 total length");
    assert_eq!(Ipv4::parse_quoted(with(3, 21)).unwrap().payload(), []);
}

#[test]
fn a_known_checksum_is_verified_and_filled() {
    // The known checksum is that of total length 0x73.
    let mut bytes = PACKET;
    bytes[3] = 0x73;
    bytes[10..12].copy_from_slice(&[0xb8, 0x61]);
    let mut ip = Ipv4::parse_quoted(bytes).unwrap();
    assert!(ip.verify_checksum());
    ip.set_ttl(63);
    assert!(!ip.verify_checksum());
    ip.fill_checksum();
    assert_eq!(ip.checksum(), 0xb961);
    assert!(ip.verify_checksum());
}

#[test]
fn options_are_listed_and_bad_ones_end_the_list() {
    let list = |options: &'static [u8]| Options::new(options, 20);
    let mut it = list(&[1, 0x94, 4, 5, 6, 0, 9, 9]);
    assert_eq!(it.next(), Some(Ok(Ipv4Option { kind: 1, at: 20, len: 1, data: &[] })));
    let alert = it.next().unwrap().unwrap();
    assert_eq!(alert, Ipv4Option { kind: 0x94, at: 21, len: 4, data: &[5, 6] });
    assert!(alert.copied());
    assert_eq!(it.next(), None);
    let shortest = list(&[7, 2]).next().unwrap().unwrap();
    assert_eq!((shortest.len, shortest.copied()), (2, false));
    for bad in [&[7u8, 0, 0, 0][..], &[7, 1, 0, 0], &[7, 5, 0, 0], &[1, 1, 1, 7]] {
        let mut it = list(bad);
        assert!(it.by_ref().any(|o| o.is_err()), "{bad:?}");
        assert_eq!(it.next(), None);
    }
}

#[test]
fn a_header_value_refuses_what_it_cannot_hold() {
    let mut bytes = PACKET;
    bytes[6] = 0x20;
    assert_eq!(Ipv4Header::parse(&bytes).unwrap_err().field, "IPv4 fragment offset");
    let mut bytes = [0; 24];
    bytes[..20].copy_from_slice(&PACKET);
    (bytes[0], bytes[3]) = (0x46, 24);
    assert_eq!(Ipv4Header::parse(&bytes).unwrap_err().field, "IPv4 options");
    let long = Ipv4Header { payload_len: 65_516, ..Ipv4Header::parse(&PACKET).unwrap() };
    assert_eq!(long.emit(&mut [0; 20]).unwrap_err().field, "IPv4 total length");
}

fn headers() -> impl Strategy<Value = Ipv4Header> {
    let addresses = (any::<Ipv4Addr>(), any::<Ipv4Addr>());
    (any::<(u8, u16, bool, u8, u8)>(), addresses, 0u16..2000).prop_map(|(a, (src, dst), payload_len)| {
        Ipv4Header { tos: a.0, ident: a.1, df: a.2, ttl: a.3, protocol: a.4, src, dst, payload_len }
    })
}

proptest! {
    #[test]
    fn round_trip(header in headers()) {
        let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
        header.emit(bytes.first_chunk_mut().unwrap()).unwrap();
        prop_assert!(Ipv4::parse(&bytes).unwrap().verify_checksum());
        prop_assert_eq!(Ipv4Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn setters_write_what_getters_read(header in headers(), offset in 0u16..8192, more: bool) {
        let mut ip = Ipv4::parse_quoted(PACKET).unwrap();
        ip.set_tos(header.tos);
        ip.set_ident(header.ident);
        ip.set_fragment(offset << 3, more);
        ip.set_df(header.df);
        ip.set_ttl(header.ttl);
        ip.set_protocol(header.protocol);
        ip.set_src(header.src);
        ip.set_dst(header.dst);
        ip.set_total_len(header.payload_len + 20);
        ip.set_checksum(header.ident);
        prop_assert_eq!((ip.frag_offset(), ip.mf(), ip.checksum()), (offset << 3, more, header.ident));
        ip.set_fragment(0, false);
        prop_assert_eq!(ip.df(), header.df);
        ip.set_ecn(!header.tos);
        prop_assert_eq!(ip.tos(), header.tos ^ 3);
        ip.set_ecn(header.tos);
        let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
        bytes[..20].copy_from_slice(&ip.into_inner());
        prop_assert_eq!(Ipv4Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), force: bool) {
        if force && bytes.len() >= 4 {
            bytes[0] = 0x40 | bytes[0] & 15;
            bytes[2] = 0;
        }
        if let Ok(mut ip) = Ipv4::parse_quoted(&mut bytes[..]) {
            prop_assert!(ip.options_iter().count() <= 40);
            ip.fill_checksum();
            prop_assert!(ip.verify_checksum());
            prop_assert_eq!(ip.payload().len(), ip.payload_mut().len());
        }
        if let Ok(ip) = Ipv4::parse(&bytes) {
            prop_assert_eq!(ip.header().len() + ip.payload().len(), usize::from(ip.total_len()));
        }
        let _ = Ipv4Header::parse(&bytes);
    }
}
