//! IKE messages that get lost, so that each exchange needs retransmissions (RFC 7296 section 2.1).

use super::{Case, demand};
use crate::arena::{Arena, SOON};
use crate::peer::Target;
use crate::plan::{CHILD, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;

/// Name; which message of how many is lost. A request that is lost is sent again and answered: three messages. A response
/// that is lost makes four: request, response, the same request, the same response.
const LOSSES: &[(&str, u32, u32)] = &[("requests", 0, 3), ("responses", 1, 4)];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for &(name, at, of) in LOSSES {
        let mut plan = Plan::new(initiator);
        Side::BOTH.into_iter().for_each(|side| super::rekey::retransmit_quickly(&mut plan, side));
        let script = move |arena: &mut Arena| endure(arena, at, of);
        cases.push(Case::new(&format!("loss/{name}"), plan, script));
    }
}

fn endure(arena: &mut Arena, at: u32, of: u32) -> Result<String> {
    arena.path.lose_ike(at, of)?;
    arena.establish()?;
    // Until the last response gets through, the side that asked has no SA; a device does not say when it has.
    let said = arena.wait_until(SOON, |arena| arena.traffic(Family::V4))?;
    super::rekey::replace(arena, arena.initiator(), Target::Child(CHILD))?;
    // Until the deletion of the old SA gets through, one side still sends through that, and not all counters move.
    arena.wait_until(SOON, |arena| arena.traffic(Family::V4))?;
    arena.peer(arena.plan.responder()).terminate(Target::Child(CHILD))?;
    arena.wait_until(SOON, |arena| {
        let left = arena.agree_now()?;
        demand(left.children.is_empty(), "the Child SA is still there")
    })?;
    // It sent a request again, or answered one again.
    let again = ["retransmit 1 of request", "received retransmit of request"];
    let was_lost = again.iter().any(|words| arena.strongswan_said(words));
    demand(was_lost, "strongSwan sent nothing again: the case proves nothing")?;
    Ok(said)
}
