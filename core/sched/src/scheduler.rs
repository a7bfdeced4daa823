//! The scheduler: one queue per class, in front of an engine.

use crate::class_queue::{ClassQueue, Queued};
use crate::drr::DeficitRoundRobin;
use crate::{Cap, Class, CodelParams, Config, ConfigError, PerClass};
use casemate_sa::Instant;
use core::fmt;

/// Bytes that a turn adds for a class of weight 1: about one packet.
const QUANTUM: u32 = 1_514;

/// Decides which item an engine processes next.
///
/// The low-latency class is served first, up to its rate limit. Low-latency packets beyond the limit and all
/// other classes share the engine by deficit round robin. Within a class, flows share by deficit round robin,
/// and each flow keeps its order.
#[derive(Debug)]
pub struct Scheduler<T> {
    classes: PerClass<ClassState<T>>,
    drr: DeficitRoundRobin,
    bucket: TokenBucket,
    codel: CodelParams,
    max_len: u32,
}

#[derive(Debug)]
struct ClassState<T> {
    queue: ClassQueue<T>,
    counters: Counters,
}

/// Counters of one class. Each accepted item is taken, dropped as late, or still queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Items accepted into the queue.
    pub accepted: u64,
    /// Items given to the engine.
    pub taken: u64,
    /// Bytes of the items given to the engine.
    pub taken_bytes: u64,
    /// Low-latency items given to the engine in their turn, because the rate limit was reached. Included in
    /// `taken`.
    pub over_cap: u64,
    /// Items that CoDel dropped at the head of a standing queue (RFC 8289).
    pub late: u64,
    /// Items rejected because the flow had used up its share of the queue.
    pub full: u64,
    /// Items rejected because they exceed [`Config::max_len`].
    pub too_long: u64,
}

/// Why an item was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// The flow has used up its share of the queue.
    Full,
    /// The item is longer than [`Config::max_len`].
    TooLong,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the flow has used up its share of the queue",
            Self::TooLong => "the item is longer than the scheduler's maximum",
        })
    }
}

/// An item that the scheduler rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected<T> {
    /// The rejected item, for the caller to free.
    pub item: T,
    /// Why the item was rejected.
    pub reason: RejectReason,
}

impl<T> Scheduler<T> {
    /// Creates an empty scheduler and allocates all its memory.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let quantum = |class| QUANTUM.saturating_mul(config.shares.get(class).weight.into());
        Ok(Self {
            classes: PerClass::from_fn(|class| ClassState {
                queue: ClassQueue::new(config.shares.get(class)),
                counters: Counters::default(),
            }),
            drr: DeficitRoundRobin::new(Class::ALL.into_iter().map(quantum)),
            bucket: TokenBucket::new(config.cap),
            codel: config.codel,
            max_len: config.max_len,
        })
    }

    /// Queues an item of `len` bytes. `flow` is the result of [`FlowHash`](crate::FlowHash), or another
    /// number with 32 well-mixed bits. Items of the same class and flow leave in the order of their arrival.
    ///
    /// A super-packet of a segmentation offload is one item with the length of all its bytes.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Instant,
        class: Class,
        flow: u32,
        len: usize,
        item: T,
    ) -> Result<(), Rejected<T>> {
        let state = self.classes.get_mut(class);
        let Some(len) = u32::try_from(len).ok().filter(|len| *len <= self.max_len) else {
            count(&mut state.counters.too_long, 1);
            return Err(Rejected { item, reason: RejectReason::TooLong });
        };
        if let Err(item) = state.queue.offer(flow, Queued { item, len, since: now }) {
            count(&mut state.counters.full, 1);
            return Err(Rejected { item, reason: RejectReason::Full });
        }
        count(&mut state.counters.accepted, 1);
        self.drr.enter(class as u32);
        Ok(())
    }

    /// Returns the next item to process and its class; `None` if no item is queued. Items that CoDel drops go
    /// to `late`, for the caller to free.
    #[inline]
    pub fn dequeue(&mut self, now: Instant, mut late: impl FnMut(Class, T)) -> Option<(Class, T)> {
        let goes_first = self.has_low_latency(now);
        let class = if goes_first { Class::LowLatency } else { self.next_in_turn()? };
        let state = self.classes.get_mut(class);
        let dropped = &mut state.counters.late;
        let queued = state.queue.take(&self.codel, now, |item| {
            count(dropped, 1);
            late(class, item);
        })?;
        if goes_first {
            self.bucket.take(queued.charge());
        } else {
            self.drr.charge(class as u32, queued.charge());
        }
        count(&mut state.counters.taken, 1);
        count(&mut state.counters.taken_bytes, queued.len);
        count(&mut state.counters.over_cap, u32::from(class == Class::LowLatency && !goes_first));
        Some((class, queued.item))
    }

    /// Whether a low-latency item is queued that the rate limit lets pass first. For callers that process a
    /// large item in pieces.
    #[inline]
    pub fn has_low_latency(&mut self, now: Instant) -> bool {
        !self.classes.low_latency.queue.is_empty() && self.bucket.has_tokens(now)
    }

    #[inline]
    fn next_in_turn(&mut self) -> Option<Class> {
        let classes = &self.classes;
        let class_of = |at: u32| Class::ALL.get(at as usize).copied();
        let has_items = |at| class_of(at).is_some_and(|class| !classes.get(class).queue.is_empty());
        self.drr.next(has_items).and_then(class_of)
    }

    /// Whether no item is queued.
    pub fn is_empty(&self) -> bool {
        Class::ALL.into_iter().all(|class| self.classes.get(class).queue.is_empty())
    }

    /// Number of queued items.
    pub fn len(&self) -> usize {
        let lens = Class::ALL.into_iter().map(|class| self.classes.get(class).queue.len());
        lens.fold(0, usize::saturating_add)
    }

    /// Bytes for which the queued items of `class` count.
    pub fn backlog_bytes(&self, class: Class) -> u32 {
        self.classes.get(class).queue.held()
    }

    /// Counters of `class`.
    pub fn counters(&self, class: Class) -> Counters {
        self.classes.get(class).counters
    }
}

#[inline]
fn count(counter: &mut u64, by: u32) {
    *counter = counter.saturating_add(by.into());
}

/// Rate limit of the low-latency class: a token bucket. One token is one byte; tokens arrive at a constant
/// rate, up to a burst. An item may put the bucket into debt, so in any `t` seconds at most
/// `burst + rate * t` bytes plus one item pass.
#[derive(Debug)]
struct TokenBucket {
    cap: Cap,
    /// Millionths of a token: a rate in bytes per second is also a rate in these units per microsecond.
    level: i64,
    filled: Instant,
}

const MICRO: i64 = 1_000_000;

impl TokenBucket {
    /// Creates a full bucket.
    fn new(cap: Cap) -> Self {
        Self { cap, level: full(cap), filled: Instant::ZERO }
    }

    /// Whether an item may pass now.
    #[inline]
    fn has_tokens(&mut self, now: Instant) -> bool {
        let micros = i64::try_from(now.since(self.filled).as_micros()).unwrap_or(i64::MAX);
        if micros > 0 {
            let rate = i64::try_from(self.cap.rate).unwrap_or(i64::MAX);
            self.level = self.level.saturating_add(rate.saturating_mul(micros)).min(full(self.cap));
            self.filled = now;
        }
        self.level > 0
    }

    /// Removes the tokens for an item of `bytes`.
    #[inline]
    fn take(&mut self, bytes: u32) {
        self.level = self.level.saturating_sub(i64::from(bytes).saturating_mul(MICRO));
    }
}

fn full(cap: Cap) -> i64 {
    i64::from(cap.burst).saturating_mul(MICRO)
}

#[cfg(test)]
mod tests;
