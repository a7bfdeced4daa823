//! ESP header, padding and trailer; authentication header.

use super::assert_parts;
use crate::Target;
use casemate_wire::ah::{AhHeader, Align, FIXED_LEN, ICV_AT, header_len_aligned};
use casemate_wire::esp::{
    self, EspHeader, EspTrailer, TRAILER_LEN, fill_padding, is_default_padding, pad_len,
};

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
    if let Ok((payload, padding, trailer)) = EspTrailer::parse(bytes) {
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
    let (data, padding, trailer) = EspTrailer::parse(&text).unwrap();
    assert_eq!((data, trailer.next_header), (payload, next_header));
    assert!(is_default_padding(padding));
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
    let Ok((header, icv, rest)) = AhHeader::parse(bytes) else {
        let claimed = bytes.get(1).map_or(0, |words| (usize::from(*words) + 2) * 4);
        assert!(bytes.len() < FIXED_LEN || claimed < FIXED_LEN || claimed > bytes.len());
        return;
    };
    assert_parts(bytes, &[&bytes[..ICV_AT], icv, rest]);
    assert_eq!(header.len, ICV_AT + icv.len());
    let mut emitted = [0; FIXED_LEN];
    header.emit(&mut emitted).unwrap();
    let mut expected = bytes[..FIXED_LEN].to_vec();
    // The reserved field is lost.
    expected[2..4].fill(0);
    assert_eq!(emitted, expected[..]);
    let again = [&emitted, &bytes[FIXED_LEN..]].concat();
    assert_eq!(AhHeader::parse(&again), Ok((header, icv, rest)));
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
