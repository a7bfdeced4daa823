//! Experiment `bare`: cost of IPsec on a machine without an operating system, compared with Linux (the bare
//! PC of Kazemi, Wijesinha and Karne).

mod benchmark;
mod ike;
mod lan;
mod results;

use crate::{Artifact, Context, Experiment, Requirement, Step};
use benchmark::Benchmark;
use casemate_measure::harness::{Schedule, Workload, measure_within};
use casemate_measure::report::{Paper, Part};
use casemate_testbed::{Error, Result};
use std::time::Duration;

/// The experiment.
pub static BARE: Experiment = Experiment {
    name: "bare",
    paper,
    summary: "Cost of ESP for packets of 64 to 1,024 bytes of payload, inbound and outbound, in \
         transport and tunnel mode: in total, for the MAC, for the cipher, and for the rest (look-up, \
         replay protection, padding and headers), each with a fitted line. The data path runs in memory, \
         without the network stack of an operating system. Cost of IKEv2 messages with each key exchange \
         group. Ping and a web page from a machine without an operating system and from Linux, in clear \
         and with ESP.",
    short_form_limits: &[
        "The short form pings with four sizes, so a step between them does not show; differences of less than \
         a tenth between two times of ping and HTTP are not decided.",
    ],
    artifacts: &[Artifact::Firmware, Artifact::GuestKernel],
    steps: &[
        Step { title: "ESP in memory", requirements: &[], share: 1, run },
        Step { title: "IKE in memory", requirements: &[], share: 2, run: ike::run },
        Step {
            title: "ping and HTTP",
            requirements: &[Requirement::Namespaces, Requirement::Tun],
            share: 3,
            run: lan::run,
        },
    ],
};

/// Serves a page of the paper's size over HTTP on port 80 until the process ends. It is the Linux counterpart
/// of the firmware's server.
pub fn serve_page() -> Result<()> {
    lan::serve_page()
}

fn paper() -> Paper {
    Paper {
        authors: "N. Kazemi, A. L. Wijesinha, R. Karne".into(),
        title: "Design and Implementation of IPsec on a Bare PC".into(),
        venue: "Towson University".into(),
        year: 2009,
    }
}

fn run(context: &Context) -> Result<Vec<Part>> {
    let benchmarks = benchmark::all();
    let failed = |benchmark: &Benchmark| {
        Error::new(format!("{}: no provider supports its algorithms", benchmark.name()))
    };
    let made =
        benchmarks.iter().map(|benchmark| benchmark::workload(*benchmark).ok_or_else(|| failed(benchmark)));
    let mut loads: Vec<Box<dyn Workload>> = made.collect::<Result<_>>()?;
    context.progress.set_total(1);
    context.progress.advance(&format!("{} costs, in turns", loads.len()));
    let Schedule { rounds, turn } = effort(context.quick);
    let series = measure_within(&mut loads, turn, context.time, LEAST_ROUNDS..=rounds, |_| {});
    let rounds = series.first().map_or(0, |series| series.samples().len());
    Ok(results::parts(&benchmarks, &series, Schedule { rounds, turn }))
}

/// Converts to microseconds, rounded to tenths, the resolution of the clocks.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// Minimum number of rounds, for a busy machine.
const LEAST_ROUNDS: usize = 5;

/// Maximum number of rounds and duration of a turn. Every turn is preceded by an unmeasured one. Many short
/// turns are better than few long ones, because a disturbance affects few of them. The full form takes less
/// than a minute.
const fn effort(quick: bool) -> Schedule {
    let (rounds, microseconds) = if quick { (25, 300) } else { (101, 800) };
    Schedule { rounds, turn: Duration::from_micros(microseconds) }
}
