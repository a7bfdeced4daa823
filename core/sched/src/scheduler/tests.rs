//! Tests of the whole scheduler: one rule at a time, and invariants under any sequence of calls.

use super::*;
use crate::{MIN_CHARGE, Share};
use core::time::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

const SHARE: Share = Share { weight: 1, limit: 200_000, flows: 8 };

/// A rate limit of a thousand small packets per second with a burst of ten, equal classes, and CoDel
/// parameters that drop nothing within a test.
const CONFIG: Config = Config {
    cap: Cap { rate: 256_000, burst: 2_560 },
    shares: PerClass { low_latency: SHARE, real_time: SHARE, assured: SHARE, standard: SHARE, least: SHARE },
    codel: CodelParams { target: Duration::from_secs(1_000), interval: Duration::from_secs(10_000) },
    max_len: 66_000,
};

const START: Instant = Instant::from_secs(1);

/// Flow numbers that map to different queues.
fn flow(n: u32) -> u32 {
    n << 29
}

fn never<T>(_: Class, _: T) {
    panic!("no item may be late here");
}

fn made<T>(config: Config) -> Scheduler<T> {
    Scheduler::new(config).unwrap()
}

#[test]
fn a_single_item_is_served_at_once() {
    let mut scheduler = made(CONFIG);
    assert_eq!(scheduler.dequeue(START, never), None);
    for (n, class) in Class::ALL.into_iter().cycle().take(1_000).enumerate() {
        scheduler.enqueue(START, class, flow(3), 65_000, n).unwrap();
        assert_eq!((scheduler.len(), scheduler.is_empty()), (1, false));
        assert_eq!(scheduler.dequeue(START, never), Some((class, n)), "served regardless of its debt");
        assert_eq!((scheduler.len(), scheduler.is_empty()), (0, true));
    }
}

#[test]
fn low_latency_goes_first() {
    let mut scheduler = made(CONFIG);
    for n in 0..20 {
        for class in Class::ALL.into_iter().skip(1) {
            scheduler.enqueue(START, class, flow(n), 1_000, ()).unwrap();
        }
    }
    for _ in 0..10 {
        scheduler.dequeue(START, never).unwrap();
        scheduler.enqueue(START, Class::LowLatency, flow(0), 200, ()).unwrap();
        assert_eq!(scheduler.dequeue(START, never), Some((Class::LowLatency, ())));
    }
    assert_eq!(scheduler.counters(Class::LowLatency).over_cap, 0);
}

#[test]
fn beyond_the_cap_low_latency_shares_fairly() {
    let mut scheduler = made(CONFIG);
    let mut taken = [0u64; 2];
    // One second in steps of a millisecond. Each class could send 20 packets of 1000 bytes per step, and both
    // are always backlogged.
    for ms in 0..1_000 {
        let now = START.after(Duration::from_millis(ms));
        for _ in 0..20 {
            let _ = scheduler.enqueue(now, Class::LowLatency, flow(1), 1_000, ());
            let _ = scheduler.enqueue(now, Class::Standard, flow(2), 1_000, ());
            let (class, ()) = scheduler.dequeue(now, never).unwrap();
            taken[usize::from(class == Class::Standard)] += 1_000;
        }
    }
    // 256,000 bytes pass first, plus the burst of 2,560 and one packet. The rest is shared equally.
    let first = 256_000 + 2_560 + 1_000;
    let shared = (20_000_000 - first) / 2;
    assert!(taken[1].abs_diff(shared) < 6_000, "{taken:?}");
    let counters = scheduler.counters(Class::LowLatency);
    assert_eq!(counters.taken_bytes, taken[0]);
    assert!((counters.taken - counters.over_cap).abs_diff(259) <= 1, "{counters:?}");
}

#[test]
fn classes_share_by_weight() {
    let mut config = CONFIG;
    config.shares.real_time.weight = 8;
    config.shares.assured.weight = 4;
    config.shares.standard.weight = 3;
    let mut scheduler = made(config);
    for n in 0..16_000 {
        for class in Class::ALL.into_iter().skip(1) {
            let _ = scheduler.enqueue(START, class, flow(n), 1_200, ());
        }
        scheduler.dequeue(START, never).unwrap();
    }
    for (class, share) in
        [(Class::RealTime, 8_000), (Class::Assured, 4_000), (Class::Standard, 3_000), (Class::Least, 1_000)]
    {
        assert!(
            scheduler.counters(class).taken.abs_diff(share) < 20,
            "{class}: {:?}",
            scheduler.counters(class)
        );
    }
}

/// Flows with small packets and with super-packets of a segmentation offload share by bytes, not by items.
#[test]
fn flows_of_a_class_share_equally() {
    let mut scheduler = made(CONFIG);
    let mut bytes = [0usize; 3];
    for _ in 0..100_000 {
        for (n, len) in [(0, 300), (1, 1_500), (2, 65_000)] {
            let _ = scheduler.enqueue(START, Class::Standard, flow(n), len, (n as usize, len));
        }
        let (_, (n, len)) = scheduler.dequeue(START, never).unwrap();
        bytes[n] += len;
    }
    let (min, max) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
    assert!(max - min < 140_000 && min > 20_000_000, "{bytes:?}");
}

#[test]
fn a_short_packet_counts_for_more_than_its_bytes() {
    let mut scheduler = made(CONFIG);
    let offered =
        (0..10_000).filter(|_| scheduler.enqueue(START, Class::Least, flow(0), 0, ()).is_ok()).count();
    // One flow gets half of the space, plus one item that arrives when exactly half is free.
    assert!(offered.abs_diff(200_000 / 256 / 2) <= 1, "{offered}");
    assert_eq!(scheduler.backlog_bytes(Class::Least) as usize, offered * MIN_CHARGE as usize);
}

#[test]
fn a_greedy_flow_leaves_room_for_others() {
    let mut scheduler = made(CONFIG);
    while scheduler.enqueue(START, Class::Standard, flow(0), 1_000, ()).is_ok() {}
    assert_eq!(scheduler.backlog_bytes(Class::Standard), 100_000);
    for n in 1..8 {
        assert_eq!(scheduler.enqueue(START, Class::Standard, flow(n), 1_000, ()), Ok(()));
    }
    let rejected = scheduler.enqueue(START, Class::Standard, flow(0), 1_000, ());
    assert_eq!(rejected, Err(Rejected { item: (), reason: RejectReason::Full }));
    assert_eq!(scheduler.counters(Class::Standard).full, 2);
    assert_eq!(
        scheduler.enqueue(START, Class::Assured, flow(0), 66_000, ()),
        Ok(()),
        "each class has its own space"
    );
}

#[test]
fn items_above_the_maximum_length_are_rejected() {
    let mut scheduler = made(CONFIG);
    for len in [66_001, usize::MAX] {
        let rejected = scheduler.enqueue(START, Class::Standard, 0, len, 'x');
        assert_eq!(rejected, Err(Rejected { item: 'x', reason: RejectReason::TooLong }));
    }
    assert_eq!(scheduler.counters(Class::Standard).too_long, 2);
    assert!(scheduler.is_empty());
}

/// A flow that fills its queue for longer than the interval loses packets at the head; other flows lose none.
#[test]
fn codel_drops_only_packets_of_standing_flows() {
    let codel = CodelParams { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
    let mut scheduler = made(Config { codel, ..CONFIG });
    let mut late = Vec::new();
    for n in 0..2_000u32 {
        let now = START.after(Duration::from_millis(n.into()));
        // Two packets for each one taken, and now and then a packet of another flow.
        let _ = scheduler.enqueue(now, Class::Standard, flow(1), 1_000, (1, n));
        let _ = scheduler.enqueue(now, Class::Standard, flow(1), 1_000, (1, n));
        if n % 20 == 0 {
            scheduler.enqueue(now, Class::Standard, flow(2), 1_000, (2, n)).unwrap();
        }
        let taken = scheduler.dequeue(now, |class, item| late.push((n, class, item))).unwrap();
        assert!(taken.1.0 == 1 || n - taken.1.1 < 4, "the other flow waits at most two turns");
    }
    assert!(late.len() > 20, "{late:?}");
    assert!((100..300).contains(&late[0].0), "{:?}", late[0]);
    assert!(late.iter().all(|(_, class, (flow, _))| (*class, *flow) == (Class::Standard, 1)), "{late:?}");
    assert_eq!(scheduler.counters(Class::Standard).late, late.len() as u64);
}

/// A queue may keep one item of the current maximum size, not of the size of an item long ago.
#[test]
fn an_earlier_super_packet_does_not_protect_a_standing_queue() {
    let codel = CodelParams { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
    let mut scheduler = made(Config { codel, ..CONFIG });
    scheduler.enqueue(START, Class::Standard, flow(1), 65_000, ()).unwrap();
    assert!(scheduler.dequeue(START, never).is_some());
    let mut late = 0;
    // Forty packets are always queued, each for 40 milliseconds.
    for ms in 0..1_000 {
        let now = START.after(Duration::from_millis(ms));
        while scheduler.len() < 40 {
            scheduler.enqueue(now, Class::Standard, flow(1), 1_000, ()).unwrap();
        }
        scheduler.dequeue(now, |_, ()| late += 1).unwrap();
    }
    assert!(late > 10, "{late}");
}

#[test]
fn invalid_configurations_are_rejected() {
    let rejected = |change: fn(&mut Config)| {
        let mut config = CONFIG;
        change(&mut config);
        Scheduler::<()>::new(config).unwrap_err()
    };
    assert_eq!(rejected(|config| config.cap.rate = 0), ConfigError::NoCap);
    assert_eq!(rejected(|config| config.cap.burst = 0), ConfigError::NoCap);
    assert_eq!(rejected(|config| config.codel.target = Duration::ZERO), ConfigError::InvalidCodel);
    assert_eq!(rejected(|config| config.codel.interval = config.codel.target), ConfigError::InvalidCodel);
    assert_eq!(rejected(|config| config.shares.least.weight = 0), ConfigError::NoWeight(Class::Least));
    assert_eq!(rejected(|config| config.shares.assured.flows = 0), ConfigError::NoFlows(Class::Assured));
    let small = rejected(|config| config.shares.real_time.limit = 65_999);
    assert_eq!(
        small.to_string(),
        "class real-time: the limit of 65999 bytes is too low, at least 66000 are required"
    );
    assert!(Scheduler::<()>::new(Config::SERVER).is_ok());
}

/// One call of the scheduler.
#[derive(Debug, Clone, Copy)]
enum Step {
    Offer {
        class: Class,
        flow: u32,
        len: usize,
    },
    Take,
    Wait(u64),
    /// The clock goes backwards.
    Back(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0usize..300, 300usize..2_000, 2_000usize..70_000];
    let offer = (0usize..5, 0u32..6, len).prop_map(|(class, n, len)| Step::Offer {
        class: Class::ALL[class],
        flow: flow(n),
        len,
    });
    prop_oneof![
        6 => offer,
        4 => Just(Step::Take),
        1 => (0u64..40_000).prop_map(Step::Wait),
        1 => (0u64..40_000).prop_map(Step::Back),
    ]
}

/// Model of the scheduler's content.
#[derive(Default)]
struct SchedulerModel {
    /// Number and length of the queued items in order of arrival, by class and flow.
    flows: BTreeMap<(usize, u32), VecDeque<(u32, usize)>>,
}

impl SchedulerModel {
    fn push(&mut self, class: Class, flow: u32, item: (u32, usize)) {
        self.flows.entry((class.index(), flow)).or_default().push_back(item);
    }

    /// Removes an item, which must be the oldest of its flow.
    fn pop(&mut self, class: Class, flow: u32, number: u32) {
        let oldest = self.flows.get_mut(&(class.index(), flow)).and_then(VecDeque::pop_front);
        assert_eq!(oldest.map(|(number, _)| number), Some(number), "{class}, flow {flow:x}");
    }

    fn len(&self) -> usize {
        self.flows.values().map(VecDeque::len).sum()
    }

    fn bytes(&self, class: Class) -> usize {
        let flows = self.flows.iter().filter(|((of, _), _)| *of == class.index());
        flows.flat_map(|(_, items)| items).map(|(_, len)| (*len).max(256)).sum()
    }
}

proptest! {
    /// No item is lost or duplicated, flows keep their order, and no class exceeds its limit.
    #[test]
    fn any_sequence_of_calls(steps in prop::collection::vec(any_step(), 1..400), target in 1u64..20_000) {
        let codel = CodelParams {
            target: Duration::from_micros(target),
            interval: Duration::from_micros(target * 2),
        };
        let mut scheduler = made(Config { codel, ..CONFIG });
        let (mut model, mut now) = (SchedulerModel::default(), START);
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u32;
            match step {
                Step::Offer { class, flow, len } => {
                    match scheduler.enqueue(now, class, flow, len, (flow, number)) {
                        Ok(()) => model.push(class, flow, (number, len)),
                        Err(rejected) => prop_assert_eq!(rejected.item, (flow, number)),
                    }
                }
                Step::Take => {
                    let taken = scheduler.dequeue(now, |class, item| model.pop(class, item.0, item.1));
                    prop_assert!(taken.is_some() || model.len() == 0, "queued items were not served");
                    if let Some((class, item)) = taken {
                        model.pop(class, item.0, item.1);
                    }
                }
                Step::Wait(micros) => now = now.after(Duration::from_micros(micros)),
                Step::Back(micros) => now = Instant::from_micros(now.as_micros().saturating_sub(micros)),
            }
            prop_assert_eq!(scheduler.len(), model.len());
            for class in Class::ALL {
                prop_assert_eq!(scheduler.backlog_bytes(class) as usize, model.bytes(class));
                prop_assert!(scheduler.backlog_bytes(class) <= SHARE.limit);
            }
        }
        while let Some((class, item)) = scheduler.dequeue(now, |class, item| model.pop(class, item.0, item.1)) {
            model.pop(class, item.0, item.1);
        }
        prop_assert_eq!((model.len(), scheduler.len()), (0, 0));
        for class in Class::ALL {
            let Counters { accepted, taken, late, .. } = scheduler.counters(class);
            prop_assert_eq!(accepted, taken + late);
        }
    }

    /// Two classes that are always backlogged, with any low-latency traffic: over any time, bytes per unit of
    /// weight differ by at most three turns and two items.
    #[test]
    fn classes_are_fair_over_any_time(
        weights in (1u16..9, 1u16..9),
        lens in prop::collection::vec(
            (1usize..66_000, 1usize..66_000, prop::option::of(1usize..2_000)),
            100..300,
        ),
    ) {
        let mut config = CONFIG;
        (config.shares.assured.weight, config.shares.standard.weight) = weights;
        let mut scheduler = made(config);
        let mut balance = vec![0f64];
        for (a, b, first) in lens {
            for class in [Class::Assured, Class::Standard] {
                while scheduler.backlog_bytes(class) < 66_000 {
                    let len = if class == Class::Assured { a } else { b };
                    scheduler.enqueue(START, class, 0, len, len).unwrap();
                }
            }
            if let Some(len) = first {
                let _ = scheduler.enqueue(START, Class::LowLatency, 0, len, len);
            }
            let (class, len) = scheduler.dequeue(START, never).unwrap();
            let turns = |weight: u16| len.max(256) as f64 / (1_514.0 * f64::from(weight));
            balance.push(
                balance[balance.len() - 1]
                    + match class {
                        Class::Assured => turns(weights.0),
                        Class::Standard => -turns(weights.1),
                        _ => 0.0,
                    },
            );
        }
        let (min, max) =
            balance.iter().fold((0f64, 0f64), |(min, max), at| (min.min(*at), max.max(*at)));
        let item = 66_000.0 / 1_514.0;
        let allowed = 3.0 + item / f64::from(weights.0) + item / f64::from(weights.1);
        prop_assert!(max - min <= allowed, "{} turns apart, {} allowed", max - min, allowed);
    }
}

#[test]
fn tokens_accumulate_up_to_the_burst() {
    let mut bucket = TokenBucket::new(Cap { rate: 1_000, burst: 500 });
    let at = Instant::from_micros;
    bucket.take(500);
    assert!(!bucket.has_tokens(at(0)));
    assert!(!bucket.has_tokens(at(0)), "no tokens without elapsed time");
    assert!(bucket.has_tokens(at(1)), "a thousandth of a token is enough");
    bucket.take(1_000);
    assert!(!bucket.has_tokens(at(999_000)));
    assert!(bucket.has_tokens(at(1_001_000)));
    assert!(bucket.has_tokens(Instant::from_secs(1 << 40)));
    bucket.take(500);
    assert!(!bucket.has_tokens(Instant::from_secs(1 << 40)), "at most the burst");
    assert!(!bucket.has_tokens(at(5)), "the clock goes backwards");
}

proptest! {
    /// Holds for every time interval, regardless of how often the bucket is queried.
    #[test]
    fn no_interval_gets_more_than_the_cap(
        rate in 1u64..1_000_000_000,
        burst in 1u32..200_000,
        steps in prop::collection::vec((0u64..20_000, 1u32..66_000), 1..150),
    ) {
        let mut bucket = TokenBucket::new(Cap { rate, burst });
        let (mut now, mut went) = (Instant::ZERO, Vec::new());
        for (wait, len) in steps {
            now = now.after(core::time::Duration::from_micros(wait));
            if bucket.has_tokens(now) {
                bucket.take(len);
                went.push((now, len));
            }
        }
        for (at, (from, _)) in went.iter().enumerate() {
            let mut bytes = 0;
            for (to, len) in &went[at..] {
                let allowed =
                    u128::from(burst) + u128::from(rate) * to.since(*from).as_micros() / 1_000_000;
                prop_assert!(
                    bytes <= allowed,
                    "{} bytes passed before the last item, {} allowed",
                    bytes,
                    allowed
                );
                bytes += u128::from(*len);
            }
        }
    }
}
