//! ESP header, padding and trailer.

use super::assert_parts;
use crate::Target;
use casemate_wire::esp::{
    EspHeader, EspTrailer, HEADER_LEN, TRAILER_LEN, fill_padding, is_default_padding, pad_len,
};

pub(crate) const TARGET: Target = Target {
    name: "esp",
    about: "ESP header and trailer: parse(emit(x)) == x, what is padded comes apart again",
    max_len: 512,
    run,
    seeds,
    words: &[],
};

fn run(bytes: &[u8]) {
    let header = EspHeader::parse(bytes);
    assert_eq!(header.is_ok(), bytes.len() >= HEADER_LEN);
    if let Ok(header) = header {
        let mut emitted = [0; HEADER_LEN];
        header.emit(&mut emitted);
        assert_eq!(emitted, bytes[..HEADER_LEN]);
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
    // RFC 4303 section 2.4: a multiple of 4 whatever the cipher; and no more padding than needed.
    assert!(text.len().is_multiple_of(align.max(4)) && usize::from(pad) < align.max(4));
    let (data, padding, trailer) = EspTrailer::parse(&text).unwrap();
    assert_eq!((data, trailer.next_header), (payload, next_header));
    assert!(is_default_padding(padding));
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 16, 0, 0, 0, 0, 7, 1, 2, 3, 4, 1, 2, 2, 17],
        (1..=255).chain([255, 59]).collect(),
        vec![0; 2],
    ]
}
