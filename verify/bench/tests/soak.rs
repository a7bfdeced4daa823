//! Test of the soak benchmark, for a few seconds.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod common;

#[test]
fn rekeying_under_load_loses_no_packet() {
    let Some(report) = common::run(env!("CARGO_BIN_EXE_soak"), "--seconds 6 --rekey 2") else { return };
    assert!(report["rekeys"].as_u64().unwrap() >= 2, "{report}");
    for count in report["packets"].as_array().unwrap() {
        assert!(count["sent"].as_u64().unwrap() > 1_000, "{report}");
        assert_eq!(count["lost"], 0, "{report}");
    }
}
