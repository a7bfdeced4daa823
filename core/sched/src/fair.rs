//! The queue of one class: flows in turn, each in its own order.
//!
//! Flows are spread over a fixed number of queues, which are served by deficit round robin. A full class does not drop what
//! happens to come: a queue may grow as long as it holds no more than is still free (Choudhury and Hahne, "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches", 1998). One greedy flow gets half of the room, two get a third each, and some
//! room is always left for who comes new. It takes one comparison, before any work on the packet.

use crate::codel::Codel;
use crate::round::Round;
use crate::store::{List, Store};
use crate::ways::Ways;
use crate::{Patience, Share};
use alloc::boxed::Box;
use casemate_sa::Instant;

/// Bytes that an item counts for at least. A short packet costs an engine about as much time as one of this length: a few
/// hundred cycles for headers, look-ups and the call.
pub const MIN_CHARGE: u32 = 256;

/// Bytes that one turn of a flow brings: about a packet.
const QUANTUM: u32 = 1_514;

/// An item that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) item: T,
    /// In bytes.
    pub(crate) len: u32,
    pub(crate) since: Instant,
}

impl<T> Waiting<T> {
    /// The bytes that it counts for.
    #[inline]
    pub(crate) fn charge(&self) -> u32 {
        self.len.max(MIN_CHARGE)
    }
}

/// The queue of one class.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    store: Store<Waiting<T>>,
    ways: Ways,
    flows: Box<[Flow]>,
    round: Round,
    /// Items that wait.
    count: usize,
    /// Bytes that they count for; at most `limit`.
    held: u32,
    limit: u32,
}

#[derive(Debug, Default)]
struct Flow {
    list: List,
    /// Bytes that its items count for.
    held: u32,
    /// The most that one of them has counted for since the list was empty.
    largest: u32,
    codel: Codel,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(share: &Share) -> Self {
        // As many as the limit admits, so a place is never what is missing.
        let places = share.limit.div_euclid(MIN_CHARGE);
        let ways = Ways::new(share.flows);
        let queues = 0..ways.queues();
        Self {
            store: Store::new(places),
            ways,
            flows: queues.clone().map(|_| Flow::default()).collect(),
            round: Round::new(queues.map(|_| QUANTUM)),
            count: 0,
            held: 0,
            limit: share.limit,
        }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Items that wait.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes that they count for.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Takes an item in; gives it back if its flow holds its part of the room.
    #[inline]
    pub(crate) fn offer(&mut self, flow: u32, waiting: Waiting<T>) -> Result<(), T> {
        let flows = &self.flows;
        let is_empty = |at: u32| flows.get(at as usize).is_some_and(|flow| flow.list.is_empty());
        let at = self.ways.queue_of(flow, is_empty);
        let charge = waiting.charge();
        let Some(flow) = self.flows.get_mut(at as usize) else { return Err(waiting.item) };
        let free = self.limit.saturating_sub(self.held);
        if flow.held.saturating_add(charge) > free {
            return Err(waiting.item);
        }
        flow.largest = if flow.list.is_empty() { charge } else { flow.largest.max(charge) };
        self.store.push(&mut flow.list, waiting).map_err(|waiting| waiting.item)?;
        flow.held = flow.held.saturating_add(charge);
        self.held = self.held.saturating_add(charge);
        self.count = self.count.saturating_add(1);
        self.round.enter(at);
        Ok(())
    }

    /// The next item; those that have waited too long before it are given to `late`. A queue that has items has one.
    #[inline]
    pub(crate) fn take(
        &mut self,
        patience: &Patience,
        now: Instant,
        mut late: impl FnMut(T),
    ) -> Option<Waiting<T>> {
        loop {
            let flows = &self.flows;
            let has_items = |at: u32| flows.get(at as usize).is_some_and(|flow| !flow.list.is_empty());
            let at = self.round.next(has_items)?;
            let flow = self.flows.get_mut(at as usize)?;
            let waiting = self.store.pop(&mut flow.list)?;
            let charge = waiting.charge();
            flow.held = flow.held.saturating_sub(charge);
            self.held = self.held.saturating_sub(charge);
            self.count = self.count.saturating_sub(1);
            let is_last = flow.held <= flow.largest;
            if flow.codel.drops(patience, now, now.since(waiting.since), is_last) {
                late(waiting.item);
                continue;
            }
            self.round.charge(at, charge);
            return Some(waiting);
        }
    }
}
