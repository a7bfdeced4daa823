//! libFuzzer with the target that the environment names. The driver, `casemate-fuzz`, starts it.
#![no_main]

use casemate_fuzz::{Target, target};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("CASEMATE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        eprintln!("CASEMATE_FUZZ_TARGET names no target: `{name}`");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
