//! What devices are for: services behind a tunnel; and which of all cases a device runs when none are named.

use super::{Case, Whom, kernel};
use crate::arena::Arena;
use crate::plan::Plan;
use crate::side::{Family, Side};
use casemate_interop::Result;

/// Names of cases with their role; `*` stands for anything. Each is about something that a home of its own can get wrong: time,
/// routes, sockets, certificates without files to look them up in, packets larger than the link.
pub(super) const CHOICE: &[&str] = &[
    "services/*",
    "kernel/services/*",
    "auth/psk/*",
    "auth/ecdsa256/initiate",
    "auth/ed25519/respond",
    "auth/chain/*",
    "auth/refused/psk-ours/*",
    "auth/refused/psk-theirs/*",
    "auth/refused/authority-theirs/initiate",
    "addresses/both-in-6/*",
    "addresses/virtual-4/initiate",
    "delete/child/by-us/initiate",
    "delete/ike/by-peer/respond",
    "dpd/by-us/initiate",
    "dpd/by-peer/respond",
    "loss/requests/initiate",
    "loss/responses/respond",
    "nat/initiator-behind/*",
    "nat/mapping-changes/initiate",
    "negotiation/cookie/*",
    "negotiation/invalid-ke/*",
    "rekey/child-pfs/by-us/initiate",
    "rekey/child-pfs/by-peer/respond",
    "rekey/ike/by-us/respond",
    "rekey/ike/by-peer/initiate",
    "kernel/tunnel/6in4/initiate",
    "kernel/tunnel/4in6/respond",
    "kernel/transport/v4/respond",
    "kernel/transport/v6/initiate",
    "kernel/ah/sha256-esn/transport/initiate",
    "kernel/ah/sha256-esn/tunnel/respond",
    "kernel/udp/initiator-behind-nat/initiate",
    "kernel/udp/transport-behind-nat/*",
    "kernel/udp/transport-v4/respond",
    "kernel/rekey/child/transport/by-us/initiate",
    "kernel/rekey/child/tunnel/by-peer/respond",
];

/// Far more than the link takes at once, and as much as strongSwan does (`charon.max_packet`).
const SIZES: &[&str] = &["8000", "9001", "9900"];
const PAGES: &str = "100";
const BYTES: &str = "400000";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let case = Case::new("services", Plan::new(initiator), use_all);
    cases.push(Case { whom: Whom::Device, ..case });
    let case = kernel::case("services", Plan::transport(initiator), kernel::TRANSPORT, use_all);
    cases.push(Case { whom: Whom::Device, ..case });
}

/// Ping, HTTP and bulk TCP: the device's services from the right side, and the echo services of both sides from the other.
fn use_all(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    let [left, right] = Side::BOTH.map(|side| arena.plan.between.address(side, Family::V4));
    for (side, from, to) in [(Side::Left, &left, &right), (Side::Right, &right, &left)] {
        arena.ping_sizes(side, from, to, SIZES)?;
        arena.probe(side, &["tcp", from, to, BYTES])?;
    }
    let page = arena.probe(Side::Right, &["page", &right, &left, PAGES])?;
    let taken = arena.probe(Side::Right, &["discard", &right, &left, BYTES])?;
    Ok(format!("page: {page}; discard: {taken}"))
}
