//! Cases for MOBIKE (RFC 4555) with TCP streams of iperf3 through the tunnel: they go on when a side gets another
//! address, when only IPv6 remains, and when the initiator moves behind a NAT and back.

use super::mobike::{
    expect_seen_at, lose_ipv4, move_back, move_to_other_address, plan, plan_with_ipv6, replace_address,
};
use super::{Case, RunsOn};
use crate::peer::{Family, Side};
use crate::stream::UNDISTURBED;
use crate::testbed::Testbed;
use casemate_interop::Result;
use std::thread::sleep;
use std::time::Duration;

/// The longest interruption that a change may cause.
const LONGEST_INTERRUPTION: Duration = Duration::from_secs(1);
/// Source ports of the NAT.
const PORTS: &str = "20000-20099";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
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
        testbed.path.translate(side, PORTS)?;
        replace_address(testbed, side)?;
        expect_seen_at(testbed, side, &side.other().router(Family::V4))?;
        sleep(UNDISTURBED);
        testbed.path.end_translation()?;
        move_back(testbed, side)
    });
    let mut gateway = plan(initiator);
    gateway.connection_of(gateway.responder(), "local_addrs", "%any");
    push("gateway", gateway, |testbed| {
        let side = testbed.plan.responder();
        move_to_other_address(testbed, side)
    });
}
