use super::*;
use proptest::prelude::*;

fn sample() -> [u8; 44] {
    let mut bytes = [0; 44];
    bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 3, 17, 64]);
    (bytes[8], bytes[23], bytes[24], bytes[39]) = (0x20, 1, 0xfe, 2);
    bytes[40..].copy_from_slice(&[1, 2, 3, 4]);
    bytes
}

#[test]
fn getters_read_their_fields() {
    let bytes = sample();
    let ip = Ipv6::parse(&bytes[..]).unwrap();
    assert_eq!((ip.traffic_class(), ip.dscp(), ip.ecn(), ip.flow_label()), (0xab, 42, 3, 0x12345));
    assert_eq!((ip.payload_len(), ip.total_len(), ip.next_header(), ip.hop_limit()), (3, 43, 17, 64));
    assert_eq!(ip.src(), "2000::1".parse::<Ipv6Addr>().unwrap());
    assert_eq!(ip.dst(), "fe00::2".parse::<Ipv6Addr>().unwrap());
    assert_eq!(ip.payload(), [1, 2, 3]);
}

#[test]
fn broken_lengths_are_refused() {
    let mut bytes = sample();
    assert_eq!(Ipv6::parse(&bytes[..39]).unwrap_err().field, "IPv6 header");
    assert_eq!(Ipv6::parse(&bytes[..42]).unwrap_err().field, "IPv6 payload length");
    assert_eq!(Ipv6::parse_quoted(&bytes[..42]).unwrap().payload(), [1, 2]);
    bytes[5] = 0;
    assert!(Ipv6::parse(bytes).unwrap().payload().is_empty());
    bytes[6] = 0;
    assert_eq!(Ipv6::parse(bytes).unwrap_err().field, "IPv6 payload length");
    bytes[0] = 0x40;
    assert_eq!(Ipv6::parse(bytes).unwrap_err().field, "IPv6 version");
}

fn headers() -> impl Strategy<Value = Ipv6Header> {
    let addresses = (any::<Ipv6Addr>(), any::<Ipv6Addr>());
    (any::<(u8, u8, u8)>(), 0u32..1 << 20, addresses, 1u16..2000).prop_map(
        |((traffic_class, next_header, hop_limit), flow_label, (src, dst), payload_len)| Ipv6Header {
            traffic_class,
            flow_label,
            payload_len,
            next_header,
            hop_limit,
            src,
            dst,
        },
    )
}

proptest! {
    #[test]
    fn round_trip(header in headers()) {
        let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
        header.emit(bytes.first_chunk_mut().unwrap());
        prop_assert_eq!(Ipv6Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn setters_write_what_getters_read(header in headers(), ecn in 0u8..4) {
        let mut bytes = std::vec![0x6f; HEADER_LEN + usize::from(header.payload_len)];
        let mut ip = Ipv6::parse_quoted(&mut bytes[..]).unwrap();
        ip.set_traffic_class(header.traffic_class);
        ip.set_flow_label(header.flow_label);
        prop_assert_eq!(ip.traffic_class(), header.traffic_class);
        ip.set_traffic_class(!header.traffic_class);
        prop_assert_eq!(ip.flow_label(), header.flow_label);
        ip.set_traffic_class(header.traffic_class);
        ip.set_ecn(ecn);
        prop_assert_eq!((ip.ecn(), ip.dscp()), (ecn, header.traffic_class >> 2));
        ip.set_ecn(header.traffic_class);
        ip.set_payload_len(header.payload_len);
        ip.set_next_header(header.next_header);
        ip.set_hop_limit(header.hop_limit);
        ip.set_src(header.src);
        ip.set_dst(header.dst);
        prop_assert_eq!(ip.payload_mut().len(), usize::from(header.payload_len));
        prop_assert_eq!(Ipv6Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), force: bool) {
        if force && bytes.len() >= 6 {
            (bytes[0], bytes[4]) = (0x60, 0);
        }
        if let Ok(mut ip) = Ipv6::parse_quoted(&mut bytes[..]) {
            prop_assert_eq!(ip.payload().len(), ip.payload_mut().len());
        }
        if let Ok(ip) = Ipv6::parse(&bytes) {
            prop_assert_eq!(ip.payload().len(), usize::from(ip.payload_len()));
        }
        let _ = Ipv6Header::parse(&bytes);
    }
}
