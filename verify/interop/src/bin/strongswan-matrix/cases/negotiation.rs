//! What the two sides have to find out of each other: groups, cookies, proposals, traffic selectors, children.

use super::{Case, demand, establish_and_talk};
use crate::arena::Arena;
use crate::packet::{COOKIE, IKE_SA_INIT, INVALID_KE_PAYLOAD};
use crate::peer::Target;
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::side::{Family, Side};
use casemate_interop::{Error, Result};

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut plan = Plan::new(initiator);
    plan.connection_of(initiator, "proposals", "aes128-sha256-modp2048-ecp256");
    plan.connection_of(plan.responder(), "proposals", "aes128-sha256-ecp256");
    cases.push(Case::new("negotiation/invalid-ke", plan, |arena| after(arena, INVALID_KE_PAYLOAD)));
    cases.push(Case::new("negotiation/cookie", frugal(initiator), meet_a_cookie));
    let mut plan = frugal(initiator);
    plan.connection_of(initiator, "proposals", "aes128-sha256-modp2048-ecp256");
    plan.connection_of(plan.responder(), "proposals", "aes128-sha256-ecp256");
    cases.push(Case::new("negotiation/cookie-and-invalid-ke", plan, |arena| {
        let said = meet_a_cookie(arena)?;
        saw(arena, INVALID_KE_PAYLOAD).map(|()| said)
    }));
    proposals(cases, initiator);
    children(cases, initiator);
    selectors(cases, initiator);
}

/// A responder that asks for cookies as soon as one IKE SA is half-open.
fn frugal(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    plan.daemon(plan.responder(), "cookie_threshold", "1");
    // The half-open SAs come from the router.
    plan.connection_of(plan.responder(), "remote_addrs", "%any");
    plan
}

/// Sets up, deletes, and sets up again while the responder has half-open IKE SAs.
fn meet_a_cookie(arena: &mut Arena) -> Result<String> {
    arena.establish()?;
    let initiator = arena.initiator();
    arena.peer(initiator).terminate(Target::Ike(CONNECTION))?;
    arena.demand_nothing_left()?;
    arena.leave_half_open()?;
    after(arena, COOKIE)
}

fn proposals(cases: &mut Vec<Case>, initiator: Side) {
    // The responder knows only what the initiator likes least.
    let mut plan = Plan::new(initiator);
    let responder = plan.responder();
    plan.connection_of(
        initiator,
        "proposals",
        "aes256gcm16-prfsha384-ecp384,aes256-sha512-modp4096,aes128-sha256-x25519",
    );
    plan.connection_of(responder, "proposals", "aes192-sha384-ecp521,aes128-sha256-x25519");
    plan.child_of(initiator, "esp_proposals", "chacha20poly1305,aes256gcm16,aes128-sha256");
    plan.child_of(responder, "esp_proposals", "aes128-sha1,aes128-sha256");
    cases.push(Case::new("negotiation/several-proposals", plan, establish_and_talk));
    // Within one proposal, several transforms of each type.
    let mut plan = Plan::new(initiator);
    plan.connection_of(initiator, "proposals", "aes256-aes128-sha512-sha256-ecp384-x25519");
    plan.child_of(initiator, "esp_proposals", "aes256-aes128-sha512-sha256");
    plan.child_of(responder, "esp_proposals", "aes128-sha256");
    cases.push(Case::new("negotiation/several-transforms", plan, establish_and_talk));
    for (name, path, offered) in
        [("ike", "proposals", "aes256-sha512-x25519"), ("esp", "children.c.esp_proposals", "aes256-sha512")]
    {
        let mut plan = Plan::new(initiator);
        plan.connection_of(initiator, path, offered);
        let script = |arena: &mut Arena| match arena.initiate(Target::Child(CHILD)) {
            Ok(()) => Err(Error::new("the sides have no proposal in common, and set an SA up")),
            Err(_) => {
                demand(
                    arena.strongswan_said("N(NO_PROP)"),
                    "strongSwan's log tells of no NO_PROPOSAL_CHOSEN",
                )?;
                Ok(String::new())
            }
        };
        cases.push(Case::new(&format!("negotiation/no-common-proposal-{name}"), plan, script));
    }
    // kernel-libipsec has no extended sequence numbers, but both sides can speak of them.
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "esp_proposals", "aes128gcm16-esn-noesn");
    plan.child_of(responder, "esp_proposals", "aes128gcm16-noesn");
    cases.push(Case::new("negotiation/esn-offered", plan, establish_and_talk));
    // Offers of which we make nothing: MOBIKE (RFC 4555) and its addresses.
    let mut plan = Plan::new(initiator);
    plan.connection_of(Side::Right, "mobike", "yes");
    cases.push(Case::new("negotiation/mobike-offered", plan, establish_and_talk));
}

fn children(cases: &mut Vec<Case>, initiator: Side) {
    let mut plan = Plan::new(initiator);
    plan.connection_of(initiator, "childless", "force");
    plan.connection_of(plan.responder(), "childless", "allow");
    cases.push(Case::new("negotiation/childless", plan, |arena| {
        arena.initiate(Target::Ike(CONNECTION))?;
        demand(arena.agree()?.children.is_empty(), "a Child SA stands although IKE_AUTH was to make none")?;
        establish_and_talk(arena)
    }));
    let mut plan = Plan::new(initiator);
    plan.second_child();
    cases.push(Case::new("negotiation/two-children", plan, |arena| {
        arena.establish()?;
        arena.initiate(Target::Child(SECOND_CHILD))?;
        demand(arena.agree()?.children.len() == 2, "two Child SAs were set up, and are not there")?;
        arena.traffic_between(&Side::Left.second(), &Side::Right.second())?;
        arena.traffic(Family::V4)
    }));
    // The responder of the IKE SA is the initiator of the second child.
    let mut plan = Plan::new(initiator);
    plan.second_child();
    cases.push(Case::new("negotiation/second-child-by-responder", plan, |arena| {
        arena.establish()?;
        let responder = arena.plan.responder();
        arena
            .peer(responder)
            .initiate(Target::Child(SECOND_CHILD))
            .map_err(Error::in_front(responder.name()))?;
        demand(arena.agree()?.children.len() == 2, "two Child SAs were set up, and are not there")?;
        arena.traffic_between(&Side::Left.second(), &Side::Right.second())?;
        arena.traffic(Family::V4)
    }));
}

fn selectors(cases: &mut Vec<Case>, initiator: Side) {
    // The initiator asks for all networks of both sides, the responder has less.
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "local_ts", "10.96.0.0/13");
    plan.child_of(initiator, "remote_ts", "10.96.0.0/13");
    cases.push(Case::new("negotiation/narrowing", plan, |arena| {
        arena.establish()?;
        let child = arena.child_sa(Side::Left, CHILD)?;
        let expected = (vec![Side::Left.network(Family::V4)], vec![Side::Right.network(Family::V4)]);
        let is_narrow = (&child.local_ts, &child.remote_ts) == (&expected.0, &expected.1);
        demand(is_narrow, &format!("traffic selectors {:?} {:?}", child.local_ts, child.remote_ts))?;
        arena.traffic(Family::V4)
    }));
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "remote_ts", "10.200.0.0/24");
    cases.push(Case::new("negotiation/no-common-selectors", plan, |arena| {
        let outcome = arena.initiate(Target::Child(CHILD));
        demand(outcome.is_err(), "the sides have no traffic selector in common, and set a Child SA up")?;
        demand(arena.strongswan_said("N(TS_UNACCEPT)"), "strongSwan's log tells of no TS_UNACCEPTABLE")?;
        Ok(String::new())
    }));
    cases.push(Case::new("negotiation/selector-protocol", limited(initiator, "[tcp]"), |arena| {
        arena.establish()?;
        talk_tcp_only(arena, &Side::BOTH)
    }));
    cases.push(Case::new("negotiation/selector-port", limited(initiator, "[tcp/7]"), |arena| {
        arena.establish()?;
        talk_tcp_only(arena, &[arena.initiator()])
    }));
}

/// The child is for TCP alone, and the responder's end limited by `selector`.
fn limited(initiator: Side, selector: &str) -> Plan {
    let mut plan = Plan::new(initiator);
    let responder = plan.responder();
    let near = format!("{}[tcp]", initiator.network(Family::V4));
    let far = format!("{}{selector}", responder.network(Family::V4));
    plan.child_of(initiator, "local_ts", &near);
    plan.child_of(responder, "remote_ts", &near);
    plan.child_of(initiator, "remote_ts", &far);
    plan.child_of(responder, "local_ts", &far);
    plan
}

/// TCP passes from each of these sides, and echo requests from neither.
fn talk_tcp_only(arena: &mut Arena, from: &[Side]) -> Result<String> {
    for &side in from {
        arena.tcp(side, &side.behind(Family::V4), &side.other().behind(Family::V4))?;
    }
    for side in Side::BOTH {
        let pinged = arena.ping(side, &side.behind(Family::V4), &side.other().behind(Family::V4));
        demand(pinged.is_err(), "an echo request passed a Child SA for TCP alone")?;
    }
    Ok("TCP alone".into())
}

/// Sets up and talks; on the way, a response of IKE_SA_INIT has to have held this notification.
fn after(arena: &mut Arena, notify: u16) -> Result<String> {
    let said = establish_and_talk(arena)?;
    saw(arena, notify).map(|()| said)
}

fn saw(arena: &Arena, notify: u16) -> Result<()> {
    let wire = arena.wire()?;
    let found =
        wire.ike().any(|ike| ike.exchange == IKE_SA_INIT && ike.is_response && ike.notify == Some(notify));
    demand(found, &format!("no response of IKE_SA_INIT held notification {notify}: the case proves nothing"))
}
