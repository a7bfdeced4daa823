//! Cases for MOBIKE (RFC 4555): the initiator gets another address, only an IPv6 address remains, a NAT
//! changes its mapping, and the IKE SA is rekeyed after a move.

use super::addresses::{behind, change_mapping, establish_behind_nat};
use super::{Case, RunsOn, ensure, rekey};
use crate::peer::{Family, Side, Target};
use crate::plan::{CONNECTION, Plan};
use crate::testbed::Testbed;
use casemate_interop::Result;
use std::time::Duration;

/// Limit for a move. strongSwan waits before it reacts to a change of addresses.
const MOVE_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        let case = Case::new(&format!("mobike/{name}"), plan, script);
        cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    };
    push("address", plan(initiator), |testbed| {
        testbed.establish()?;
        testbed.traffic(Family::V4)?;
        move_to_other_address(testbed)?;
        testbed.traffic(Family::V4)
    });
    push("rekey", plan(initiator), |testbed| {
        testbed.establish()?;
        move_to_other_address(testbed)?;
        for side in Side::BOTH {
            rekey::replace(testbed, side, Target::Ike(CONNECTION))?;
        }
        testbed.traffic(Family::V4)
    });
    let mut both = plan(initiator);
    let addresses = |side: Side| format!("{},{}", side.wire(Family::V4), side.wire(Family::V6));
    let responder = both.responder();
    both.connection_of(initiator, "remote_addrs", &addresses(responder));
    both.connection_of(responder, "local_addrs", &addresses(responder));
    push("ipv6", both, |testbed| {
        testbed.establish()?;
        let side = testbed.initiator();
        let old = side.wire(Family::V4);
        testbed.path.end(side).configure(&format!("addr del {old}/24 dev wire\n"))?;
        expect_seen_at(testbed, &side.wire(Family::V6))?;
        testbed.traffic(Family::V4)
    });
    let mut mapped = plan(initiator);
    mapped.connection_of(initiator, "dpd_delay", "1s");
    push("mapping-changes", mapped, |testbed| {
        establish_behind_nat(testbed)?;
        if testbed.initiator() == Side::Right {
            // strongSwan compares the mapping with that of its first liveness check.
            testbed.wait_until(MOVE_LIMIT, |testbed| {
                ensure(testbed.strongswan_logged("N(NATD_D_IP) ]"), "strongSwan has checked no mapping")
            })?;
        }
        change_mapping(testbed)
    });
}

/// Plan with MOBIKE in which the initiator may have any address.
fn plan(initiator: Side) -> Plan {
    let mut plan = behind(initiator);
    plan.connection("mobike", "yes");
    plan.connection_of(initiator, "local_addrs", "%any");
    plan
}

/// Gives the initiator another address instead of its present one. Waits until the responder follows.
fn move_to_other_address(testbed: &mut Testbed) -> Result<()> {
    let side = testbed.initiator();
    let [old, new] = [side.wire(Family::V4), side.moved()];
    // With equal lengths of the prefixes, the old address would take the new one with it.
    let lines = format!("addr add {new}/25 dev wire\naddr del {old}/24 dev wire\n");
    testbed.path.end(side).configure(&lines)?;
    expect_seen_at(testbed, &new)
}

/// Waits until the responder sees the initiator at this address.
fn expect_seen_at(testbed: &mut Testbed, address: &str) -> Result<()> {
    let responder = testbed.plan.responder();
    testbed.wait_until(MOVE_LIMIT, |testbed| {
        let remote = testbed.ike_sa(responder)?.remote;
        let seen = format!("the responder sees the initiator at {remote}, expected {address}");
        ensure(remote.ip().to_string() == address, &seen)
    })
}
