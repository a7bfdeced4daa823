//! Figures 5 to 8 on an emulated Raspberry Pi, the paper's own device, in instructions rather than in time.
//!
//! The image (verify/bare) has two hosts in one memory, and counts what the device does, by a clock that QEMU moves by the same time for each instruction.

mod emulation;
mod figures;
mod findings;
mod lines;

use super::flow::FLOWS;
use super::protection::{SUITES, Suite};
use crate::{Context, Need};
use casemate_report::{LeftOut, Part};
use casemate_stage::{Error, Result};
use lines::{Cell, Counts};

/// What it needs.
pub(super) const NEEDS: &[Need] = &[Need::QEMU_ARM, Need::Pi];
/// What is left out where there is no time for a row.
const HOME: &str = "emulated Raspberry Pi";

/// The rows of the short form.
const SHORT: [Suite; 6] =
    [Suite::Plain, Suite::Unused, Suite::AhMd5, Suite::EspTripleDes, Suite::Gcm, Suite::ChaCha];

/// What is to be counted.
struct Order {
    suites: Vec<Suite>,
    /// Of messages, in bytes.
    sizes: Vec<usize>,
}

/// What came of it.
struct Run {
    order: Order,
    cells: Vec<Cell>,
}

/// Runs the image.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let image = Need::Pi.path().ok_or_else(|| Error::new("there is no image"))?;
    let order = Order::of(context.quick);
    let Counts { cells, is_whole } = emulation::run(context, &image, &order)?;
    let run = Run { order, cells };
    let missing = if is_whole { Vec::new() } else { run.missing() };
    for out in &missing {
        context.progress.say(&format!("left out: {}: {}", out.what, out.why));
    }
    Ok(vec![Part {
        title: format!("Instructions for latency and throughput, {HOME}"),
        text: TEXT.into(),
        figures: figures::all(&run),
        tables: figures::tables(&run),
        findings: findings::of(&run),
        samples: run.samples(),
        left_out: missing,
    }])
}

const TEXT: &str = "The paper's own device, an ARM1176 (QEMU's raspi1ap), without an operating system. QEMU's clock moves by the same time for each instruction, so that \
    instructions are counted and not time: they are the same in every run. A device and its peer stand in one image, each smoltcp with this program's guard below it, \
    and a cable of 50 µs each way between them; only the device's instructions count, from what the cable brought to what it gives to the cable, application included. There is no \
    network card, no driver and no operating system in them. A real processor waits for memory besides, and takes more than a cycle for some. \
    One count of each: a second would be the same.";

impl Order {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { suites: SHORT.into(), sizes: vec![1, 256, 1_360, 8_192] },
            false => Self { suites: SUITES.into(), sizes: vec![1, 64, 256, 1_024, 1_360, 4_096, 16_384] },
        }
    }

    /// Lines that are to come.
    fn count(&self) -> usize {
        self.suites.len() * self.sizes.len() * FLOWS.len()
    }
}

impl Run {
    /// The rows that are not whole.
    fn missing(&self) -> Vec<LeftOut> {
        let each = self.order.sizes.len() * FLOWS.len();
        let count = |suite: Suite| self.cells.iter().filter(|cell| cell.suite == suite).count();
        let rows = self.order.suites.iter().filter(|suite| count(**suite) < each);
        let out = |suite: &Suite| LeftOut {
            what: format!("{HOME}, {suite}"),
            why: "no time: this machine is too slow, or too busy".into(),
            failed: false,
        };
        rows.map(out).collect()
    }
}
