//! Cases with an initiator behind a NAT, and with a NAT that loses its mapping.

use super::{Case, ensure};
use crate::peer::Target;
use crate::plan::{CHILD, Plan};
use crate::side::{Family, Side};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use casemate_interop::Result;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Source ports of the NAT before and after the change of the mapping.
const PORTS: RangeInclusive<u16> = 20000..=20099;
const OTHER_PORTS: RangeInclusive<u16> = 30000..=30099;
/// The initiator checks its peer every second.
const FOLLOW_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    cases.push(Case::new("nat/initiator-behind", behind(initiator), through_a_nat));
    cases.push(Case::new("nat/rekey", behind(initiator), |testbed| {
        translate(testbed, &PORTS)?;
        testbed.establish()?;
        for side in Side::BOTH {
            super::rekey::replace(testbed, side, Target::Child(CHILD))?;
        }
        testbed.traffic(Family::V4)
    }));
    let mut plan = behind(initiator);
    plan.connection_of(initiator, "dpd_delay", "1s");
    cases.push(Case::new("nat/mapping-changes", plan, |testbed| {
        translate(testbed, &PORTS)?;
        testbed.establish()?;
        testbed.traffic(Family::V4)?;
        translate(testbed, &OTHER_PORTS)?;
        testbed.wait_until(FOLLOW_LIMIT, |testbed| expect_seen_at(testbed, &OTHER_PORTS))?;
        testbed.traffic(Family::V4)
    }));
}

/// Plan in which the responder does not know the address of the initiator.
pub(super) fn behind(initiator: Side) -> Plan {
    hidden(Plan::new(initiator))
}

/// The same plan in transport mode.
pub(super) fn behind_in_transport_mode(initiator: Side) -> Plan {
    hidden(Plan::transport(initiator))
}

fn hidden(mut plan: Plan) -> Plan {
    plan.connection_of(plan.responder(), "remote_addrs", "%any");
    plan
}

/// Sets up an SA from behind a NAT and sends traffic.
pub(super) fn through_a_nat(testbed: &mut Testbed) -> Result<String> {
    translate(testbed, &PORTS)?;
    testbed.establish()?;
    expect_seen_at(testbed, &PORTS)?;
    testbed.traffic(Family::V4)
}

/// Sets up an SA from behind a NAT in transport mode and sends traffic. Each side uses the address of the
/// other side that it sees, so the traffic selectors of both sides differ (RFC 7296 section 2.23.1).
pub(super) fn transport_through_a_nat(testbed: &mut Testbed) -> Result<String> {
    translate(testbed, &PORTS)?;
    testbed.initiate(Target::Child(CHILD))?;
    let (hidden, open) = (testbed.initiator(), testbed.plan.responder());
    let [ours, theirs] = [hidden, open].map(|side| side.wire(Family::V4));
    let seen = open.router(Family::V4);
    for (side, local, remote) in [(hidden, &ours, &theirs), (open, &theirs, &seen)] {
        let child = testbed.wait_until(CONVERGENCE_LIMIT, |testbed| testbed.child_sa(side, CHILD))?;
        let expected = [local, remote].map(|address| vec![format!("{address}/32")]);
        let selectors = [child.local_ts, child.remote_ts];
        let name = side.name();
        ensure(selectors == expected, &format!("{name}: selectors {selectors:?}, expected {expected:?}"))?;
    }
    expect_seen_at(testbed, &PORTS)?;
    testbed.traffic_from([(hidden, &ours, &theirs), (open, &theirs, &seen)])
}

/// Translates the initiator to the address of the router before the peers start.
pub(super) fn hide_initiator(plan: &mut Plan) {
    plan.hidden_behind = Some(range(&PORTS));
}

fn translate(testbed: &Testbed, ports: &RangeInclusive<u16>) -> Result<()> {
    testbed.path.translate(testbed.initiator(), &range(ports))
}

fn range(ports: &RangeInclusive<u16>) -> String {
    format!("{}-{}", ports.start(), ports.end())
}

/// Checks that the responder sees the initiator at the address of the router and one of these ports (RFC
/// 7296 section 2.23).
fn expect_seen_at(testbed: &mut Testbed, ports: &RangeInclusive<u16>) -> Result<()> {
    let responder = testbed.plan.responder();
    let remote = testbed.ike_sa(responder)?.remote;
    let router = responder.router(Family::V4);
    let seen = format!("the responder sees the initiator at {remote}, expected {router}, port {ports:?}");
    ensure(remote.ip().to_string() == router && ports.contains(&remote.port()), &seen)
}
