//! Runs the Raspberry Pi image under QEMU.

use super::Plan;
use super::output::{self, Counts};
use crate::Context;
use casemate_testbed::{Background, Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// QEMU advances the clock by 2^10 nanoseconds per instruction, regardless of real time. This exceeds a
/// microsecond, the resolution of the board's timer.
const CLOCK: &str = "shift=10,sleep=off,align=off";
/// Minimum time limit.
const MIN_TIME: Duration = Duration::from_secs(5);

/// Prefix of QEMU's own messages, which are mixed with the output of the image.
const PROGRAM: &str = "qemu-system-arm";

/// Runs the image until its output is complete, or for twice the time of the step. Fails if the image ends
/// early.
pub(super) fn run(context: &Context, image: &Path, plan: &Plan) -> Result<Counts> {
    context.progress.set_total(plan.count());
    let mut qemu = Background::start("qemu", command(image, plan), &context.scratch.join("pi.out"))?;
    let (start, limit, mut reported) = (Instant::now(), context.time.saturating_mul(2).max(MIN_TIME), 0);
    let waited = qemu.wait_until(limit, |output| {
        let lines = output.lines().filter(|line| line.starts_with("cell ")).count();
        (reported..lines).for_each(|_| context.progress.advance("emulated Raspberry Pi"));
        reported = reported.max(lines);
        output.ends_with("\nend\n")
    });
    let is_in_time = start.elapsed() <= limit;
    let output = qemu.output();
    let lines = output.split_inclusive('\n').filter(|line| !line.starts_with(PROGRAM));
    let counts = output::read(&lines.collect::<String>(), plan).map_err(Error::context(image.display()))?;
    match waited {
        Err(error) if counts.cells.is_empty() || is_in_time && !counts.is_complete => Err(error),
        _ => Ok(counts),
    }
}

/// QEMU, which ends with this program.
fn command(image: &Path, plan: &Plan) -> Command {
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
    let words: String = plan.words().iter().map(|word| format!(",arg={word}")).collect();
    command.arg("-semihosting-config").arg(format!("enable=on,target=native{words}"));
    command.stdin(Stdio::null());
    command
}
