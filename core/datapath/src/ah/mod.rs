//! AH packets (RFC 4302): building, signing, verifying.
//!
//! AH covers the IP header in front of it, so unlike ESP it works on the whole packet. `mutable` masks the
//! fields that routers may change; `sign` writes and checks the AH header. AH is not optimized for speed: it
//! processes one packet at a time, but also in place.

mod mutable;
mod sign;

pub(crate) use sign::{AhKey, insert, receive, sign, verify};

/// IP protocol number.
pub(crate) const PROTOCOL: u8 = casemate_wire::ip::proto::AH;
