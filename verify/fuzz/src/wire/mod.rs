//! Parsers of casemate-wire.

pub(crate) mod ah;
pub(crate) mod esp;
pub(crate) mod flow;
pub(crate) mod icmp;
pub(crate) mod ike;
pub(crate) mod ike_payload;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod udp;

/// Asserts that parts of a packet make up `whole`, and lie in it one behind the other without a gap.
#[track_caller]
fn assert_parts(whole: &[u8], parts: &[&[u8]]) {
    let mut at = whole.as_ptr() as usize;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        assert_eq!(part.as_ptr() as usize, at, "a part lies somewhere else");
        at += part.len();
    }
    assert_eq!(at, whole.as_ptr() as usize + whole.len(), "the parts make up {parts:?}, not {whole:?}");
}
