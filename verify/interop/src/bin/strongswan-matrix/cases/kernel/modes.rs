//! Tunnel and transport mode, IP versions, ESP in UDP, and traffic selectors with a port.

use super::{Form, TRANSPORT, TUNNEL, case};
use crate::arena::Arena;
use crate::cases::{Case, demand, establish_and_talk, nat};
use crate::plan::{Between, CHILD, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;

/// Every padding length, every size around what fits into a packet of 1500 bytes, and many fragments.
const SIZES: &[&str] = &["1-70", "1380-1480", "9000"];

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for (outer, inner, name) in [
        (Family::V4, Family::V4, "4in4"),
        (Family::V4, Family::V6, "6in4"),
        (Family::V6, Family::V4, "4in6"),
        (Family::V6, Family::V6, "6in6"),
    ] {
        let mut plan = Plan::new(initiator);
        plan.outer(outer);
        plan.inner(&[inner]);
        cases.push(case(&format!("tunnel/{name}"), plan, TUNNEL, talk(inner)));
    }
    for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
        let mut plan = Plan::transport(initiator);
        plan.outer(family);
        cases.push(case(&format!("transport/{name}"), plan, TRANSPORT, talk(family)));
    }
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        cases.push(case(&format!("sizes/{}", form.mode), plan, form, sweep));
    }
    one_side_wants_transport(cases, initiator);
    in_udp(cases, initiator);
    selectors(cases, initiator);
}

fn talk(family: Family) -> impl Fn(&mut Arena) -> Result<String> {
    move |arena| {
        arena.establish()?;
        arena.traffic(family)
    }
}

fn sweep(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    let [left, right] = Side::BOTH.map(|side| arena.plan.between.address(side, Family::V4));
    arena.ping_sizes(Side::Left, &left, &right, SIZES)?;
    arena.ping_sizes(Side::Right, &right, &left, SIZES)
}

/// Transport mode needs both (RFC 7296 section 1.3.1): what is left is a tunnel between the two hosts.
fn one_side_wants_transport(cases: &mut Vec<Case>, initiator: Side) {
    for (side, who) in [(Side::Left, "us"), (Side::Right, "peer")] {
        let mut plan = Plan::transport(initiator);
        plan.child_of(side.other(), "mode", "tunnel");
        cases.push(case(&format!("transport/wanted-by-{who}-alone"), plan, TUNNEL, establish_and_talk));
    }
}

/// The kernel's own decapsulation of UDP, with and without a NAT.
fn in_udp(cases: &mut Vec<Case>, initiator: Side) {
    for (form, plan) in [(TUNNEL, Plan::new(initiator)), (TRANSPORT, Plan::transport(initiator))] {
        for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
            let mut plan = plan.clone();
            plan.connection("encap", "yes");
            plan.outer(family);
            if plan.between == Between::Networks {
                plan.inner(&[family]);
            }
            cases.push(case(
                &format!("udp/{}-{name}", form.mode),
                plan,
                Form { in_udp: true, ..form },
                talk(family),
            ));
        }
    }
    let form = Form { in_udp: true, ..TUNNEL };
    cases.push(case("udp/initiator-behind-nat", nat::behind(initiator), form, nat::through_a_nat));
    let (plan, form) = (nat::behind_in_transport_mode(initiator), Form { in_udp: true, ..TRANSPORT });
    cases.push(case("udp/transport-behind-nat", plan, form, nat::transport_through_a_nat));
}

/// The child is for TCP alone, to one port of the responder.
fn selectors(cases: &mut Vec<Case>, initiator: Side) {
    let mut plan = Plan::transport(initiator);
    let responder = plan.responder();
    for (side, near, far) in [(initiator, "local_ts", "remote_ts"), (responder, "remote_ts", "local_ts")] {
        plan.child_of(side, near, "dynamic[tcp]");
        plan.child_of(side, far, "dynamic[tcp/7]");
    }
    cases.push(case("transport/selector-port", plan, TRANSPORT, move |arena| {
        arena.establish()?;
        let child = arena.child_sa(initiator, CHILD)?;
        let expected = format!("{}/32[tcp/7]", responder.wire(Family::V4));
        demand(child.remote_ts == [expected], &format!("traffic selectors {:?}", child.remote_ts))?;
        let [from, to] = [initiator, responder].map(|side| side.wire(Family::V4));
        arena.tcp(initiator, &from, &to)
    }));
}
