use super::*;
use crate::admission::Remembered;
use crate::classify::Decision;
use crate::spd::flows::{later, later_opaque, whole};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::vec::Vec;

fn flow(n: u32) -> FlowKey {
    FlowKey::v4(Ipv4Addr::from_bits(n), Ipv4Addr::LOCALHOST, 17, (1, 2))
}

#[test]
fn one_cache_line_for_an_entry() {
    assert_eq!(size_of::<Option<Entry<Decision>>>(), 64);
    assert_eq!(size_of::<Option<Entry<Remembered>>>(), 64);
}

#[test]
fn sizes_are_powers_of_two() {
    for (asked, got) in [(0, 4), (1, 4), (4, 4), (5, 8), (9, 16), (65_536, 65_536)] {
        assert_eq!(FlowCache::<()>::new(asked, 1).capacity(), got);
    }
}

#[test]
fn another_epoch_never_answers() {
    let mut cache = FlowCache::new(4, 1);
    cache.insert(&flow(1), 7, 'a');
    assert_eq!(cache.get(&flow(1), 7), Some('a'));
    assert_eq!(cache.get(&flow(1), 8), None);
    assert_eq!(cache.get(&flow(1), 6), None);
    cache.insert(&flow(1), 8, 'b');
    assert_eq!(cache.get(&flow(1), 8), Some('b'));
    assert_eq!(cache.get(&flow(1), 7), None);
}

/// One set: what no longer answers gives way first, then entries take turns.
#[test]
fn the_dead_give_way_first() {
    let mut cache = FlowCache::new(WAYS, 1);
    for n in 0..4 {
        cache.insert(&flow(n), 0, n);
    }
    assert!((0..4).all(|n| cache.get(&flow(n), 0) == Some(n)), "four flows have room");
    cache.insert(&flow(4), 1, 4);
    cache.insert(&flow(5), 1, 5);
    cache.insert(&flow(5), 1, 55);
    assert_eq!((4..6).filter_map(|n| cache.get(&flow(n), 1)).collect::<Vec<_>>(), [4, 55]);
    assert_eq!((0..4).filter_map(|n| cache.get(&flow(n), 0)).count(), 2);
    for n in 6..100 {
        cache.insert(&flow(n), 1, n);
        assert_eq!(cache.get(&flow(n), 1), Some(n));
        assert_eq!((4..=n).filter_map(|n| cache.get(&flow(n), 1)).count(), WAYS.min(n as usize - 3));
    }
}

/// Flows that differ in one thing only are told apart; all of them share one set.
#[test]
fn whole_keys_are_compared() {
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
    let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits));
    let (low_a, low_b, high) = (v6(0x0a00_0001), v6(0x0a00_0002), v6(0x0a00_0001 << 64));
    let flows = [
        whole(a, b, 6, (0, 0)),
        whole(b, a, 6, (0, 0)),
        whole(a, a, 6, (0, 0)),
        whole(a, b, 17, (0, 0)),
        whole(a, b, 6, (1, 0)),
        whole(a, b, 6, (0, 1)),
        whole(a, b, 6, (256, 0)),
        whole(a, b, 6, (0, 256)),
        later(a, b, 6),
        whole(low_a, low_b, 6, (0, 0)),
        whole(high, low_b, 6, (0, 0)),
        whole(low_a, high, 6, (0, 0)),
        later(low_a, low_b, 6),
        later_opaque(low_a, low_b),
    ];
    for told in &flows {
        let mut cache = FlowCache::new(WAYS, 1);
        cache.insert(told, 0, ());
        assert_eq!(flows.iter().filter(|flow| cache.get(flow, 0).is_some()).collect::<Vec<_>>(), [told]);
    }
}

#[test]
fn the_seed_moves_flows() {
    let set = |seed| {
        let cache = FlowCache::<()>::new(1 << 12, seed);
        (0..64).map(|n| cache.set_of(&flow(n)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(set(1), set(1));
    assert_ne!(set(1), set(2));
    assert!(set(1).iter().collect::<HashSet<_>>().len() > 48, "flows spread over the sets");
}

proptest! {
    /// It may forget, but says nothing else than what it was told last.
    #[test]
    fn never_wrong(
        steps in proptest::collection::vec((0..24u32, 0..3u64, proptest::option::of(any::<u16>())), 1..400),
        entries in 0..40usize,
        seed: u64,
    ) {
        let mut cache = FlowCache::new(entries, seed);
        let mut told = HashMap::new();
        for (n, epoch, value) in steps {
            if let Some(value) = value {
                cache.insert(&flow(n), epoch, value);
                told.insert((n, epoch), value);
                prop_assert_eq!(cache.get(&flow(n), epoch), Some(value));
            } else if let Some(value) = cache.get(&flow(n), epoch) {
                prop_assert_eq!(told.get(&(n, epoch)), Some(&value));
            }
        }
    }
}
