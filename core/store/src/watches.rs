//! Watches of one user: positions in the changes of a [`State`].
//!
//! Events are made when they are taken. So a user that takes none costs no memory; when the state has
//! forgotten changes that a watch has not seen, the watch ends with a gap.

use crate::{Key, MAX_WATCHES, Outcome, Revision, State, StoreError, WatchEvent, WatchId};
use alloc::vec::Vec;

/// The watches of one user, at most [`MAX_WATCHES`].
#[derive(Debug, Clone, Default)]
pub struct Watches {
    list: Vec<Watch>,
    /// Index of the watch that is asked first, so that a busy one does not hide the events of others.
    first: usize,
}

#[derive(Debug, Clone)]
struct Watch {
    id: WatchId,
    prefix: Key,
    from: Revision,
    /// Number of the next change to look at; `None` if changes are missing.
    next: Option<u64>,
}

impl Watch {
    /// Moves to the next event, and returns it.
    fn next_event(&mut self, state: &State) -> Option<WatchEvent> {
        loop {
            let next = self.next?;
            if next >= state.changes() {
                return None;
            }
            let Some(change) = state.change_at(next) else {
                self.next = None;
                return None;
            };
            self.next = Some(next.saturating_add(1));
            if change.revision >= self.from && change.key.starts_with(&self.prefix) {
                return Some(match &change.after {
                    Some(entry) => WatchEvent::Put(self.id, entry.clone()),
                    None => WatchEvent::Deleted(self.id, change.key.clone(), change.revision),
                });
            }
        }
    }
}

impl Watches {
    /// Adds a watch whose next change has this number; `None` if changes are missing from the beginning.
    pub(crate) fn add(
        &mut self,
        id: WatchId,
        prefix: &Key,
        next: Option<u64>,
        from: Revision,
    ) -> Result<Outcome, StoreError> {
        if self.list.len() >= MAX_WATCHES || self.list.iter().any(|watch| watch.id == id) {
            return Err(StoreError::Refused);
        }
        self.list.push(Watch { id, prefix: prefix.clone(), from, next });
        Ok(Outcome::Watching)
    }

    pub(crate) fn remove(&mut self, id: WatchId) {
        self.list.retain(|watch| watch.id != id);
    }

    /// Ends all watches with a gap, because the changes of the state are not those that they have seen.
    pub fn interrupt(&mut self) {
        for watch in &mut self.list {
            watch.next = None;
        }
    }

    /// Takes the next event of any watch. A watch that misses changes ends with [`WatchEvent::Gap`].
    pub fn next_event(&mut self, state: &State) -> Option<WatchEvent> {
        for _ in 0..self.list.len() {
            let index = if self.first < self.list.len() { self.first } else { 0 };
            let watch = self.list.get_mut(index)?;
            let event = watch.next_event(state);
            self.first = index.saturating_add(1);
            if event.is_some() {
                return event;
            }
            if watch.next.is_none() {
                return Some(WatchEvent::Gap(self.list.remove(index).id));
            }
        }
        None
    }
}
