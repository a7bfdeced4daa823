//! The wrapping key of a cell is changed without a negotiation (docs/manual/store.md).

use crate::failover::{DRAIN, TAKEOVER};
use crate::gateways::FIRST_KEY;
use crate::net::{CellNet, NODES};
use crate::testbed::Testbed;
use casemate_test_support::eventually;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const NEW_KEY: u8 = 0x77;

#[test]
fn the_wrapping_key_is_changed_node_by_node() {
    let Some(net) = CellNet::build("the_wrapping_key_is_changed_node_by_node") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    // Each node gets the new key as its second one; the keys change places; the former one goes.
    let steps = [(FIRST_KEY, Some(NEW_KEY)), (NEW_KEY, Some(FIRST_KEY)), (NEW_KEY, None)];
    for (number, keys) in steps.into_iter().enumerate() {
        let is_crash = number == 1;
        let ((), deliveries) = testbed.during(|testbed| {
            for index in 0..NODES {
                let gateways = &mut testbed.gateways;
                gateways.set_keys(index, keys);
                if is_crash {
                    gateways.kill(index);
                } else {
                    gateways.drain(index);
                }
                gateways.start(index);
                gateways.wait_for_owner(None);
                // A process that was killed still has its name in the store for a while.
                gateways.wait_until_joined(index);
                thread::sleep(SECOND);
            }
        });
        testbed.check(&deliveries, if is_crash { TAKEOVER } else { DRAIN });
        let owner = testbed.gateways.wait_for_owner(None);
        let shown = testbed.gateways.cell(owner, "status");
        assert!(!shown.contains("second wrapping key"), "{shown}");
    }
    // A node with the former key is refused, and the others go on.
    let gateways = &mut testbed.gateways;
    let standby = (gateways.wait_for_owner(None) + 1) % NODES;
    gateways.drain(standby);
    gateways.set_keys(standby, (FIRST_KEY, Some(FIRST_KEY + 1)));
    gateways.start(standby);
    eventually("the node ends", || (!gateways.is_running(standby)).then_some(()));
    let logs = gateways.logs();
    assert!(logs.contains("its data keys are encrypted with another wrapping key"), "{logs}");
    gateways.set_keys(standby, (NEW_KEY, None));
    gateways.start_again(standby);
    gateways.wait_until_standby(standby);
    testbed.finish();
}
