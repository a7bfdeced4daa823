//! The scheduler: five queues in front of an engine.

use crate::bucket::Bucket;
use crate::fair::{FairQueue, Waiting};
use crate::round::Round;
use crate::{Class, Config, ConfigError, Patience, PerClass};
use casemate_sa::Instant;
use core::fmt;

/// Bytes that a turn brings to a class of weight 1: about a packet.
const QUANTUM: u32 = 1_514;

/// Says which item an engine works on next.
///
/// The low-latency class goes first while its cap lets it. What is beyond the cap, and all other classes, go by deficit round
/// robin. Within a class, flows go by deficit round robin, and each flow in its order.
#[derive(Debug)]
pub struct Scheduler<T> {
    lanes: PerClass<Lane<T>>,
    round: Round,
    bucket: Bucket,
    patience: Patience,
    max_len: u32,
}

#[derive(Debug)]
struct Lane<T> {
    queue: FairQueue<T>,
    counters: Counters,
}

/// What became of the items of a class. All that were accepted were taken, were late, or still wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Accepted into the queue.
    pub accepted: u64,
    /// Given to the engine.
    pub taken: u64,
    /// Their bytes.
    pub taken_bytes: u64,
    /// Those among them that were low-latency and had to wait for their turn, because the cap was reached.
    pub over_cap: u64,
    /// Dropped at the head of a queue that had been standing (RFC 8289).
    pub late: u64,
    /// Refused because the flow held its part of the room.
    pub full: u64,
    /// Refused because they were longer than an item may be.
    pub too_long: u64,
}

/// Why an item was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its flow holds its part of the room.
    Full,
    /// It is longer than [`Config::max_len`].
    TooLong,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "its flow holds its part of the room",
            Self::TooLong => "longer than the scheduler was made for",
        })
    }
}

/// An item that was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<T> {
    /// The item, for the caller to free.
    pub item: T,
    /// Why.
    pub refusal: Refusal,
}

impl<T> Scheduler<T> {
    /// An empty one. All memory that it ever has is allocated here.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let quantum = |class| QUANTUM.saturating_mul(config.shares.get(class).weight.into());
        Ok(Self {
            lanes: PerClass::from_fn(|class| Lane {
                queue: FairQueue::new(config.shares.get(class)),
                counters: Counters::default(),
            }),
            round: Round::new(Class::ALL.into_iter().map(quantum)),
            bucket: Bucket::new(config.cap),
            patience: config.patience,
            max_len: config.max_len,
        })
    }

    /// Takes in an item of `len` bytes. `flow` is what [`FlowHash`](crate::FlowHash) makes, or any other number whose 32 bits
    /// are well mixed; items of one class and flow leave in the order in which they came.
    ///
    /// The super-packet of a segmentation offload is one item with the length of all its bytes.
    #[inline]
    pub fn offer(
        &mut self,
        now: Instant,
        class: Class,
        flow: u32,
        len: usize,
        item: T,
    ) -> Result<(), Refused<T>> {
        let lane = self.lanes.get_mut(class);
        let Some(len) = u32::try_from(len).ok().filter(|len| *len <= self.max_len) else {
            count(&mut lane.counters.too_long, 1);
            return Err(Refused { item, refusal: Refusal::TooLong });
        };
        if let Err(item) = lane.queue.offer(flow, Waiting { item, len, since: now }) {
            count(&mut lane.counters.full, 1);
            return Err(Refused { item, refusal: Refusal::Full });
        }
        count(&mut lane.counters.accepted, 1);
        self.round.enter(class as u32);
        Ok(())
    }

    /// The item to work on next, and its class; `None` if nothing waits. Items that have waited too long are given to `late`,
    /// for the caller to free.
    #[inline]
    pub fn take(&mut self, now: Instant, mut late: impl FnMut(Class, T)) -> Option<(Class, T)> {
        let goes_first = self.has_urgent(now);
        let class = if goes_first { Class::LowLatency } else { self.next_in_turn()? };
        let lane = self.lanes.get_mut(class);
        let dropped = &mut lane.counters.late;
        let waiting = lane.queue.take(&self.patience, now, |item| {
            count(dropped, 1);
            late(class, item);
        })?;
        if goes_first {
            self.bucket.take(waiting.charge());
        } else {
            self.round.charge(class as u32, waiting.charge());
        }
        count(&mut lane.counters.taken, 1);
        count(&mut lane.counters.taken_bytes, waiting.len);
        count(&mut lane.counters.over_cap, u32::from(class == Class::LowLatency && !goes_first));
        Some((class, waiting.item))
    }

    /// Whether a low-latency item waits that the cap lets go first: for a caller that works on a large item bit by bit.
    #[inline]
    pub fn has_urgent(&mut self, now: Instant) -> bool {
        !self.lanes.low_latency.queue.is_empty() && self.bucket.has_tokens(now)
    }

    #[inline]
    fn next_in_turn(&mut self) -> Option<Class> {
        let lanes = &self.lanes;
        let class_of = |at: u32| Class::ALL.get(at as usize).copied();
        let has_items = |at| class_of(at).is_some_and(|class| !lanes.get(class).queue.is_empty());
        self.round.next(has_items).and_then(class_of)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        Class::ALL.into_iter().all(|class| self.lanes.get(class).queue.is_empty())
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        let lens = Class::ALL.into_iter().map(|class| self.lanes.get(class).queue.len());
        lens.fold(0, usize::saturating_add)
    }

    /// Bytes that the items of `class` count for, of those that may wait.
    pub fn backlog_bytes(&self, class: Class) -> u32 {
        self.lanes.get(class).queue.held()
    }

    /// What became of the items of `class`.
    pub fn counters(&self, class: Class) -> Counters {
        self.lanes.get(class).counters
    }
}

#[inline]
fn count(counter: &mut u64, by: u32) {
    *counter = counter.saturating_add(by.into());
}

#[cfg(test)]
mod tests;
