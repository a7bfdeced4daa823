//! Watches of a store, and their events until the user takes them.
//!
//! A watch has a number of its own, which is used once only, so that its thread and its late events are not
//! taken for those of a later watch with the same name.

use crate::message::{Event, Namespace, array, flag, number};
use casemate_store::{Key, MAX_WATCHES, RequestId, Revision, StoreError, WatchEvent, WatchId};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Maximum number of events that wait for the user, without gaps.
const MAX_EVENTS: usize = 8_192;
/// Bytes of keys and values that these events may have.
const MAX_EVENT_BYTES: usize = 32 << 20;

/// Watches of one user.
#[derive(Default)]
pub(crate) struct Watches {
    list: BTreeMap<u64, Watch>,
    last_number: u64,
    events: VecDeque<WatchEvent>,
    event_bytes: usize,
}

struct Watch {
    id: WatchId,
    prefix: Key,
    /// First revision of which not all events have arrived.
    next: Revision,
    /// The request that waits for the beginning of the watch, and its deadline.
    request: Option<(RequestId, Instant)>,
    /// Whether the last message contains only a part of its events.
    is_split: bool,
    /// Handle of the socket of the stream.
    socket: Option<TcpStream>,
}

/// A watch as it is requested from etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) prefix: Key,
    pub(crate) from: Revision,
    /// When the request for the watch has to be completed; `None` if it is.
    pub(crate) deadline: Option<Instant>,
}

/// What a message of etcd means for the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request is completed.
    Completion(RequestId, Result<(), StoreError>),
    /// Events, or nothing of interest.
    Events,
    /// The stream has to begin again, for this reason.
    Restart(String),
}

fn bytes(event: &WatchEvent) -> usize {
    match event {
        WatchEvent::Put(_, entry) => entry.key.len().saturating_add(entry.value.len()),
        WatchEvent::Deleted(_, key, _) => key.len(),
        WatchEvent::Gap(_) => 0,
    }
}

const fn watch_of(event: &WatchEvent) -> WatchId {
    let (WatchEvent::Put(id, _) | WatchEvent::Deleted(id, ..) | WatchEvent::Gap(id)) = event;
    *id
}

impl Watches {
    /// Adds a watch and returns its number; `None` if a watch has this name, or if there are too many.
    pub(crate) fn add(
        &mut self,
        id: WatchId,
        prefix: Key,
        from: Revision,
        request: (RequestId, Instant),
    ) -> Option<u64> {
        if self.list.len() >= MAX_WATCHES || self.list.values().any(|watch| watch.id == id) {
            return None;
        }
        self.last_number = self.last_number.saturating_add(1);
        let watch = Watch { id, prefix, next: from, request: Some(request), is_split: false, socket: None };
        self.list.insert(self.last_number, watch);
        Some(self.last_number)
    }

    /// Ends a watch and drops its events. Returns its request if that is not completed.
    pub(crate) fn remove(&mut self, id: WatchId) -> Option<RequestId> {
        self.events.retain(|event| watch_of(event) != id);
        self.event_bytes = self.events.iter().map(bytes).fold(0, usize::saturating_add);
        let number = *self.list.iter().find(|(_, watch)| watch.id == id)?.0;
        self.end_silently(number)
    }

    pub(crate) fn next_event(&mut self) -> Option<WatchEvent> {
        let event = self.events.pop_front()?;
        self.event_bytes = self.event_bytes.saturating_sub(bytes(&event));
        Some(event)
    }

    /// Lets the streams of all watches begin again.
    pub(crate) fn interrupt(&mut self) {
        self.list.values_mut().for_each(Watch::interrupt);
    }

    /// Enters the socket of the stream of a watch. Returns `false` if the watch has ended.
    pub(crate) fn set_socket(&mut self, number: u64, socket: TcpStream) -> bool {
        let Some(watch) = self.list.get_mut(&number) else { return false };
        watch.socket = Some(socket);
        true
    }

    /// Whether the stream of a watch has a socket, and thus was not interrupted.
    pub(crate) fn has_socket(&self, number: u64) -> bool {
        self.list.get(&number).is_some_and(|watch| watch.socket.is_some())
    }

    /// A watch from where its events have to continue; `None` if it has ended. A watch whose last message is
    /// incomplete ends with a gap: it may have a part of the events of a revision.
    pub(crate) fn wanted(&mut self, number: u64) -> Option<Wanted> {
        let watch = self.list.get_mut(&number)?;
        watch.socket = None;
        if watch.is_split {
            self.end(number);
            return None;
        }
        let deadline = watch.request.map(|(_, deadline)| deadline);
        Some(Wanted { prefix: watch.prefix.clone(), from: watch.next, deadline })
    }

    /// Ends a watch. A user who knows that the watch has begun gets a gap; otherwise, returns the request.
    pub(crate) fn end(&mut self, number: u64) -> Option<RequestId> {
        let watch = self.list.get(&number)?;
        if watch.request.is_none() {
            self.events.push_back(WatchEvent::Gap(watch.id));
        }
        self.end_silently(number)
    }

    fn end_silently(&mut self, number: u64) -> Option<RequestId> {
        let mut watch = self.list.remove(&number)?;
        watch.interrupt();
        watch.request.map(|(request, _)| request)
    }

    /// Processes a message of the stream of a watch.
    pub(crate) fn receive(&mut self, number: u64, result: &Value, namespace: &Namespace) -> Received {
        let reason = result.get("cancel_reason").and_then(Value::as_str).unwrap_or_default();
        let is_created = flag(result, "created");
        if flag(result, "canceled") {
            let is_compacted = number_of(result, "compact_revision") > 0;
            // A watch that etcd refuses is created and canceled at the same time.
            return if is_compacted || (is_created && !reason.contains("auth token")) {
                let request = self.end(number);
                request.map_or(Received::Events, |request| {
                    Received::Completion(request, Err(StoreError::Refused))
                })
            } else {
                Received::Restart(reason.into())
            };
        }
        if is_created {
            let request = self.list.get_mut(&number).and_then(|watch| watch.request.take());
            return request.map_or(Received::Events, |(request, _)| Received::Completion(request, Ok(())));
        }
        let events: Option<Vec<Event>> = array(result, "events")
            .and_then(|events| events.iter().map(|event| namespace.event(event)).collect());
        match events {
            Some(events) => self.take(number, events, flag(result, "fragment")),
            // A malformed event counts as missing.
            None => drop(self.end(number)),
        }
        Received::Events
    }

    fn take(&mut self, number: u64, events: Vec<Event>, is_split: bool) {
        let Some(watch) = self.list.get_mut(&number) else { return };
        let mut last = watch.next;
        for event in events.into_iter().filter(|event| event.revision() >= watch.next) {
            let size = event.bytes();
            let is_full =
                self.events.len() >= MAX_EVENTS || self.event_bytes.saturating_add(size) > MAX_EVENT_BYTES;
            if is_full {
                self.end(number);
                return;
            }
            last = Revision(event.revision().0.saturating_add(1));
            self.event_bytes = self.event_bytes.saturating_add(size);
            self.events.push_back(match event {
                Event::Put(entry) => WatchEvent::Put(watch.id, entry),
                Event::Deleted(key, revision) => WatchEvent::Deleted(watch.id, key, revision),
            });
        }
        watch.is_split = is_split;
        // Later parts of the message may have more events of its last revision.
        watch.next = if is_split { Revision(last.0.saturating_sub(1)).max(watch.next) } else { last };
    }
}

impl Watch {
    /// Ends the stream.
    fn interrupt(&mut self) {
        if let Some(socket) = self.socket.take() {
            // Fails if the server has closed the connection.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn number_of(object: &Value, name: &str) -> u64 {
    number(object, name).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    const REQUEST: RequestId = RequestId(9);

    fn watching(id: u64, watches: &mut Watches) -> u64 {
        let number = watches.add(WatchId(id), vec![], Revision(5), (REQUEST, Instant::now())).unwrap();
        let created = receive(watches, number, &json!({ "created": true }));
        assert_eq!(created, Received::Completion(REQUEST, Ok(())));
        number
    }

    fn receive(watches: &mut Watches, number: u64, result: &Value) -> Received {
        watches.receive(number, result, &Namespace::new("cell/"))
    }

    fn put(key: &str, size: usize, revision: u64) -> Value {
        json!({ "kv": {
            "key": STANDARD.encode(format!("cell/{key}")), "value": STANDARD.encode(vec![0; size]),
            "create_revision": "3", "mod_revision": revision.to_string(),
        }})
    }

    fn keys(watches: &mut Watches) -> Vec<String> {
        let key = |event| match event {
            WatchEvent::Put(_, entry) => String::from_utf8(entry.key).unwrap(),
            WatchEvent::Deleted(..) => "deleted".into(),
            WatchEvent::Gap(_) => "gap".into(),
        };
        std::iter::from_fn(|| watches.next_event()).map(key).collect()
    }

    #[test]
    fn stream_continues_after_the_last_event() {
        let mut watches = Watches::default();
        let number = watching(1, &mut watches);
        assert_eq!(watches.wanted(number).unwrap().from, Revision(5));
        receive(&mut watches, number, &json!({ "events": [put("a", 1, 6), put("b", 1, 7)] }));
        assert_eq!(watches.wanted(number).unwrap().from, Revision(8));
        // The new stream repeats nothing that has arrived.
        receive(&mut watches, number, &json!({ "events": [put("b", 1, 7), put("c", 1, 8)] }));
        let deletion =
            json!({ "type": "DELETE", "kv": { "key": STANDARD.encode("cell/c"), "mod_revision": "9" }});
        receive(&mut watches, number, &json!({ "events": [deletion] }));
        assert_eq!(keys(&mut watches), ["a", "b", "c", "deleted"]);
        assert_eq!(watches.wanted(number).unwrap().from, Revision(10));
    }

    #[test]
    fn message_in_parts_is_complete_or_a_gap() {
        let mut watches = Watches::default();
        let number = watching(1, &mut watches);
        receive(
            &mut watches,
            number,
            &json!({ "events": [put("a", 1, 6), put("b", 1, 7)], "fragment": true }),
        );
        receive(&mut watches, number, &json!({ "events": [put("c", 1, 7)] }));
        assert_eq!(keys(&mut watches), ["a", "b", "c"]);
        assert_eq!(watches.wanted(number).unwrap().from, Revision(8));
        receive(&mut watches, number, &json!({ "events": [put("d", 1, 8)], "fragment": true }));
        assert_eq!(watches.wanted(number), None);
        assert_eq!(keys(&mut watches), ["d", "gap"]);
    }

    #[test]
    fn events_that_are_not_taken_become_a_gap() {
        let many: Vec<Value> = (0..=MAX_EVENTS as u64).map(|number| put("a", 0, 5 + number)).collect();
        let large: Vec<Value> = (0..600).map(|number| put("a", 64 << 10, 5 + number)).collect();
        for events in [many, large] {
            let mut watches = Watches::default();
            let [number, other] = [1, 2].map(|id| watching(id, &mut watches));
            receive(&mut watches, number, &json!({ "events": events }));
            assert!(watches.event_bytes <= MAX_EVENT_BYTES && watches.events.len() <= MAX_EVENTS + 1);
            assert_eq!(watches.wanted(number), None);
            assert!(watches.wanted(other).is_some());
            let found = keys(&mut watches);
            assert!(found.len() > 500 && found.last().unwrap() == "gap");
            assert_eq!(watches.event_bytes, 0);
            receive(&mut watches, other, &json!({ "events": [put("b", 1, 6)] }));
            assert_eq!(keys(&mut watches), ["b"]);
        }
    }

    #[test]
    fn watch_that_ends_has_no_later_events() {
        let mut watches = Watches::default();
        let [number, other] = [1, 2].map(|id| watching(id, &mut watches));
        let events = json!({ "events": [put("a", 1, 6)] });
        receive(&mut watches, number, &events);
        receive(&mut watches, other, &events);
        assert_eq!(watches.remove(WatchId(1)), None);
        receive(&mut watches, number, &events);
        let again = watching(1, &mut watches);
        assert!(again != number);
        assert!(matches!(watches.next_event(), Some(WatchEvent::Put(WatchId(2), _))));
        assert_eq!((watches.next_event(), watches.event_bytes), (None, 0));
        // The request of a watch that has not begun is returned.
        watches.add(WatchId(3), vec![], Revision(1), (REQUEST, Instant::now())).unwrap();
        assert_eq!(watches.remove(WatchId(3)), Some(REQUEST));
    }

    #[test]
    fn canceled_watches_end_or_begin_again() {
        let mut watches = Watches::default();
        let number = watching(1, &mut watches);
        let restart = Received::Restart("etcdserver: no leader".into());
        let canceled = json!({ "canceled": true, "cancel_reason": "etcdserver: no leader" });
        assert_eq!(receive(&mut watches, number, &canceled), restart);
        assert!(watches.wanted(number).is_some());
        receive(&mut watches, number, &json!({ "canceled": true, "compact_revision": "7" }));
        assert_eq!((watches.wanted(number), keys(&mut watches)), (None, vec!["gap".into()]));

        let number = watches.add(WatchId(1), vec![], Revision(1), (REQUEST, Instant::now())).unwrap();
        let refused = json!({ "created": true, "canceled": true, "cancel_reason": "permission denied" });
        let expected = Received::Completion(REQUEST, Err(StoreError::Refused));
        assert_eq!(receive(&mut watches, number, &refused), expected);
        assert_eq!(keys(&mut watches), Vec::<String>::new());
    }

    #[test]
    fn malformed_event_is_a_gap() {
        let other_cell = json!({ "kv": { "key": STANDARD.encode("other/a"), "mod_revision": "6" }});
        for event in [json!({}), json!({ "kv": { "key": "?" } }), other_cell] {
            let mut watches = Watches::default();
            let number = watching(1, &mut watches);
            receive(&mut watches, number, &json!({ "events": [put("a", 1, 6), event] }));
            assert_eq!((watches.wanted(number), keys(&mut watches)), (None, vec!["gap".into()]));
        }
    }
}
