//! Test of the benchmark of many tunnels, with few tunnels and measurements of one second.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

mod common;

#[test]
fn few_tunnels_carry_traffic() {
    let Some(report) = common::run(env!("CARGO_BIN_EXE_many"), "--rounds 1 --seconds 1 --tunnels 50") else {
        return;
    };
    assert_eq!(report["tunnels"], 50);
    let provider = &report["providers"][0];
    let median = |what: &str| provider[what]["median"].as_f64().unwrap();
    assert_eq!(provider["name"], "aws-lc");
    assert!(median("one") > 100.0 && median("all") > 100.0, "{report}");
    assert!(median("lost") < 0.5, "{report}");
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["held"].is_boolean()), "{report}");
}
