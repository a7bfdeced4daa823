//! A store that loses writes which it has confirmed, as a process sees it.

use crate::gateway;
use casemate_cell::{
    Keeper, StartError, Started, StoreKeys, Tenure, WRAPPING_KEY_LEN, WrappingKey, WrappingKeys,
};
use casemate_crypto::{Providers, SecretBytes};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::Instant;
use casemate_store::{Completion, MemoryHub, MemoryStore, Request, RequestId, Store, StoreError, WatchEvent};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A store that answers each request at once, and has lost writes from some moment on.
struct LosingStore {
    store: MemoryStore,
    has_lost: Rc<Cell<bool>>,
}

impl Store for LosingStore {
    fn submit(&mut self, id: RequestId, request: Request) -> Result<(), Request> {
        self.store.submit(id, request)
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let Completion { id, outcome } = self.store.next_completion()?;
        let outcome = if self.has_lost.get() { Err(StoreError::Damaged) } else { outcome };
        Some(Completion { id, outcome })
    }

    fn next_event(&mut self) -> Option<WatchEvent> {
        self.store.next_event()
    }

    fn shortest_lease(&self) -> Duration {
        self.store.shortest_lease()
    }
}

/// The renewal of the lease says so, before the node looks at the slot again.
#[test]
fn a_node_that_stands_by_ends_when_the_store_has_lost_writes() {
    let hub = MemoryHub::new();
    let has_lost = Rc::new(Cell::new(false));
    let node = |name: &[u8]| {
        let key = SecretBytes::new(&[1; WRAPPING_KEY_LEN]);
        let key = WrappingKey::new(&key, &Providers(&[&RUSTCRYPTO])).unwrap();
        let store = LosingStore { store: hub.store(), has_lost: has_lost.clone() };
        let tenure = Tenure::Cell { lease: LEASE };
        Keeper::new(store, StoreKeys::new(b"test/"), WrappingKeys::new(key, None), name, tenure)
    };
    let (mut owner, mut standby) = (node(b"gw1"), node(b"gw2"));
    let mut now = Instant::ZERO;
    let mut step = |keeper: &mut Keeper<LosingStore>| {
        hub.advance(MILLISECOND);
        now = now.after(MILLISECOND);
        gateway::step_at(keeper, Duration::ZERO, now)
    };
    assert!((0..100).any(|_| matches!(step(&mut owner), Ok(Started::Records { .. }))));
    for _ in 0..20 {
        assert!(matches!(step(&mut standby), Ok(Started::Waiting)));
    }
    has_lost.set(true);
    let damaged = Err(StartError::Store(StoreError::Damaged));
    let ended = (1..1_000).find(|_| step(&mut standby).map(drop) == damaged);
    assert!(ended.is_some_and(|milliseconds| milliseconds <= 250), "{ended:?}");
}
