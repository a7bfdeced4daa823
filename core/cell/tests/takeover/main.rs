//! A gateway whose state is in a store, and a peer that knows nothing of it. The gateway crashes, restarts,
//! or is replaced; an oracle checks that no sequence number and no IV is sent twice, and that no packet is
//! accepted twice.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod cell;
mod data_keys;
mod gateway;
mod handover;
mod lost_writes;
mod policies;
mod wrapping_key;

use casemate_cell::{StartError, Tenure};
use casemate_datapath::DropReason;
use casemate_ike::config::ReplayTakeover;
use casemate_store::Link;
use gateway::{GATEWAY, Host, PEER, Simulation};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn established() -> Simulation {
    with_policy(ReplayTakeover::Sync)
}

fn with_policy(policy: ReplayTakeover) -> Simulation {
    let mut sim = Simulation::with_policy(policy);
    sim.initiate_from_peer();
    assert_eq!((sim.gateway.children(), sim.peer.children()), (1, 1));
    sim
}

/// Sends packets both ways. Returns how many each side accepted.
fn traffic(sim: &mut Simulation, count: usize) -> (usize, usize) {
    let to_peer = (0..count).filter(|_| sim.send_to_peer().is_none()).count();
    let to_gateway = (0..count).filter(|_| sim.send_to_gateway().is_none()).count();
    (to_peer, to_gateway)
}

#[test]
fn a_crash_costs_no_tunnel() {
    let mut sim = established();
    assert_eq!(traffic(&mut sim, 100), (100, 100));
    for _ in 0..3 {
        sim.crash();
        assert_eq!(sim.gateway.children(), 1, "restored");
        // Packets to the peer go on at once. Those of the peer may have been accepted before, until it
        // leaves out numbers.
        assert!(sim.send_to_peer().is_none());
        sim.run();
        assert_eq!(traffic(&mut sim, 100), (100, 100));
        sim.advance(2 * SECOND);
        assert_eq!((sim.gateway.ikes(), sim.peer.ikes()), (1, 1));
        assert_eq!(traffic(&mut sim, 100), (100, 100));
    }
}

/// Another program assigns the address after the takeover.
#[test]
fn requests_without_an_address_are_repeated_when_it_is_there() {
    let mut sim = established();
    assert_eq!(traffic(&mut sim, 100), (100, 100));
    sim.crash();
    sim.gateway.work();
    let lost: Vec<_> = sim.gateway.take_sent().into_iter().map(|transmit| transmit.message).collect();
    assert_eq!(lost.len(), 1);
    assert!(sim.gateway.get_address(PEER).is_empty(), "no IKE SA has this address");
    assert_eq!(sim.gateway.get_address(GATEWAY), lost);
    // The peer responds to the next repetition, and nothing more is repeated after that.
    sim.advance(5 * SECOND);
    assert!(sim.gateway.get_address(GATEWAY).is_empty());
    assert_eq!(traffic(&mut sim, 100), (100, 100));
}

#[test]
fn after_an_orderly_end_nothing_is_rekeyed() {
    let mut sim = established();
    assert_eq!(traffic(&mut sim, 100), (100, 100));
    let spis = sim.gateway.spis();
    for _ in 0..3 {
        sim.restart();
        assert_eq!(traffic(&mut sim, 10), (10, 10));
        sim.advance(2 * SECOND);
        assert_eq!(sim.gateway.spis(), spis);
        assert_eq!(traffic(&mut sim, 10), (10, 10));
        // The next owner deletes the numbers of the former one with the first record that it writes: the peer
        // checks whether it is alive.
        sim.advance(45 * SECOND);
        let keys = sim.hub.entries().into_iter().map(|entry| entry.key);
        let prefix = casemate_cell::StoreKeys::new(b"test/").all_used_numbers();
        assert_eq!(keys.filter(|key| key.starts_with(&prefix)).count(), 0);
    }
}

/// No packet is lost. What the former owner accepted after its last record is accepted again if it is
/// repeated, once, and what it had recorded is not.
#[test]
fn packets_that_a_former_owner_accepted_are_replays() {
    for (is_orderly, policy) in
        [(false, ReplayTakeover::Sync), (false, ReplayTakeover::Strict), (true, ReplayTakeover::Sync)]
    {
        let mut sim = with_policy(policy);
        let captured: Vec<_> = (0..20).map(|_| sim.packet_to_gateway()).collect();
        captured.iter().for_each(|packet| assert_eq!(sim.gateway.receive(packet), None));
        if is_orderly {
            sim.restart()
        } else {
            sim.crash()
        }
        for packet in &captured {
            assert_eq!(sim.gateway.receive(packet), Some(DropReason::Replay), "{is_orderly}");
        }
    }
}

#[test]
fn nothing_that_is_not_written_is_visible_to_the_peer() {
    let mut sim = Simulation::new();
    sim.link(Link { delivers_answers: false, ..Link::default() });
    sim.initiate_from_peer();
    assert_eq!((sim.gateway.ikes(), sim.peer.children()), (1, 0), "IKE_AUTH is not answered");
    assert!(sim.status().held > 0);
    // The next owner may know it, or not. The peer repeats its request.
    sim.crash();
    sim.advance(30 * SECOND);
    assert_eq!((sim.gateway.children(), sim.peer.children()), (1, 1));
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

#[test]
fn a_store_that_comes_back_releases_what_waits() {
    let mut sim = Simulation::new();
    sim.link(Link { delivers_requests: false, ..Link::default() });
    sim.initiate_from_peer();
    sim.advance(5 * SECOND);
    assert_eq!(sim.peer.children(), 0);
    assert!(sim.status().problem.is_some());
    sim.link(Link::default());
    sim.advance(30 * SECOND);
    assert_eq!((sim.gateway.children(), sim.peer.children()), (1, 1));
    assert_eq!((sim.status().held, sim.status().problem), (0, None));
}

/// The responder of a rekeying uses its outbound SA later than the inbound one.
#[test]
fn reserves_of_new_child_sas_grow_on_either_side_of_a_rekeying() {
    for by_peer in [false, true] {
        let mut sim = established();
        let before = sim.gateway.spis();
        if by_peer {
            sim.peer_rekeys()
        } else {
            sim.gateway.rekey()
        }
        sim.run();
        sim.advance(5 * SECOND);
        assert_ne!(sim.gateway.spis(), before);
        for _ in 0..3 {
            sim.gateway.skip_numbers(casemate_cell::SENT_BLOCK - 1_000);
            sim.advance(SECOND);
            assert_eq!(traffic(&mut sim, 2_000), (2_000, 2_000), "{by_peer}");
            sim.advance(SECOND);
        }
    }
}

#[test]
fn traffic_goes_on_while_the_store_is_away() {
    let mut sim = established();
    sim.link(Link { delivers_requests: false, ..Link::default() });
    for _ in 0..60 {
        sim.advance(SECOND);
        assert_eq!(traffic(&mut sim, 10), (10, 10));
    }
    // Nothing new is negotiated.
    let spis = sim.gateway.spis();
    sim.peer_rekeys();
    sim.advance(5 * SECOND);
    assert!(sim.status().held > 0);
    assert!(sim.peer.spis().len() == 1);
    sim.link(Link::default());
    sim.advance(60 * SECOND);
    assert_ne!(sim.gateway.spis(), spis);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

#[test]
fn numbers_that_are_not_written_are_neither_sent_nor_accepted() {
    let mut sim = established();
    sim.link(Link { delivers_requests: false, ..Link::default() });
    let dropped = (0..casemate_cell::SENT_BLOCK + 10).filter_map(|_| sim.send_to_nowhere()).count();
    assert_eq!(dropped, 10);
    assert_eq!(sim.send_to_nowhere(), Some(DropReason::CounterNotReserved));
    sim.link(Link::default());
    sim.advance(3 * SECOND);
    assert_eq!(sim.send_to_nowhere(), None);
}

#[test]
fn a_child_sa_keeps_its_reserve_in_another_ike_sa() {
    let mut sim = established();
    let sends = |sim: &mut Simulation| {
        let count = casemate_cell::SENT_BLOCK * 2 / 3;
        assert_eq!((0..count).filter_map(|_| sim.send_to_nowhere()).count(), 0);
        sim.advance(SECOND);
    };
    sends(&mut sim);
    sim.peer_rekeys_ike();
    assert_eq!((sim.gateway.ikes(), sim.gateway.children()), (1, 1));
    sends(&mut sim);
    sim.crash();
    assert_eq!(sim.send_to_peer(), None);
}

/// Writes fail while the peer rekeys the IKE SA, to which the Child SA moves. The next owner finds the Child
/// SA in one record, however many of the repeated writes were executed.
#[test]
fn a_child_sa_that_moves_while_writes_fail_is_in_one_record() {
    for failing in 0..6 {
        for repeated in 0..4 {
            let mut sim = established();
            sim.link(Link { delivers_requests: false, ..Link::default() });
            sim.peer_rekeys_ike();
            sim.advance(failing * SECOND / 2);
            // The write is executed, and the gateway ends before it knows that.
            sim.link(Link { delivers_answers: false, ..Link::default() });
            sim.advance(repeated * SECOND / 2);
            sim.crash();
            sim.advance(60 * SECOND);
            let ikes = (sim.gateway.ikes(), sim.peer.ikes());
            assert_eq!((ikes, sim.records()), ((1, 1), 1), "{failing}, {repeated}");
            assert_eq!((sim.gateway.children(), sim.peer.children()), (1, 1), "{failing}, {repeated}");
            assert_eq!(traffic(&mut sim, 10), (10, 10), "{failing}, {repeated}");
        }
    }
}

/// A change waits for the write in progress, and the messages of both are sent.
#[test]
fn one_write_is_in_progress_at_a_time() {
    let mut sim = established();
    let spis = sim.gateway.spis();
    sim.link(Link { answer_delay: SECOND, ..Link::default() });
    sim.peer_rekeys();
    assert_eq!((sim.status().pending, sim.status().held), (1, 1));
    let writes = sim.status().writes;
    sim.gateway.rekey();
    sim.run();
    sim.advance(SECOND / 2);
    assert_eq!((sim.status().writes, sim.status().held), (writes, 2));
    sim.advance(10 * SECOND);
    assert!(sim.status().writes >= writes + 2);
    assert_eq!((sim.status().pending, sim.status().held), (0, 0));
    assert!(sim.gateway.children() == 1 && sim.peer.children() == 1 && sim.gateway.spis() != spis);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

#[test]
fn a_former_owner_notices_that_it_has_been_replaced() {
    let mut sim = established();
    let mut zombie = sim.replace();
    sim.advance(2 * SECOND);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
    // It sends with what its reserve has left, and IKE messages only if they change nothing.
    let sent = zombie.protect();
    sim.oracle.note_esp(&sent);
    zombie.rekey();
    zombie.work();
    assert!(zombie.keeper.status(zombie.now).is_lost(), "{:?}", zombie.keeper.status(zombie.now));
    assert_eq!(zombie.take_sent().len(), 0);
    sim.advance(10 * SECOND);
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

#[test]
fn records_of_ended_ike_sas_are_deleted() {
    let mut sim = established();
    assert_eq!(sim.records(), 1);
    sim.peer_rekeys_ike();
    sim.advance(5 * SECOND);
    assert_eq!(sim.records(), 1);
    sim.peer_closes();
    sim.advance(5 * SECOND);
    assert_eq!((sim.gateway.ikes(), sim.records()), (0, 0));
}

#[test]
fn an_idle_tunnel_costs_few_writes() {
    let mut sim = established();
    sim.advance(10 * SECOND);
    let before = sim.status().writes;
    // The peer checks the liveness every ten seconds.
    sim.advance(600 * SECOND);
    let writes = sim.status().writes - before;
    assert!(writes <= 20, "{writes} writes in ten minutes");
    let bytes: usize = sim.hub.entries().iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    assert!(bytes < 2_048, "{bytes} bytes");
    // Some of the peer's last requests are not recorded. Its next one has a higher message ID than expected.
    sim.advance(25 * SECOND);
    sim.crash();
    sim.advance(30 * SECOND);
    assert_eq!((sim.gateway.ikes(), sim.peer.ikes()), (1, 1));
    sim.advance(200 * SECOND);
    assert_eq!((sim.gateway.ikes(), sim.peer.ikes()), (1, 1));
    assert_eq!(traffic(&mut sim, 10), (10, 10));
}

#[test]
fn a_peer_that_sends_more_than_is_reserved_waits_for_the_store() {
    let mut sim = established();
    sim.link(Link { delivers_requests: false, ..Link::default() });
    let mut last = Vec::new();
    for _ in 0..casemate_cell::RECEIVED_BLOCK {
        last = sim.packet_to_gateway();
    }
    let beyond = sim.packet_to_gateway();
    assert_eq!(sim.gateway.receive(&beyond), Some(DropReason::CounterNotReserved));
    assert_eq!(sim.gateway.receive(&last), None);
    sim.link(Link::default());
    sim.advance(3 * SECOND);
    assert_eq!(sim.gateway.receive(&beyond), None);
}

/// Such as a peer that is a cluster itself and begins behind its own reserve.
#[test]
fn a_second_owner_is_refused_while_the_first_one_lives() {
    let sim = established();
    let mut keeper = Host::keeper(&sim.hub, 1, (b"other", Tenure::SingleMachine));
    let refused = (0..10).find_map(|_| {
        let started = gateway::step(&mut keeper, sim.gateway.now);
        sim.hub.advance(Duration::from_millis(1));
        started.err()
    });
    assert_eq!(refused, Some(StartError::Owned));
}

#[test]
fn records_that_are_not_restored_are_deleted() {
    let mut sim = established();
    sim.hub.advance(Duration::from_secs(20 * 366 * 86_400));
    sim.gateway = Host::with_other_connection(&sim.hub, 9);
    assert_eq!((sim.gateway.ikes(), sim.records()), (0, 1));
    sim.gateway.work();
    assert_eq!(sim.records(), 0);
}
