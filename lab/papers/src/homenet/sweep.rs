//! Scenarios and packet sizes, measured in turns; figures of ratios against the MTU, as in the paper, and
//! tables of the costs.

use super::scenario::Scenario;
use super::testbed::{Download, SMALL_FILE, Sample, Testbed};
use crate::Context;
use casemate_measure::report::{Axis, Figure, Point, Samples, Series, Shape, Skipped, Table};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use std::time::{Duration, Instant};

/// MTUs of the link, from the paper's minimum to its maximum.
pub(super) fn mtus(quick: bool) -> Vec<u32> {
    if quick { vec![180, 600, 1_500] } else { vec![180, 300, 600, 1_000, 1_500] }
}

/// A smaller selection of MTUs.
pub(super) fn few_mtus(quick: bool) -> Vec<u32> {
    if quick { vec![180, 1_500] } else { vec![180, 600, 1_500] }
}

/// Quantities that the paper measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Elapsed,
    Cpu,
}

/// Both quantities.
pub(super) const QUANTITIES: [Quantity; 2] = [Quantity::Elapsed, Quantity::Cpu];

impl Quantity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Elapsed => "elapsed time",
            Self::Cpu => "CPU time",
        }
    }

    const fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Elapsed => sample.elapsed,
            Self::Cpu => sample.cpu,
        }
    }
}

/// All samples, in the order of the rounds.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) mtus: Vec<u32>,
    cells: Vec<Cell>,
    /// Errors, one per scenario.
    pub(super) skipped: Vec<Skipped>,
    sample_time: Duration,
}

/// Ratio of a scenario to a base scenario.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio {
    pub(super) own: Scenario,
    pub(super) base: Scenario,
}

#[derive(Debug)]
struct Cell {
    scenario: Scenario,
    download: Download,
    samples: Vec<Sample>,
}

impl Sweep {
    /// Measures every scenario with every MTU.
    pub(super) fn run(context: &Context, testbed: &Testbed, scenarios: &[Scenario], mtus: Vec<u32>) -> Self {
        let downloads: Vec<Download> = mtus.into_iter().map(Download::from).collect();
        Self::run_downloads(context, testbed, scenarios, &downloads)
    }

    /// Measures every scenario with every download. Each round begins with a different scenario.
    pub(super) fn run_downloads(
        context: &Context,
        testbed: &Testbed,
        scenarios: &[Scenario],
        downloads: &[Download],
    ) -> Self {
        let start = Instant::now();
        let rounds = LEAST_ROUNDS as u32;
        let sample_time = sample_time(context.time / rounds, scenarios.len(), downloads.len());
        let mut sweep = Self::new(scenarios, downloads, sample_time);
        context.progress.set_total(rounds as usize * scenarios.len());
        for round in 0..rounds {
            // A round that would end much later than planned is not started.
            if round > 0 && start.elapsed() + start.elapsed() / round > context.time.mul_f64(1.1) {
                break;
            }
            for place in 0..scenarios.len() {
                let Some(scenario) = scenarios.get((place + round as usize * 3) % scenarios.len()) else {
                    continue;
                };
                context.progress.advance(&scenario.to_string());
                sweep.measure_scenario(testbed, *scenario);
            }
        }
        sweep
    }

    fn new(scenarios: &[Scenario], downloads: &[Download], sample_time: Duration) -> Self {
        let mtus = downloads.iter().filter_map(|download| match download {
            Download::Endless(mtu) => Some(*mtu),
            Download::SmallFiles => None,
        });
        let of = |scenario: &Scenario| {
            let scenario = *scenario;
            downloads.iter().map(move |download| Cell { scenario, download: *download, samples: Vec::new() })
        };
        Self {
            mtus: mtus.collect(),
            cells: scenarios.iter().flat_map(of).collect(),
            skipped: Vec::new(),
            sample_time,
        }
    }

    /// Measures one scenario with every download. A scenario that has failed is not tried again.
    fn measure_scenario(&mut self, testbed: &Testbed, scenario: Scenario) {
        let what = scenario.to_string();
        if self.skipped.iter().any(|skipped| skipped.what == what) {
            return;
        }
        let sample_time = self.sample_time;
        let cells = self.cells.iter_mut().filter(|cell| cell.scenario == scenario);
        let done = testbed.start(scenario).and_then(|running| {
            cells.into_iter().try_for_each(|cell| {
                cell.samples.push(running.measure(cell.download, sample_time)?);
                Ok(())
            })
        });
        if let Err(error) = done {
            self.skipped.push(Skipped { what, why: error.to_string(), failed: true });
        }
    }

    fn samples_of(&self, scenario: Scenario, download: Download) -> &[Sample] {
        let cell = self.cells.iter().find(|cell| cell.scenario == scenario && cell.download == download);
        cell.map_or(&[], |cell| &cell.samples)
    }

    /// Cost of a million bytes or a small file in each round.
    pub(super) fn costs(
        &self,
        scenario: Scenario,
        download: impl Into<Download>,
        quantity: Quantity,
    ) -> impl Iterator<Item = f64> {
        self.samples_of(scenario, download.into()).iter().map(move |sample| quantity.of(sample))
    }

    /// Cost of a million bytes or a small file.
    pub(super) fn cost(
        &self,
        scenario: Scenario,
        download: impl Into<Download>,
        quantity: Quantity,
    ) -> Option<Spread> {
        Spread::of(self.costs(scenario, download, quantity))
    }

    /// Ratio to another scenario in the same round: above 1 is slower or more expensive.
    pub(super) fn ratio(
        &self,
        own: Scenario,
        base: Scenario,
        download: impl Into<Download>,
        quantity: Quantity,
    ) -> Option<Spread> {
        let download = download.into();
        Spread::of_ratios(self.costs(own, download, quantity), self.costs(base, download, quantity))
    }

    /// Quotient of the ratio in the first download and the ratio in the second, in the same round.
    pub(super) fn ratio_of_downloads(
        &self,
        Ratio { own, base }: Ratio,
        [first, second]: [Download; 2],
        quantity: Quantity,
    ) -> Option<Spread> {
        let ratios = |download: Download| {
            let costs = |scenario| self.costs(scenario, download, quantity);
            costs(own).zip(costs(base)).map(|(own, base)| own / base).collect::<Vec<_>>()
        };
        Spread::of_ratios(ratios(first), ratios(second))
    }

    /// Quotient of two ratios of the same round.
    pub(super) fn ratio_of_ratios(
        &self,
        first: Ratio,
        second: Ratio,
        mtu: u32,
        quantity: Quantity,
    ) -> Option<Spread> {
        let costs = |scenario| self.costs(scenario, mtu, quantity);
        let ratios = |ratio: Ratio| costs(ratio.own).zip(costs(ratio.base)).map(|(own, base)| own / base);
        Spread::of(ratios(first).zip(ratios(second)).map(|(first, second)| first / second))
    }

    /// All samples.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let samples = |cell: &Cell, quantity: Quantity| {
            let (what, unit) = match cell.download {
                Download::Endless(mtu) => (format!("MTU {mtu}"), "ms per million bytes"),
                Download::SmallFiles => (format!("file of {SMALL_FILE} bytes"), "ms"),
            };
            Samples {
                // CPU time depends on how many packets were queued; elapsed time characterises the machine.
                repeated: quantity == Quantity::Elapsed,
                ..Samples::repeated(
                    format!("{}, {what}: {}", cell.scenario, quantity.name()),
                    unit,
                    cell.samples.iter().map(|sample| quantity.of(sample)).collect(),
                )
            }
        };
        self.cells
            .iter()
            .flat_map(|cell| QUANTITIES.map(|quantity| samples(cell, quantity)))
            .filter(|samples| !samples.values.is_empty())
            .collect()
    }

    /// Description of the method for a report.
    pub(super) fn effort(&self) -> String {
        let rounds = self.cells.iter().map(|cell| cell.samples.len()).max().unwrap_or_default();
        format!(
            "Each download was measured for {:.2} s, after a warm-up of a third of that for TCP. \
                 {rounds} rounds, with all scenarios in turns. Medians with minimum and maximum; ratios \
                 are within one round.",
            self.sample_time.as_secs_f64()
        )
    }
}

/// Duration of a download within the time of a round, minus the time for starting and stopping gateways and
/// changing MTUs.
fn sample_time(round: Duration, scenarios: usize, downloads: usize) -> Duration {
    const SET_UP: Duration = Duration::from_millis(300);
    const PAUSE: Duration = Duration::from_millis(40);
    const LEAST: Duration = Duration::from_millis(100);
    let count = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    let left = round.saturating_sub(SET_UP * count(scenarios));
    ((left / count(scenarios * downloads)).saturating_sub(PAUSE) * 3 / 4).max(LEAST)
}

/// A line of a figure: the ratio of two scenarios against the MTU.
pub(super) struct Line {
    name: String,
    ratio: Ratio,
}

impl Line {
    pub(super) fn new(name: impl Into<String>, own: Scenario, base: Scenario) -> Self {
        Self { name: name.into(), ratio: Ratio { own, base } }
    }
}

/// Texts of a figure.
pub(super) struct Labels<'w> {
    /// Title, such as `Figure 8: tunnel mode`.
    pub(super) title: &'w str,
    /// Description of the ratio.
    pub(super) ratio: &'w str,
    pub(super) caption: &'w str,
}

/// Returns one figure for elapsed time and one for CPU time. `paper` returns the numbers of the paper.
pub(super) fn figures(
    sweep: &Sweep,
    words: &Labels<'_>,
    lines: &[Line],
    paper: impl Fn(Quantity) -> Vec<Series>,
) -> Vec<Figure> {
    let figure = |quantity: Quantity| Figure {
        title: format!("{}: {}", words.title, quantity.name()),
        caption: words.caption.into(),
        x: Axis::linear("MTU of the link, bytes"),
        y: Axis::linear(format!("{}, {}", quantity.name(), words.ratio)),
        series: lines.iter().map(|line| series(sweep, line, quantity)).chain(paper(quantity)).collect(),
    };
    QUANTITIES.map(figure).into()
}

fn series(sweep: &Sweep, line: &Line, quantity: Quantity) -> Series {
    let Ratio { own, base } = line.ratio;
    let points = sweep.mtus.iter().filter_map(|mtu| {
        let Spread { median, min: least, max: most, .. } = sweep.ratio(own, base, *mtu, quantity)?;
        Some(Point::with_range(f64::from(*mtu), median, least, most))
    });
    Series::ours(&line.name, Shape::Line, points)
}

/// A range that the paper states in words, for these MTUs.
pub(super) fn paper_range(
    name: &str,
    mtus: impl IntoIterator<Item = f64>,
    [least, most]: [f64; 2],
) -> Series {
    let points = mtus.into_iter().map(|mtu| Point::with_range(mtu, f64::midpoint(least, most), least, most));
    Series::paper(name, Shape::Line, points)
}

/// Table of the cost of a million bytes in each scenario.
pub(super) fn costs(sweep: &Sweep, title: &str, scenarios: &[Scenario]) -> Table {
    let columns = ["Setting".to_owned()].into_iter().chain(
        QUANTITIES
            .iter()
            .flat_map(|quantity| sweep.mtus.iter().map(|mtu| format!("{}, MTU {mtu}", quantity.name()))),
    );
    let row = |scenario: &Scenario| {
        let cells = QUANTITIES.iter().flat_map(|quantity| {
            sweep.mtus.iter().map(|mtu| {
                sweep.cost(*scenario, *mtu, *quantity).map_or_else(|| "-".into(), |cost| cost.text(1))
            })
        });
        std::iter::once(scenario.to_string()).chain(cells).collect()
    };
    Table {
        title: format!("{title}: milliseconds per million bytes"),
        columns: columns.collect(),
        rows: scenarios.iter().map(row).collect(),
    }
}

#[cfg(test)]
impl Sweep {
    /// Sweep with these costs in every round, for tests of the findings.
    pub(super) fn with(scenarios: &[Scenario], mtus: &[u32], cost: impl Fn(Scenario, u32) -> f64) -> Self {
        let downloads: Vec<Download> = mtus.iter().copied().map(Download::from).collect();
        Self::with_downloads(scenarios, &downloads, |scenario, download| match download {
            Download::Endless(mtu) => cost(scenario, mtu),
            Download::SmallFiles => 0.0,
        })
    }

    /// Sweep with these costs of downloads of any kind in every round, for tests of the findings.
    pub(super) fn with_downloads(
        scenarios: &[Scenario],
        downloads: &[Download],
        cost: impl Fn(Scenario, Download) -> f64,
    ) -> Self {
        let mut sweep = Self::new(scenarios, downloads, Duration::ZERO);
        for cell in &mut sweep.cells {
            let elapsed = cost(cell.scenario, cell.download);
            cell.samples = vec![Sample { elapsed, cpu: elapsed }; LEAST_ROUNDS];
        }
        sweep
    }
}
