//! Keys that a side saves open the capture for Wireshark.

use super::{Case, demand};
use crate::arena::Arena;
use crate::peer::Target;
use crate::plan::{CHILD, Plan};
use crate::side::{Family, Side};
use crate::wireshark;
use casemate_interop::Result;

/// Echo requests of both sides, before and after the Child SA was replaced.
const REQUESTS: usize = 4 * 7;

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("keys/wireshark", Plan::new(initiator), open_the_capture));
}

pub(super) fn open_the_capture(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    arena.traffic(Family::V4)?;
    super::rekey::replace(arena, arena.initiator(), Target::Child(CHILD))?;
    arena.traffic(Family::V4)?;
    let keys = arena.peer(Side::Left).keys()?;
    let wire = arena.wire()?;
    let inside = |filter: &str, field: &str| wireshark::decrypt(wire.file(), &keys, filter, field);
    let requests = inside("icmp.type == 8", "icmp.seq")?.len();
    let found = format!("Wireshark finds {requests} echo requests in the capture");
    demand(requests == REQUESTS, &format!("{found}, expected {REQUESTS}"))?;
    // The method of AUTH stands in both messages of IKE_AUTH, encrypted.
    let methods = inside("isakmp.auth.method", "isakmp.auth.method")?;
    demand(
        methods == ["2", "2"],
        &format!("Wireshark finds AUTH payloads with methods {methods:?}, expected two of 2"),
    )?;
    Ok(found)
}
