//! Cases, flows and message sizes, measured in turns.

use super::figures::bytes;
use super::flow::Flow;
use super::testbed::{Case, Sample, Testbed};
use crate::Context;
use casemate_measure::report::{Samples, Skipped};
use casemate_measure::stats::Spread;
use std::time::{Duration, Instant};

/// Extent of a measurement.
pub(super) struct Grid {
    pub(super) cases: Vec<Case>,
    pub(super) flows: Vec<Flow>,
    /// Message lengths in bytes.
    pub(super) sizes: Vec<usize>,
    pub(super) rounds: usize,
}

/// One case, flow and message size, with the samples of each round.
struct Cell {
    case: Case,
    flow: Flow,
    size: usize,
    samples: Vec<Sample>,
}

/// Results of a grid.
pub(super) struct Sweep {
    pub(super) grid: Grid,
    cells: Vec<Cell>,
    pub(super) skipped: Vec<Skipped>,
    /// Duration of a measurement.
    sample_time: Duration,
}

/// Quantity that is derived from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Time per transaction in microseconds, or throughput in Mb/s (10^6 bits).
    Performance,
    /// CPU time of the device in microseconds, per transaction or per thousand bytes.
    Cpu,
}

impl Grid {
    /// Measures rounds in which each case has one turn. A round that would not end in time is not started.
    pub(super) fn measure(self, context: &Context, testbed: &Testbed) -> Sweep {
        let start = Instant::now();
        let sample_time = self.sample_time(context.time);
        context.progress.set_total(self.rounds * self.cases.len());
        let mut sweep = Sweep { cells: self.cells(), grid: self, skipped: Vec::new(), sample_time };
        for round in 0..sweep.grid.rounds {
            let each = start.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
            if round > 0 && start.elapsed() + each > context.time.mul_f64(1.05) {
                break;
            }
            for place in 0..sweep.grid.cases.len() {
                // Each round begins with a different case.
                let cases = &sweep.grid.cases;
                let Some(&case) = cases.get((place + round * 3) % cases.len()) else { continue };
                if start.elapsed() > context.time.mul_f64(1.3) {
                    sweep.skip_case(case);
                    continue;
                }
                context.progress.advance(&case.to_string());
                sweep.measure_case(testbed, case);
            }
        }
        sweep
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for case in &self.cases {
            for flow in &self.flows {
                let of = |size: &usize| Cell { case: *case, flow: *flow, size: *size, samples: Vec::new() };
                cells.extend(self.sizes.iter().map(of));
            }
        }
        cells
    }

    /// Duration of a measurement within `time`, minus the time for starting and stopping devices, and for the
    /// last retransmission.
    pub(super) fn sample_time(&self, time: Duration) -> Duration {
        const SET_UP: Duration = Duration::from_millis(350);
        const CONNECT: Duration = Duration::from_millis(5);
        const LEAST: Duration = Duration::from_millis(15);
        const RETRANSMISSION: Duration = Duration::from_secs(1);
        let count = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
        let lossy = self.cases.iter().filter(|case| case.stack.loses_packets()).count();
        let waits = lossy * self.rounds * self.flows.len() * self.sizes.len();
        let time = time.saturating_sub(RETRANSMISSION * u32::try_from(waits).unwrap_or(u32::MAX));
        let visit = time / count(self.rounds * self.cases.len());
        let each = visit.saturating_sub(SET_UP) / count(self.flows.len() * self.sizes.len());
        each.saturating_sub(CONNECT).max(LEAST)
    }
}

impl Sweep {
    /// Starts a device and measures all cells of its case once. A case that has failed is not tried again.
    fn measure_case(&mut self, testbed: &Testbed, case: Case) {
        if self.skipped.iter().any(|skipped| skipped.what == case.to_string()) {
            return;
        }
        let sample_time = self.sample_time;
        let mut all = || {
            let device = testbed.start_device(case)?;
            for cell in self.cells.iter_mut().filter(|cell| cell.case == case) {
                cell.samples.push(device.measure(cell.flow, cell.size, sample_time)?);
            }
            Ok::<(), casemate_testbed::Error>(())
        };
        if let Err(error) = all() {
            let skipped = Skipped { what: case.to_string(), why: error.to_string(), failed: true };
            self.skipped.push(skipped);
        }
    }

    /// Skips a case for lack of time. Its previous samples remain.
    fn skip_case(&mut self, case: Case) {
        let is_missing = self.cells.iter().any(|cell| cell.case == case && cell.samples.is_empty());
        if is_missing && self.skipped.iter().all(|skipped| skipped.what != case.to_string()) {
            let why = "no time: this machine is too slow or too busy".into();
            self.skipped.push(Skipped { what: case.to_string(), why, failed: false });
        }
    }

    fn samples_of(&self, case: Case, flow: Flow, size: usize) -> &[Sample] {
        let is = |cell: &&Cell| cell.case == case && cell.flow == flow && cell.size == size;
        self.cells.iter().find(is).map_or(&[], |cell| &cell.samples)
    }

    /// Spread over all rounds.
    pub(super) fn spread(&self, case: Case, flow: Flow, size: usize, quantity: Quantity) -> Option<Spread> {
        Spread::of(self.samples_of(case, flow, size).iter().map(|sample| quantity.of(flow, sample)))
    }

    /// Ratio to another case in the same round.
    pub(super) fn ratio(
        &self,
        [case, base]: [Case; 2],
        flow: Flow,
        size: usize,
        quantity: Quantity,
    ) -> Option<Spread> {
        let pairs = self.samples_of(case, flow, size).iter().zip(self.samples_of(base, flow, size));
        Spread::of(pairs.map(|(own, base)| quantity.of(flow, own) / quantity.of(flow, base)))
    }

    /// Ratio of a case's performance in one flow to that in another one, in the same round.
    pub(super) fn ratio_of_flows(&self, case: Case, [own, base]: [Flow; 2], size: usize) -> Option<Spread> {
        Spread::of_ratios(self.paces(case, own, size), self.paces(case, base, size))
    }

    /// Ratio of a case's performance with one size to that with another one, in the same round.
    pub(super) fn ratio_of_sizes(&self, case: Case, flow: Flow, [own, base]: [usize; 2]) -> Option<Spread> {
        Spread::of_ratios(self.paces(case, flow, own), self.paces(case, flow, base))
    }

    /// Performance in each round.
    fn paces(&self, case: Case, flow: Flow, size: usize) -> impl Iterator<Item = f64> {
        self.samples_of(case, flow, size).iter().map(move |sample| Quantity::Performance.of(flow, sample))
    }

    /// All samples.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let quantities = [(Quantity::Performance, true), (Quantity::Cpu, false)];
        let of = |cell: &Cell| {
            let values = |quantity: Quantity| {
                cell.samples.iter().map(|sample| quantity.of(cell.flow, sample)).collect::<Vec<_>>()
            };
            quantities.map(|(quantity, repeated)| Samples {
                repeated,
                name: format!(
                    "{}, {}, {}: {}",
                    cell.case,
                    cell.flow,
                    bytes(cell.size),
                    quantity.name(cell.flow)
                ),
                unit: quantity.unit(cell.flow).into(),
                values: values(quantity),
            })
        };
        self.cells.iter().flat_map(of).filter(|samples| !samples.values.is_empty()).collect()
    }

    /// Number of rounds.
    pub(super) fn rounds(&self) -> usize {
        self.cells.iter().map(|cell| cell.samples.len()).max().unwrap_or_default()
    }

    /// Description of the method for a report.
    pub(super) fn effort(&self) -> String {
        let rounds = self.rounds();
        format!(
            "Each measurement took {:.0} ms; {rounds} rounds, with a restart of every device and all \
                 cases in turns. Medians with minimum and maximum; ratios are within one round.",
            self.sample_time.as_secs_f64() * 1e3
        )
    }
}

impl Quantity {
    pub(super) fn of(self, flow: Flow, sample: &Sample) -> f64 {
        let Sample { count, cpu } = sample;
        match (self, flow.is_latency()) {
            (Self::Performance, true) => count.elapsed.as_secs_f64() * 1e6 / count.units,
            (Self::Performance, false) => count.units * 8.0 / 1e6 / count.elapsed.as_secs_f64(),
            (Self::Cpu, true) => cpu.as_secs_f64() * 1e6 / count.units,
            (Self::Cpu, false) => cpu.as_secs_f64() * 1e9 / count.units,
        }
    }

    const fn name(self, flow: Flow) -> &'static str {
        match (self, flow.is_latency()) {
            (Self::Performance, true) => "latency",
            (Self::Performance, false) => "throughput",
            (Self::Cpu, _) => "CPU time of the device",
        }
    }

    pub(super) const fn unit(self, flow: Flow) -> &'static str {
        match (self, flow.is_latency()) {
            (Self::Performance, true) => "µs",
            (Self::Performance, false) => "Mb/s",
            (Self::Cpu, true) => "µs a transaction",
            (Self::Cpu, false) => "µs for 1,000 bytes",
        }
    }
}

#[cfg(test)]
impl Sweep {
    /// Sweep with these samples in every round, for tests of the findings.
    pub(super) fn with(grid: Grid, sample: impl Fn(Case, Flow, usize) -> Sample) -> Self {
        let mut cells = grid.cells();
        for cell in &mut cells {
            cell.samples = vec![sample(cell.case, cell.flow, cell.size); grid.rounds];
        }
        Self { cells, grid, skipped: Vec::new(), sample_time: Duration::ZERO }
    }
}
