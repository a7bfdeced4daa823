//! IKE messages that are larger than the path's MTU (RFC 7383).

use super::auth::chain;
use super::{Case, demand};
use crate::arena::Arena;
use crate::packet::{ENCRYPTED_FRAGMENT, Packet};
use crate::plan::Plan;
use crate::side::{Family, Side};
use casemate_interop::Result;

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("fragments/large-certificates", large(initiator), establish_in_fragments));
    let mut plan = large(initiator);
    Side::BOTH.into_iter().for_each(|side| plan.daemon(side, "fragment_size", "500"));
    cases.push(Case::new("fragments/small", plan, establish_in_fragments));
    cases.push(Case::new("fragments/path-loses-ip-fragments", large(initiator), |arena| {
        arena.path.lose_fragments()?;
        establish_in_fragments(arena)
    }));
    // Without fragments of its own, IKE leaves it to IP.
    for refuser in Side::BOTH {
        let mut plan = large(initiator);
        plan.connection_of(refuser, "fragmentation", "no");
        let whose = if refuser == Side::Left { "us" } else { "peer" };
        cases.push(Case::new(&format!("fragments/refused-by-{whose}"), plan, |arena| {
            arena.establish()?;
            let wire = arena.wire()?;
            let fragments = wire.ike().filter(|ike| ike.first_payload == ENCRYPTED_FRAGMENT).count();
            demand(fragments == 0, "IKE fragments, although one side does not know them")?;
            demand(wire.count(Packet::Fragment) > 0, "no IP fragments either: the messages are not large")?;
            arena.traffic(Family::V4)
        }));
    }
}

/// Chains of RSA keys of 4096 bits: some 4000 bytes from each side.
fn large(initiator: Side) -> Plan {
    let mut plan = chain(initiator, "large", "sub-large", "ca-large");
    plan.connection("fragmentation", "yes");
    plan
}

/// Both sides have to have sent IKE fragments, and neither any of IP.
fn establish_in_fragments(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    let wire = arena.wire()?;
    for is_response in [false, true] {
        let fragments = wire
            .ike()
            .filter(|ike| ike.first_payload == ENCRYPTED_FRAGMENT && ike.is_response == is_response);
        let whose = if is_response { "responder" } else { "initiator" };
        demand(fragments.count() > 1, &format!("the {whose} did not send IKE_AUTH in fragments"))?;
    }
    demand(wire.count(Packet::Fragment) == 0, "fragments of IP on the wire")?;
    arena.traffic(Family::V4)
}
