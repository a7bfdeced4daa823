//! The soak, for a few seconds: keys change under load, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

#[test]
fn keys_change_under_load_and_no_packet_is_lost() {
    let Some(report) = common::run(env!("CARGO_BIN_EXE_soak"), "--seconds 6 --rekey 2") else { return };
    assert!(report["rekeys"].as_u64().unwrap() >= 2, "{report}");
    for count in report["packets"].as_array().unwrap() {
        assert!(count["sent"].as_u64().unwrap() > 1_000, "{report}");
        assert_eq!(count["lost"], 0, "{report}");
    }
}
