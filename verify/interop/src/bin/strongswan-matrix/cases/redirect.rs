//! Cases for gateways that redirect their clients (RFC 5685). The other gateway is the IPv6 address of the
//! same host.
//!
//! A redirect in IKE_AUTH (`redirect_to`) has no case: charon 5.9.8 frees memory twice when it follows one,
//! and ends. `core/ike/tests/redirect.rs` has it.

use super::{Case, RunsOn, ensure, establish_and_talk};
use crate::peer::{Family, Side};
use crate::plan::{CONNECTION, Plan};
use crate::testbed::Testbed;
use casemate_interop::{Error, Result};
use std::time::Duration;

/// The new IKE SA replaces the old one within this time.
const LIMIT: Duration = Duration::from_secs(8);

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |name: &str, plan, script: fn(&mut Testbed) -> Result<String>| {
        let case = Case::new(&format!("redirect/{name}"), plan, script);
        cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    };
    push("active", two_addresses(initiator), |testbed| {
        establish_and_talk(testbed)?;
        let gateway = testbed.initiator().other();
        testbed.peer(gateway).redirect(CONNECTION, &gateway.wire(Family::V6))?;
        expect_at_other(testbed)?;
        testbed.traffic(Family::V4)
    });
    let mut plan = two_addresses(initiator);
    forbid(&mut plan, initiator);
    push("refused", plan, |testbed| {
        establish_and_talk(testbed)?;
        let gateway = testbed.initiator().other();
        // charon says so only in its log.
        let redirected = testbed.peer(gateway).redirect(CONNECTION, &gateway.wire(Family::V6));
        ensure(gateway == Side::Right || redirected.is_err(), "the client follows redirects")?;
        testbed.traffic(Family::V4)
    });
}

/// Both sides have an IPv4 and an IPv6 address, and the initiator knows the former of the responder.
fn two_addresses(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    let addresses = |side: Side| format!("{},{}", side.wire(Family::V4), side.wire(Family::V6));
    for side in Side::BOTH {
        plan.connection_of(side, "local_addrs", &addresses(side));
    }
    plan.connection_of(initiator.other(), "remote_addrs", &addresses(initiator));
    plan
}

/// The initiator follows no redirect.
fn forbid(plan: &mut Plan, initiator: Side) {
    match initiator {
        Side::Left => plan.on(initiator, "charon.follow_redirects", "no"),
        Side::Right => plan.daemon(initiator, "follow_redirects", "no"),
    }
}

/// Waits until the only IKE SA of the initiator is that with the other gateway.
fn expect_at_other(testbed: &mut Testbed) -> Result<()> {
    let client = testbed.initiator();
    let other = client.other().wire(Family::V6);
    testbed.wait_until(LIMIT, |testbed| {
        let remote = testbed.ike_sa(client)?.remote.ip().to_string();
        let count = testbed.peer(client.other()).status()?.len();
        let is_there = remote == other && count == 1;
        if is_there {
            Ok(())
        } else {
            Err(Error::new(format!("{remote} and {count} IKE SAs, expected {other}")))
        }
    })
}
