//! Cases for the IP versions inside and outside of the tunnel, and for virtual addresses.

use super::{Case, ensure};
use crate::plan::Plan;
use crate::side::{Family, Side};
use crate::testbed::Testbed;
use casemate_interop::{Error, Result};
use std::net::IpAddr;

/// Address pools of the responder, with the DNS server that each announces.
const POOL_V4: (&str, &str, &str) = ("pool4", "10.98.0.0/24", "10.98.255.1");
const POOL_V6: (&str, &str, &str) = ("pool6", "fd98::/112", "fd98:ffff::1");

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
        let (name, addresses, dns) = pool(family);
        plan.on(responder, &format!("pools.{name}.addrs"), addresses);
        plan.on(responder, &format!("pools.{name}.dns"), dns);
    }
    let list = |item: fn(Family) -> &'static str| {
        families.iter().map(|&family| item(family)).collect::<Vec<_>>().join(",")
    };
    plan.connection_of(responder, "pools", &list(|family| pool(family).0));
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

fn pool(family: Family) -> (&'static str, &'static str, &'static str) {
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
        let (_, range, server) = pool(family);
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
