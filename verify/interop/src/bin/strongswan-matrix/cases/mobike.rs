//! Cases for MOBIKE (RFC 4555): the initiator or the responder gets another address, only an IPv6 address
//! remains, a NAT changes its mapping, and the IKE SA is rekeyed after a move.

use super::addresses::{behind, change_mapping, establish_behind_nat};
use super::{Case, RunsOn, ensure, rekey};
use crate::peer::{Family, Side, Target};
use crate::plan::{CONNECTION, Plan};
use crate::stream::UNDISTURBED;
use crate::testbed::Testbed;
use casemate_interop::Result;
use std::thread::sleep;
use std::time::Duration;

/// Limit for a move. strongSwan waits before it reacts to a change of addresses.
const MOVE_LIMIT: Duration = Duration::from_secs(10);
/// The longest interruption that a change may cause.
const LONGEST_INTERRUPTION: Duration = Duration::from_secs(1);
/// Source ports of the NAT.
const PORTS: &str = "20000-20099";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        let case = Case::new(&format!("mobike/{name}"), plan, script);
        cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    };
    push("address", plan(initiator), |testbed| {
        testbed.establish()?;
        testbed.traffic(Family::V4)?;
        let side = testbed.initiator();
        move_to_other_address(testbed, side)?;
        testbed.traffic(Family::V4)
    });
    push("rekey", plan(initiator), |testbed| {
        let side = testbed.initiator();
        move_and_rekey(testbed, side)
    });
    push("ipv6", plan_with_ipv6(initiator), |testbed| {
        testbed.establish()?;
        let side = testbed.initiator();
        lose_ipv4(testbed, side)?;
        testbed.traffic(Family::V4)
    });
    let mut gateway = plan(initiator);
    gateway.connection_of(gateway.responder(), "local_addrs", "%any");
    push("gateway-address", gateway, |testbed| {
        let side = testbed.plan.responder();
        move_and_rekey(testbed, side)
    });
    let mut both = plan_with_ipv6(initiator);
    both.connection_of(initiator, "local_addrs", &addresses(initiator));
    push("gateway-ipv6", both, |testbed| {
        testbed.establish()?;
        let side = testbed.plan.responder();
        lose_ipv4(testbed, side)?;
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

/// TCP streams of iperf3 go on when a side moves.
pub(super) fn add_streams(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, change: fn(&mut Testbed) -> Result<()>| {
        let case = Case::new(&format!("mobike/iperf3-{name}"), plan, move |testbed| {
            testbed.establish()?;
            let streams = testbed.start_streams()?;
            change(testbed)?;
            streams.stop(LONGEST_INTERRUPTION)
        });
        // The interruption is limited, so nothing else uses the CPUs.
        cases.push(Case { runs_on: RunsOn::Casemate, is_exclusive: true, ..case });
    };
    push("address", plan(initiator), |testbed| {
        let side = testbed.initiator();
        move_to_other_address(testbed, side)
    });
    push("ipv6", plan_with_ipv6(initiator), |testbed| {
        let side = testbed.initiator();
        lose_ipv4(testbed, side)
    });
    push("nat", plan(initiator), |testbed| {
        let side = testbed.initiator();
        testbed.path.translate_address(side, &side.moved(), PORTS)?;
        replace_address(testbed, side)?;
        expect_seen_at(testbed, side, &side.other().router(Family::V4))?;
        sleep(UNDISTURBED);
        move_back(testbed, side)
    });
    // strongSwan's user-space ESP rekeys to follow, and repeats a request only after four seconds.
    if initiator == Side::Right {
        return;
    }
    let mut gateway = plan(initiator);
    gateway.connection_of(gateway.responder(), "local_addrs", "%any");
    push("gateway", gateway, |testbed| {
        let side = testbed.plan.responder();
        move_to_other_address(testbed, side)
    });
}

/// Plan with MOBIKE in which the initiator may have any address.
fn plan(initiator: Side) -> Plan {
    let mut plan = behind(initiator);
    plan.connection("mobike", "yes");
    plan.connection_of(initiator, "local_addrs", "%any");
    plan
}

/// The same plan with addresses of both IP versions of the responder.
fn plan_with_ipv6(initiator: Side) -> Plan {
    let mut plan = plan(initiator);
    let responder = plan.responder();
    plan.connection_of(initiator, "remote_addrs", &addresses(responder));
    plan.connection_of(responder, "local_addrs", &addresses(responder));
    plan
}

fn addresses(side: Side) -> String {
    format!("{},{}", side.wire(Family::V4), side.wire(Family::V6))
}

/// Moves a side, and rekeys the IKE SA from both sides.
fn move_and_rekey(testbed: &mut Testbed, side: Side) -> Result<String> {
    testbed.establish()?;
    testbed.traffic(Family::V4)?;
    move_to_other_address(testbed, side)?;
    testbed.traffic(Family::V4)?;
    for side in Side::BOTH {
        rekey::replace(testbed, side, Target::Ike(CONNECTION))?;
    }
    testbed.traffic(Family::V4)
}

/// Gives a side another address instead of its present one. Waits until the other side follows.
fn move_to_other_address(testbed: &mut Testbed, side: Side) -> Result<()> {
    replace_address(testbed, side)?;
    expect_seen_at(testbed, side, &side.moved())
}

/// Gives a side another address instead of its present one.
fn replace_address(testbed: &Testbed, side: Side) -> Result<()> {
    let [old, new] = [side.wire(Family::V4), side.moved()];
    // With equal lengths of the prefixes, the old address would take the new one with it.
    testbed.path.end(side).configure(&format!("addr add {new}/25 dev wire\naddr del {old}/24 dev wire\n"))
}

/// Gives a side its first address again. Waits until the other side follows.
fn move_back(testbed: &mut Testbed, side: Side) -> Result<()> {
    let [old, new] = [side.moved(), side.wire(Family::V4)];
    let lines = format!("addr add {new}/24 dev wire\naddr del {old}/25 dev wire\n");
    testbed.path.end(side).configure(&lines)?;
    expect_seen_at(testbed, side, &new)
}

/// Removes the IPv4 address of a side, which has one of IPv6.
fn lose_ipv4(testbed: &mut Testbed, side: Side) -> Result<()> {
    let old = side.wire(Family::V4);
    testbed.path.end(side).configure(&format!("addr del {old}/24 dev wire\n"))?;
    expect_seen_at(testbed, side, &side.wire(Family::V6))
}

/// Waits until the peer of a side sees it at this address.
fn expect_seen_at(testbed: &mut Testbed, side: Side, address: &str) -> Result<()> {
    testbed.wait_until(MOVE_LIMIT, |testbed| {
        let remote = testbed.ike_sa(side.other())?.remote;
        let seen = format!("{} is seen at {remote}, expected {address}", side.name());
        ensure(remote.ip().to_string() == address, &seen)
    })
}
