//! UDP, and its payloads on port 4500.

use super::assert_parts;
use crate::Target;
use crate::input::{Input, Script};
use casemate_wire::udp::{HEADER_LEN, Natt, Udp, UdpHeader};
use core::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const TARGET: Target = Target {
    name: "udp",
    about: "UDP and NAT traversal: parse(emit(x)) == x, a filled checksum verifies, payloads are classified by their first bytes",
    max_len: 256,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let v4: [Ipv4Addr; 2] = [input.array::<4>().into(), input.array::<4>().into()];
    let v6: [Ipv6Addr; 2] = [input.array::<16>().into(), input.array::<16>().into()];
    let bytes = input.rest();
    check_natt(bytes);
    let Ok(udp) = Udp::parse(bytes) else {
        assert!(UdpHeader::parse(bytes).is_err());
        return;
    };
    assert_parts(&bytes[..udp.len().into()], &[&bytes[..HEADER_LEN], udp.payload()]);
    assert_eq!(udp.datagram(), &bytes[..udp.len().into()]);
    check_natt(udp.payload());
    let header = UdpHeader::parse(bytes).unwrap();
    let mut emitted = [0; HEADER_LEN];
    header.emit(&mut emitted).unwrap();
    assert_eq!(emitted[..6], bytes[..6]);
    assert_eq!(UdpHeader::parse(&[&emitted, udp.payload()].concat()), Ok(header));

    let mut copy = bytes.to_vec();
    let mut filled = Udp::parse(&mut copy[..]).unwrap();
    filled.fill_checksum_v4(v4[0], v4[1]);
    assert!(filled.checksum() != 0 && filled.verify_checksum_v4(v4[0], v4[1]));
    let is_right = udp.checksum() == 0 || filled.checksum() == udp.checksum();
    // Both zeros of one's complement verify, and 0 means "no checksum".
    assert_eq!(udp.verify_checksum_v4(v4[0], v4[1]), is_right);
    filled.fill_checksum_v6(v6[0], v6[1]);
    assert!(filled.checksum() != 0 && filled.verify_checksum_v6(v6[0], v6[1]));
    assert_eq!(udp.verify_checksum_v6(v6[0], v6[1]), filled.checksum() == udp.checksum());
}

fn check_natt(payload: &[u8]) {
    match Natt::classify(payload) {
        Natt::Keepalive => assert_eq!(payload, [0xff]),
        Natt::NonEsp(ike) => assert_parts(payload, &[&payload[..4], ike]),
        Natt::Esp(esp) => {
            assert_parts(payload, &[esp]);
            assert!(payload.len() >= 8 && payload[..4] != [0; 4]);
        }
        Natt::TooShort => assert!(payload.len() < 8 && payload != [0xff] && !payload.starts_with(&[0; 4])),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let addresses = Script::default().bytes(&[192, 0, 2, 1, 192, 0, 2, 2]).bytes(&[0xfd; 32]).finish();
    let with = |payload: &[u8]| {
        let mut header = [0; HEADER_LEN];
        let fields = UdpHeader { src_port: 4500, dst_port: 4500, payload_len: payload.len() as u16 };
        fields.emit(&mut header).unwrap();
        [&addresses, &header[..], payload].concat()
    };
    vec![with(&[0xff]), with(&[0, 0, 0, 0, 1, 2]), with(&[0, 0, 1, 0, 0, 0, 0, 1, 5, 5, 5, 5]), with(&[])]
}
