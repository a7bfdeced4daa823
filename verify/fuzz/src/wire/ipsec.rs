//! ESP header, padding and trailer; authentication header; UDP and its payloads on port 4500.

use super::assert_parts;
use crate::Target;
use crate::input::{Input, Script};
use casemate_wire::ah::{AhHeader, AhPacket, Align, FIXED_LEN, ICV_AT, header_len_aligned};
use casemate_wire::esp::{
    self, EspHeader, EspPlaintext, EspTrailer, TRAILER_LEN, fill_padding, is_default_padding, pad_len,
};
use casemate_wire::udp::{HEADER_LEN, Natt, Udp, UdpHeader};
use core::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const ESP: Target = Target {
    name: "esp",
    about: "ESP header and trailer: parse(emit(x)) == x, padding and trailer are parsed back",
    max_len: 512,
    run: run_esp,
    seeds: esp_seeds,
    dictionary: &[],
};

fn run_esp(bytes: &[u8]) {
    let header = EspHeader::parse(bytes);
    assert_eq!(header.is_ok(), bytes.len() >= esp::HEADER_LEN);
    if let Ok(header) = header {
        let mut emitted = [0; esp::HEADER_LEN];
        header.emit(&mut emitted);
        assert_eq!(emitted, bytes[..esp::HEADER_LEN]);
    }
    if let Ok(EspPlaintext { payload, padding, trailer }) = EspPlaintext::parse(bytes) {
        let mut emitted = [0; TRAILER_LEN];
        trailer.emit(&mut emitted);
        assert_parts(bytes, &[payload, padding, &bytes[bytes.len() - TRAILER_LEN..]]);
        assert_eq!(
            (emitted[..].into(), padding.len()),
            (bytes[bytes.len() - 2..].to_vec(), trailer.pad_len.into())
        );
        let counts_up = (1..=u8::MAX).zip(padding).all(|(n, byte)| n == *byte);
        assert_eq!(is_default_padding(padding), counts_up);
    }
    let Some((&choice, payload)) = bytes.split_first() else { return };
    check_padding(payload, 1 << (choice & 7), choice);
}

fn check_padding(payload: &[u8], align: usize, next_header: u8) {
    let pad = pad_len(payload.len(), align);
    let mut text = payload.to_vec();
    text.resize(payload.len() + usize::from(pad), 0xee);
    fill_padding(&mut text[payload.len()..]);
    let mut trailer = [0; TRAILER_LEN];
    EspTrailer { pad_len: pad, next_header }.emit(&mut trailer);
    text.extend(trailer);
    // RFC 4303 section 2.4: the length is a multiple of 4 for every cipher. No padding is unnecessary.
    assert!(text.len().is_multiple_of(align.max(4)) && usize::from(pad) < align.max(4));
    let parsed = EspPlaintext::parse(&text).unwrap();
    assert_eq!((parsed.payload, parsed.trailer.next_header), (payload, next_header));
    assert!(is_default_padding(parsed.padding));
}

fn esp_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 16, 0, 0, 0, 0, 7, 1, 2, 3, 4, 1, 2, 2, 17],
        (1..=255).chain([255, 59]).collect(),
        vec![0; 2],
    ]
}

pub(crate) const AH: Target = Target {
    name: "ah",
    about: "Authentication header: parts are within the packet, parse(emit(x)) == x",
    max_len: 1_200,
    run: run_ah,
    seeds: ah_seeds,
    dictionary: &[],
};

fn run_ah(bytes: &[u8]) {
    let Ok(parsed) = AhPacket::parse(bytes) else {
        let claimed = bytes.get(1).map_or(0, |words| (usize::from(*words) + 2) * 4);
        assert!(bytes.len() < FIXED_LEN || claimed < FIXED_LEN || claimed > bytes.len());
        return;
    };
    let AhPacket { header, icv, data } = parsed;
    assert_parts(bytes, &[&bytes[..ICV_AT], icv, data]);
    assert_eq!(header.len, ICV_AT + icv.len());
    let mut emitted = [0; FIXED_LEN];
    header.emit(&mut emitted).unwrap();
    let mut expected = bytes[..FIXED_LEN].to_vec();
    // The reserved field is lost.
    expected[2..4].fill(0);
    assert_eq!(emitted, expected[..]);
    let again = [&emitted, &bytes[FIXED_LEN..]].concat();
    assert_eq!(AhPacket::parse(&again), Ok(parsed));
    for align in [Align::Four, Align::Eight] {
        let len = header_len_aligned(icv.len(), align);
        assert!(len >= header.len && len - header.len < 8 && (align == Align::Eight || len == header.len));
    }
}

fn ah_seeds() -> Vec<Vec<u8>> {
    let with = |icv: u8| {
        let header = AhHeader { next_header: 6, len: FIXED_LEN + usize::from(icv), spi: 0x1000, seq: 9 };
        let mut fixed = [0; FIXED_LEN];
        header.emit(&mut fixed).unwrap();
        [&fixed[..], &vec![icv; icv.into()], b"payload"].concat()
    };
    vec![with(12), with(16), with(32), with(200)]
}

pub(crate) const UDP: Target = Target {
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
