//! An attacker who sends recorded packets of the peers to every gateway again, while owners are killed,
//! drained and suspended: no packet is accepted twice, by the same owner or by two.

use crate::net::{CellNet, NODES};
use crate::testbed::Testbed;
use crate::testnet::{Host, SetOnDrop};
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameInjector;
use casemate_test_support::TestRng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Time between two rounds, and packets that each gateway gets in a round.
const INTERVAL: Duration = Duration::from_millis(100);
const ROUND: usize = 100;

/// Link address of an outside interface.
fn link_address(host: &Host) -> [u8; 6] {
    let text = host.stdout_of("ip", &["-brief", "link", "show", "dev", "out0"]);
    let address = text.split_whitespace().nth(2).unwrap();
    let bytes: Vec<u8> = address.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Sends packets again while `work` runs. Returns how many.
fn with_replays<'n>(testbed: &mut Testbed<'n>, work: impl FnOnce(&mut Testbed<'n>)) -> u64 {
    let addresses: [[u8; 6]; NODES] = std::array::from_fn(|index| link_address(&testbed.net.gateways[index]));
    let open = || FrameInjector::open(Netlink::open()?.link("out0")?.index);
    let injector = testbed.net.peer.run(open).unwrap();
    let recorder = testbed.wire.recorder();
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| {
            let mut rng = TestRng::new(1);
            while !is_over.load(Ordering::Relaxed) {
                for address in &addresses {
                    for mut frame in recorder.sample(ROUND, &mut rng) {
                        frame[..6].copy_from_slice(address);
                        // The link may be down.
                        let is_sent = injector.send(&frame).is_ok();
                        sent.fetch_add(is_sent.into(), Ordering::Relaxed);
                    }
                }
                thread::sleep(INTERVAL);
            }
        });
        work(testbed);
    });
    sent.into_inner()
}

#[test]
fn replayed_packets_are_accepted_once() {
    let Some(net) = CellNet::build("replayed_packets_are_accepted_once") else { return };
    let Some(mut testbed) = Testbed::cell(&net) else { return };
    let (replayed, deliveries) = testbed.during(|testbed| {
        with_replays(testbed, |testbed| {
            for disruption in [Testbed::kill_owner, Testbed::drain_owner, Testbed::suspend_owner] {
                thread::sleep(SECOND);
                let owner = testbed.gateways.wait_for_owner(None);
                disruption(testbed, owner);
                testbed.gateways.wait_for_owner(Some(owner));
                testbed.gateways.rejoin(owner);
            }
            thread::sleep(SECOND);
        })
    });
    assert!(replayed > 1_000, "{replayed}");
    println!("  {replayed} packets were sent again");
    testbed.check_once(&deliveries);
    testbed.finish();
}
