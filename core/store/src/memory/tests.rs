//! Tests of the store in memory: the conformance suite, faults, and a comparison with a simpler model.

use super::*;
use crate::conformance::{self, Subject};

/// A new hub for each store.
struct InMemory {
    hub: MemoryHub,
    link: Link,
}

impl Subject for InMemory {
    type Store = MemoryStore;

    fn fresh(&mut self) -> MemoryStore {
        self.hub = MemoryHub::new();
        let mut store = self.hub.store();
        store.set_link(self.link);
        store
    }

    fn step(&mut self, _: &mut MemoryStore) {
        self.hub.advance(Duration::from_millis(1));
    }

    fn pass(&mut self, _: &mut MemoryStore, time: Duration) {
        self.hub.advance(time);
    }
}

#[test]
fn the_store_in_memory_conforms() {
    let mut subject = InMemory { hub: MemoryHub::new(), link: Link::default() };
    assert_eq!(conformance::check(&mut subject), Ok(40));
}

#[test]
fn a_slow_link_changes_nothing() {
    let (request_delay, answer_delay) = (Duration::from_millis(7), Duration::from_millis(20));
    let link = Link { request_delay, answer_delay, ..Link::default() };
    let mut subject = InMemory { hub: MemoryHub::new(), link };
    assert_eq!(conformance::check(&mut subject), Ok(40));
}
