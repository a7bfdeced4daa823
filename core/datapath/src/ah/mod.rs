//! AH packets (RFC 4302): building, signing, verifying.
//!
//! AH covers the IP header in front of it, so unlike ESP it works on the whole packet. `mutable` sets aside what routers may
//! change; `sign` builds and checks the header. AH is not the fast road: one packet at a time, still in place.

mod mutable;
mod sign;

pub(crate) use sign::{AhKey, insert, receive, sign, verify};

/// IP protocol number.
pub(crate) const PROTOCOL: u8 = casemate_wire::ip::proto::AH;
