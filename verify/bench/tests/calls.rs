//! Test of the benchmark of calls, with measurements of one second.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod common;

#[test]
#[ignore = "keeps two CPUs busy for a minute; `cargo xtask bench calls --check` runs it"]
fn calls_arrive_and_bulk_traffic_exceeds_the_capacity() {
    let Some(report) = common::run(env!("CARGO_BIN_EXE_calls"), "--rounds 1 --seconds 1") else { return };
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 16, "{report}");
    for row in rows {
        let median = |what: &str| row[what]["median"].as_f64().unwrap();
        let load = row["load"].as_u64().unwrap();
        assert!((0.0..100.0).contains(&median("lost_percent")), "{row}");
        assert!(median("median_ms") > 0.0, "{row}");
        assert_eq!(median("bulk_mbit") > 0.5, load > 0, "{row}");
        // The bulk load of 3 offers three times the capacity.
        assert!(load < 3 || median("bulk_mbit") < 0.8 * median("offered_mbit"), "{row}");
    }
}
