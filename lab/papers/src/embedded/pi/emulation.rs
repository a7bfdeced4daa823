//! The Raspberry Pi under QEMU.

use super::Order;
use super::lines::{self, Counts};
use crate::Context;
use casemate_stage::{Background, Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A clock that moves by 2^10 nanoseconds for each instruction, whatever time that takes: a microsecond, which is what the board's timer shows, is less than one.
const CLOCK: &str = "shift=10,sleep=off,align=off";
/// However little time the step has.
const LEAST: Duration = Duration::from_secs(5);

/// Runs the image until it has said everything, or for twice the time that the step should take.
pub(super) fn run(context: &Context, image: &Path, order: &Order) -> Result<Counts> {
    context.progress.expect(order.count());
    let mut qemu = Background::start("qemu", command(image, order), &context.scratch.join("pi.out"))?;
    let mut told = 0;
    let limit = context.time.saturating_mul(2).max(LEAST);
    let waited = qemu.wait_until(limit, |said| {
        let lines = said.lines().filter(|line| line.starts_with("cell ")).count();
        (told..lines).for_each(|_| context.progress.next("emulated Raspberry Pi"));
        told = told.max(lines);
        said.lines().last() == Some("end") && said.ends_with('\n')
    });
    let counts = lines::read(&qemu.said(), order).map_err(Error::in_front(image.display()))?;
    match waited {
        // It has ended by itself, or there was no time for the rest.
        Err(error) if counts.cells.is_empty() => Err(error),
        _ => Ok(counts),
    }
}

fn command(image: &Path, order: &Order) -> Command {
    let mut command = Command::new("qemu-system-arm");
    command.args([
        "-machine",
        "raspi1ap",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.args(["-serial", "stdio", "-icount", CLOCK, "-kernel"]).arg(image);
    let words: String = order.words().iter().map(|word| format!(",arg={word}")).collect();
    command.arg("-semihosting-config").arg(format!("enable=on,target=native{words}"));
    command.stdin(Stdio::null());
    command
}
