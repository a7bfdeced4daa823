//! What the next owner accepts of a peer, which may have sent anything up to the end of the reserve, or more.

use super::*;

/// A Child SA that the peer has used, as a record says.
fn in_use() -> Simulation {
    let mut sim = established();
    assert_eq!(traffic(&mut sim, 5), (5, 5));
    sim.advance(SECOND);
    sim
}

#[test]
fn a_crash_rekeys_nothing() {
    let mut sim = in_use();
    let spis = (sim.gateway.spis(), sim.peer.spis());
    for crashes in 1..=20 {
        sim.crash();
        sim.run();
        assert_eq!(traffic(&mut sim, 5), (5, 5), "{crashes}");
        sim.advance(2 * SECOND);
        assert_eq!((sim.gateway.spis(), sim.peer.spis()), spis, "{crashes}");
        assert_eq!(traffic(&mut sim, 5), (5, 5), "{crashes}");
        // One block more for each owner that has left a part of its reserve.
        let most = crashes * (crashes + 1) / 2 * casemate_cell::RECEIVED_BLOCK + 1_000;
        assert!(sim.gateway.highest_received() <= most, "{crashes}: {}", sim.gateway.highest_received());
    }
}

/// The response in which the gateway has made a Child SA may be lost with its owner. The peer then gets it
/// after it has left out numbers, and begins with the first one.
#[test]
fn a_child_sa_that_the_peer_has_not_used_is_rekeyed() {
    let mut sim = established();
    let spis = sim.gateway.spis();
    sim.crash();
    sim.run();
    assert_ne!(sim.gateway.spis(), spis);
    assert_eq!(traffic(&mut sim, 5), (5, 5));
}

#[test]
fn numbers_do_not_end_after_many_crashes() {
    let mut sim = established();
    let spis = sim.gateway.spis();
    for _ in 0..200 {
        sim.crash();
        sim.advance(SECOND);
        assert_eq!(traffic(&mut sim, 2), (2, 2));
    }
    assert_ne!(sim.gateway.spis(), spis);
    assert_eq!((sim.gateway.ikes(), sim.peer.ikes()), (1, 1));
    assert_eq!((sim.gateway.children(), sim.peer.children()), (1, 1));
}

#[test]
fn a_peer_that_went_on_sending_is_accepted() {
    for blocks in [1, 3, 30] {
        let mut sim = established();
        assert_eq!(traffic(&mut sim, 5), (5, 5));
        sim.peer.skip_numbers(blocks * casemate_cell::RECEIVED_BLOCK);
        sim.crash();
        sim.run();
        traffic(&mut sim, 1);
        sim.advance(2 * SECOND);
        assert_eq!(traffic(&mut sim, 5), (5, 5), "{blocks}");
    }
}

#[test]
fn a_crash_before_the_peer_has_answered() {
    for answered in [false, true] {
        let mut sim = in_use();
        let spis = sim.gateway.spis();
        for _ in 0..5 {
            sim.crash();
            sim.gateway.work();
            if answered {
                sim.deliver_to_peer();
                sim.peer.take_sent();
            }
            sim.gateway.take_sent();
        }
        sim.advance(30 * SECOND);
        assert_eq!(traffic(&mut sim, 5), (5, 5), "{answered}");
        assert_eq!(sim.gateway.spis(), spis);
    }
}

#[test]
fn strict_owners_wait_for_higher_numbers() {
    let mut sim = with_policy(ReplayTakeover::Strict);
    assert_eq!(traffic(&mut sim, 5), (5, 5));
    let spis = sim.gateway.spis();
    sim.crash();
    sim.advance(10 * SECOND);
    assert_eq!((traffic(&mut sim, 5), sim.gateway.spis()), ((5, 0), spis));
    sim.peer.skip_numbers(casemate_cell::RECEIVED_BLOCK);
    assert_eq!(traffic(&mut sim, 5), (5, 5));
}

#[test]
fn learning_owners_accept_what_is_above_the_record() {
    let mut sim = with_policy(ReplayTakeover::Learn);
    let recorded = sim.packet_to_gateway();
    assert_eq!(sim.gateway.receive(&recorded), None);
    // The peer rekeys the IKE SA, so the record is written.
    sim.peer_rekeys_ike();
    let later = sim.packet_to_gateway();
    assert_eq!(sim.gateway.receive(&later), None);
    let spis = sim.gateway.spis();
    sim.crash();
    assert_eq!(sim.gateway.receive(&recorded), Some(DropReason::Replay));
    assert_eq!(sim.gateway.receive(&later), None, "the documented risk");
    assert_eq!(sim.gateway.receive(&later), Some(DropReason::Replay));
    sim.run();
    assert_eq!((traffic(&mut sim, 100), sim.gateway.spis()), ((100, 100), spis.clone()));
    // The first number above has moved the window: 32 packets behind it are too old.
    let old = sim.packet_to_gateway();
    for _ in 0..40 {
        assert_eq!(sim.send_to_gateway(), None);
    }
    assert_eq!(sim.gateway.receive(&old), Some(DropReason::Replay));
    sim.advance(5 * SECOND);
    assert_eq!(sim.gateway.spis(), spis);
}

#[test]
fn a_peer_that_skips_more_than_is_reserved_is_accepted_again() {
    let mut sim = established();
    sim.peer.skip_numbers(10 * casemate_cell::RECEIVED_BLOCK);
    assert_eq!(sim.send_to_gateway(), Some(DropReason::CounterNotReserved));
    // A forged packet does not move the reserve.
    let mut forged = sim.packet_to_gateway();
    forged[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(sim.gateway.receive(&forged), Some(DropReason::IcvMismatch));
    sim.advance(SECOND);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
    assert!(sim.gateway.highest_received() < 11 * casemate_cell::RECEIVED_BLOCK);
}

/// The peer has too few numbers left for what it is to leave out. It sends no packet with a number twice, and
/// rekeys the Child SA.
#[test]
fn a_peer_whose_numbers_end_rekeys() {
    let mut sim = in_use();
    let spis = sim.gateway.spis();
    sim.peer.skip_numbers(u64::from(u32::MAX) - 100);
    sim.crash();
    sim.gateway.work();
    sim.deliver_to_peer();
    assert_eq!(sim.peer.try_protect(), Err(DropReason::SequenceExhausted));
    sim.run();
    assert_ne!(sim.gateway.spis(), spis);
    assert_eq!(traffic(&mut sim, 5), (5, 5));
}

/// The peer is a cluster that has other owners, and asks the gateway to leave out numbers.
#[test]
fn a_gateway_leaves_out_numbers_when_that_is_written() {
    let mut sim = established();
    assert_eq!(traffic(&mut sim, 5), (5, 5));
    let spis = sim.gateway.spis();
    sim.link(Link { delivers_requests: false, ..Link::default() });
    let received = 10 * casemate_cell::SENT_BLOCK;
    sim.replace_peer(received);
    sim.advance(SECOND);
    // Neither the response nor a packet with a number above the reserve leaves.
    assert_eq!(sim.status().held, 1);
    assert_eq!(sim.send_to_peer(), Some(DropReason::CounterNotReserved));
    // The write has no answer for two seconds, and the owner enters itself again before the next one.
    sim.link(Link::default());
    sim.advance(4 * SECOND);
    assert_eq!((sim.status().held, traffic(&mut sim, 5)), (0, (5, 5)));
    // The next owner begins above the numbers that the peer accepts.
    sim.crash();
    sim.run();
    assert_eq!((traffic(&mut sim, 5), sim.gateway.spis()), ((5, 5), spis));
}

/// The record that is written before the response names the numbers that are left out.
#[test]
fn the_next_owner_of_a_gateway_begins_above_the_numbers_left_out() {
    let mut sim = established();
    sim.replace_peer(10 * casemate_cell::SENT_BLOCK);
    sim.run();
    sim.crash();
    assert_eq!(sim.send_to_peer(), None);
}
