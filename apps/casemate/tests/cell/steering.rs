//! A router in front of the cell delivers the packets of peers to any gateway. All gateways have the address
//! of the cell; those that stand by forward to the owner.

use crate::failover::TAKEOVER;
use crate::forwarded::{Forwarded, inject};
use crate::gateways::ike_spis;
use crate::net::{BEHIND_PEER, CellNet, GATEWAYS, INNER, NODES};
use crate::testbed::Testbed;
use crate::traffic::{Delivery, Flow};
use casemate_test_support::eventually;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Whether the tests run beside others, on processors that all gateways and servers share.
const IS_CROWDED: bool = cfg!(debug_assertions);
/// Longest gap after the end of an owner.
const LONGEST_GAP: Duration = if IS_CROWDED { Duration::from_secs(50) } else { TAKEOVER };
/// Number of further tunnels in the test with several paths.
const TUNNELS: u16 = 12;
/// Payload that fits into the tunnel, but not as a forwarded packet into one Ethernet frame.
const LARGE: usize = 1_370;

/// A counter of forwarding on a gateway.
fn count(testbed: &Testbed<'_>, index: usize, name: &str) -> u64 {
    let status = testbed.net.gateways[index].status();
    let path = format!("/cell/forward/{name}");
    status.pointer(&path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{path}: {status}"))
}

/// Waits until a counter has this value.
fn wait_for(testbed: &Testbed<'_>, index: usize, name: &str, value: u64) {
    eventually("packets are forwarded", || (count(testbed, index, name) >= value).then_some(()));
}

/// The SPIs of the IKE SAs of the peer, as they are in messages.
fn spis(testbed: &Testbed<'_>) -> Vec<Vec<u8>> {
    let text = ike_spis(&testbed.net.peer.status()).join(" ");
    let digits = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|part| part.len() == 16);
    digits.map(|part| u64::from_str_radix(part, 16).unwrap().to_be_bytes().to_vec()).collect()
}

/// Sends a large datagram through the tunnel. Returns whether it has arrived.
fn carries_large_datagram(net: &CellNet) -> bool {
    let receiver = net.inner.run(|| UdpSocket::bind((INNER, 0))).unwrap();
    receiver.set_read_timeout(Some(SECOND)).unwrap();
    let sender = net.peer.run(|| UdpSocket::bind((BEHIND_PEER, 0))).unwrap();
    sender.send_to(&[7; LARGE], receiver.local_addr().unwrap()).unwrap();
    matches!(receiver.recv(&mut [0; LARGE + 1]), Ok(LARGE))
}

/// Fails the test if a datagram arrived twice or was lost. Processors that are busy may cost some of them.
fn check_steady(testbed: &Testbed<'_>, deliveries: &[Delivery]) {
    match IS_CROWDED {
        true => {
            testbed.check_once(deliveries);
            let lost_most = |delivery: &Delivery| delivery.lost() > delivery.sent() / 2;
            assert!(!deliveries.iter().any(lost_most), "most datagrams were lost\n{}", testbed.logs());
        }
        false => testbed.check_nothing_lost(deliveries),
    }
}

#[test]
fn standby_forwards_to_the_owner_and_to_the_next_one() {
    let Some(net) = CellNet::build("standby_forwards_to_the_owner_and_to_the_next_one") else { return };
    let Some(mut testbed) = Testbed::steered(&net, 0) else { return };
    let owner = testbed.gateways.wait_for_owner(None);
    let forwarded = &Forwarded::start(&net);
    eventually("a large datagram arrives", || carries_large_datagram(&net).then_some(()));
    eventually("it was fragmented", || forwarded.has_fragment().then_some(()));
    let ((), deliveries) = testbed.during(|_| thread::sleep(2 * SECOND));
    check_steady(&testbed, &deliveries);
    let via = (owner + 1) % NODES;
    assert!(count(&testbed, via, "sent") > 500 && count(&testbed, owner, "received") > 500);
    assert_eq!(count(&testbed, owner, "rejected") + count(&testbed, via, "dropped"), 0);
    let shown = testbed.gateways.cell(via, "status");
    assert!(shown.contains(&format!("{}  owner, forwarding address 10.99.0.2", GATEWAYS[owner])), "{shown}");
    let spis = spis(&testbed);
    assert!(spis.len() >= 2 && forwarded.frames().len() > 500, "{spis:?}");
    forwarded.check_contains_none(&spis);

    let (next, deliveries) = testbed.during(|testbed| {
        thread::sleep(SECOND);
        testbed.gateways.kill(owner);
        let next = testbed.gateways.wait_for_owner(None);
        net.steer(next, NODES - owner - next);
        wait_for(testbed, next, "received", 1_000);
        next
    });
    testbed.check(&deliveries, LONGEST_GAP);
    let third = NODES - owner - next;
    assert!(count(&testbed, third, "sent") > 500);
    testbed.gateways.rejoin(owner);
    // Another process with its own run and counters.
    let before = count(&testbed, next, "received");
    let ((), deliveries) = testbed.during(|testbed| {
        net.steer(next, owner);
        wait_for(testbed, next, "received", before + 1_000);
    });
    testbed.check(&deliveries, LONGEST_GAP);
    assert!(count(&testbed, owner, "sent") > 500);
    forwarded.check_contains_none(&spis);
    assert_eq!(testbed.wire.look(|oracle| oracle.initial_requests()), testbed.identities().len());
    testbed.finish();
}

/// An attacker between the gateways repeats and changes what they forward.
#[test]
fn recorded_and_forged_frames_change_nothing() {
    let Some(net) = CellNet::build("recorded_and_forged_frames_change_nothing") else { return };
    let Some(mut testbed) = Testbed::steered(&net, 0) else { return };
    let owner = testbed.gateways.wait_for_owner(None);
    let forwarded = Forwarded::start(&net);
    let ((), deliveries) = testbed.during(|_| thread::sleep(2 * SECOND));
    check_steady(&testbed, &deliveries);
    let frames: Vec<Vec<u8>> = forwarded.frames().into_iter().take(500).collect();
    assert_eq!(frames.len(), 500);
    let injected = frames.len() as u64;
    for (round, is_forged) in [(1, false), (2, true)] {
        let received = count(&testbed, owner, "received");
        inject(&net, &frames, |number, frame| {
            if is_forged {
                // Every part of the frame, and a counter far above.
                frame[20] ^= 0x40;
                let at = number % frame.len();
                frame[at] ^= 1;
            }
        });
        eventually("the frames are rejected", || {
            (count(&testbed, owner, "rejected") >= round * injected).then_some(())
        });
        let received = count(&testbed, owner, "received") - received;
        assert!(received < 50, "{received} of {injected} frames were accepted, forged: {is_forged}");
    }
    // Under traffic, too.
    let flows = testbed.flows();
    let ((), deliveries) = testbed.during_flows(&flows, |_| {
        for is_forged in [false, true] {
            inject(&net, &frames, |_, frame| frame[20] ^= u8::from(is_forged));
            thread::sleep(SECOND / 2);
        }
    });
    check_steady(&testbed, &deliveries);
    testbed.finish();
}

/// Routers choose one of several paths by a hash of addresses and ports.
#[test]
fn all_gateways_carry_tunnels_of_an_ecmp_router() {
    let Some(net) = CellNet::build("all_gateways_carry_tunnels_of_an_ecmp_router") else { return };
    let Some(mut testbed) = Testbed::steered(&net, TUNNELS) else { return };
    let owner = testbed.gateways.wait_for_owner(None);
    let flows: Vec<Flow<'_>> = [testbed.flows(), testbed.many_flows(400)].concat();
    let forwarded = |testbed: &Testbed<'_>| {
        let standby = (0..NODES).filter(|index| *index != owner);
        standby.map(|index| count(testbed, index, "sent")).collect::<Vec<u64>>()
    };
    let before = forwarded(&testbed);
    let ((), deliveries) = testbed.during_flows(&flows, |_| {
        for first in 0..NODES {
            net.steer_by_hash(first);
            thread::sleep(SECOND);
        }
    });
    check_steady(&testbed, &deliveries);
    let after = forwarded(&testbed);
    println!("  forwarded by the two that stand by: {before:?}, {after:?}");
    let all_forward = before.iter().zip(&after).all(|(before, after)| after - before > 200);
    assert!(all_forward, "{before:?} {after:?}");
    testbed.finish();
}
