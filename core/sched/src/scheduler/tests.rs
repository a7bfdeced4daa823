//! What holds for the scheduler as a whole, one rule at a time, and for any sequence of calls.

use super::*;
use crate::{Cap, MIN_CHARGE, Share};
use core::time::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

const SHARE: Share = Share { weight: 1, limit: 200_000, flows: 8 };

/// A cap of a thousand small packets a second, ten at once; equal classes; no patience that ends within a test.
const CONFIG: Config = Config {
    cap: Cap { rate: 256_000, burst: 2_560 },
    shares: PerClass { low_latency: SHARE, real_time: SHARE, assured: SHARE, standard: SHARE, least: SHARE },
    patience: Patience { target: Duration::from_secs(1_000), interval: Duration::from_secs(10_000) },
    max_len: 66_000,
};

const START: Instant = Instant::from_secs(1);

/// Numbers of flows that are in queues of their own.
fn flow(n: u32) -> u32 {
    n << 29
}

fn never<T>(_: Class, _: T) {
    panic!("nothing waits too long here");
}

fn made<T>(config: Config) -> Scheduler<T> {
    Scheduler::new(config).unwrap()
}

#[test]
fn what_comes_alone_goes_at_once() {
    let mut scheduler = made(CONFIG);
    assert_eq!(scheduler.take(START, never), None);
    for (n, class) in Class::ALL.into_iter().cycle().take(1_000).enumerate() {
        scheduler.offer(START, class, flow(3), 65_000, n).unwrap();
        assert_eq!((scheduler.len(), scheduler.is_empty()), (1, false));
        assert_eq!(scheduler.take(START, never), Some((class, n)), "whatever its debt");
        assert_eq!((scheduler.len(), scheduler.is_empty()), (0, true));
    }
}

#[test]
fn low_latency_goes_first() {
    let mut scheduler = made(CONFIG);
    for n in 0..20 {
        for class in Class::ALL.into_iter().skip(1) {
            scheduler.offer(START, class, flow(n), 1_000, ()).unwrap();
        }
    }
    for _ in 0..10 {
        scheduler.take(START, never).unwrap();
        scheduler.offer(START, Class::LowLatency, flow(0), 200, ()).unwrap();
        assert_eq!(scheduler.take(START, never), Some((Class::LowLatency, ())));
    }
    assert_eq!(scheduler.counters(Class::LowLatency).over_cap, 0);
}

#[test]
fn beyond_the_cap_low_latency_takes_its_turn() {
    let mut scheduler = made(CONFIG);
    let mut taken = [0u64; 2];
    // One second in milliseconds; each could take 20 packets of 1000 bytes, and both classes have as many as they like.
    for ms in 0..1_000 {
        let now = START.after(Duration::from_millis(ms));
        for _ in 0..20 {
            let _ = scheduler.offer(now, Class::LowLatency, flow(1), 1_000, ());
            let _ = scheduler.offer(now, Class::Standard, flow(2), 1_000, ());
            let (class, ()) = scheduler.take(now, never).unwrap();
            taken[usize::from(class == Class::Standard)] += 1_000;
        }
    }
    // 256,000 bytes go first, with the burst of 2,560 and one packet; what remains is shared alike.
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
            let _ = scheduler.offer(START, class, flow(n), 1_200, ());
        }
        scheduler.take(START, never).unwrap();
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

/// Small packets against super-packets of a segmentation offload: by bytes, not by items.
#[test]
fn flows_of_a_class_share_alike() {
    let mut scheduler = made(CONFIG);
    let mut bytes = [0usize; 3];
    for _ in 0..100_000 {
        for (n, len) in [(0, 300), (1, 1_500), (2, 65_000)] {
            let _ = scheduler.offer(START, Class::Standard, flow(n), len, (n as usize, len));
        }
        let (_, (n, len)) = scheduler.take(START, never).unwrap();
        bytes[n] += len;
    }
    let (least, most) = (*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap());
    assert!(most - least < 140_000 && least > 20_000_000, "{bytes:?}");
}

#[test]
fn a_short_packet_counts_for_more_than_its_bytes() {
    let mut scheduler = made(CONFIG);
    let offered =
        (0..10_000).filter(|_| scheduler.offer(START, Class::Least, flow(0), 0, ()).is_ok()).count();
    // Half of the room for one flow, and one more for who comes when exactly half is free.
    assert!(offered.abs_diff(200_000 / 256 / 2) <= 1, "{offered}");
    assert_eq!(scheduler.backlog_bytes(Class::Least) as usize, offered * MIN_CHARGE as usize);
}

#[test]
fn a_greedy_flow_leaves_room_for_others() {
    let mut scheduler = made(CONFIG);
    while scheduler.offer(START, Class::Standard, flow(0), 1_000, ()).is_ok() {}
    assert_eq!(scheduler.backlog_bytes(Class::Standard), 100_000);
    for n in 1..8 {
        assert_eq!(scheduler.offer(START, Class::Standard, flow(n), 1_000, ()), Ok(()));
    }
    let refused = scheduler.offer(START, Class::Standard, flow(0), 1_000, ());
    assert_eq!(refused, Err(Refused { item: (), refusal: Refusal::Full }));
    assert_eq!(scheduler.counters(Class::Standard).full, 2);
    assert_eq!(
        scheduler.offer(START, Class::Assured, flow(0), 66_000, ()),
        Ok(()),
        "each class has its own room"
    );
}

#[test]
fn what_is_longer_than_it_may_be_is_refused() {
    let mut scheduler = made(CONFIG);
    for len in [66_001, usize::MAX] {
        let refused = scheduler.offer(START, Class::Standard, 0, len, 'x');
        assert_eq!(refused, Err(Refused { item: 'x', refusal: Refusal::TooLong }));
    }
    assert_eq!(scheduler.counters(Class::Standard).too_long, 2);
    assert!(scheduler.is_empty());
}

/// A flow that fills its queue for longer than the interval loses packets, at the head; one that does not loses none.
#[test]
fn a_flow_that_stands_pays_alone() {
    let patience = Patience { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
    let mut scheduler = made(Config { patience, ..CONFIG });
    let mut late = Vec::new();
    for n in 0..2_000u32 {
        let now = START.after(Duration::from_millis(n.into()));
        // Two for each that is taken, and now and then one of another flow.
        let _ = scheduler.offer(now, Class::Standard, flow(1), 1_000, (1, n));
        let _ = scheduler.offer(now, Class::Standard, flow(1), 1_000, (1, n));
        if n % 20 == 0 {
            scheduler.offer(now, Class::Standard, flow(2), 1_000, (2, n)).unwrap();
        }
        let taken = scheduler.take(now, |class, item| late.push((n, class, item))).unwrap();
        assert!(taken.1.0 == 1 || n - taken.1.1 < 4, "the other flow waits two turns at most");
    }
    assert!(late.len() > 20, "{late:?}");
    assert!((100..300).contains(&late[0].0), "{:?}", late[0]);
    assert!(late.iter().all(|(_, class, (flow, _))| (*class, *flow) == (Class::Standard, 1)), "{late:?}");
    assert_eq!(scheduler.counters(Class::Standard).late, late.len() as u64);
}

#[test]
fn a_scheduler_that_could_not_serve_is_not_made() {
    let refused = |change: fn(&mut Config)| {
        let mut config = CONFIG;
        change(&mut config);
        Scheduler::<()>::new(config).unwrap_err()
    };
    assert_eq!(refused(|config| config.cap.rate = 0), ConfigError::NoCap);
    assert_eq!(refused(|config| config.cap.burst = 0), ConfigError::NoCap);
    assert_eq!(refused(|config| config.patience.target = Duration::ZERO), ConfigError::NoPatience);
    assert_eq!(refused(|config| config.patience.interval = config.patience.target), ConfigError::NoPatience);
    assert_eq!(refused(|config| config.shares.least.weight = 0), ConfigError::NoWeight(Class::Least));
    assert_eq!(refused(|config| config.shares.assured.flows = 0), ConfigError::NoFlows(Class::Assured));
    let small = refused(|config| config.shares.real_time.limit = 65_999);
    assert_eq!(
        small.to_string(),
        "class real-time: a limit of 65999 bytes, where 66000 or more were expected"
    );
    assert!(Scheduler::<()>::new(Config::SERVER).is_ok());
}

/// One call.
#[derive(Debug, Clone, Copy)]
enum Step {
    Offer {
        class: Class,
        flow: u32,
        len: usize,
    },
    Take,
    Wait(u64),
    /// The clock says an earlier time than before.
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

/// What a scheduler holds by the rules, kept beside it.
#[derive(Default)]
struct Model {
    /// Of each class and flow: number and length, in the order of their coming.
    flows: BTreeMap<(usize, u32), VecDeque<(u32, usize)>>,
}

impl Model {
    fn push(&mut self, class: Class, flow: u32, item: (u32, usize)) {
        self.flows.entry((class.index(), flow)).or_default().push_back(item);
    }

    /// Takes the item out; it must be the oldest of its flow.
    fn pop(&mut self, class: Class, (flow, number): (u32, u32)) {
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
    /// Nothing is lost, nothing comes twice, a flow keeps its order, and no class holds more than it may.
    #[test]
    fn any_sequence_of_calls(steps in prop::collection::vec(any_step(), 1..400), target in 1u64..20_000) {
        let patience = Patience {
            target: Duration::from_micros(target),
            interval: Duration::from_micros(target * 2),
        };
        let mut scheduler = made(Config { patience, ..CONFIG });
        let (mut model, mut now) = (Model::default(), START);
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u32;
            match step {
                Step::Offer { class, flow, len } => {
                    match scheduler.offer(now, class, flow, len, (flow, number)) {
                        Ok(()) => model.push(class, flow, (number, len)),
                        Err(refused) => prop_assert_eq!(refused.item, (flow, number)),
                    }
                }
                Step::Take => {
                    let taken = scheduler.take(now, |class, item| model.pop(class, item));
                    prop_assert!(taken.is_some() || model.len() == 0, "work is not left lying");
                    if let Some((class, item)) = taken {
                        model.pop(class, item);
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
        while let Some((class, item)) = scheduler.take(now, |class, item| model.pop(class, item)) {
            model.pop(class, item);
        }
        prop_assert_eq!((model.len(), scheduler.len()), (0, 0));
        for class in Class::ALL {
            let Counters { accepted, taken, late, .. } = scheduler.counters(class);
            prop_assert_eq!(accepted, taken + late);
        }
    }

    /// Two classes that always have work, beside low-latency traffic of any kind: over any time, bytes for each unit of weight
    /// differ by three turns and two items at most.
    #[test]
    fn classes_are_fair_over_any_time(
        weights in (1u16..9, 1u16..9),
        lens in prop::collection::vec((1usize..66_000, 1usize..66_000, prop::option::of(1usize..2_000)), 100..300),
    ) {
        let mut config = CONFIG;
        (config.shares.assured.weight, config.shares.standard.weight) = weights;
        let mut scheduler = made(config);
        let mut balance = vec![0f64];
        for (a, b, first) in lens {
            for class in [Class::Assured, Class::Standard] {
                while scheduler.backlog_bytes(class) < 66_000 {
                    let len = if class == Class::Assured { a } else { b };
                    scheduler.offer(START, class, 0, len, len).unwrap();
                }
            }
            if let Some(len) = first {
                let _ = scheduler.offer(START, Class::LowLatency, 0, len, len);
            }
            let (class, len) = scheduler.take(START, never).unwrap();
            let turns = |weight: u16| len.max(256) as f64 / (1_514.0 * f64::from(weight));
            balance.push(balance[balance.len() - 1] + match class {
                Class::Assured => turns(weights.0),
                Class::Standard => -turns(weights.1),
                _ => 0.0,
            });
        }
        let (least, most) = balance.iter().fold((0f64, 0f64), |(least, most), at| (least.min(*at), most.max(*at)));
        let item = 66_000.0 / 1_514.0;
        let allowed = 3.0 + item / f64::from(weights.0) + item / f64::from(weights.1);
        prop_assert!(most - least <= allowed, "{} turns apart, {} allowed", most - least, allowed);
    }
}
