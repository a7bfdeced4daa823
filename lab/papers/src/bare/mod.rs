//! `bare`: what IPsec costs on a machine without an operating system, and beside Linux (Kazemi, Wijesinha and Karne's bare PC).

mod ike;
mod lan;
mod load;
mod outcome;
mod page;
mod subject;

use crate::{Context, Experiment, Need, Step};
use casemate_measure::harness::{Effort, Load, measure_within};
use casemate_report::{Paper, Part};
use casemate_stage::{Error, Result};
use std::time::Duration;
use subject::Subject;

/// The experiment.
pub static BARE: Experiment = Experiment {
    name: "bare",
    paper,
    summary: "What ESP costs a packet of 64 to 1,024 bytes of payload, inbound and outbound, in transport and in tunnel mode: the whole, the \
              MAC alone, the cipher alone, and what is left for look-up, replay protection, padding and headers. With a straight line through each. \
              The data path runs in memory, without an operating system's network, as it does on a machine that has none. What the messages of IKEv2 cost with \
              each key exchange group. Ping and a page over HTTP, from a machine without an operating system and from Linux, plain and with ESP.",
    steps: &[
        Step { title: "ESP in memory", needs: &[], share: 1, run },
        Step { title: "IKE in memory", needs: &[], share: 2, run: ike::run },
        Step { title: "ping and HTTP", needs: &[Need::Namespaces, Need::Tun], share: 3, run: lan::run },
    ],
};

/// Serves the page of the paper's size over HTTP at port 80, until the process ends: what stands for Linux beside the firmware.
pub fn serve_page() -> Result<()> {
    page::serve()
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
    let subjects = subject::all();
    let failed =
        |subject: &Subject| Error::new(format!("{}: no provider has its algorithms", subject.name()));
    let made = subjects.iter().map(|subject| load::load(*subject).ok_or_else(|| failed(subject)));
    let mut loads: Vec<Box<dyn Load>> = made.collect::<Result<_>>()?;
    context.progress.expect(1);
    context.progress.next(&format!("{} costs, in turns", loads.len()));
    let Effort { rounds, turn } = effort(context.quick);
    let series = measure_within(&mut loads, turn, context.time, LEAST_ROUNDS..=rounds, |_| {});
    let rounds = series.first().map_or(0, |series| series.samples().len());
    Ok(outcome::parts(&subjects, &series, Effort { rounds, turn }))
}

/// In microseconds, to the tenth: clocks say no more.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// So many rounds on a machine that is too busy for all of them.
const LEAST_ROUNDS: usize = 5;

/// The most rounds. A turn is done twice, once unmeasured. Many short turns rather than few long ones: what disturbs them, disturbs few
/// of them. The full form takes less than a minute.
const fn effort(quick: bool) -> Effort {
    let (rounds, microseconds) = if quick { (25, 300) } else { (101, 800) };
    Effort { rounds, turn: Duration::from_micros(microseconds) }
}
