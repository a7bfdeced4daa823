//! Data keys while gateways crash, are replaced, or have no store: each record has its key, and keys that no
//! record needs are deleted.

use crate::cell::{Cell, LEASE, MILLISECOND};
use crate::gateway::{Host, Simulation};
use crate::{SECOND, established, traffic};
use casemate_store::{Link, MemoryHub, Request, RequestId, Store as _, Transaction, Write};
use std::time::Duration;

/// Time after which the gateways of these tests make a new data key.
const TIME: Duration = Duration::from_secs(60);
const PREFIX: &[u8] = b"test/data-keys/000/";

/// A tunnel whose gateway replaces its data keys soon.
fn with_short_keys() -> Simulation {
    let mut sim = established();
    sim.gateway.keeper.replace_data_keys_after(TIME);
    sim
}

/// Names of the data keys in the store.
fn data_keys(hub: &MemoryHub) -> Vec<String> {
    let entries = hub.entries().into_iter();
    let names =
        entries.filter_map(|entry| Some(String::from_utf8(entry.key.strip_prefix(PREFIX)?.into()).unwrap()));
    names.collect()
}

/// Takeover count and number of the key of the only record, as in the name of the key.
fn key_of_record(sim: &Simulation) -> String {
    let record = sim.hub.entries().into_iter().find(|entry| entry.key.starts_with(b"test/sas/")).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}-{}", hex(&record.value[1..9]), hex(&record.value[9..13]))
}

#[test]
fn an_owner_replaces_its_data_key_and_deletes_the_former_one() {
    let mut sim = with_short_keys();
    let first = key_of_record(&sim);
    assert_eq!(data_keys(&sim.hub), [&*first]);
    for _ in 0..300 {
        sim.advance(SECOND);
        let keys = data_keys(&sim.hub);
        assert!(keys.len() <= 2 && keys.contains(&key_of_record(&sim)), "{keys:?}");
        assert_eq!(sim.status().data_keys, keys.len());
    }
    assert!(*key_of_record(&sim) >= *"0000000000000001-00000004", "{}", key_of_record(&sim));
    assert!(!data_keys(&sim.hub).contains(&first));
    assert_eq!(traffic(&mut sim, 10), (10, 10));
    sim.crash();
    assert_eq!((sim.gateway.children(), traffic(&mut sim, 1)), (1, (1, 0)));
}

/// Nothing else writes the record.
#[test]
fn the_record_of_a_silent_peer_is_rewritten() {
    let mut sim = with_short_keys();
    let first = key_of_record(&sim);
    for _ in 0..2 * TIME.as_secs() {
        sim.gateway.now = sim.gateway.now.after(SECOND);
        sim.hub.advance(SECOND);
        sim.gateway.work();
    }
    assert_ne!(key_of_record(&sim), first);
    assert!(!data_keys(&sim.hub).contains(&first));
}

/// A record that nothing changes is rewritten once for each key.
#[test]
fn the_replacement_costs_few_writes() {
    let writes = |replaced: bool| {
        let mut sim = established();
        if replaced {
            sim.gateway.keeper.replace_data_keys_after(TIME);
        }
        let before = sim.status().writes;
        sim.advance(10 * TIME);
        sim.status().writes - before
    };
    let (without, with) = (writes(false), writes(true));
    assert!(with > without && with <= without + 2 * 11, "{without}, {with}");
}

/// The gateway ends at each moment of a replacement, with a store that executes and answers, executes
/// without an answer, or does nothing. The next owner can read the record: `crash` checks that.
#[test]
fn a_crash_during_a_replacement_costs_no_tunnel() {
    let links = [
        Link::default(),
        Link { delivers_answers: false, ..Link::default() },
        Link { delivers_requests: false, ..Link::default() },
    ];
    for (number, link) in links.into_iter().enumerate() {
        for half_seconds in 0..32 {
            let mut sim = with_short_keys();
            sim.advance(TIME - SECOND);
            sim.link(link);
            sim.advance(half_seconds * SECOND / 2);
            sim.crash();
            sim.advance(30 * SECOND);
            let case = format!("{number}, {half_seconds}");
            assert_eq!((sim.gateway.ikes(), sim.peer.ikes()), (1, 1), "{case}");
            assert_eq!(traffic(&mut sim, 10), (10, 10), "{case}");
            assert_eq!(data_keys(&sim.hub), [key_of_record(&sim)], "{case}");
        }
    }
}

/// Each owner writes with a key of its own, and keys of owners that have written nothing do not exist.
#[test]
fn owners_that_crash_leave_no_keys_behind() {
    let mut sim = established();
    for _ in 0..20 {
        sim.crash();
        assert!(data_keys(&sim.hub).len() <= 2, "{:?}", data_keys(&sim.hub));
        sim.run();
    }
    sim.advance(5 * SECOND);
    assert_eq!(data_keys(&sim.hub), [key_of_record(&sim)]);
    assert_eq!(key_of_record(&sim), "0000000000000015-00000000");
}

/// The store is away for many times of a key.
#[test]
fn a_replacement_waits_for_the_store() {
    for link in [
        Link { delivers_requests: false, ..Link::default() },
        Link { delivers_answers: false, ..Link::default() },
    ] {
        let mut sim = established();
        sim.gateway.keeper.replace_data_keys_after(2 * SECOND);
        sim.link(link);
        sim.advance(60 * SECOND);
        assert!(data_keys(&sim.hub).len() <= 2);
        sim.link(Link::default());
        sim.advance(20 * SECOND);
        assert!(sim.status().problem.is_none() && data_keys(&sim.hub).len() <= 2);
        assert!(data_keys(&sim.hub).contains(&key_of_record(&sim)));
        assert_eq!(traffic(&mut sim, 10), (10, 10));
        sim.crash();
        assert_eq!(sim.gateway.children(), 1);
    }
}

/// A write with a new key is executed after its deadline, when the owner has written again.
#[test]
fn late_writes_of_keys_are_void() {
    for tenths in 0..40 {
        let mut cell = Cell::new();
        cell.sim.gateway.keeper.replace_data_keys_after(10 * SECOND);
        cell.run(9 * SECOND);
        let late = Link { request_delay: 5 * SECOND / 2, deadline: SECOND / 2, ..Link::default() };
        cell.sim.link(late);
        cell.run(SECOND * tenths / 10);
        cell.sim.link(Link::default());
        cell.run(10 * SECOND);
        assert!(data_keys(&cell.sim.hub).contains(&key_of_record(&cell.sim)), "{tenths}");
        let (records, _) = cell.wait(10 * SECOND).unwrap();
        assert_eq!(records.len(), 1, "{tenths}");
        drop(cell.take_over(records, b"gw1"));
        cell.check_tunnel();
        cell.run(5 * SECOND);
        assert_eq!(data_keys(&cell.sim.hub), [key_of_record(&cell.sim)], "{tenths}");
    }
}

#[test]
fn a_former_owner_replaces_no_key() {
    let mut cell = Cell::new();
    let (records, _) = cell.wait(10 * SECOND).unwrap();
    let mut zombie = cell.take_over(records, b"gw3");
    cell.check_tunnel();
    let keys = data_keys(&cell.sim.hub);
    assert_eq!(keys, ["0000000000000002-00000000"]);
    zombie.keeper.replace_data_keys_after(MILLISECOND);
    zombie.now = cell.sim.gateway.now;
    for _ in 0..20 {
        zombie.work();
    }
    assert!(zombie.keeper.status(zombie.now).is_lost());
    assert_eq!(data_keys(&cell.sim.hub), keys);
    cell.check_tunnel();
}

/// The entry of the data key is lost. The IKE SA cannot be continued, and nothing is left of it.
#[test]
fn a_record_without_its_data_key_is_deleted() {
    let mut sim = established();
    sim.hub.advance(Duration::from_secs(20 * 366 * 86_400));
    let mut store = sim.hub.store();
    let writes =
        data_keys(&sim.hub).iter().map(|name| Write::Delete([PREFIX, name.as_bytes()].concat())).collect();
    store.submit(RequestId(1), Request::Commit(Transaction { comparisons: vec![], writes })).unwrap();
    sim.hub.advance(MILLISECOND);
    let (gateway, unreadable) = Host::with_keeper(&sim.hub, 9, 1);
    sim.gateway = gateway;
    assert_eq!((unreadable, sim.gateway.ikes(), data_keys(&sim.hub).len()), (1, 0, 0));
    sim.run();
    assert_eq!(sim.records(), 0);
}

/// The store has more entries than it returns at once.
#[test]
fn all_data_keys_are_read() {
    let mut sim = established();
    let mut store = sim.hub.store();
    for group in 0..40 {
        let name = |number| [PREFIX, format!("!{number:04}").as_bytes()].concat();
        let put = |number| Write::Put { key: name(group * 30 + number), value: vec![1], lease: None };
        let writes = (0..30).map(put).collect();
        let request = Request::Commit(Transaction { comparisons: vec![], writes });
        store.submit(RequestId(group), request).unwrap();
    }
    sim.hub.advance(MILLISECOND);
    assert!(sim.hub.entries().len() > casemate_store::MAX_RANGE);
    sim.crash();
    assert_eq!(sim.gateway.children(), 1);
}

#[test]
fn a_process_that_closes_its_sas_deletes_the_data_keys() {
    // With one key, and with two.
    for time in [SECOND, TIME] {
        let mut sim = with_short_keys();
        sim.advance(time);
        sim.gateway.clear();
        assert_eq!((sim.records(), data_keys(&sim.hub)), (0, vec![]));
    }
}

/// The lease of the owner ends during the replacement, and the next owner finds a record of either key.
#[test]
fn a_takeover_during_a_replacement_continues_all_tunnels() {
    for tenths in 0..30 {
        let mut cell = Cell::new();
        cell.sim.gateway.keeper.replace_data_keys_after(5 * SECOND);
        assert_eq!(cell.run(4 * SECOND + SECOND * tenths / 10), None);
        let (records, _) = cell.wait(2 * LEASE).unwrap();
        assert_eq!(records.len(), 1);
        drop(cell.take_over(records, b"gw1"));
        cell.check_tunnel();
        assert_eq!(data_keys(&cell.sim.hub), [key_of_record(&cell.sim)], "{tenths}");
    }
}
