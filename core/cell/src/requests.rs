//! The requests of a keeper to its store, with their numbers.

use casemate_store::{Request, RequestId, Store};

/// A store, and the number of the last request.
pub(crate) struct Requests<S> {
    pub(crate) store: S,
    last: u64,
}

impl<S: Store> Requests<S> {
    pub(crate) const fn new(store: S) -> Self {
        Self { store, last: 0 }
    }

    /// Submits a request. `None` if the store does not take it: it will never be executed.
    pub(crate) fn submit(&mut self, request: Request) -> Option<RequestId> {
        self.last = self.last.saturating_add(1);
        let id = RequestId(self.last);
        self.store.submit(id, request).ok().map(|()| id)
    }
}
