//! The authentication header.

use super::assert_parts;
use crate::Target;
use casemate_wire::ah::{AhHeader, Align, FIXED_LEN, ICV_AT, header_len_aligned};

pub(crate) const TARGET: Target = Target {
    name: "ah",
    about: "Authentication header: its parts lie in it, parse(emit(x)) == x",
    max_len: 1_200,
    run,
    seeds,
    words: &[],
};

fn run(bytes: &[u8]) {
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
    // The reserved field is not kept.
    expected[2..4].fill(0);
    assert_eq!(emitted, expected[..]);
    let again = [&emitted, &bytes[FIXED_LEN..]].concat();
    assert_eq!(AhHeader::parse(&again), Ok((header, icv, rest)));
    for align in [Align::Four, Align::Eight] {
        let len = header_len_aligned(icv.len(), align);
        assert!(len >= header.len && len - header.len < 8 && (align == Align::Eight || len == header.len));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let with = |icv: u8| {
        let header = AhHeader { next_header: 6, len: FIXED_LEN + usize::from(icv), spi: 0x1000, seq: 9 };
        let mut fixed = [0; FIXED_LEN];
        header.emit(&mut fixed).unwrap();
        [&fixed[..], &vec![icv; icv.into()], b"payload"].concat()
    };
    vec![with(12), with(16), with(32), with(200)]
}
