//! Figures 5 to 8 on an emulated Raspberry Pi, the device of the paper, in instructions instead of time.
//!
//! The image (verify/bare) contains both hosts and counts the instructions of the device. QEMU advances its
//! clock by a constant time per instruction.

mod emulation;
mod figures;
mod findings;
mod output;

use super::flow::FLOWS;
use super::protection::{SUITES, Suite};
use crate::{Context, Requirement};
use casemate_measure::report::{Part, Skipped};
use casemate_testbed::{Error, Result};
use output::{Cell, Counts};

/// Requirements of the step.
pub(super) const NEEDS: &[Requirement] = &[Requirement::QEMU_ARM, Requirement::Pi];
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
    let image = Requirement::Pi.path().ok_or_else(|| Error::new("there is no image"))?;
    let plan = Plan::of(context.quick);
    let Counts { cells, is_complete } = emulation::run(context, &image, &plan)?;
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
