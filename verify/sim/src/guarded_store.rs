//! A store that notices lost writes by their revisions, as the store on etcd does
//! (docs/decisions/0142-etcd.md).

use casemate_store::{
    Completion, Link, MemoryStore, Outcome, Request, RequestId, Revision, Store, StoreError, WatchEvent,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The highest revision that a machine has seen. It outlives the processes of the machine.
pub(crate) type SeenRevision = Rc<Cell<Revision>>;

/// The store of a process, on the link of its machine.
pub(crate) struct GuardedStore {
    store: MemoryStore,
    seen: SeenRevision,
    /// What had been seen when a request was submitted. Its response must not have a lower revision.
    floors: BTreeMap<RequestId, Revision>,
    is_damaged: bool,
}

impl GuardedStore {
    pub(crate) const fn new(store: MemoryStore, seen: SeenRevision) -> Self {
        Self { store, seen, floors: BTreeMap::new(), is_damaged: false }
    }

    pub(crate) fn set_link(&mut self, link: Link) {
        self.store.set_link(link);
    }

    /// Checks the revision of a response to a transaction or a read. The responses of leases and watches may
    /// come from a server that is behind.
    fn check(&mut self, id: RequestId, outcome: &Result<Outcome, StoreError>) {
        let floor = self.floors.remove(&id).unwrap_or_default();
        let (Ok(Outcome::Committed(revision) | Outcome::Refused(revision))
        | Ok(Outcome::Entries { revision, .. })) = outcome
        else {
            return;
        };
        self.is_damaged |= *revision < floor;
        self.seen.set(self.seen.get().max(*revision));
    }
}

impl Store for GuardedStore {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        self.store.submit(id, request)?;
        self.floors.insert(id, self.seen.get());
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let Completion { id, outcome } = self.store.next_completion()?;
        self.check(id, &outcome);
        let outcome = if self.is_damaged { Err(StoreError::Damaged) } else { outcome };
        Some(Completion { id, outcome })
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        self.store.next_event()
    }

    fn shortest_lease(&self) -> Duration {
        self.store.shortest_lease()
    }
}
