//! The Raspberry Pi under QEMU.

use super::Order;
use super::lines::{self, Counts};
use crate::Context;
use casemate_stage::{Background, Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A clock that moves by 2^10 nanoseconds for each instruction, whatever time that takes: a microsecond, which is what the board's timer shows, is less than one.
const CLOCK: &str = "shift=10,sleep=off,align=off";
/// However little time the step has.
const LEAST: Duration = Duration::from_secs(5);

/// What QEMU's own messages begin with; they come where the image's lines do.
const PROGRAM: &str = "qemu-system-arm";

/// Runs the image until it has said everything, or for twice the time that the step should take. It is an error that it ends before.
pub(super) fn run(context: &Context, image: &Path, order: &Order) -> Result<Counts> {
    context.progress.expect(order.count());
    let mut qemu = Background::start("qemu", command(image, order), &context.scratch.join("pi.out"))?;
    let (begun, limit, mut told) = (Instant::now(), context.time.saturating_mul(2).max(LEAST), 0);
    let waited = qemu.wait_until(limit, |said| {
        let lines = said.lines().filter(|line| line.starts_with("cell ")).count();
        (told..lines).for_each(|_| context.progress.next("emulated Raspberry Pi"));
        told = told.max(lines);
        said.ends_with("\nend\n")
    });
    let is_in_time = begun.elapsed() <= limit;
    let said = qemu.said();
    let lines = said.split_inclusive('\n').filter(|line| !line.starts_with(PROGRAM));
    let counts = lines::read(&lines.collect::<String>(), order).map_err(Error::in_front(image.display()))?;
    match waited {
        Err(error) if counts.cells.is_empty() || is_in_time && !counts.is_whole => Err(error),
        _ => Ok(counts),
    }
}

/// QEMU, which ends with this program.
fn command(image: &Path, order: &Order) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "--",
        PROGRAM,
        "-machine",
        "raspi1ap",
        "-nodefaults",
        "-no-user-config",
    ]);
    command
        .args(["-display", "none", "-serial", "stdio", "-no-reboot", "-icount", CLOCK, "-kernel"])
        .arg(image);
    let words: String = order.words().iter().map(|word| format!(",arg={word}")).collect();
    command.arg("-semihosting-config").arg(format!("enable=on,target=native{words}"));
    command.stdin(Stdio::null());
    command
}
