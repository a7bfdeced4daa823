//! Subjects, flows and sizes of messages, measured in turns.

use super::figures::bytes;
use super::flow::Flow;
use super::ground::{Ground, Outcome, Subject};
use crate::Context;
use casemate_measure::spread::Spread;
use casemate_report::{LeftOut, Samples};
use std::time::{Duration, Instant};

/// What is to be measured.
pub(super) struct Grid {
    pub(super) subjects: Vec<Subject>,
    pub(super) flows: Vec<Flow>,
    /// Of messages, in bytes.
    pub(super) sizes: Vec<usize>,
    pub(super) rounds: usize,
}

/// One subject, flow and size, with what came out in each round.
struct Cell {
    subject: Subject,
    flow: Flow,
    size: usize,
    outcomes: Vec<Outcome>,
}

/// What a grid came to.
pub(super) struct Sweep {
    pub(super) grid: Grid,
    cells: Vec<Cell>,
    pub(super) left_out: Vec<LeftOut>,
    /// How long a measurement took.
    turn: Duration,
}

/// A quantity of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Microseconds of a transaction, which is one divided by their rate; or throughput in Mb/s (10^6 bits).
    Pace,
    /// Microseconds of the device's CPU time for a transaction, or for a thousand bytes.
    Cpu,
}

impl Grid {
    /// Measures everything in rounds, in which each subject has one turn; a round that would not end in time is not begun.
    pub(super) fn measure(self, context: &Context, ground: &Ground) -> Sweep {
        let begun = Instant::now();
        let turn = self.turn(context.time);
        context.progress.expect(self.rounds * self.subjects.len());
        let mut sweep = Sweep { cells: self.cells(), grid: self, left_out: Vec::new(), turn };
        for round in 0..sweep.grid.rounds {
            let each = begun.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
            if round > 0 && begun.elapsed() + each > context.time.mul_f64(1.05) {
                break;
            }
            for place in 0..sweep.grid.subjects.len() {
                // Each round begins with another one.
                let subjects = &sweep.grid.subjects;
                let Some(&subject) = subjects.get((place + round * 3) % subjects.len()) else { continue };
                if begun.elapsed() > context.time.mul_f64(1.3) {
                    sweep.give_up(subject);
                    continue;
                }
                context.progress.next(&subject.to_string());
                sweep.visit(ground, subject);
            }
        }
        sweep
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for subject in &self.subjects {
            for flow in &self.flows {
                let of =
                    |size: &usize| Cell { subject: *subject, flow: *flow, size: *size, outcomes: Vec::new() };
                cells.extend(self.sizes.iter().map(of));
            }
        }
        cells
    }

    /// How long a measurement may take, if everything has so much time: to start and to end a device takes time too.
    fn turn(&self, time: Duration) -> Duration {
        const SET_UP: Duration = Duration::from_millis(350);
        const CONNECT: Duration = Duration::from_millis(5);
        const LEAST: Duration = Duration::from_millis(15);
        let count = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
        let visit = time / count(self.rounds * self.subjects.len());
        let each = visit.saturating_sub(SET_UP) / count(self.flows.len() * self.sizes.len());
        each.saturating_sub(CONNECT).max(LEAST)
    }
}

impl Sweep {
    /// Starts a subject and measures all its cells once. One that fails is not tried again.
    fn visit(&mut self, ground: &Ground, subject: Subject) {
        if self.left_out.iter().any(|out| out.what == subject.to_string()) {
            return;
        }
        let turn = self.turn;
        let mut all = || {
            let site = ground.enter(subject)?;
            for cell in self.cells.iter_mut().filter(|cell| cell.subject == subject) {
                cell.outcomes.push(site.measure(cell.flow, cell.size, turn)?);
            }
            Ok::<(), casemate_stage::Error>(())
        };
        if let Err(error) = all() {
            let out = LeftOut { what: subject.to_string(), why: error.to_string(), failed: true };
            self.left_out.push(out);
        }
    }

    /// There is no time for a subject any more. What was measured of it stays.
    fn give_up(&mut self, subject: Subject) {
        let is_missing = self.cells.iter().any(|cell| cell.subject == subject && cell.outcomes.is_empty());
        if is_missing && self.left_out.iter().all(|out| out.what != subject.to_string()) {
            let why = "no time: this machine is too slow, or too busy".into();
            self.left_out.push(LeftOut { what: subject.to_string(), why, failed: false });
        }
    }

    fn of(&self, subject: Subject, flow: Flow, size: usize) -> &[Outcome] {
        let is = |cell: &&Cell| cell.subject == subject && cell.flow == flow && cell.size == size;
        self.cells.iter().find(is).map_or(&[], |cell| &cell.outcomes)
    }

    /// Of all rounds.
    pub(super) fn spread(
        &self,
        subject: Subject,
        flow: Flow,
        size: usize,
        quantity: Quantity,
    ) -> Option<Spread> {
        Spread::of(self.of(subject, flow, size).iter().map(|outcome| quantity.of(flow, outcome)))
    }

    /// As a multiple of another subject's in the same round.
    pub(super) fn ratio(
        &self,
        [subject, base]: [Subject; 2],
        flow: Flow,
        size: usize,
        quantity: Quantity,
    ) -> Option<Spread> {
        let pairs = self.of(subject, flow, size).iter().zip(self.of(base, flow, size));
        Spread::of(pairs.map(|(own, base)| quantity.of(flow, own) / quantity.of(flow, base)))
    }

    /// Everything.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let quantities = [(Quantity::Pace, true), (Quantity::Cpu, false)];
        let of = |cell: &Cell| {
            let values = |quantity: Quantity| {
                cell.outcomes.iter().map(|outcome| quantity.of(cell.flow, outcome)).collect::<Vec<_>>()
            };
            quantities.map(|(quantity, repeated)| Samples {
                repeated,
                name: format!(
                    "{}, {}, {}: {}",
                    cell.subject,
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

    /// How often everything was measured.
    pub(super) fn rounds(&self) -> usize {
        self.cells.iter().map(|cell| cell.outcomes.len()).max().unwrap_or_default()
    }

    /// How it was measured, for a text.
    pub(super) fn effort(&self) -> String {
        let rounds = self.rounds();
        format!(
            "Each measurement took {:.0} ms; rounds: {rounds}, in each of which every device was started anew and all took turns. \
             Medians, with the least and the greatest sample; ratios are of one round.",
            self.turn.as_secs_f64() * 1e3
        )
    }
}

impl Quantity {
    pub(super) fn of(self, flow: Flow, outcome: &Outcome) -> f64 {
        let Outcome { count, cpu } = outcome;
        match (self, flow.is_latency()) {
            (Self::Pace, true) => count.elapsed.as_secs_f64() * 1e6 / count.units,
            (Self::Pace, false) => count.units * 8.0 / 1e6 / count.elapsed.as_secs_f64(),
            (Self::Cpu, true) => cpu.as_secs_f64() * 1e6 / count.units,
            (Self::Cpu, false) => cpu.as_secs_f64() * 1e9 / count.units,
        }
    }

    const fn name(self, flow: Flow) -> &'static str {
        match (self, flow.is_latency()) {
            (Self::Pace, true) => "latency",
            (Self::Pace, false) => "throughput",
            (Self::Cpu, _) => "CPU time of the device",
        }
    }

    pub(super) const fn unit(self, flow: Flow) -> &'static str {
        match (self, flow.is_latency()) {
            (Self::Pace, true) => "µs",
            (Self::Pace, false) => "Mb/s",
            (Self::Cpu, true) => "µs a transaction",
            (Self::Cpu, false) => "µs for 1,000 bytes",
        }
    }
}

#[cfg(test)]
impl Sweep {
    /// With such outcomes in every round, for tests of what is made of them.
    pub(super) fn with(grid: Grid, outcome: impl Fn(Subject, Flow, usize) -> Outcome) -> Self {
        let mut cells = grid.cells();
        for cell in &mut cells {
            cell.outcomes = vec![outcome(cell.subject, cell.flow, cell.size); grid.rounds];
        }
        Self { cells, grid, left_out: Vec::new(), turn: Duration::ZERO }
    }
}
