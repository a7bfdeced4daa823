//! IPv4 header and options.

use super::assert_parts;
use crate::Target;
use casemate_test_support::hosts::{Ends, packets};
use casemate_wire::ip::Ipv4Header;
use casemate_wire::ip::v4::{HEADER_LEN, Ipv4, Ipv4Option};

pub(crate) const TARGET: Target = Target {
    name: "ipv4",
    about: "IPv4 header and options: parts are within the packet, setters are inverse to getters, parse(emit(x)) == x",
    max_len: 256,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    if let Ok(quoted) = Ipv4::parse_quoted(bytes) {
        let there = bytes.len().min(quoted.total_len().into());
        if there >= quoted.header_len() {
            assert_parts(&bytes[..there], &[quoted.header(), quoted.payload()]);
        }
        assert_parts(quoted.header(), &[&bytes[..HEADER_LEN], quoted.options()]);
        check_options(&quoted);
    }
    let Ok(ip) = Ipv4::parse(bytes) else {
        assert!(Ipv4Header::parse(bytes).is_err());
        return;
    };
    let len = usize::from(ip.total_len());
    assert!(Ipv4::parse_quoted(bytes).is_ok() && Ipv4::parse(&bytes[..len]).is_ok());
    assert!(Ipv4::parse(&bytes[..len - 1]).is_err(), "the last byte is missing");
    check_setters(bytes, &ip);
    check_header(bytes, &ip);
}

fn check_options(ip: &Ipv4<&[u8]>) {
    let (header, mut at, mut failed) = (ip.header(), HEADER_LEN, false);
    for option in ip.options_iter() {
        assert!(!failed, "the options continue after an error");
        let Ok(option) = option else {
            failed = true;
            continue;
        };
        assert_eq!((option.at, option.kind), (at, header[at]));
        assert_ne!(option.kind, Ipv4Option::END);
        assert_eq!(option.copied(), option.kind >= 128);
        assert_eq!(option.data, header[at..at + option.len].get(2..).unwrap_or_default());
        at += option.len;
    }
    assert!(failed || at == header.len() || header[at] == Ipv4Option::END);
}

/// Sets every field to its current value.
fn check_setters(bytes: &[u8], ip: &Ipv4<&[u8]>) {
    let mut copy = bytes.to_vec();
    let mut same = Ipv4::parse(&mut copy[..]).unwrap();
    assert_eq!(same.payload_mut(), ip.payload());
    same.set_total_len(ip.total_len());
    same.set_tos(ip.tos());
    same.set_ecn(ip.ecn());
    same.set_ident(ip.ident());
    same.set_df(ip.df());
    same.set_fragment(ip.frag_offset(), ip.mf());
    same.set_ttl(ip.ttl());
    same.set_protocol(ip.protocol());
    same.set_src(ip.src());
    same.set_dst(ip.dst());
    same.set_checksum(ip.checksum());
    assert_eq!(ip.is_fragment(), ip.mf() || ip.frag_offset() != 0);
    assert_eq!(ip.tos(), ip.dscp() << 2 | ip.ecn());
    let mut expected = bytes.to_vec();
    // The reserved bit is lost.
    expected[6] &= 0x7f;
    assert_eq!(copy, expected);
    let mut same = Ipv4::parse(&mut copy[..]).unwrap();
    same.fill_checksum();
    assert!(same.verify_checksum());
}

fn check_header(bytes: &[u8], ip: &Ipv4<&[u8]>) {
    let header = Ipv4Header::parse(bytes);
    assert_eq!(header.is_ok(), !ip.is_fragment() && ip.options().is_empty());
    let Ok(header) = header else { return };
    let mut emitted = [0; HEADER_LEN];
    header.emit(&mut emitted).unwrap();
    let mut expected = bytes[..HEADER_LEN].to_vec();
    expected[6] &= 0x7f;
    Ipv4::parse_quoted(&mut expected[..]).unwrap().fill_checksum();
    assert_eq!(emitted, expected[..]);
    let again = [&emitted, ip.payload()].concat();
    assert_eq!(Ipv4Header::parse(&again), Ok(header));
}

fn seeds() -> Vec<Vec<u8>> {
    let (src, dst) = Ends::tunnel(4, 4).inner;
    let plain = packets::udp(src, dst, (1, 2), b"payload", true);
    let mut fragment = plain.clone();
    Ipv4::parse(&mut fragment[..]).unwrap().set_fragment(64, true);
    vec![
        packets::with_v4_options(&plain, &[148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]),
        packets::with_v4_options(&plain, &[1, 131, 7, 4, 10, 0, 0, 1]),
        fragment,
        plain,
    ]
}
