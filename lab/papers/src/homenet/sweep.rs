//! Settings and packet sizes, measured in turns.

use super::ground::{Ground, Outcome};
use super::setting::Setting;
use crate::Context;
use casemate_measure::spread::Spread;
use casemate_report::{LeftOut, Samples};
use std::time::{Duration, Instant};

/// MTUs of the link, from the paper's least to its greatest.
pub(super) fn mtus(quick: bool) -> Vec<u32> {
    if quick { vec![180, 600, 1_500] } else { vec![180, 300, 600, 1_000, 1_500] }
}

/// Fewer of them.
pub(super) fn few_mtus(quick: bool) -> Vec<u32> {
    if quick { vec![180, 1_500] } else { vec![180, 600, 1_500] }
}

/// One of the two things that the paper measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Elapsed,
    Cpu,
}

/// Both.
pub(super) const QUANTITIES: [Quantity; 2] = [Quantity::Elapsed, Quantity::Cpu];

impl Quantity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Elapsed => "elapsed time",
            Self::Cpu => "CPU time",
        }
    }

    const fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Self::Elapsed => outcome.elapsed,
            Self::Cpu => outcome.cpu,
        }
    }
}

/// Every outcome, in the order of the rounds.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) mtus: Vec<u32>,
    cells: Vec<Cell>,
    /// What went wrong, once for each setting.
    pub(super) left_out: Vec<LeftOut>,
    turn: Duration,
}

#[derive(Debug)]
struct Cell {
    setting: Setting,
    mtu: u32,
    outcomes: Vec<Outcome>,
}

impl Sweep {
    /// Measures every setting with every MTU, in rounds that begin with another setting each.
    pub(super) fn run(context: &Context, ground: &Ground, settings: &[Setting], mtus: Vec<u32>) -> Self {
        let begun = Instant::now();
        let rounds = if context.quick { 2 } else { 5 };
        let turn = turn(context.time / rounds, settings.len(), mtus.len());
        let mut sweep = Self { cells: cells(settings, &mtus), mtus, left_out: Vec::new(), turn };
        context.progress.expect(rounds as usize * settings.len());
        for round in 0..rounds {
            // A round that would not end in time is not begun.
            if round > 0 && begun.elapsed() + begun.elapsed() / round > context.time.mul_f64(1.1) {
                break;
            }
            for place in 0..settings.len() {
                let Some(setting) = settings.get((place + round as usize * 3) % settings.len()) else {
                    continue;
                };
                context.progress.next(&setting.to_string());
                sweep.round(ground, *setting);
            }
        }
        sweep
    }

    /// One setting with every MTU; one that failed before is not tried again.
    fn round(&mut self, ground: &Ground, setting: Setting) {
        let what = setting.to_string();
        if self.left_out.iter().any(|out| out.what == what) {
            return;
        }
        let turn = self.turn;
        let cells = self.cells.iter_mut().filter(|cell| cell.setting == setting);
        let done = ground.enter(setting).and_then(|site| {
            cells.into_iter().try_for_each(|cell| {
                site.limit(cell.mtu)?;
                cell.outcomes.push(site.download(turn)?);
                Ok(())
            })
        });
        if let Err(error) = done {
            self.left_out.push(LeftOut { what, why: error.to_string(), failed: true });
        }
    }

    fn of(&self, setting: Setting, mtu: u32) -> &[Outcome] {
        let cell = self.cells.iter().find(|cell| cell.setting == setting && cell.mtu == mtu);
        cell.map_or(&[], |cell| &cell.outcomes)
    }

    /// What a million bytes took.
    pub(super) fn cost(&self, setting: Setting, mtu: u32, quantity: Quantity) -> Option<Spread> {
        Spread::of(self.of(setting, mtu).iter().map(|outcome| quantity.of(outcome)))
    }

    /// What it took compared with another setting in the same round: above 1 is slower, or dearer.
    pub(super) fn ratio(&self, own: Setting, base: Setting, mtu: u32, quantity: Quantity) -> Option<Spread> {
        let pairs = self.of(own, mtu).iter().zip(self.of(base, mtu));
        Spread::of(pairs.map(|(own, base)| quantity.of(own) / quantity.of(base)))
    }

    /// Everything.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let samples = |cell: &Cell, quantity: Quantity| Samples {
            // CPU time depends on how many packets waited for each other; elapsed time tells of the machine's rest.
            repeated: quantity == Quantity::Elapsed,
            ..Samples::repeated(
                format!("{}, MTU {}: {}", cell.setting, cell.mtu, quantity.name()),
                "ms per million bytes",
                cell.outcomes.iter().map(|outcome| quantity.of(outcome)).collect(),
            )
        };
        self.cells
            .iter()
            .flat_map(|cell| QUANTITIES.map(|quantity| samples(cell, quantity)))
            .filter(|samples| !samples.values.is_empty())
            .collect()
    }

    /// How it was measured, for a text.
    pub(super) fn effort(&self) -> String {
        let rounds = self.cells.iter().map(|cell| cell.outcomes.len()).max().unwrap_or_default();
        format!(
            "A download was watched for {:.2} s, after a third of that in which TCP found its pace. Rounds: {rounds}; all took \
             turns in each. Medians, with the least and the greatest sample; ratios are of one round.",
            self.turn.as_secs_f64()
        )
    }
}

fn cells(settings: &[Setting], mtus: &[u32]) -> Vec<Cell> {
    let of = |setting: &Setting| {
        let setting = *setting;
        mtus.iter().map(move |mtu| Cell { setting, mtu: *mtu, outcomes: Vec::new() })
    };
    settings.iter().flat_map(of).collect()
}

/// How long a download is watched, if a round has so much time: to start and to end gateways takes time too, as do new MTUs.
fn turn(round: Duration, settings: usize, mtus: usize) -> Duration {
    const SET_UP: Duration = Duration::from_millis(300);
    const PAUSE: Duration = Duration::from_millis(40);
    const LEAST: Duration = Duration::from_millis(100);
    let count = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    let left = round.saturating_sub(SET_UP * count(settings));
    ((left / count(settings * mtus)).saturating_sub(PAUSE) * 3 / 4).max(LEAST)
}

#[cfg(test)]
impl Sweep {
    /// With these costs in every round, for tests of what is made of them.
    pub(super) fn with(settings: &[Setting], mtus: &[u32], cost: impl Fn(Setting, u32) -> f64) -> Self {
        let mut cells = cells(settings, mtus);
        for cell in &mut cells {
            let elapsed = cost(cell.setting, cell.mtu);
            cell.outcomes = vec![Outcome { elapsed, cpu: elapsed }; 3];
        }
        Self { mtus: mtus.to_vec(), cells, left_out: Vec::new(), turn: Duration::ZERO }
    }
}
