//! Cases for negotiation: every algorithm of IKE and ESP that both sides support, Diffie-Hellman groups,
//! cookies, proposals, traffic selectors, children, IKE fragments.

use super::auth::chain;
use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::{Family, Side, Target};
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::testbed::Testbed;
use crate::wire::{COOKIE, ENCRYPTED_FRAGMENT, IKE_SA_INIT, INVALID_KE_PAYLOAD, Packet};
use casemate_interop::{Error, Result};
use std::time::Duration;

/// Limit for the search for the path MTU.
const SEARCH_LIMIT: Duration = Duration::from_secs(40);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    add_fragments(cases, initiator);
    let mut plan = Plan::new(initiator);
    plan.connection_of(initiator, "proposals", "aes128-sha256-modp2048-ecp256");
    plan.connection_of(plan.responder(), "proposals", "aes128-sha256-ecp256");
    cases.push(Case::new("negotiation/invalid-ke", plan, |testbed| {
        establish_and_expect(testbed, INVALID_KE_PAYLOAD)
    }));
    cases.push(Case::new("negotiation/cookie", cookie_plan(initiator), establish_after_cookie));
    let mut plan = cookie_plan(initiator);
    plan.connection_of(initiator, "proposals", "aes128-sha256-modp2048-ecp256");
    plan.connection_of(plan.responder(), "proposals", "aes128-sha256-ecp256");
    cases.push(Case::new("negotiation/cookie-and-invalid-ke", plan, |testbed| {
        let summary = establish_after_cookie(testbed)?;
        expect_notify(testbed, INVALID_KE_PAYLOAD).map(|()| summary)
    }));
    proposals(cases, initiator);
    children(cases, initiator);
    selectors(cases, initiator);
}

/// Plan with a responder that asks for cookies as soon as one IKE SA is half-open.
fn cookie_plan(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    plan.daemon(plan.responder(), "cookie_threshold", "1");
    // The half-open SAs come from other addresses than the initiator's.
    plan.connection_of(plan.responder(), "remote_addrs", "%any");
    plan
}

/// Sets up an SA, deletes it, and sets it up again while the responder has half-open IKE SAs.
fn establish_after_cookie(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    let initiator = testbed.initiator();
    testbed.peer(initiator).terminate(Target::Ike(CONNECTION))?;
    testbed.expect_no_sas()?;
    testbed.create_half_open_sas()?;
    establish_and_expect(testbed, COOKIE)
}

fn proposals(cases: &mut Vec<Case>, initiator: Side) {
    // The responder supports only the last choice of the initiator.
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
    // Several transforms of each type in one proposal.
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
        let script = |testbed: &mut Testbed| match testbed.initiate(Target::Child(CHILD)) {
            Ok(()) => Err(Error::new("the sides set up an SA without a common proposal")),
            Err(_) => {
                ensure(
                    testbed.strongswan_logged("N(NO_PROP)"),
                    "strongSwan's log does not contain NO_PROPOSAL_CHOSEN",
                )?;
                Ok(String::new())
            }
        };
        cases.push(Case::new(&format!("negotiation/no-common-proposal-{name}"), plan, script));
    }
    // kernel-libipsec has no extended sequence numbers, but both sides can negotiate about them.
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "esp_proposals", "aes128gcm16-esn-noesn");
    plan.child_of(responder, "esp_proposals", "aes128gcm16-noesn");
    cases.push(Case::new("negotiation/esn-offered", plan, establish_and_talk));
    // Offers that Casemate ignores: MOBIKE (RFC 4555) and its addresses.
    let mut plan = Plan::new(initiator);
    plan.connection_of(Side::Right, "mobike", "yes");
    cases.push(Case::new("negotiation/mobike-offered", plan, establish_and_talk));
}

fn children(cases: &mut Vec<Case>, initiator: Side) {
    let mut plan = Plan::new(initiator);
    plan.connection_of(initiator, "childless", "force");
    plan.connection_of(plan.responder(), "childless", "allow");
    cases.push(Case::new("negotiation/childless", plan, |testbed| {
        testbed.initiate(Target::Ike(CONNECTION))?;
        ensure(
            testbed.wait_for_same_sas()?.children.is_empty(),
            "a Child SA exists although IKE_AUTH was childless",
        )?;
        establish_and_talk(testbed)
    }));
    let mut plan = Plan::new(initiator);
    plan.second_child();
    cases.push(Case::new("negotiation/two-children", plan, |testbed| {
        testbed.establish()?;
        testbed.initiate(Target::Child(SECOND_CHILD))?;
        ensure(
            testbed.wait_for_same_sas()?.children.len() == 2,
            "two Child SAs were set up, but do not exist",
        )?;
        testbed.traffic_between(&Side::Left.second(), &Side::Right.second())?;
        testbed.traffic(Family::V4)
    }));
    // The responder of the IKE SA initiates the second child.
    let mut plan = Plan::new(initiator);
    plan.second_child();
    cases.push(Case::new("negotiation/second-child-by-responder", plan, |testbed| {
        testbed.establish()?;
        let responder = testbed.plan.responder();
        testbed
            .peer(responder)
            .initiate(Target::Child(SECOND_CHILD))
            .map_err(Error::context(responder.name()))?;
        ensure(
            testbed.wait_for_same_sas()?.children.len() == 2,
            "two Child SAs were set up, but do not exist",
        )?;
        testbed.traffic_between(&Side::Left.second(), &Side::Right.second())?;
        testbed.traffic(Family::V4)
    }));
}

fn selectors(cases: &mut Vec<Case>, initiator: Side) {
    // The initiator requests all networks of both sides, the responder narrows them.
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "local_ts", "10.96.0.0/13");
    plan.child_of(initiator, "remote_ts", "10.96.0.0/13");
    cases.push(Case::new("negotiation/narrowing", plan, |testbed| {
        testbed.establish()?;
        let child = testbed.child_sa(Side::Left, CHILD)?;
        let expected = (vec![Side::Left.network(Family::V4)], vec![Side::Right.network(Family::V4)]);
        let is_narrow = (&child.local_ts, &child.remote_ts) == (&expected.0, &expected.1);
        ensure(is_narrow, &format!("traffic selectors {:?} {:?}", child.local_ts, child.remote_ts))?;
        testbed.traffic(Family::V4)
    }));
    let mut plan = Plan::new(initiator);
    plan.child_of(initiator, "remote_ts", "10.200.0.0/24");
    cases.push(Case::new("negotiation/no-common-selectors", plan, |testbed| {
        let outcome = testbed.initiate(Target::Child(CHILD));
        ensure(outcome.is_err(), "the sides set up a Child SA without a common traffic selector")?;
        ensure(
            testbed.strongswan_logged("N(TS_UNACCEPT)"),
            "strongSwan's log does not contain TS_UNACCEPTABLE",
        )?;
        Ok(String::new())
    }));
    cases.push(Case::new("negotiation/selector-protocol", tcp_only(initiator, "[tcp]"), |testbed| {
        testbed.establish()?;
        expect_tcp_only(testbed, &Side::BOTH)
    }));
    cases.push(Case::new("negotiation/selector-port", tcp_only(initiator, "[tcp/7]"), |testbed| {
        testbed.establish()?;
        expect_tcp_only(testbed, &[testbed.initiator()])
    }));
}

/// Plan for TCP only; `selector` limits the side of the responder.
fn tcp_only(initiator: Side, selector: &str) -> Plan {
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

/// Checks that TCP passes from each of these sides and that echo requests pass from neither.
fn expect_tcp_only(testbed: &mut Testbed, from: &[Side]) -> Result<String> {
    for &side in from {
        testbed.tcp(side, &side.behind(Family::V4), &side.other().behind(Family::V4))?;
    }
    for side in Side::BOTH {
        let pinged = testbed.ping(side, &side.behind(Family::V4), &side.other().behind(Family::V4));
        ensure(pinged.is_err(), "an echo request passed a Child SA for TCP only")?;
    }
    Ok("TCP only".into())
}

/// Sets up the child and sends traffic. Checks that a response of IKE_SA_INIT contained this notification.
fn establish_and_expect(testbed: &mut Testbed, notify: u16) -> Result<String> {
    let summary = establish_and_talk(testbed)?;
    expect_notify(testbed, notify).map(|()| summary)
}

fn expect_notify(testbed: &Testbed, notify: u16) -> Result<()> {
    let wire = testbed.wire()?;
    let found =
        wire.ike().any(|ike| ike.exchange == IKE_SA_INIT && ike.is_response && ike.notify == Some(notify));
    ensure(
        found,
        &format!("no response of IKE_SA_INIT contained notification {notify}: the case is not valid"),
    )
}

fn add_fragments(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new(
        "fragments/large-certificates",
        large_certificates(initiator),
        establish_in_fragments,
    ));
    let mut plan = large_certificates(initiator);
    Side::BOTH.into_iter().for_each(|side| plan.daemon(side, "fragment_size", "500"));
    cases.push(Case::new("fragments/small", plan, establish_in_fragments));
    cases.push(Case::new("fragments/path-loses-ip-fragments", large_certificates(initiator), |testbed| {
        testbed.path.drop_fragments()?;
        establish_in_fragments(testbed)
    }));
    add_path_mtu(cases, initiator);
    // Without IKE fragmentation, IP fragments the messages.
    for refuser in Side::BOTH {
        let mut plan = large_certificates(initiator);
        plan.connection_of(refuser, "fragmentation", "no");
        let whose = if refuser == Side::Left { "us" } else { "peer" };
        cases.push(Case::new(&format!("fragments/refused-by-{whose}"), plan, |testbed| {
            testbed.establish()?;
            let wire = testbed.wire()?;
            let fragments = wire.ike().filter(|ike| ike.first_payload == ENCRYPTED_FRAGMENT).count();
            ensure(fragments == 0, "IKE fragments on the wire although one side does not support them")?;
            ensure(
                wire.count(Packet::Fragment) > 0,
                "no IP fragments on the wire: the messages are too small for this case",
            )?;
            testbed.traffic(Family::V4)
        }));
    }
}

/// The path loses long packets without an ICMP error. Casemate probes it; strongSwan takes
/// the probes for retransmissions, and answers again.
fn add_path_mtu(cases: &mut Vec<Case>, initiator: Side) {
    for (family, encap, name) in
        [(Family::V4, "no", "v4"), (Family::V6, "no", "v6"), (Family::V4, "yes", "v4-in-udp")]
    {
        let mut plan = Plan::new(initiator);
        plan.outer(family);
        plan.connection("encap", encap);
        let case = Case::new(&format!("path-mtu/{name}"), plan, find_path_mtu);
        cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    }
}

fn find_path_mtu(testbed: &mut Testbed) -> Result<String> {
    const PATH_MTU: u16 = 1_400;
    testbed.path.lose_longer_than(PATH_MTU)?;
    testbed.establish()?;
    let line = format!(" is {PATH_MTU} bytes: longer packets are lost");
    testbed.wait_until(SEARCH_LIMIT, |testbed| {
        let [left, _] = testbed.logs();
        ensure(left.contains(&line), "the log of Casemate does not report the path MTU")
    })?;
    ensure(
        testbed.strongswan_logged("received retransmit of request"),
        "strongSwan did not take the probes for retransmissions",
    )?;
    testbed.compare_sas()?;
    let [left, right] = Side::BOTH.map(|side| testbed.plan.between.address(side, Family::V4));
    testbed.tcp(Side::Left, &left, &right)
}

/// Certificate chains of RSA keys with 4096 bits: about 4000 bytes from each side.
fn large_certificates(initiator: Side) -> Plan {
    let mut plan = chain(initiator, "large", "sub-large", "ca-large");
    plan.connection("fragmentation", "yes");
    plan
}

/// Checks that both sides sent IKE fragments and that there are no IP fragments.
fn establish_in_fragments(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    let wire = testbed.wire()?;
    for is_response in [false, true] {
        let fragments = wire
            .ike()
            .filter(|ike| ike.first_payload == ENCRYPTED_FRAGMENT && ike.is_response == is_response);
        let whose = if is_response { "responder" } else { "initiator" };
        ensure(fragments.count() > 1, &format!("the {whose} did not send IKE_AUTH in fragments"))?;
    }
    ensure(wire.count(Packet::Fragment) == 0, "IP fragments on the wire")?;
    testbed.traffic(Family::V4)
}
