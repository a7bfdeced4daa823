use super::*;
use std::vec;

#[test]
fn nothing_is_read_behind_the_payload() {
    for len in 0..4 {
        let fault = Fault::BodyTruncated { payload: PayloadType::NOTIFY, len, least: 4 };
        assert_eq!(Notify::parse(&[0; 4][..len]), Err(fault));
    }
    let notify = NotifyType::INVALID_SELECTORS;
    let fault = Fault::NotifySpi { notify, protocol: ProtocolId::ESP, claimed: 4 };
    assert_eq!(Notify::parse(&[3, 4, 0, 39, 1, 2, 3]), Err(fault));
    assert_eq!(Notify::parse(&[3, 4, 0, 39, 1, 2, 3, 4]).unwrap().spi, [1, 2, 3, 4]);
}

#[test]
fn the_protocol_counts_only_with_an_spi() {
    // RFC 7296 section 3.10: ignored if the SPI is empty.
    for protocol in 0..=255 {
        let notify = Notify::new(NotifyType::INITIAL_CONTACT, &[]);
        assert_eq!(Notify::parse(&[protocol, 0, 0x40, 0]), Ok(notify));
    }
}

#[test]
fn cve_2023_38710_rekey_sa_of_every_protocol_and_spi_size() {
    for protocol in 0..=255 {
        for size in 0..=255u8 {
            let body = [&[protocol, size, 0x40, 0x09], &vec![7; size.into()][..]].concat();
            let notify = NotifyType::REKEY_SA;
            let fault = Fault::NotifySpi { notify, protocol: ProtocolId(protocol), claimed: size };
            let expected = if matches!(protocol, 2 | 3) && size == 4 { Ok(()) } else { Err(fault) };
            assert_eq!(Notify::parse(&body).map(|_| ()), expected, "{protocol} {size}");
        }
    }
}

#[test]
fn other_notifications_name_child_sas_only() {
    let parse = |protocol, size: u8| {
        let body = [&[protocol, size, 0xff, 0xff], &vec![7; size.into()][..]].concat();
        Notify::parse(&body).is_ok()
    };
    assert!(!parse(1, 8) && !parse(0, 4) && !parse(2, 8) && !parse(3, 3));
    assert!(parse(2, 4) && parse(3, 4) && parse(200, 9));
}

#[test]
fn vpp_c3f677c_data_has_the_length_of_its_type() {
    let lengths: [(NotifyType, &[usize]); 6] = [
        (NotifyType::NAT_DETECTION_SOURCE_IP, &[20]),
        (NotifyType::NAT_DETECTION_DESTINATION_IP, &[20]),
        (NotifyType::INVALID_KE_PAYLOAD, &[2]),
        (NotifyType::SET_WINDOW_SIZE, &[4]),
        (NotifyType::IPCOMP_SUPPORTED, &[3]),
        (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, &[1]),
    ];
    for (notify, right) in lengths {
        let [hi, lo] = notify.0.to_be_bytes();
        for len in 0..100 {
            let body = [&[0, 0, hi, lo], &vec![1; len][..]].concat();
            let expected = if right.contains(&len) { Ok(()) } else { Err(Fault::NotifyData { notify, len }) };
            assert_eq!(Notify::parse(&body).map(|_| ()), expected);
        }
    }
}

#[test]
fn cookies_have_1_to_64_bytes_and_hash_algorithms_two_each() {
    for len in 0..100 {
        let cookie = [&[0, 0, 0x40, 0x06], &vec![1; len][..]].concat();
        assert_eq!(Notify::parse(&cookie).is_ok(), (1..=64).contains(&len));
        let hashes = [&[0, 0, 0x40, 0x2f], &vec![1; len][..]].concat();
        assert_eq!(Notify::parse(&hashes).is_ok(), len % 2 == 0);
    }
    let body = [0, 0, 0x40, 0x2f, 0, 2, 0, 5, 0xff, 0xff];
    let numbers = Notify::parse(&body).unwrap().hash_algorithms();
    assert!(numbers.eq([HashAlgorithm::SHA2_256, HashAlgorithm::IDENTITY, HashAlgorithm(65_535)]));
    assert_eq!(Notify::new(NotifyType::COOKIE, &[0, 2]).hash_algorithms().count(), 0);
}
