//! Figures 5 to 8 on an emulated Raspberry Pi, the device of the paper, in instructions instead of time: the
//! run of the image under QEMU, its arguments and its output.
//!
//! The image (verify/bare) contains both hosts and counts the instructions of the device. QEMU advances its
//! clock by a constant time per instruction.

mod figures;
mod findings;

use crate::embedded::flow::{FLOWS, Flow};
use crate::embedded::protection::SUITES;
use crate::embedded::protection::Suite;
use crate::{Artifact, Context, Requirement};
use casemate_measure::report::{Part, Skipped};
use casemate_testbed::{Background, Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Requirements of the step.
pub(super) const NEEDS: &[Requirement] = &[Requirement::QEMU_ARM, Requirement::Artifact(Artifact::Pi)];
/// Name of the device in reports.
const DEVICE_NAME: &str = "emulated Raspberry Pi";

/// Rows of the short form.
const QUICK_SUITES: [Suite; 6] =
    [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm, Suite::ChaCha];

/// Extent of the measurement.
struct Plan {
    suites: Vec<Suite>,
    /// Message lengths in bytes.
    sizes: Vec<usize>,
}

/// Result of the measurement.
struct Run {
    plan: Plan,
    cells: Vec<Cell>,
}

/// Runs the step.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let plan = Plan::of(context.quick);
    let Counts { cells, is_complete } = run_image(context, context.artifact(Artifact::Pi)?, &plan)?;
    let run = Run { plan, cells };
    let missing = if is_complete { Vec::new() } else { run.missing() };
    for out in &missing {
        context.progress.print_line(&format!("skipped: {}: {}", out.what, out.why));
    }
    Ok(vec![Part {
        title: format!("Instructions for latency and throughput, {DEVICE_NAME}"),
        text: TEXT.into(),
        figures: figures::all(&run),
        tables: figures::tables(&run),
        findings: findings::of(&run),
        samples: run.samples(),
        skipped: missing,
    }])
}

const TEXT: &str = "The device of the paper, an ARM1176 (QEMU's raspi1ap), without an operating system. \
     QEMU's clock advances by a constant time per instruction, so instructions are counted instead of \
     time, and every run gives the same result. The image contains the device and its peer, each with \
     smoltcp and Casemate, and a cable of 50 µs in each direction. Only the instructions of the device \
     count, from the reception of a frame to its transmission, including the application. There is no \
     network card, driver or operating system. A real processor also waits for memory, and needs more \
     than one cycle for some instructions. Each value is measured once, because a second measurement \
     gives the same result.";

impl Plan {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { suites: QUICK_SUITES.into(), sizes: vec![1, 256, 1_360, 8_192] },
            false => Self { suites: SUITES.into(), sizes: vec![1, 64, 256, 1_024, 1_360, 4_096, 16_384] },
        }
    }

    /// Number of expected output lines.
    fn count(&self) -> usize {
        self.suites.len() * self.sizes.len() * FLOWS.len()
    }
}

impl Run {
    /// Rows that are incomplete.
    fn missing(&self) -> Vec<Skipped> {
        let each = self.plan.sizes.len() * FLOWS.len();
        let count = |suite: Suite| self.cells.iter().filter(|cell| cell.suite == suite).count();
        let rows = self.plan.suites.iter().filter(|suite| count(**suite) < each);
        let out = |suite: &Suite| Skipped {
            what: format!("{DEVICE_NAME}, {suite}"),
            why: "no time: this machine is too slow or too busy".into(),
            failed: false,
        };
        rows.map(out).collect()
    }
}

/// Names of the rows in the image.
const ROWS: [(&str, Suite); 8] = [
    ("plain", Suite::Plain),
    ("unused", Suite::Unused),
    ("ah-md5", Suite::AhMd5),
    ("esp-3des-md5", Suite::EspTripleDes),
    ("ah-sha256", Suite::AhSha2),
    ("esp-aes128gcm16", Suite::Gcm),
    ("esp-chacha20poly1305", Suite::ChaCha),
    ("esp-aes128-sha256", Suite::CbcSha2),
];
/// Names of the flows, in the order of [`FLOWS`].
const FLOW_WORDS: [&str; 4] = ["host-asks", "device-asks", "device-sends", "host-sends"];
/// Maximum deviation of the clock in a hundred thousand instructions. A clock that does not count
/// instructions deviates far more.
const CLOCK_TOLERANCE: u64 = 10;

/// One count.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    suite: Suite,
    flow: Flow,
    /// Length of a message in bytes.
    size: usize,
    /// Instructions of the device.
    instructions: f64,
    /// Number of transactions or bytes.
    units: f64,
}

/// Parsed output.
#[derive(Debug, PartialEq)]
struct Counts {
    cells: Vec<Cell>,
    /// Whether the output is complete.
    is_complete: bool,
}

impl Cell {
    /// Instructions per transaction or per byte.
    fn cost(&self) -> f64 {
        self.instructions / self.units
    }
}

impl Plan {
    /// Arguments of the image.
    fn words(&self) -> Vec<String> {
        let rows = self.suites.iter().filter_map(|suite| ROWS.iter().find(|(_, known)| known == suite));
        rows.map(|(word, _)| (*word).into()).chain(self.sizes.iter().map(ToString::to_string)).collect()
    }
}

/// Parses the complete lines of the output so far. Errors name the line.
fn read(output: &str, plan: &Plan) -> Result<Counts, String> {
    let complete = output.rfind('\n').map_or("", |end| output.get(..end).unwrap_or_default());
    let mut lines = complete.lines().enumerate();
    let mut counts = Counts { cells: Vec::new(), is_complete: false };
    let Some((_, first)) = lines.next() else { return Ok(counts) };
    clock(first)?;
    let mut expected = plan.cells();
    for (number, line) in lines {
        let wrong = |what: &str| Err(format!("line {}: `{line}`: expected {what}", number + 1));
        match (expected.next(), counts.is_complete) {
            (None, false) if line == "end" => counts.is_complete = true,
            (None, false) => return wrong("`end`"),
            (None, true) => return wrong("nothing after `end`"),
            (Some(key), _) => match cell(line, key) {
                Some(cell) => counts.cells.push(cell),
                None => return wrong(&format!("`cell {} INSTRUCTIONS UNITS`", key.name())),
            },
        }
    }
    Ok(counts)
}

impl Plan {
    /// Expected cells, in order.
    fn cells(&self) -> impl Iterator<Item = CellKey> {
        self.suites.iter().flat_map(move |suite| {
            let (suite, sizes) = (*suite, &self.sizes);
            FLOWS.iter().flat_map(move |flow| {
                sizes.iter().map(move |size| CellKey { suite, flow: *flow, size: *size })
            })
        })
    }
}

/// Identifies a count.
#[derive(Clone, Copy)]
struct CellKey {
    suite: Suite,
    flow: Flow,
    /// Length of a message in bytes.
    size: usize,
}

impl CellKey {
    /// Name in the output.
    fn name(self) -> String {
        let row = ROWS.iter().find(|(_, suite)| *suite == self.suite).map_or("", |(word, _)| word);
        let mut flows = FLOWS.iter().zip(FLOW_WORDS);
        let flow = flows.find(|(flow, _)| **flow == self.flow).map_or("", |(_, word)| word);
        format!("{row} {flow} {}", self.size)
    }
}

/// Parses the count of this cell.
fn cell(line: &str, key: CellKey) -> Option<Cell> {
    let rest = line.strip_prefix(&format!("cell {} ", key.name()))?;
    let (instructions, units) = rest.split_once(' ')?;
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).map(|number| number as f64);
    let CellKey { suite, flow, size } = key;
    Some(Cell { suite, flow, size, instructions: number(instructions)?, units: number(units)? })
}

/// Checks the first line: a number of instructions, and the number that the clock counted.
fn clock(line: &str) -> Result<(), String> {
    let numbers = || {
        let (known, counted) = line.strip_prefix("clock ")?.split_once(' ')?;
        Some((known.parse::<u64>().ok()?, counted.parse::<u64>().ok()?))
    };
    let (known, counted) =
        numbers().ok_or_else(|| format!("line 1: `{line}`: expected `clock INSTRUCTIONS COUNTED`"))?;
    if known.abs_diff(counted) > CLOCK_TOLERANCE {
        return Err(format!("QEMU's clock does not count instructions: {counted} for {known}"));
    }
    Ok(())
}

/// QEMU advances the clock by 2^10 nanoseconds per instruction, regardless of real time. This exceeds a
/// microsecond, the resolution of the board's timer.
const CLOCK: &str = "shift=10,sleep=off,align=off";
/// Minimum time limit.
const MIN_TIME: Duration = Duration::from_secs(5);

/// Prefix of QEMU's own messages, which are mixed with the output of the image.
const PROGRAM: &str = "qemu-system-arm";

/// Runs the image until its output is complete, or for twice the time of the step. Fails if the image ends
/// early.
fn run_image(context: &Context, image: &Path, plan: &Plan) -> Result<Counts> {
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
    let counts = read(&lines.collect::<String>(), plan).map_err(Error::context(image.display()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { suites: vec![Suite::AhMd5], sizes: vec![1] }
    }

    const SAID: &str = "clock 100000 100001\ncell ah-md5 host-asks 1 400 4\ncell ah-md5 device-asks 1 500 4\n\
        cell ah-md5 device-sends 1 3000 1000\ncell ah-md5 host-sends 1 4000 1000\nend\n";

    #[test]
    fn complete_lines_are_parsed() {
        assert_eq!(plan().words(), ["ah-md5", "1"]);
        let counts = read(SAID, &plan()).unwrap();
        assert!(counts.is_complete);
        let costs: Vec<f64> = counts.cells.iter().map(Cell::cost).collect();
        assert_eq!(costs, [100.0, 125.0, 3.0, 4.0]);
        assert_eq!(counts.cells[1].flow, Flow::DeviceAsks);
        // The output arrives byte by byte.
        for end in 0..SAID.len() {
            let part = read(&SAID[..end], &plan()).unwrap();
            assert!(!part.is_complete && part.cells.len() <= 4, "{part:?}");
        }
    }

    #[test]
    fn invalid_output_is_rejected_with_its_line() {
        let wrong = |from: &str, to: &str| read(&SAID.replace(from, to), &plan()).unwrap_err();
        assert!(wrong("clock 100000 100001", "clock 100000 97").contains("does not count instructions"));
        assert!(wrong("clock 100000 100001", "hello").starts_with("line 1: `hello`"));
        assert!(wrong("device-asks", "host-asks").starts_with("line 3: `cell ah-md5 host-asks 1 500 4`"));
        assert!(wrong(" 500 4", " 500 0").contains("line 3"));
        assert!(wrong(" 500 4", " 500").contains("line 3"));
        assert!(wrong("end\n", "panic\n").contains("expected `end`"));
        assert!(wrong("end\n", "end\nend\n").contains("nothing after"));
    }
}
