//! Runs of many seeds. A seed determines the configuration, the network conditions and the disruptions.
#![allow(clippy::panic, reason = "tests may panic")]

use casemate_sim::{Options, Situation, run, run_all};

/// Number of seeds. `cargo run -p casemate-sim --release -- --seeds N --from S` runs other seeds.
const SEEDS: u64 = 10_000;

#[test]
fn all_seeds_keep_all_invariants() {
    let (coverage, failures) = run_all(0..SEEDS, Options::default());
    println!("{coverage}");
    let shown: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} seeds fail:\n{}", failures.len(), shown.join("\n"));
    // A simulation without events would keep every invariant, too.
    assert_eq!(coverage.unseen(), Vec::<&str>::new());
    assert!(
        [Situation::Ike, Situation::IkeRekeyed, Situation::Child, Situation::Delivered]
            .iter()
            .all(|what| coverage.count_of(*what) > SEEDS)
    );
}

#[test]
fn runs_are_repeatable() {
    for seed in 0..10 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}
