//! Parsers of casemate-wire.

pub(crate) mod flow;
pub(crate) mod icmp;
pub(crate) mod ike;
pub(crate) mod ike_payload;
pub(crate) mod ipsec;
pub(crate) mod ipv4;
pub(crate) mod ipv6;

/// Asserts that the parts of a packet make up `whole` and follow each other without gaps.
#[track_caller]
fn assert_parts(whole: &[u8], parts: &[&[u8]]) {
    let mut at = whole.as_ptr() as usize;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        assert_eq!(part.as_ptr() as usize, at, "a part is at another address");
        at += part.len();
    }
    assert_eq!(at, whole.as_ptr() as usize + whole.len(), "the parts make up {parts:?}, not {whole:?}");
}
