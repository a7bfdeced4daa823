use super::*;
use std::vec;
use std::vec::Vec;

fn parse(kind: u16, value: &[u8]) -> Result<(), Fault> {
    let [a, b] = kind.to_be_bytes();
    let [c, d] = u16::try_from(value.len()).unwrap().to_be_bytes();
    let body = [&[1, 0xff, 0xff, 0xff, a, b, c, d], value].concat();
    // A netmask needs an address.
    let address: &[u8] = if kind & 0x7fff == 2 { &[0, 1, 0, 0] } else { &[] };
    let body = [body.as_slice(), address].concat();
    let cp = Cp::parse(&body)?;
    assert_eq!(cp.attributes().next(), Some(CpAttribute { kind: CfgAttribute(kind & 0x7fff), value }));
    assert_eq!(cp.attributes().count(), 1 + address.len() / 4);
    Ok(())
}

#[test]
fn a_netmask_is_there_once_and_with_an_address() {
    let parse = |kinds: &[u8]| {
        let attributes: Vec<u8> = kinds.iter().flat_map(|kind| [0, *kind, 0, 0]).collect();
        Cp::parse(&[&[1, 0, 0, 0], attributes.as_slice()].concat()).map(|cp| cp.attributes().count())
    };
    assert_eq!(parse(&[1, 2]), Ok(2));
    assert_eq!(parse(&[2, 1, 1, 3, 3, 8, 8]), Ok(7));
    for alone in [&[2][..], &[2, 3], &[8, 2, 10]] {
        assert_eq!(parse(alone), Err(Fault::CfgNetmaskAlone {}), "{alone:?}");
    }
    // RFC 7296 section 3.15.1: not "multi-valued".
    for (kind, attribute) in [
        (2, CfgAttribute::INTERNAL_IP4_NETMASK),
        (7, CfgAttribute::APPLICATION_VERSION),
        (14, CfgAttribute::SUPPORTED_ATTRIBUTES),
    ] {
        assert_eq!(parse(&[1, kind, 3, kind]), Err(Fault::CfgTwice { at: 16, attribute }));
        assert_eq!(parse(&[1, kind, 3]), Ok(3));
    }
}

#[test]
fn values_have_the_lengths_of_the_table() {
    // RFC 7296 section 3.15.1.
    let table: [(u16, &[usize]); 12] = [
        (1, &[0, 4]),
        (2, &[0, 4]),
        (3, &[0, 4]),
        (4, &[0, 4]),
        (6, &[0, 4]),
        (8, &[0, 17]),
        (10, &[0, 16]),
        (12, &[0, 16]),
        (13, &[0, 8]),
        (14, &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
        (15, &[0, 17]),
        (0x8001, &[0, 4]),
    ];
    for (kind, right) in table {
        for len in 0..20 {
            let fault = Fault::CfgLength { attribute: CfgAttribute(kind & 0x7fff), len };
            let expected = if right.contains(&len) { Ok(()) } else { Err(fault) };
            assert_eq!(parse(kind, &vec![1; len]), expected, "{kind} {len}");
        }
    }
    for len in 0..20 {
        assert_eq!(parse(7, &vec![1; len]), Ok(()));
        assert_eq!(parse(30_000, &vec![1; len]), Ok(()));
    }
}

#[test]
fn a_prefix_is_no_longer_than_an_address() {
    for found in 0..=255 {
        let value = [&[0xfd; 16][..], &[found]].concat();
        for attribute in [CfgAttribute::INTERNAL_IP6_ADDRESS, CfgAttribute::INTERNAL_IP6_SUBNET] {
            let fault = Fault::CfgPrefix { attribute, found };
            assert_eq!(parse(attribute.0, &value), if found <= 128 { Ok(()) } else { Err(fault) });
        }
    }
}

#[test]
fn attributes_lie_inside_the_payload() {
    let good = [2, 0, 0, 0, 0, 7, 0, 2, b'v', b'1', 0, 1, 0, 0];
    assert_eq!(Cp::parse(&good).unwrap().attributes().count(), 2);
    for len in 0..good.len() {
        let expected = match len {
            0..4 => Err(Fault::BodyTruncated { payload: PayloadType::CP, len, least: 4 }),
            4 => Ok(0),
            10 => Ok(1),
            5..10 => Err(Fault::CfgTruncated { at: 4, len: len - 4 }),
            _ => Err(Fault::CfgTruncated { at: 10, len: len - 10 }),
        };
        assert_eq!(Cp::parse(&good[..len]).map(|cp| cp.attributes().count()), expected, "{len}");
    }
}

#[test]
fn values_are_read_by_their_type() {
    let attribute = |kind, value| CpAttribute { kind, value };
    let v4 = Ipv4Addr::new(192, 0, 2, 1);
    let dns = attribute(CfgAttribute::INTERNAL_IP4_DNS, &[192, 0, 2, 1]);
    assert_eq!((dns.v4(), dns.v6(), dns.v4_subnet(), dns.v6_prefix()), (Some(v4), None, None, None));
    assert_eq!(attribute(CfgAttribute::APPLICATION_VERSION, b"1234").v4(), None);
    assert_eq!(attribute(CfgAttribute::INTERNAL_IP4_DNS, &[]).v4(), None);
    assert_eq!(attribute(CfgAttribute::INTERNAL_IP6_DNS, &[1; 16]).v6(), Some([1; 16].into()));
    let subnet = attribute(CfgAttribute::INTERNAL_IP4_SUBNET, &[192, 0, 2, 1, 255, 255, 255, 0]);
    assert_eq!(subnet.v4_subnet(), Some((v4, Ipv4Addr::new(255, 255, 255, 0))));
    let prefix = attribute(CfgAttribute::INTERNAL_IP6_SUBNET, &[1; 17]);
    assert_eq!(prefix.v6_prefix(), Some(([1; 16].into(), 1)));
}
