//! Queue of one class, with fair queueing between flows.
//!
//! Flows are spread over a fixed number of queues, which deficit round robin serves. A full class does not
//! simply drop the next packet: a queue may grow up to the size of the remaining free space (Choudhury and
//! Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). One greedy flow gets
//! half of the space, two get a third each, and some space always remains for new flows. The check is one
//! comparison, before any work on the packet.

use crate::codel::Codel;
use crate::drr::DeficitRoundRobin;
use crate::flow_table::FlowTable;
use crate::list_pool::{List, ListPool};
use crate::{CodelParams, Share};
use alloc::boxed::Box;
use casemate_sa::Instant;
use casemate_wire::invariant::OrBroken;

/// Minimum number of bytes for which an item counts. A short packet takes an engine about as long as a packet
/// of this length: a few hundred cycles for headers, lookups and the call.
pub const MIN_CHARGE: u32 = 256;

/// Bytes that a flow may send per turn: about one packet.
const QUANTUM: u32 = 1_514;

/// A queued item.
#[derive(Debug)]
pub(crate) struct Queued<T> {
    pub(crate) item: T,
    /// Length in bytes.
    pub(crate) len: u32,
    pub(crate) since: Instant,
}

impl<T> Queued<T> {
    /// Bytes for which the item counts.
    #[inline]
    pub(crate) fn charge(&self) -> u32 {
        self.len.max(MIN_CHARGE)
    }
}

/// The queue of one class.
#[derive(Debug)]
pub(crate) struct ClassQueue<T> {
    pool: ListPool<Queued<T>>,
    table: FlowTable,
    flows: Box<[Flow]>,
    drr: DeficitRoundRobin,
    /// Number of queued items.
    count: usize,
    /// Bytes for which the queued items count; at most `limit`.
    held: u32,
    limit: u32,
}

#[derive(Debug, Default)]
struct Flow {
    list: List,
    /// Bytes for which the items of the flow count.
    held: u32,
    /// Maximum charge of an item since the list was last empty.
    largest: u32,
    codel: Codel,
}

impl<T> ClassQueue<T> {
    pub(crate) fn new(share: &Share) -> Self {
        // One slot for each item that the limit admits, so slots never run out.
        let slots = share.limit.div_euclid(MIN_CHARGE);
        let table = FlowTable::new(share.flows);
        let queues = 0..table.queues();
        Self {
            pool: ListPool::new(slots),
            table,
            flows: queues.clone().map(|_| Flow::default()).collect(),
            drr: DeficitRoundRobin::new(queues.map(|_| QUANTUM)),
            count: 0,
            held: 0,
            limit: share.limit,
        }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of queued items.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes for which the queued items count.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Queues an item. Returns the item if its flow has used up its share of the space.
    #[inline]
    pub(crate) fn offer(&mut self, flow: u32, queued: Queued<T>) -> Result<(), T> {
        let flows = &self.flows;
        let is_empty = |at: u32| flows.get(at as usize).is_some_and(|flow| flow.list.is_empty());
        let at = self.table.queue_of(flow, is_empty);
        let charge = queued.charge();
        let flow = self.flows.get_mut(at as usize).or_report("the table returns queues of this class");
        let Some(flow) = flow else { return Err(queued.item) };
        let free = self.limit.saturating_sub(self.held);
        if flow.held.saturating_add(charge) > free {
            return Err(queued.item);
        }
        flow.largest = if flow.list.is_empty() { charge } else { flow.largest.max(charge) };
        self.pool.push(&mut flow.list, queued).map_err(|queued| queued.item)?;
        flow.held = flow.held.saturating_add(charge);
        self.held = self.held.saturating_add(charge);
        self.count = self.count.saturating_add(1);
        self.drr.enter(at);
        Ok(())
    }

    /// Returns the next item. Items that CoDel drops before it go to `late`. The last item of a queue is
    /// never dropped, so a non-empty queue returns an item.
    #[inline]
    pub(crate) fn take(
        &mut self,
        codel: &CodelParams,
        now: Instant,
        mut late: impl FnMut(T),
    ) -> Option<Queued<T>> {
        loop {
            let flows = &self.flows;
            let has_items = |at: u32| flows.get(at as usize).is_some_and(|flow| !flow.list.is_empty());
            let at = self.drr.next(has_items)?;
            let flow = self.flows.get_mut(at as usize).or_report("the next queue exists")?;
            let queued = self.pool.pop(&mut flow.list).or_report("the next queue has items")?;
            let charge = queued.charge();
            flow.held = flow.held.saturating_sub(charge);
            self.held = self.held.saturating_sub(charge);
            self.count = self.count.saturating_sub(1);
            let is_last = flow.held <= flow.largest;
            if flow.codel.drops(codel, now, now.since(queued.since), is_last) {
                late(queued.item);
                continue;
            }
            self.drr.charge(at, charge);
            return Some(queued);
        }
    }
}
