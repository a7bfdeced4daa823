//! Seeds, from which everything follows: what is configured, what the network does, and what befalls the endpoints.
#![allow(clippy::panic, reason = "a test may fail")]

use casemate_sim::{Options, Seen, run, run_all};

/// How many are run. More, and others: `cargo run -p casemate-sim --release -- --seeds N --from S`.
const SEEDS: u64 = 10_000;

#[test]
fn every_seed_keeps_every_invariant() {
    let (tally, failures) = run_all(0..SEEDS, Options::default());
    println!("{tally}");
    let told: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} seeds fail:\n{}", failures.len(), told.join("\n"));
    // A world in which nothing happens keeps every invariant, too.
    assert_eq!(tally.unseen(), Vec::<&str>::new());
    assert!(
        [Seen::Ike, Seen::IkeRekeyed, Seen::Child, Seen::Delivered]
            .iter()
            .all(|what| tally.of(*what) > SEEDS)
    );
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..10 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}
