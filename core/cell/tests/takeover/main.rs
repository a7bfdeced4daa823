//! A gateway whose state is in a store, and a peer that knows nothing of it. The gateway crashes, restarts,
//! or is replaced; an oracle checks that no sequence number and no IV is sent twice, and that no packet is
//! accepted twice.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

mod gateway;

use casemate_datapath::DropReason;
use casemate_store::{Link, MemoryHub};
use gateway::{Host, World};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn established() -> World {
    let mut world = World::new();
    world.initiate_from_peer();
    assert_eq!((world.gateway.children(), world.peer.children()), (1, 1));
    world
}

/// Sends packets both ways. Returns how many each side accepted.
fn traffic(world: &mut World, count: usize) -> (usize, usize) {
    let to_peer = (0..count).filter(|_| world.send_to_peer().is_none()).count();
    let to_gateway = (0..count).filter(|_| world.send_to_gateway().is_none()).count();
    (to_peer, to_gateway)
}

#[test]
fn a_crash_costs_no_tunnel() {
    let mut world = established();
    assert_eq!(traffic(&mut world, 100), (100, 100));
    for _ in 0..3 {
        world.crash();
        assert_eq!(world.gateway.children(), 1, "restored");
        // Packets to the peer go on at once. Those of the peer may have been accepted before, until the
        // Child SA is rekeyed.
        assert!(world.send_to_peer().is_none());
        world.run();
        world.advance(2 * SECOND);
        assert_eq!((world.gateway.ikes(), world.peer.ikes()), (1, 1));
        assert_eq!(traffic(&mut world, 100), (100, 100));
    }
}

#[test]
fn after_an_orderly_end_nothing_is_rekeyed() {
    let mut world = established();
    assert_eq!(traffic(&mut world, 100), (100, 100));
    let spis = world.gateway.spis();
    for _ in 0..3 {
        world.restart();
        assert_eq!(traffic(&mut world, 10), (10, 10));
        world.advance(2 * SECOND);
        assert_eq!(world.gateway.spis(), spis);
        assert_eq!(traffic(&mut world, 10), (10, 10));
    }
}

#[test]
fn packets_that_a_former_owner_accepted_are_replays() {
    for is_orderly in [false, true] {
        let mut world = established();
        let captured: Vec<_> = (0..20).map(|_| world.packet_to_gateway()).collect();
        captured.iter().for_each(|packet| assert_eq!(world.gateway.receive(packet), None));
        if is_orderly {
            world.restart()
        } else {
            world.crash()
        }
        for packet in &captured {
            assert_eq!(world.gateway.receive(packet), Some(DropReason::Replay), "{is_orderly}");
        }
    }
}

#[test]
fn nothing_that_is_not_written_is_visible_to_the_peer() {
    let mut world = World::new();
    world.link(Link { delivers_answers: false, ..Link::default() });
    world.initiate_from_peer();
    assert_eq!((world.gateway.ikes(), world.peer.children()), (1, 0), "IKE_AUTH is not answered");
    assert!(world.status().held > 0);
    // The next owner may know it, or not. The peer repeats its request.
    world.crash();
    world.advance(30 * SECOND);
    assert_eq!((world.gateway.children(), world.peer.children()), (1, 1));
    assert_eq!(traffic(&mut world, 10), (10, 10));
}

#[test]
fn a_store_that_comes_back_releases_what_waits() {
    let mut world = World::new();
    world.link(Link { delivers_requests: false, ..Link::default() });
    world.initiate_from_peer();
    world.advance(5 * SECOND);
    assert_eq!(world.peer.children(), 0);
    assert!(world.status().problem.is_some());
    world.link(Link::default());
    world.advance(30 * SECOND);
    assert_eq!((world.gateway.children(), world.peer.children()), (1, 1));
    assert_eq!((world.status().held, world.status().problem), (0, None));
}

#[test]
fn traffic_goes_on_while_the_store_is_away() {
    let mut world = established();
    world.link(Link { delivers_requests: false, ..Link::default() });
    for _ in 0..60 {
        world.advance(SECOND);
        assert_eq!(traffic(&mut world, 10), (10, 10));
    }
    // Nothing new is negotiated.
    let spis = world.gateway.spis();
    world.peer_rekeys();
    world.advance(5 * SECOND);
    assert!(world.status().held > 0);
    assert!(world.peer.spis().len() == 1);
    world.link(Link::default());
    world.advance(60 * SECOND);
    assert_ne!(world.gateway.spis(), spis);
    assert_eq!(traffic(&mut world, 10), (10, 10));
}

#[test]
fn numbers_that_are_not_written_are_neither_sent_nor_accepted() {
    let mut world = established();
    world.link(Link { delivers_requests: false, ..Link::default() });
    let dropped = (0..casemate_cell::SENT_BLOCK + 10).filter_map(|_| world.send_to_nowhere()).count();
    assert_eq!(dropped, 10);
    assert_eq!(world.send_to_nowhere(), Some(DropReason::CounterNotReserved));
    world.link(Link::default());
    world.advance(3 * SECOND);
    assert_eq!(world.send_to_nowhere(), None);
}

#[test]
fn a_former_owner_notices_that_it_has_been_replaced() {
    let mut world = established();
    let mut zombie = world.replace();
    world.advance(2 * SECOND);
    assert_eq!(traffic(&mut world, 10), (10, 10));
    // It sends with what its reserve has left, and IKE messages only if they change nothing.
    let sent = zombie.protect();
    world.oracle.note_esp(&sent);
    zombie.rekey();
    zombie.work();
    assert!(zombie.keeper.status().is_lost, "{:?}", zombie.keeper.status());
    assert_eq!(zombie.take_sent().len(), 0);
    world.advance(10 * SECOND);
    assert_eq!(traffic(&mut world, 10), (10, 10));
}

#[test]
fn records_of_ended_ike_sas_are_deleted() {
    let mut world = established();
    assert_eq!(world.records(), 1);
    world.peer_rekeys_ike();
    world.advance(5 * SECOND);
    assert_eq!(world.records(), 1);
    world.peer_closes();
    world.advance(5 * SECOND);
    assert_eq!((world.gateway.ikes(), world.records()), (0, 0));
}

#[test]
fn an_idle_tunnel_costs_few_writes() {
    let mut world = established();
    world.advance(10 * SECOND);
    let before = world.status().writes;
    // The peer checks the liveness every ten seconds.
    world.advance(600 * SECOND);
    let writes = world.status().writes - before;
    assert!(writes <= 20, "{writes} writes in ten minutes");
    let bytes: usize = world.hub.entries().iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    assert!(bytes < 2_048, "{bytes} bytes");
    world.crash();
    world.advance(30 * SECOND);
    assert_eq!((world.gateway.ikes(), world.peer.ikes()), (1, 1));
    assert_eq!(traffic(&mut world, 10), (10, 10));
}

#[test]
fn records_of_another_data_key_are_deleted() {
    let mut world = established();
    let before = world.records();
    let hub: MemoryHub = world.hub.clone();
    hub.advance(Duration::from_secs(20 * 366 * 86_400));
    let (gateway, unreadable) = Host::with_keeper(&hub, 9, 5);
    world.gateway = gateway;
    assert_eq!((before, unreadable, world.gateway.ikes()), (1, 1, 0));
    world.run();
    assert_eq!(world.records(), 0);
}
