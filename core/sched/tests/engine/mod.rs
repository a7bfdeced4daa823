//! Model of an engine with fixed speed and of its traffic in virtual time, to test delay, loss and
//! throughput.

use casemate_sa::Instant;
use casemate_sched::{Class, Config, Scheduler};
use casemate_test_support::TestRng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Virtual time in nanoseconds.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
/// Packets per call of the engine, as in the data path.
const BATCH: usize = 32;
/// Bytes after which a batch ends early, because super-packets of a segmentation offload are long.
const BATCH_BYTES: usize = 64 << 10;
/// Time to read a packet and offer it to the scheduler, whether or not it is accepted.
const OFFER: Nanos = 30;

/// A traffic source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrafficSource {
    pub(crate) class: Class,
    pub(crate) len: usize,
    /// Average time between two packets in nanoseconds.
    pub(crate) gap: f64,
    /// Whether packets arrive as a Poisson process; otherwise at constant intervals.
    pub(crate) is_random: bool,
    /// Group of packets in the report.
    pub(crate) group: Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Calls,
    Bulk,
}

/// A packet in the queue or in the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    group: Group,
    len: usize,
    arrived: Nanos,
}

/// Time that the engine takes for a packet.
pub(crate) type Cost = fn(len: usize) -> Nanos;

/// The queue in front of the engine.
pub(crate) enum Queue {
    /// One queue with a maximum number of packets; packets that arrive at a full queue are dropped.
    Fifo(VecDeque<Item>, usize),
    Scheduled(Box<Scheduler<Item>>),
}

impl Queue {
    pub(crate) fn fifo(limit: usize) -> Self {
        Self::Fifo(VecDeque::new(), limit)
    }

    pub(crate) fn scheduled(config: Config) -> Self {
        Self::Scheduled(Box::new(Scheduler::new(config).unwrap()))
    }

    /// Returns whether the packet was accepted.
    fn offer(&mut self, class: Class, flow: u32, item: Item) -> bool {
        match self {
            Self::Fifo(queue, limit) => {
                let fits = queue.len() < *limit;
                if fits {
                    queue.push_back(item);
                }
                fits
            }
            Self::Scheduled(scheduler) => {
                let now = Instant::from_micros(item.arrived / 1_000);
                scheduler.enqueue(now, class, flow, item.len, item).is_ok()
            }
        }
    }

    fn take(&mut self, now: Nanos, lost: &mut Vec<Item>) -> Option<Item> {
        match self {
            Self::Fifo(queue, _) => queue.pop_front(),
            Self::Scheduled(scheduler) => {
                let now = Instant::from_micros(now / 1_000);
                scheduler.dequeue(now, |_, item| lost.push(item)).map(|(_, item)| item)
            }
        }
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct RunReport {
    /// Times from arrival to the end of the batch in nanoseconds, sorted.
    pub(crate) call_delays: Vec<Nanos>,
    pub(crate) calls_lost: usize,
    pub(crate) bulk_bytes: usize,
    /// Bytes of all packets that left the engine.
    pub(crate) bytes: usize,
}

impl RunReport {
    /// 99th percentile of the delay of call packets, in nanoseconds.
    pub(crate) fn p99(&self) -> Nanos {
        self.call_delays[self.call_delays.len() * 99 / 100]
    }
}

/// Simulates `sources` that send through `queue` to an engine of speed `cost`, for `time`. The first tenth of
/// the time is excluded from the report.
pub(crate) fn run(
    mut queue: Queue,
    cost: Cost,
    sources: &[TrafficSource],
    time: Nanos,
    seed: u64,
) -> RunReport {
    let mut rng = TestRng::new(seed);
    let flows: Vec<u32> = sources.iter().map(|_| rng.next_u64() as u32).collect();
    // The next packet of each source, the earliest first.
    let mut arrivals: BinaryHeap<Reverse<(Nanos, usize)>> = sources
        .iter()
        .enumerate()
        .map(|(at, source)| Reverse(((rng.fraction() * source.gap) as Nanos, at)))
        .collect();
    let (mut now, mut report, mut lost) = (0, RunReport::default(), Vec::new());
    while now < time {
        // Packets that arrived while the engine was busy.
        let before = now;
        while let Some(&Reverse((arrived, at))) = arrivals.peek().filter(|Reverse((when, _))| *when <= before)
        {
            arrivals.pop();
            let source = &sources[at];
            let wait = if source.is_random { -rng.fraction().ln() * source.gap } else { source.gap };
            arrivals.push(Reverse((arrived + (wait as Nanos).max(1), at)));
            let item = Item { group: source.group, len: source.len, arrived };
            if !queue.offer(source.class, flows[at], item) {
                lost.push(item);
            }
            now += OFFER;
        }
        let (mut batch, mut bytes): (Vec<Item>, usize) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(item) = queue.take(now, &mut lost) else { break };
            bytes += item.len;
            batch.push(item);
        }
        now += batch.iter().map(|item| cost(item.len)).sum::<Nanos>();
        if batch.is_empty() {
            now = now.max(arrivals.peek().map_or(time, |Reverse((arrived, _))| *arrived));
        }
        for item in batch.into_iter().filter(|item| item.arrived >= time / 10) {
            report.bytes += item.len;
            match item.group {
                Group::Calls => report.call_delays.push(now - item.arrived),
                Group::Bulk => report.bulk_bytes += item.len,
            }
        }
    }
    report.calls_lost = lost.iter().filter(|item| item.group == Group::Calls).count();
    report.call_delays.sort_unstable();
    report
}
