use super::*;
use std::vec;
use std::vec::Vec;

const V4: [u8; 16] = [7, 6, 0, 16, 0, 80, 0, 90, 10, 0, 0, 1, 10, 0, 0, 9];

fn v6() -> Vec<u8> {
    [&[8, 58, 0, 40, 8, 0, 8, 255][..], &[1; 16], &[2; 16]].concat()
}

fn parse(count: u8, selectors: &[u8]) -> Result<usize, Fault> {
    let body = [&[count, 0xff, 0xff, 0xff], selectors].concat();
    Ts::parse(PayloadType::TS_I, &body).map(|ts| ts.selectors().count())
}

/// The IPv4 selector with bytes from `at` on changed.
fn changed(at: usize, bytes: &[u8]) -> Result<usize, Fault> {
    let mut selector = V4;
    selector[at..at + bytes.len()].copy_from_slice(bytes);
    parse(1, &selector)
}

#[test]
fn selectors_of_both_families() {
    let body = [&[2, 0, 0, 0], &V4[..], &v6()].concat();
    let found: Vec<_> = Ts::parse(PayloadType::TS_R, &body).unwrap().selectors().collect();
    let v4 = RangeSelector {
        protocol: 6,
        ports: Ports::new(80, 90).unwrap(),
        addresses: Addresses::V4 { start: Ipv4Addr::new(10, 0, 0, 1), end: Ipv4Addr::new(10, 0, 0, 9) },
    };
    let v6 = RangeSelector {
        protocol: 58,
        ports: Ports::new(0x0800, 0x08ff).unwrap(),
        addresses: Addresses::V6 { start: [1; 16].into(), end: [2; 16].into() },
    };
    assert_eq!(found, [Selector::Range(v4), Selector::Range(v6)]);
    assert_eq!(v6.ports.as_icmp(), [(8, 0), (8, 255)]);
    assert_eq!(Ports::icmp(8, 0).as_icmp(), [(8, 0); 2]);
}

#[test]
fn cve_2023_23009_counts_that_do_not_match() {
    for claimed in 0..=255 {
        for found in 0..4 {
            let selectors = V4.repeat(found);
            let fault = Fault::SelectorCount { claimed, found };
            let expected = if found > 0 && found == usize::from(claimed) { Ok(found) } else { Err(fault) };
            assert_eq!(parse(claimed, &selectors), expected);
        }
    }
    // 256 selectors are more than the field counts.
    assert_eq!(parse(0, &V4.repeat(256)), Err(Fault::SelectorCount { claimed: 0, found: 256 }));
}

#[test]
fn vpp_ab63c83_a_selector_has_the_length_of_its_type() {
    for claimed in 0..=u16::MAX {
        let bytes = claimed.to_be_bytes();
        let fault = Fault::SelectorLength { at: 4, selector: TsType(7), claimed, len: 16 };
        assert_eq!(changed(2, &bytes), if claimed == 16 { Ok(1) } else { Err(fault) });
        let mut selector = v6();
        selector[2..4].copy_from_slice(&bytes);
        let fault = Fault::SelectorLength { at: 4, selector: TsType(8), claimed, len: 40 };
        assert_eq!(parse(1, &selector), if claimed == 40 { Ok(1) } else { Err(fault) });
    }
    // An IPv6 selector as long as an IPv4 one, and the reverse.
    assert!(changed(0, &[8]).is_err());
    let mut selector = v6();
    selector[0] = 7;
    assert!(parse(1, &selector).is_err());
    for len in 1..4 {
        assert_eq!(parse(1, &V4[..len]), Err(Fault::SelectorTruncated { at: 4, len }));
    }
}

#[test]
fn ports_are_in_order_or_opaque() {
    assert_eq!(changed(4, &[0, 90, 0, 80]), Err(Fault::SelectorPorts { start: 90, end: 80 }));
    assert_eq!(changed(4, &[0xff, 0xff, 0, 1]), Err(Fault::SelectorPorts { start: 65_535, end: 1 }));
    assert_eq!(changed(4, &[0xff, 0xfe, 0, 0]), Err(Fault::SelectorPorts { start: 65_534, end: 0 }));
    // RFC 7296 section 3.13.1: OPAQUE, ANY.
    assert_eq!(changed(4, &[0xff, 0xff, 0, 0]), Ok(1));
    assert_eq!(changed(4, &[0, 0, 0xff, 0xff]), Ok(1));
    assert_eq!(Ports::new(0xffff, 0), Ok(Ports::OPAQUE));
    assert_eq!((Ports::ANY.start(), Ports::ANY.end()), (0, 65_535));
}

#[test]
fn all_protocols_have_no_ports() {
    let of_all = |start, end| Err(Fault::SelectorPortsOfAll { start, end });
    assert_eq!(changed(1, &[0]), of_all(80, 90));
    assert_eq!(changed(1, &[0, 0, 16, 0, 0, 0, 0]), of_all(0, 0));
    assert_eq!(changed(1, &[0, 0, 16, 0xff, 0xff, 0, 0]), of_all(65_535, 0));
    assert_eq!(changed(1, &[0, 0, 16, 0, 0, 0xff, 0xff]), Ok(1));
}

#[test]
fn addresses_are_in_order() {
    assert_eq!(changed(8, &[10, 0, 0, 9]), Ok(1));
    assert_eq!(changed(8, &[10, 0, 0, 10]), Err(Fault::SelectorAddresses { at: 4 }));
    let mut selector = v6();
    selector[8] = 3;
    let second = [&V4[..], &selector].concat();
    assert_eq!(parse(2, &second), Err(Fault::SelectorAddresses { at: 20 }));
}

#[test]
fn unknown_types_survive() {
    let body = [&[1, 0, 0, 0, 10, 5, 0, 7], &b"lbl"[..]].concat();
    let ts = Ts::parse(PayloadType::TS_I, &body).unwrap();
    let label = Selector::Other { kind: TsType::SECLABEL, second: 5, data: b"lbl" };
    assert_eq!(ts.selectors().collect::<Vec<_>>(), vec![label]);
    let fault = Fault::SelectorLength { at: 4, selector: TsType(10), claimed: 3, len: 4 };
    assert_eq!(parse(1, &[10, 0, 0, 3]), Err(fault));
    for len in 0..4 {
        let fault = Fault::BodyTruncated { payload: PayloadType::TS_R, len, least: 4 };
        assert_eq!(Ts::parse(PayloadType::TS_R, &[0; 4][..len]), Err(fault));
    }
}
