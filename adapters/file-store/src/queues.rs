//! What the user of a store and the thread `file store` exchange: requests, completions and events.
//!
//! Each queue has a limit in bytes. When requests reach theirs, no more are accepted; when completions or
//! events that were not taken reach theirs, the thread adds no more.

use casemate_store::{
    Completion, Entry, Outcome, Request, RequestId, State, StoreError, WatchEvent, Watches,
};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of keys and values that requests in the queue may have.
const REQUEST_BYTES: usize = 64 << 20;
/// Bytes of entries in completions, and of those in events, beyond which the thread adds no more.
const RESULT_BYTES: usize = 64 << 20;
/// Number of events in the queue.
const EVENTS: usize = 256;
/// Number of requests that are executed in one transaction of the database.
const BATCH: usize = 256;
/// Bytes of keys and values of the requests of a batch, beyond which no more are added.
const BATCH_BYTES: usize = 8 << 20;

/// The queues, and the condition that there is work for the thread.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    queues: Mutex<Queues>,
    work: Condvar,
}

/// The queues between a user and the thread.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    requests: VecDeque<(RequestId, Request)>,
    request_bytes: usize,
    /// Requests that the thread has taken and not completed.
    pub(crate) executing: Vec<RequestId>,
    completions: VecDeque<Completion>,
    completion_bytes: usize,
    pub(crate) events: VecDeque<WatchEvent>,
    event_bytes: usize,
    /// Whether events may be left in the state because the queue was full.
    has_more_events: bool,
    is_closed: bool,
    /// Why all requests are completed with [`StoreError::Unavailable`].
    pub(crate) failure: Option<String>,
}

/// What the thread does next.
pub(crate) enum Work {
    /// Executes these requests, of which there may be none.
    Execute(Vec<(RequestId, Request)>),
    /// Ends, because the user is gone and all requests are executed.
    End,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Queues> {
        // The queues are in order after each statement, so a panic of the thread leaves them usable.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit(&self, id: RequestId, request: Request) -> Result<(), Request> {
        let mut queues = self.lock();
        let bytes = queues.request_bytes.saturating_add(request.bytes());
        if bytes > REQUEST_BYTES {
            return Err(request);
        }
        queues.request_bytes = bytes;
        queues.requests.push_back((id, request));
        drop(queues);
        self.work.notify_one();
        Ok(())
    }

    pub(crate) fn next_completion(&self) -> Option<Completion> {
        let mut queues = self.lock();
        let completion = queues.completions.pop_front()?;
        let was_full = queues.completion_bytes >= RESULT_BYTES;
        queues.completion_bytes = queues.completion_bytes.saturating_sub(completion_bytes(&completion));
        if was_full {
            self.work.notify_one();
        }
        Some(completion)
    }

    pub(crate) fn next_event(&self) -> Option<WatchEvent> {
        let mut queues = self.lock();
        let event = queues.events.pop_front()?;
        queues.event_bytes = queues.event_bytes.saturating_sub(event_bytes(&event));
        if queues.wants_events() {
            self.work.notify_one();
        }
        Some(event)
    }

    /// Lets the thread end after it has executed all requests.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.work.notify_one();
    }

    /// Waits for requests, for room for events, or until the time is over; `None` waits without limit.
    pub(crate) fn next_work(&self, time: Option<Duration>) -> Work {
        let mut queues = self.lock();
        let is_idle = |queues: &mut Queues| !queues.has_work();
        queues = match time {
            Some(time) => {
                self.work.wait_timeout_while(queues, time, is_idle).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.work.wait_while(queues, is_idle).unwrap_or_else(PoisonError::into_inner),
        };
        if queues.is_closed && queues.requests.is_empty() {
            return Work::End;
        }
        Work::Execute(queues.take_batch())
    }

    /// Adds completions of requests that the thread has taken.
    pub(crate) fn complete(&self, completions: Vec<Completion>) {
        let mut queues = self.lock();
        queues.executing.clear();
        for completion in completions {
            queues.push(completion);
        }
    }

    /// Adds the events that the watches have, as far as there is room. Returns whether there were any.
    pub(crate) fn add_events(&self, watches: &mut Watches, state: &State) -> bool {
        let mut queues = self.lock();
        let before = queues.events.len();
        queues.has_more_events = true;
        while queues.events.len() < EVENTS && queues.event_bytes < RESULT_BYTES {
            let Some(event) = watches.next_event(state) else {
                queues.has_more_events = false;
                break;
            };
            queues.event_bytes = queues.event_bytes.saturating_add(event_bytes(&event));
            queues.events.push_back(event);
        }
        queues.events.len() > before
    }

    /// Notes why the store has failed, and completes the requests that the thread has taken.
    pub(crate) fn fail(&self, reason: String) {
        let mut queues = self.lock();
        queues.failure.get_or_insert(reason);
        for id in std::mem::take(&mut queues.executing) {
            queues.push(Completion { id, outcome: Err(StoreError::Unavailable) });
        }
    }
}

impl Queues {
    fn has_work(&self) -> bool {
        // A closed queue is emptied although its completions are not taken any more.
        let has_room = self.completion_bytes < RESULT_BYTES || self.is_closed;
        self.is_closed || (has_room && !self.requests.is_empty()) || self.wants_events()
    }

    fn wants_events(&self) -> bool {
        self.has_more_events && self.events.len() <= EVENTS >> 1 && self.event_bytes < RESULT_BYTES
    }

    fn take_batch(&mut self) -> Vec<(RequestId, Request)> {
        let mut batch = Vec::new();
        let mut bytes = 0_usize;
        if self.completion_bytes >= RESULT_BYTES && !self.is_closed {
            return batch;
        }
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some((id, request)) = self.requests.pop_front() else { break };
            self.request_bytes = self.request_bytes.saturating_sub(request.bytes());
            bytes = bytes.saturating_add(request.bytes());
            // A range may have many entries, so it is the last of its batch.
            let is_range = matches!(request, Request::Read(_));
            self.executing.push(id);
            batch.push((id, request));
            if is_range {
                break;
            }
        }
        batch
    }

    fn push(&mut self, completion: Completion) {
        self.completion_bytes = self.completion_bytes.saturating_add(completion_bytes(&completion));
        self.completions.push_back(completion);
    }
}

fn completion_bytes(completion: &Completion) -> usize {
    match &completion.outcome {
        Ok(Outcome::Entries { entries, .. }) => {
            entries.iter().map(entry_bytes).fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

fn event_bytes(event: &WatchEvent) -> usize {
    match event {
        WatchEvent::Put(_, entry) => entry_bytes(entry),
        WatchEvent::Deleted(_, key, _) => key.len(),
        WatchEvent::Gap(_) => 0,
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    entry.key.len().saturating_add(entry.value.len())
}
