//! The benchmark of calls, run for a second: so that it works when it is wanted.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

#[test]
#[ignore = "it keeps two CPUs busy for a minute; `cargo xtask bench calls --check` runs it"]
fn calls_are_heard_and_bulk_is_too_much() {
    let Some(report) = common::run(env!("CARGO_BIN_EXE_calls"), "--rounds 1 --seconds 1") else { return };
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 16, "{report}");
    for row in rows {
        let median = |what: &str| row[what]["median"].as_f64().unwrap();
        let load = row["load"].as_u64().unwrap();
        assert!((0.0..100.0).contains(&median("lost_percent")), "{row}");
        assert!(median("median_ms") > 0.0, "{row}");
        assert_eq!(median("bulk_mbit") > 0.5, load > 0, "{row}");
        // Three times as much as gets through cannot get through.
        assert!(load < 3 || median("bulk_mbit") < 0.8 * median("offered_mbit"), "{row}");
    }
}
