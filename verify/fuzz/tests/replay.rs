//! Runs all targets with their seeds and regressions.

use casemate_fuzz::{TARGETS, regressions};
use std::collections::HashSet;

#[test]
fn seeds_pass() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in seeds {
            assert!(seed.len() <= target.max_len, "{}: a seed of {} bytes", target.name, seed.len());
            (target.run)(&seed);
        }
        (target.run)(&[]);
    }
}

#[test]
fn regressions_stay_fixed() {
    assert!(regressions::strays().unwrap().is_empty(), "a directory of regressions belongs to no target");
    for target in TARGETS {
        for regression in regressions::of(target).unwrap() {
            println!("{}", regression.path.display());
            (target.run)(&regression.input);
        }
    }
}

#[test]
fn names_are_unique() {
    let names: HashSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len());
}

#[test]
fn hexadecimal_digits_round_trip() {
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(regressions::from_hex(&regressions::to_hex(&bytes)), Some(bytes));
    assert_eq!(regressions::from_hex("0 1\nff"), Some(vec![1, 0xff]));
    assert_eq!(regressions::from_hex("012"), None);
    assert_eq!(regressions::from_hex("0g"), None);
}
