//! Cases for the addresses: IP versions inside and outside of the tunnel, virtual addresses, an initiator
//! behind a NAT, and a NAT that loses its mapping.

use super::{Case, ensure};
use crate::peer::{Family, Side, Target};
use crate::plan::{CHILD, Plan};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed, Traffic};
use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Address pools of the responder, with the DNS server that each announces.
const POOL_V4: Pool = Pool { name: "pool4", addresses: "10.98.0.0/24", dns: "10.98.255.1" };
const POOL_V6: Pool = Pool { name: "pool6", addresses: "fd98::/112", dns: "fd98:ffff::1" };

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    for (name, outer, inner) in [
        ("6in6", Family::V6, &[Family::V6][..]),
        ("4in6", Family::V6, &[Family::V4]),
        ("6in4", Family::V4, &[Family::V6]),
        ("both-in-4", Family::V4, &[Family::V4, Family::V6]),
        ("both-in-6", Family::V6, &[Family::V4, Family::V6]),
    ] {
        let mut plan = Plan::new(initiator);
        plan.outer(outer);
        plan.inner(inner);
        cases.push(Case::new(&format!("addresses/{name}"), plan, |testbed| {
            testbed.establish()?;
            let summary = inner.iter().map(|&family| testbed.traffic(family)).collect::<Result<Vec<_>>>()?;
            Ok(summary.join("; "))
        }));
    }
    for (name, families) in
        [("4", &[Family::V4][..]), ("6", &[Family::V6]), ("4-and-6", &[Family::V4, Family::V6])]
    {
        let plan = virtual_addresses(initiator, families);
        cases.push(Case::new(&format!("addresses/virtual-{name}"), plan, |testbed| {
            receive(testbed, families)
        }));
    }
}

/// The responder assigns addresses to the initiator and announces a DNS server for each IP version.
fn virtual_addresses(initiator: Side, families: &[Family]) -> Plan {
    let mut plan = Plan::new(initiator);
    plan.inner(families);
    let responder = plan.responder();
    for &family in families {
        let Pool { name, addresses, dns } = pool(family);
        plan.on(responder, &format!("pools.{name}.addrs"), addresses);
        plan.on(responder, &format!("pools.{name}.dns"), dns);
    }
    let list = |item: fn(Family) -> &'static str| {
        families.iter().map(|&family| item(family)).collect::<Vec<_>>().join(",")
    };
    plan.connection_of(responder, "pools", &list(|family| pool(family).name));
    plan.connection_of(responder, "remote_addrs", "%any");
    plan.connection_of(
        initiator,
        "vips",
        &list(|family| if family == Family::V4 { "0.0.0.0" } else { "::" }),
    );
    plan.child_of(initiator, "local_ts", "dynamic");
    plan.child_of(responder, "remote_ts", "dynamic");
    plan
}

/// Pool of virtual addresses.
struct Pool {
    name: &'static str,
    addresses: &'static str,
    /// DNS server.
    dns: &'static str,
}

fn pool(family: Family) -> Pool {
    match family {
        Family::V4 => POOL_V4,
        Family::V6 => POOL_V6,
    }
}

/// Checks that the initiator has an address of each pool, uses it, and knows the DNS servers.
fn receive(testbed: &mut Testbed, families: &[Family]) -> Result<String> {
    testbed.establish()?;
    let (initiator, responder) = (testbed.initiator(), testbed.plan.responder());
    let addresses = testbed.ike_sa(initiator)?.vips;
    let dns = testbed.peer(initiator).dns()?;
    let mut summary = Vec::new();
    for &family in families {
        let is_wanted = |address: &&IpAddr| address.is_ipv4() == (family == Family::V4);
        let address = addresses
            .iter()
            .find(is_wanted)
            .ok_or_else(|| {
                Error::new(format!("the initiator has no virtual address of {family:?}: {addresses:?}"))
            })?
            .to_string();
        let Pool { addresses: range, dns: server, .. } = pool(family);
        let prefix =
            range.split_once("0/").or_else(|| range.split_once('/')).map_or(range, |(prefix, _)| prefix);
        ensure(address.starts_with(prefix), &format!("{address} is not in the pool {range}"))?;
        let knows = dns.iter().any(|address| address.to_string() == server);
        ensure(knows, &format!("the initiator does not know the DNS server {server}: {dns:?}"))?;
        let behind = responder.behind(family);
        let (left, right) = if initiator == Side::Left { (address, behind) } else { (behind, address) };
        summary.push(testbed.traffic_between(&left, &right)?);
    }
    Ok(summary.join("; "))
}

/// Source ports of the NAT before and after the change of the mapping.
const PORTS: RangeInclusive<u16> = 20000..=20099;
const OTHER_PORTS: RangeInclusive<u16> = 30000..=30099;
/// The initiator checks its peer every second.
const FOLLOW_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn add_nat(cases: &mut Vec<Case>, initiator: Side) {
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
        establish_behind_nat(testbed)?;
        change_mapping(testbed)
    }));
}

/// Sets up an SA from behind a NAT.
pub(super) fn establish_behind_nat(testbed: &mut Testbed) -> Result<()> {
    translate(testbed, &PORTS)?;
    testbed.establish()
}

/// Changes the mapping of the NAT, and sends traffic once the responder has followed.
pub(super) fn change_mapping(testbed: &mut Testbed) -> Result<String> {
    testbed.traffic(Family::V4)?;
    translate(testbed, &OTHER_PORTS)?;
    testbed.wait_until(FOLLOW_LIMIT, |testbed| expect_seen_at(testbed, &OTHER_PORTS))?;
    testbed.traffic(Family::V4)
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
    testbed.traffic_from([
        Traffic { side: hidden, from: &ours, to: &theirs },
        Traffic { side: open, from: &theirs, to: &seen },
    ])
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
