//! Nodes of a cell: one owns the state, the others wait for the end of its lease.

use crate::gateway::{self, Host, Simulation};
use crate::{SECOND, traffic};
use casemate::OwnedRecord;
use casemate_cell::{ForwardAddress, Keeper, KeeperRole, RunId, StartError, Started, Tenure};
use casemate_sa::Instant;
use casemate_store::{
    Link, MemoryHub, MemoryStore, Request, RequestId, Store as _, StoreError, Transaction, Write,
};
use casemate_test_support::TestRng;
use std::time::Duration;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// A cell whose owner has an IKE SA, and a node that stands by.
pub(crate) struct Cell {
    pub(crate) sim: Simulation,
    pub(crate) standby: Keeper<MemoryStore>,
    /// How far the clock of the standby is ahead.
    ahead: Duration,
}

impl Cell {
    pub(crate) fn new() -> Self {
        let hub = MemoryHub::new();
        let gateway = Host::node(&hub, b"gw1", LEASE);
        let mut sim = Simulation::with_gateway(hub, gateway);
        sim.initiate_from_peer();
        assert_eq!(traffic(&mut sim, 10), (10, 10));
        let standby = node(&sim.hub, b"gw2");
        let mut cell = Self { sim, standby, ahead: Duration::ZERO };
        assert_eq!(cell.run(SECOND), None);
        assert_eq!(cell.role(), KeeperRole::Standby);
        assert_eq!(cell.standby.owner_node(), Some(&b"gw1"[..]));
        cell
    }

    /// What the standby does.
    fn role(&self) -> KeeperRole {
        self.standby.status(self.sim.peer.now).role
    }

    /// Lets the standby run for this time, in which the owner does nothing. Returns the records if it takes
    /// over, and the time until then.
    pub(crate) fn wait(&mut self, time: Duration) -> Option<(Vec<OwnedRecord>, Duration)> {
        let mut elapsed = Duration::ZERO;
        while elapsed < time {
            let started = gateway::step_at(&mut self.standby, self.ahead, self.sim.peer.now).unwrap();
            if let Started::Records { records, unreadable } = started {
                assert_eq!(unreadable, 0);
                return Some((records, elapsed));
            }
            elapsed += MILLISECOND;
            self.sim.hub.advance(MILLISECOND);
            self.sim.peer.now = self.sim.peer.now.after(MILLISECOND);
        }
        None
    }

    /// The same, with an owner that works.
    pub(crate) fn run(&mut self, time: Duration) -> Option<Vec<OwnedRecord>> {
        for _ in 0..time.as_millis() / 100 {
            if let Some((records, _)) = self.wait(100 * MILLISECOND) {
                return Some(records);
            }
            self.sim.gateway.now = self.sim.peer.now;
            self.sim.run();
        }
        None
    }

    /// Drains the standby. Returns what it reports.
    fn drain_standby(&mut self) -> Result<bool, StoreError> {
        assert!(self.standby.drain(true));
        assert!(!self.standby.drain(false), "one at a time");
        let mut ended = || {
            let started = gateway::step(&mut self.standby, self.sim.peer.now).unwrap();
            assert!(matches!(started, Started::Waiting));
            self.sim.hub.advance(MILLISECOND);
            self.standby.take_drained(self.sim.peer.now)
        };
        (0..10).find_map(|_| ended()).unwrap()
    }

    /// The standby becomes the gateway. Returns the former owner.
    pub(crate) fn take_over(&mut self, records: Vec<OwnedRecord>, next: &[u8]) -> Host {
        let next = node(&self.sim.hub, next);
        let keeper = std::mem::replace(&mut self.standby, next);
        let owner = Host::owner(&self.sim.hub, keeper, self.sim.peer.now, records);
        std::mem::replace(&mut self.sim.gateway, owner)
    }

    /// Lets another node stand by, which has not looked at the slot.
    pub(crate) fn replace_standby(&mut self, name: &[u8]) {
        self.standby = node(&self.sim.hub, name);
    }

    pub(crate) fn check_tunnel(&mut self) {
        assert_eq!((self.sim.gateway.ikes(), self.sim.peer.ikes()), (1, 1));
        assert!(self.sim.send_to_peer().is_none());
        self.sim.run();
        self.run(2 * SECOND);
        assert_eq!(traffic(&mut self.sim, 10), (10, 10));
    }
}

fn node(hub: &MemoryHub, name: &[u8]) -> Keeper<MemoryStore> {
    Host::keeper(hub, 1, (name, Tenure::Cell { lease: LEASE }))
}

#[test]
fn a_standby_takes_over_when_the_lease_has_ended() {
    let mut cell = Cell::new();
    // An owner that works keeps the slot.
    assert_eq!(cell.run(20 * SECOND), None);
    for name in [&b"gw1"[..], b"gw2", b"gw1"] {
        let (records, elapsed) = cell.wait(10 * SECOND).unwrap();
        assert!(elapsed <= LEASE + 10 * MILLISECOND && elapsed > LEASE - SECOND, "{elapsed:?}");
        assert_eq!(records.len(), 1);
        drop(cell.take_over(records, name));
        cell.check_tunnel();
    }
}

/// The former owner would have ended what has expired by its clock.
#[test]
fn a_clock_that_is_ahead_ends_sas_in_minutes_and_not_at_once() {
    let mut cell = Cell::new();
    cell.ahead = 2 * gateway::LIFETIME;
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    drop(cell.take_over(records, b"gw1"));
    cell.check_tunnel();
    cell.run(4 * 60 * SECOND);
    cell.check_tunnel();
    cell.run(60 * SECOND);
    assert_eq!((cell.sim.gateway.ikes(), cell.sim.peer.ikes()), (0, 0));
}

/// All nodes were off for a long time.
#[test]
fn a_node_that_has_seen_no_owner_relies_on_its_clock() {
    let mut cell = Cell::new();
    cell.sim.hub.advance(2 * LEASE);
    cell.standby = node(&cell.sim.hub, b"gw2");
    cell.ahead = 2 * gateway::LIFETIME;
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    drop(cell.take_over(records, b"gw1"));
    cell.sim.run();
    assert_eq!((cell.sim.gateway.ikes(), cell.sim.peer.ikes()), (0, 0));
}

#[test]
fn a_drained_node_hands_over_at_once() {
    let mut cell = Cell::new();
    let spis = cell.sim.gateway.spis();
    for name in [&b"gw1"[..], b"gw2", b"gw1"] {
        cell.sim.gateway.finish();
        let (records, elapsed) = cell.wait(SECOND).unwrap();
        assert!(elapsed <= 5 * MILLISECOND, "{elapsed:?}");
        drop(cell.take_over(records, name));
        assert_eq!(traffic(&mut cell.sim, 10), (10, 10));
        cell.check_tunnel();
        assert_eq!(cell.sim.gateway.spis(), spis, "nothing is rekeyed");
    }
}

/// The next owner may use numbers above those of the hand-over before it writes anything.
#[test]
fn a_hand_over_is_exact_for_the_next_owner_only() {
    let mut cell = Cell::new();
    cell.sim.gateway.finish();
    assert_eq!(cell.wait(SECOND).unwrap().0.len(), 1);
    cell.standby = node(&cell.sim.hub, b"gw1");
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    drop(cell.take_over(records, b"gw2"));
    cell.check_tunnel();
}

/// A cell whose owner has ended and whose other node is stopped for this time, so many milliseconds before it
/// would begin. Returns the time until it begins after that.
fn stop_during_claim(before: u32, stopped: Duration) -> Duration {
    let slow = || {
        let mut cell = Cell::new();
        // Each step of the claim takes some time.
        cell.standby.store().set_link(Link { answer_delay: 5 * MILLISECOND, ..Link::default() });
        cell
    };
    let (_, elapsed) = slow().wait(10 * SECOND).unwrap();
    let mut cell = slow();
    assert_eq!(cell.wait(elapsed - before * MILLISECOND), None);
    cell.sim.hub.advance(stopped);
    cell.sim.peer.now = cell.sim.peer.now.after(stopped);
    let (records, after) = cell.wait(10 * SECOND).unwrap();
    assert_eq!((records.len(), cell.role()), (1, KeeperRole::Owner), "stopped {before} ms before");
    after
}

/// The lease of the claim has ended, and another node may own the slot.
#[test]
fn a_node_that_is_stopped_during_its_claim_does_not_begin_with_it() {
    for before in 0..30 {
        stop_during_claim(before, 4 * LEASE);
    }
}

/// The same if the lease has not ended, because the node was stopped for a shorter time.
#[test]
fn a_node_that_is_stopped_for_a_moment_during_its_claim_confirms_its_lease() {
    let after = stop_during_claim(0, LEASE - 300 * MILLISECOND);
    assert!(after < 200 * MILLISECOND, "{after:?}");
}

#[test]
fn a_node_that_was_stopped_says_nothing_and_ends() {
    let mut cell = Cell::new();
    cell.sim.peer_rekeys();
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    let mut zombie = cell.take_over(records, b"gw3");
    zombie.now = cell.sim.gateway.now;
    assert_eq!(zombie.keeper.status(zombie.now).role, KeeperRole::Fenced);
    zombie.rekey();
    for _ in 0..20 {
        zombie.work();
        assert_eq!(zombie.take_sent(), []);
    }
    assert!(zombie.keeper.status(zombie.now).is_lost());
    cell.check_tunnel();
    // What it still sends, if its host does not notice, has numbers of its own.
    for _ in 0..100 {
        cell.sim.oracle.note_esp(&zombie.protect());
    }
}

#[test]
fn an_owner_without_a_store_is_fenced_and_goes_on_later() {
    let mut cell = Cell::new();
    // The store has no time meanwhile, as a cluster without a majority has none.
    cell.sim.link(Link { delivers_requests: false, deadline: MILLISECOND, ..Link::default() });
    for _ in 0..60 {
        cell.sim.gateway.now = cell.sim.gateway.now.after(SECOND);
        cell.sim.gateway.work();
    }
    assert_eq!(cell.sim.status().role, KeeperRole::Fenced);
    cell.sim.peer.now = cell.sim.gateway.now;
    assert_eq!(traffic(&mut cell.sim, 10), (10, 10));
    cell.sim.link(Link::default());
    cell.sim.hub.advance(MILLISECOND);
    for _ in 0..3 {
        cell.sim.gateway.now = cell.sim.gateway.now.after(SECOND / 10);
        cell.sim.gateway.work();
    }
    assert_eq!(cell.sim.status().role, KeeperRole::Owner);
    cell.check_tunnel();
}

/// A write is executed after its deadline, when the owner has written again.
#[test]
fn late_writes_are_void() {
    let mut cell = Cell::new();
    let late = Link { request_delay: 5 * SECOND / 2, deadline: SECOND / 2, ..Link::default() };
    for round in 0..5 {
        cell.sim.link(late);
        cell.sim.peer_rekeys();
        cell.run(SECOND * (round + 1) / 5);
        cell.sim.link(Link::default());
        cell.run(10 * SECOND);
        let status = cell.sim.status();
        assert_eq!((status.role, status.problem, status.pending), (KeeperRole::Owner, None, 0));
        assert_eq!(traffic(&mut cell.sim, 10), (10, 10));
    }
    let spis = cell.sim.gateway.spis();
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    drop(cell.take_over(records, b"gw1"));
    assert_eq!(cell.sim.gateway.spis(), spis, "the record is the last one");
    cell.check_tunnel();
}

#[test]
fn another_wrapping_key_is_refused_before_the_node_waits() {
    let cell = Cell::new();
    let mut other = Host::keeper(&cell.sim.hub, 7, (b"gw3", Tenure::Cell { lease: LEASE }));
    let refused = (0..100).find_map(|_| {
        let started = gateway::step(&mut other, cell.sim.peer.now);
        cell.sim.hub.advance(MILLISECOND);
        started.err()
    });
    assert_eq!(refused, Some(StartError::WrappingKey));
}

#[test]
fn a_name_is_that_of_one_node() {
    let mut cell = Cell::new();
    cell.standby = node(&cell.sim.hub, b"gw1");
    assert_eq!(cell.run(2 * SECOND), None);
    assert_eq!(cell.role(), KeeperRole::NameTaken);
    // The former process of this node has crashed.
    let (records, elapsed) = cell.wait(10 * SECOND).unwrap();
    assert!(elapsed <= LEASE + SECOND, "{elapsed:?}");
    drop(cell.take_over(records, b"gw2"));
    cell.check_tunnel();
}

/// The node is entered, and does not learn it. Its own entry must not keep it out for ever.
#[test]
fn a_node_whose_registration_has_no_answer_stands_by_later() {
    let mut cell = Cell::new();
    cell.standby = node(&cell.sim.hub, b"gw3");
    cell.standby.store().set_link(Link { answer_delay: 5 * MILLISECOND, ..Link::default() });
    let is_entered = |cell: &Cell| cell.sim.hub.entries().iter().any(|entry| entry.value == b"gw3");
    let entered = (0..1_000).any(|_| cell.wait(MILLISECOND).is_some() || is_entered(&cell));
    assert!(entered && cell.role() == KeeperRole::Starting);
    cell.standby.store().set_link(Link { delivers_answers: false, ..Link::default() });
    assert_eq!(cell.run(3 * SECOND), None);
    cell.standby.store().set_link(Link::default());
    assert_eq!(cell.run(3 * LEASE), None);
    assert_eq!(cell.role(), KeeperRole::Standby);
    cell.check_tunnel();
}

#[test]
fn a_store_that_was_set_back_is_refused() {
    let mut cell = Cell::new();
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    drop(cell.take_over(records, b"gw1"));
    cell.check_tunnel();
    // Its takeover count is that of the first owner, but its record that of the second one.
    let takeovers = b"test/takeovers/000".to_vec();
    let mut store = cell.sim.hub.store();
    let set_back = Write::Put { key: takeovers, value: [0; 8].into(), lease: None };
    let transaction = Transaction { comparisons: vec![], writes: vec![set_back] };
    let request = Request::Commit(transaction);
    store.submit(RequestId(1), request).unwrap();
    let refused = (0..10_000).find_map(|_| {
        cell.sim.hub.advance(MILLISECOND);
        cell.sim.peer.now = cell.sim.peer.now.after(MILLISECOND);
        gateway::step(&mut cell.standby, cell.sim.peer.now).err()
    });
    assert_eq!(refused, Some(StartError::LaterOwner));
}

#[test]
fn a_drained_node_waits_until_it_joins_again() {
    let mut cell = Cell::new();
    assert_eq!(cell.drain_standby(), Ok(true));
    assert_eq!(cell.run(SECOND), None);
    assert_eq!(cell.role(), KeeperRole::Drained);
    cell.run(3 * SECOND);
    let members = cell.standby.members();
    let seen: Vec<_> =
        members.iter().map(|node| (&node.name[..], node.is_running, node.is_drained)).collect();
    assert_eq!(seen, [(&b"gw1"[..], true, false), (b"gw2", true, true)]);
    // The owner ends, and the drained node does not take over.
    cell.sim.gateway.finish();
    assert_eq!(cell.wait(10 * SECOND), None);
    // Neither does its next process.
    cell.standby = node(&cell.sim.hub, b"gw2");
    assert_eq!(cell.wait(10 * SECOND), None);
    assert_eq!(cell.role(), KeeperRole::Drained);
    assert!(cell.standby.drain(false));
    let (records, elapsed) = cell.wait(SECOND).unwrap();
    assert_eq!(cell.standby.take_drained(cell.sim.peer.now), Some(Ok(false)));
    assert!(elapsed < 20 * MILLISECOND, "{elapsed:?}");
    drop(cell.take_over(records, b"gw1"));
    cell.check_tunnel();
}

#[test]
fn a_store_without_space_drains_no_node() {
    let mut cell = Cell::new();
    cell.sim.hub.set_full(true);
    assert_eq!(cell.drain_standby(), Err(StoreError::Refused));
    cell.sim.hub.set_full(false);
    cell.wait(2 * SECOND);
    assert_eq!(cell.role(), KeeperRole::Standby);
}

#[test]
fn sas_of_a_restored_store_do_not_go_on() {
    let mut cell = Cell::new();
    cell.sim.hub.set_identity(1);
    let unusable = (0..10_000).find_map(|_| {
        cell.sim.hub.advance(MILLISECOND);
        cell.sim.peer.now = cell.sim.peer.now.after(MILLISECOND);
        match gateway::step(&mut cell.standby, cell.sim.peer.now).unwrap() {
            Started::Records { records, unreadable } => Some((records.len(), unreadable)),
            Started::Waiting => None,
        }
    });
    assert_eq!(unusable, Some((0, 1)));
}

#[test]
fn a_node_whose_host_cannot_move_packets_does_not_take_over() {
    let mut cell = Cell::new();
    cell.standby.allow_takeover(false, cell.sim.peer.now);
    cell.sim.gateway.finish();
    assert_eq!(cell.wait(5 * SECOND), None);
    cell.standby.allow_takeover(true, cell.sim.peer.now);
    let (records, elapsed) = cell.wait(SECOND).unwrap();
    assert!(elapsed < 20 * MILLISECOND, "{elapsed:?}");
    drop(cell.take_over(records, b"gw1"));
    cell.check_tunnel();
}

/// A node that stands by knows where the owner receives packets, also if the store fails, and nothing before
/// that.
#[test]
fn a_standby_forwards_to_the_owner_that_it_last_knew() {
    let hub = MemoryHub::new();
    let mut rng = TestRng::new(1);
    let mut forward =
        |port: u16| ForwardAddress { address: ([10, 99, 0, 21], port).into(), run: RunId::random(&mut rng) };
    let (of_owner, of_standby) = (forward(1), forward(2));
    let [mut owner, mut standby, mut silent] = [&b"gw1"[..], b"gw2", b"gw3"].map(|name| node(&hub, name));
    owner.register_forward(&of_owner);
    standby.register_forward(&of_standby);
    let mut now = Instant::from_secs(1_000);
    let mut run = |keepers: &mut [&mut Keeper<MemoryStore>], time: Duration| {
        for _ in 0..time.as_millis() {
            for keeper in keepers.iter_mut().filter(|keeper| keeper.is_waiting()) {
                gateway::step(keeper, now).unwrap();
            }
            hub.advance(MILLISECOND);
            now = now.after(MILLISECOND);
        }
    };
    run(&mut [&mut owner], SECOND / 2);
    assert!(owner.is_owner() && owner.forward_target().is_none());
    run(&mut [&mut standby, &mut silent], SECOND / 2);
    assert_eq!(standby.forward_target(), Some(of_owner));
    assert_eq!(silent.forward_target(), Some(of_owner));
    let shown: Vec<_> = silent.members().into_iter().map(|member| member.forward).collect();
    assert_eq!(shown[..2], [Some(of_owner), Some(of_standby)]);
    // The owner is dead, and no node can learn it.
    let down = Link { delivers_requests: false, deadline: SECOND / 2, ..Link::default() };
    standby.store().set_link(down);
    silent.store().set_link(down);
    run(&mut [&mut standby, &mut silent], 5 * SECOND);
    assert_eq!(standby.forward_target(), Some(of_owner));
    standby.store().set_link(Link::default());
    for _ in 0..100 {
        // Nothing renews the lease of an owner here.
        if standby.is_waiting() {
            run(&mut [&mut standby], SECOND / 10);
        }
    }
    assert!(standby.is_owner() && standby.forward_target().is_none());
    silent.store().set_link(Link::default());
    run(&mut [&mut silent], 5 * SECOND / 2);
    assert_eq!(silent.forward_target(), Some(of_standby));
}
