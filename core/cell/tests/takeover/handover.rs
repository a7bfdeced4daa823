//! An owner hands over to another node of its cell: packets move until the next owner is ready.

use crate::cell::{Cell, LEASE, MILLISECOND};
use crate::gateway::{Host, Simulation};
use crate::{SECOND, traffic};
use casemate_cell::{Handover, SENT_BLOCK, StoreKeys};
use casemate_datapath::DropReason;
use casemate_store::{Link, MemoryHub};

/// A cell that hands over.
struct Moving {
    cell: Cell,
    /// The owner that hands over, once another node has claimed the slot.
    former: Option<Host>,
    /// Packets of the peer that were accepted.
    accepted: Vec<Vec<u8>>,
    /// Number of handovers so far. Each node has a name of its own.
    handovers: u8,
}

impl Moving {
    fn new() -> Self {
        Self { cell: Cell::new(), former: None, accepted: Vec::new(), handovers: 0 }
    }

    /// The owner has given up the slot, and the next owner has restored the SAs.
    fn restored() -> Self {
        let mut moving = Self::new();
        moving.cell.sim.gateway.begin_handover();
        moving.claim();
        moving
    }

    fn sim(&mut self) -> &mut Simulation {
        &mut self.cell.sim
    }

    /// The owner gives up the slot, and another node claims it.
    fn claim(&mut self) {
        for _ in 0..10 {
            assert_eq!(self.sim().gateway.hand_over(), Handover::InProgress);
        }
        let (records, _) = self.cell.wait(SECOND).unwrap();
        self.handovers += 1;
        let next = [b"gw", &[b'2' + self.handovers][..]].concat();
        self.former = Some(self.cell.take_over(records, &next));
    }

    /// Another node becomes the owner, uses nearly all of its sequence numbers, and writes no record.
    fn hand_over_without_writes(&mut self) {
        self.sim().gateway.begin_handover();
        self.claim();
        self.wait_until_ready();
        self.check_former_moves();
        self.finish();
        assert!(self.sim().gateway.begin());
        self.sim().gateway.skip_numbers(SENT_BLOCK - 4);
        assert!(self.sim().send_to_peer().is_none());
        assert_eq!(self.sim().status().writes, 0);
    }

    /// A packet in each direction moves at the former owner.
    fn check_former_moves(&mut self) {
        let former = self.former.as_mut().unwrap();
        let packet = former.protect();
        self.cell.sim.oracle.note_esp(&packet);
        assert_eq!(self.cell.sim.peer.receive(&packet), None);
        let packet = self.cell.sim.packet_to_gateway();
        assert_eq!(former.receive(&packet), None);
        self.accepted.push(packet);
    }

    /// The former owner sees that the next one is ready.
    fn wait_until_ready(&mut self) {
        let mut former = self.former.take().unwrap();
        assert!((0..10).any(|_| former.hand_over() == Handover::Ready));
        self.former = Some(former);
    }

    /// The SAs go on at the present owner when the lease of the former one has ended.
    fn wait_until_begun(&mut self) {
        let has_begun = (0..100).any(|_| {
            let has_begun = self.sim().gateway.begin();
            self.pass(LEASE / 50);
            has_begun
        });
        assert!(has_begun);
    }

    /// The former owner stops.
    fn finish(&mut self) {
        self.former.take().unwrap().finish();
    }

    /// No packet is accepted twice.
    fn check_replays(&mut self) {
        for packet in self.accepted.clone() {
            let dropped = self.sim().gateway.receive(&packet);
            assert!(matches!(dropped, Some(DropReason::Replay)), "{dropped:?}");
        }
    }

    /// Time passes at the present owner and its peer.
    fn pass(&mut self, time: std::time::Duration) {
        let sim = self.sim();
        sim.hub.advance(time);
        sim.gateway.now = sim.gateway.now.after(time);
        sim.peer.now = sim.gateway.now;
    }

    /// Entries behind the records.
    fn entries(hub: &MemoryHub) -> usize {
        let keys = StoreKeys::new(b"test/");
        let is_behind = |key: &[u8]| key.starts_with(&keys.records()) && key >= &keys.handover()[..];
        hub.entries().iter().filter(|entry| is_behind(&entry.key)).count()
    }
}

#[test]
fn packets_move_until_the_next_owner_is_ready() {
    let mut moving = Moving::restored();
    let spis = moving.sim().gateway.spis();
    for _ in 0..5 {
        moving.check_former_moves();
    }
    moving.wait_until_ready();
    moving.check_former_moves();
    assert!(!moving.sim().gateway.begin(), "the former owner still moves packets");
    assert_eq!(moving.sim().status().writes, 0, "the numbers are not known yet");
    moving.finish();
    assert!(moving.sim().gateway.begin());
    moving.check_replays();
    // At once, in both directions, and without a message.
    assert_eq!(traffic(moving.sim(), 10), (10, 10));
    moving.sim().gateway.work();
    let sent = moving.sim().gateway.take_sent();
    assert!(sent.iter().all(|transmit| transmit.message.is_empty()), "{sent:?}");
    assert_eq!(moving.sim().status().writes, 0, "the records are still right");
    assert_eq!(moving.sim().gateway.spis(), spis);
    moving.cell.check_tunnel();
    moving.cell.run(45 * SECOND);
    assert_eq!(Moving::entries(&moving.sim().hub), 0, "nothing of the handover stays");
}

/// What changed just before is written before the slot is given up.
#[test]
fn a_handover_waits_for_writes() {
    let mut moving = Moving::new();
    let before = moving.sim().gateway.spis();
    // The request of the peer is answered when the new Child SA is recorded.
    moving.sim().link(Link { answer_delay: 5 * MILLISECOND, ..Link::default() });
    moving.sim().peer_rekeys();
    moving.sim().gateway.begin_handover();
    moving.claim();
    let spis = moving.sim().gateway.spis();
    assert!(spis.len() == 2 && spis[0] == before[0], "{spis:?}");
    moving.wait_until_ready();
    moving.finish();
    assert!(moving.sim().gateway.begin());
    moving.cell.check_tunnel();
}

/// Neither its numbers nor those of its peer are known then.
#[test]
fn the_next_owner_goes_on_when_the_former_one_dies() {
    for is_ready in [false, true] {
        let mut moving = Moving::restored();
        moving.check_former_moves();
        if is_ready {
            moving.wait_until_ready();
        }
        drop(moving.former.take());
        assert!(!moving.sim().gateway.begin());
        moving.wait_until_begun();
        moving.check_replays();
        moving.cell.check_tunnel();
    }
}

/// Both have numbers of their own. What the former owner writes later changes nothing, also not for the owner
/// after the next.
#[test]
fn a_former_owner_that_does_not_stop_is_not_waited_for() {
    let mut moving = Moving::restored();
    assert!(!moving.sim().gateway.begin());
    moving.check_former_moves();
    moving.pass(SECOND - 50 * MILLISECOND);
    assert!(!moving.sim().gateway.begin());
    moving.pass(100 * MILLISECOND);
    assert!(moving.sim().gateway.begin());
    moving.check_former_moves();
    assert!(moving.sim().send_to_peer().is_none());
    moving.finish();
    assert_eq!(Moving::entries(&moving.sim().hub), 0);
    moving.check_replays();
    moving.sim().run();
    // Nothing of the present owner is written again.
    let (records, _) = moving.cell.wait(2 * LEASE).unwrap();
    drop(moving.cell.take_over(records, b"gw4"));
    moving.check_replays();
    moving.cell.check_tunnel();
}

/// The node between has used no number. Without the last numbers of the former owner, a third node goes on
/// when the lease of the former owner has ended, too.
#[test]
fn a_third_node_goes_on_when_the_next_owner_dies() {
    for has_stopped in [false, true] {
        let mut moving = Moving::restored();
        moving.wait_until_ready();
        moving.check_former_moves();
        if has_stopped {
            moving.finish();
        }
        let (records, _) = moving.cell.wait(2 * LEASE).unwrap();
        drop(moving.cell.take_over(records, b"gw4"));
        if !has_stopped {
            moving.check_former_moves();
            moving.finish();
        }
        moving.check_replays();
        assert!(moving.sim().send_to_peer().is_none());
        moving.cell.check_tunnel();
    }
}

/// Its read is executed when a later owner has deleted the numbers of the first one. Without them, it would
/// use numbers of that owner. It has no watch, because the slot had no owner when it looked.
#[test]
fn an_owner_that_has_lost_its_slot_does_not_begin() {
    let mut moving = Moving::new();
    moving.cell.replace_standby(b"gw5");
    moving.sim().gateway.begin_handover();
    moving.claim();
    assert!(!moving.sim().gateway.begin());
    moving.wait_until_ready();
    let late = Link { request_delay: 4 * LEASE, deadline: 10 * LEASE, ..Link::default() };
    moving.sim().gateway.keeper.store().set_link(late);
    assert!(!moving.sim().gateway.begin());
    moving.finish();
    let (records, _) = moving.cell.wait(2 * LEASE).unwrap();
    let mut stale = moving.cell.take_over(records, b"gw4");
    moving.sim().gateway.rekey();
    moving.sim().run();
    moving.cell.run(SECOND);
    assert_eq!(Moving::entries(&moving.sim().hub), 0);
    moving.pass(4 * LEASE);
    stale.keeper.store().set_link(Link::default());
    assert!(!stale.begin());
    assert!(stale.keeper.status(stale.now).is_lost());
}

/// The slot may be given up or not: the next owner has to wait for the end of the lease.
#[test]
fn a_store_that_does_not_answer_ends_the_handover() {
    let silent = Link { delivers_requests: false, ..Link::default() };
    let mut cell = Cell::new();
    cell.sim.link(silent);
    cell.sim.gateway.begin_handover();
    for _ in 0..20 {
        cell.sim.gateway.hand_over();
        cell.sim.gateway.now = cell.sim.gateway.now.after(SECOND / 10);
    }
    assert_ne!(cell.sim.gateway.keeper.handover(), Handover::Ready);
    let (records, _) = cell.wait(2 * LEASE).unwrap();
    let mut former = cell.take_over(records, b"gw3");
    former.keeper.store().set_link(Link::default());
    former.hand_over();
    assert_eq!(former.keeper.handover(), Handover::None, "it has lost its slot");
    cell.check_tunnel();
}

/// The owner dies after each request of a handover. It is the first owner, or one that has written no record
/// since a former handover.
#[test]
fn a_crash_at_any_step_of_a_handover_costs_no_tunnel() {
    for (steps, is_first) in (0..12).flat_map(|steps| [(steps, true), (steps, false)]) {
        let mut moving = Moving::new();
        if !is_first {
            moving.hand_over_without_writes();
        }
        moving.sim().gateway.begin_handover();
        for _ in 0..steps {
            moving.sim().gateway.hand_over();
        }
        let packet = moving.sim().gateway.protect();
        moving.sim().oracle.note_esp(&packet);
        let (records, _) = moving.cell.wait(2 * LEASE).unwrap();
        drop(moving.cell.take_over(records, b"gw4"));
        moving.wait_until_begun();
        moving.check_replays();
        moving.cell.check_tunnel();
    }
}

/// Each owner derives its numbers from those of the owner before, and the record is that of the first one.
#[test]
fn owners_that_write_no_record_have_numbers_of_their_own() {
    for handovers in 1..5 {
        let mut moving = Moving::new();
        (0..handovers).for_each(|_| moving.hand_over_without_writes());
        // The last owner deletes the numbers of the former one, and dies before it writes its own.
        moving.sim().gateway.begin_handover();
        moving.sim().gateway.hand_over();
        let used = StoreKeys::new(b"test/").all_used_numbers();
        let entries = moving.sim().hub.entries();
        assert!(!entries.iter().any(|entry| entry.key.starts_with(&used)));
        assert!(moving.sim().send_to_peer().is_none());
        let (records, _) = moving.cell.wait(2 * LEASE).unwrap();
        drop(moving.cell.take_over(records, b"gw9"));
        moving.wait_until_begun();
        moving.check_replays();
        moving.cell.check_tunnel();
    }
}
