//! An initiator behind a NAT, and a NAT that forgets.

use super::{Case, demand};
use crate::arena::{Arena, SOON};
use crate::peer::Target;
use crate::plan::{CHILD, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Source ports of the NAT, first and after it forgot.
const PORTS: RangeInclusive<u16> = 20000..=20099;
const OTHER_PORTS: RangeInclusive<u16> = 30000..=30099;
/// The initiator looks for its peer every second.
const FOLLOW_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("nat/initiator-behind", behind(initiator), through_a_nat));
    cases.push(Case::new("nat/rekey", behind(initiator), |arena| {
        translate(arena, &PORTS)?;
        arena.establish()?;
        for side in Side::BOTH {
            super::rekey::replace(arena, side, Target::Child(CHILD))?;
        }
        arena.traffic(Family::V4)
    }));
    let mut plan = behind(initiator);
    plan.connection_of(initiator, "dpd_delay", "1s");
    cases.push(Case::new("nat/mapping-changes", plan, |arena| {
        translate(arena, &PORTS)?;
        arena.establish()?;
        arena.traffic(Family::V4)?;
        translate(arena, &OTHER_PORTS)?;
        arena.wait_until(FOLLOW_LIMIT, |arena| demand_seen_at(arena, &OTHER_PORTS))?;
        arena.traffic(Family::V4)
    }));
}

/// The responder does not know where the initiator is.
pub(super) fn behind(initiator: Side) -> Plan {
    hidden(Plan::new(initiator))
}

/// The same in transport mode.
pub(super) fn behind_in_transport_mode(initiator: Side) -> Plan {
    hidden(Plan::transport(initiator))
}

fn hidden(mut plan: Plan) -> Plan {
    plan.connection_of(plan.responder(), "remote_addrs", "%any");
    plan
}

/// Sets up and talks, with the initiator behind a NAT.
pub(super) fn through_a_nat(arena: &mut Arena) -> Result<String> {
    translate(arena, &PORTS)?;
    arena.establish()?;
    demand_seen_at(arena, &PORTS)?;
    arena.traffic(Family::V4)
}

/// The same in transport mode. Each side calls the other one by the address that it sees, so the selectors of
/// the sides are not mirrored (RFC 7296 section 2.23.1).
pub(super) fn transport_through_a_nat(arena: &mut Arena) -> Result<String> {
    translate(arena, &PORTS)?;
    arena.initiate(Target::Child(CHILD))?;
    let (hidden, open) = (arena.initiator(), arena.plan.responder());
    let [ours, theirs] = [hidden, open].map(|side| side.wire(Family::V4));
    let seen = open.router(Family::V4);
    for (side, local, remote) in [(hidden, &ours, &theirs), (open, &theirs, &seen)] {
        let child = arena.wait_until(SOON, |arena| arena.child_sa(side, CHILD))?;
        let expected = [local, remote].map(|address| vec![format!("{address}/32")]);
        let selectors = [child.local_ts, child.remote_ts];
        let name = side.name();
        demand(selectors == expected, &format!("{name}: selectors {selectors:?}, expected {expected:?}"))?;
    }
    demand_seen_at(arena, &PORTS)?;
    arena.traffic_from([(hidden, &ours, &theirs), (open, &theirs, &seen)])
}

/// Hides the initiator behind the router's address.
pub(super) fn hide_initiator(plan: &mut Plan) {
    plan.hidden_behind = Some(range(&PORTS));
}

fn translate(arena: &Arena, ports: &RangeInclusive<u16>) -> Result<()> {
    arena.path.translate(arena.initiator(), &range(ports))
}

fn range(ports: &RangeInclusive<u16>) -> String {
    format!("{}-{}", ports.start(), ports.end())
}

/// The responder has to see the initiator at the router's address and one of these ports (RFC 7296 section 2.23).
fn demand_seen_at(arena: &mut Arena, ports: &RangeInclusive<u16>) -> Result<()> {
    let responder = arena.plan.responder();
    let remote = arena.ike_sa(responder)?.remote;
    let router = responder.router(Family::V4);
    let seen = format!("the responder sees the initiator at {remote}, expected {router}, port {ports:?}");
    demand(remote.ip().to_string() == router && ports.contains(&remote.port()), &seen)
}
