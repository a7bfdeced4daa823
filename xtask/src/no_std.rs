//! The proof that core/ needs no operating system: built where there is none, and run there.

use crate::bare::{self, AARCH64, ARMV6, THUMB, Target};
use crate::failure::{Failure, Result};
use std::time::Duration;

pub(crate) const ABOUT: &str = "Build core/ where there is no std, and run its self-test on emulated boards
core/, providers/rustcrypto and the adapters for smoltcp and lwIP are built for ARM processors without an operating system, with
Debian's rustc-web, which builds core and alloc along. The self-test of verify/bare is booted by QEMU on a Raspberry Pi 1 (ARM1176),
on a Cortex-M4 and on a Cortex-A72: known answers of every algorithm, ESP and AH in both modes, fragments, replays, and IKEv2.
With --board NAME (ARMv6, Thumb or AArch64) on that one only.";

/// Ours and the adapters for devices; with them everything in core/.
const CRATES: [&str; 9] = [
    "--package",
    "casemate-smoltcp",
    "--package",
    "casemate-lwip",
    "--package",
    "casemate-pki",
    "--package",
    "casemate-sched",
    "--lib",
];
const SELFTEST: [&str; 6] = ["--package", "casemate-bare", "--features", "image", "--bin", "selftest"];
const PROFILE: &str = "device";
/// It takes about ten seconds; a slow machine with other work has ten times as long.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs the task.
pub(crate) fn run(arguments: &[String]) -> Result {
    let boards = [ARMV6, THUMB, AARCH64];
    let chosen: Vec<Target> = match arguments {
        [] => boards.to_vec(),
        [option, name] if option == "--board" => {
            boards.into_iter().filter(|board| board.name.eq_ignore_ascii_case(name)).collect()
        }
        _ => Vec::new(),
    };
    if chosen.is_empty() {
        return Err(Failure::new("expected nothing, or --board with one of ARMv6, Thumb, AArch64"));
    }
    if let Some(why) = bare::unavailable() {
        return Err(Failure::new(why));
    }
    bare::build(ARMV6, PROFILE, &CRATES)?;
    chosen.into_iter().try_for_each(selftest)
}

fn selftest(board: Target) -> Result {
    bare::build(board, PROFILE, &SELFTEST)?;
    let printed = bare::boot(board, &bare::directory(board, PROFILE)?.join("selftest"), LIMIT)?;
    println!("{}:\n{printed}", board.name);
    if printed.lines().last() == Some("self-test passed") {
        return Ok(());
    }
    Err(Failure::new(format!("the self-test on {} did not come to its end", board.name)))
}
