//! What happens to the machines of a cell and to its store: ends, stops, hand-overs, faults of links,
//! outages, lost writes, and steps of wall clocks.

use crate::invariants::{Checked, violated};
use crate::mix::{
    CellChange, CellOperation, CellPlan, CellStep, LinkFault, NodeOperation, Operation, ProcessOperation,
    Target,
};
use crate::simulation::{SimEvent, Simulation};
use crate::situation::Situation;
use crate::state_store::{EndMoment, StateStore};
use casemate_store::{Link, MemoryHub};
use std::time::Duration;

/// Time from a loss of writes to the replacement of the store by an administrator.
const UNTIL_REPLACED: Duration = Duration::from_secs(30);
/// Time between two changes of a flaky link.
const FLICKER: Duration = Duration::from_millis(40);
/// Time in which an administrator replaces the store.
const REPLACEMENT: Duration = Duration::from_secs(1);

impl Simulation {
    /// Performs an operation on a machine of the cell.
    pub(crate) fn run_cell_step(&mut self, index: usize, step: CellStep) -> Checked {
        let CellStep { target, operation } = step;
        match target {
            Target::Owner => self.run_cell_operation(index, operation),
            Target::Machine(number) => {
                self.with_number(number, |simulation| simulation.run_cell_operation(index, operation))
            }
        }
    }

    /// Lets the machine with this number act.
    fn with_number(&mut self, number: usize, mut act: impl FnMut(&mut Self) -> Checked) -> Checked {
        let Some(cell) = &self.cell else { return Ok(()) };
        let is_wanted = |node: &crate::node::Node| {
            node.store.as_ref().is_some_and(|store| store.machine.number == number)
        };
        match cell.others.iter().position(is_wanted) {
            Some(position) => self.with_machine(position, &mut act),
            None => act(self),
        }
    }

    fn run_cell_operation(&mut self, index: usize, operation: CellOperation) -> Checked {
        self.trace.log(self.now, || format!("{}: {operation:?}", self.nodes[index].name()));
        let Some(store) = &mut self.nodes[index].store else { return Ok(()) };
        let (is_running, number) = (store.is_running(), store.machine.number);
        match operation {
            CellOperation::Kill(moment, down_for) if is_running => {
                return self.run_process_operation(index, ProcessOperation::Crash(moment, down_for));
            }
            CellOperation::Kill(_, down_for) => self.crash(index, down_for),
            CellOperation::Drain(down_for) => {
                if is_running && self.nodes[index].stopped_until.is_none() {
                    self.run_process_operation(index, ProcessOperation::Restart(down_for))?;
                    self.disturb_handover(index);
                }
            }
            CellOperation::Stop(time) => self.stop(index, time),
            CellOperation::Link(fault, time) => self.disturb_link(index, number, fault, time),
            CellOperation::StepClock(by) => {
                self.counter.coverage.count(Situation::ClockStep);
                store.machine.clock_error += by;
            }
            CellOperation::Outage { time, keeps_leases } => return self.begin_outage(time, keeps_leases),
            CellOperation::SetBack(age) => {
                if let Some(cell) = self.cell.as_mut().filter(|cell| cell.snapshot.is_none()) {
                    cell.snapshot = Some(cell.hub.snapshot());
                    self.schedule(age, SimEvent::Cell(CellChange::SetBack));
                }
            }
        }
        Ok(())
    }

    /// Plans a fault of one of the machines during a handover that has begun, or just after it.
    fn disturb_handover(&mut self, index: usize) {
        let Some(CellPlan { machines, lease, .. }) = self.cell.as_ref().map(|cell| cell.plan.clone()) else {
            return;
        };
        if !self.nodes[index].hands_over() || self.rng.coin() {
            return;
        }
        let delay = Duration::from_millis(self.rng.pick(&[0, 1, 10, 50, 100, 200, 500, 1_500]));
        let operation = match self.rng.below(4) {
            0 => {
                CellOperation::Kill(EndMoment::Now, Duration::from_millis(self.rng.pick(&[0, 1_000, 30_000])))
            }
            1 => CellOperation::Stop(lease.mul_f64(self.rng.pick(&[0.1, 0.5, 1.5]))),
            _ => {
                let all = [LinkFault::LosesRequests, LinkFault::LosesAnswers, LinkFault::LosesBoth];
                CellOperation::Link(self.rng.pick(&all), Duration::from_secs(self.rng.pick(&[1, 3, 10])))
            }
        };
        let target = Target::Machine(self.rng.below(machines));
        let step = Operation::Cell(CellStep { target, operation });
        self.counter.coverage.count(Situation::HandoverDisturbed);
        self.schedule(delay, SimEvent::Operation(NodeOperation { node: index, operation: step }));
    }

    /// Takes the link to the store from a new owner, before it has written anything, for longer than its
    /// lease. It sends and receives nevertheless, and the next owner begins above the numbers of both.
    pub(crate) fn cut_new_owner(&mut self, index: usize) {
        if !self.is_cell(index) || !self.faults.has_begun() {
            return;
        }
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.plan.cuts > 0) else { return };
        cell.plan.cuts -= 1;
        let time = cell.plan.lease * 2;
        let store = self.nodes[index].store.as_ref();
        if let Some(number) = store.map(|store| store.machine.number) {
            self.disturb_link(index, number, LinkFault::LosesRequests, time);
        }
    }

    /// Disturbs the link of a machine to the store.
    fn disturb_link(&mut self, index: usize, number: usize, fault: LinkFault, time: Duration) {
        let Some(store) = &mut self.nodes[index].store else { return };
        store.set_link(|link| match fault {
            LinkFault::LosesRequests => link.delivers_requests = false,
            LinkFault::LosesAnswers => link.delivers_answers = false,
            LinkFault::Flaky => {}
            LinkFault::LosesBoth => (link.delivers_requests, link.delivers_answers) = (false, false),
            LinkFault::Late { request, answer, deadline } => {
                (link.request_delay, link.answer_delay, link.deadline) = (request, answer, deadline);
            }
        });
        if fault == LinkFault::Flaky {
            let change = CellChange::LinkChanges { machine: number, until: self.now + time };
            self.schedule(Duration::ZERO, SimEvent::Cell(change));
        }
        if time < Duration::MAX {
            self.counter.coverage.count(Situation::LinkFault);
            self.schedule(time, SimEvent::Cell(CellChange::LinkRepaired(number)));
        }
    }

    /// Lets the link of a machine lose other things than before.
    fn change_link(&mut self, number: usize, until: Duration) -> Checked {
        if self.now >= until {
            return Ok(());
        }
        let [requests, answers] = [(); 2].map(|()| self.rng.below(4) > 0);
        self.schedule(FLICKER, SimEvent::Cell(CellChange::LinkChanges { machine: number, until }));
        self.set_link(number, move |link| {
            (link.delivers_requests, link.delivers_answers) = (requests, answers)
        })
    }

    /// Sets the link of one machine.
    fn set_link(&mut self, number: usize, set: impl Fn(&mut Link)) -> Checked {
        let Some(index) = self.cell.as_ref().map(|cell| cell.plan.node) else { return Ok(()) };
        self.with_number(number, |simulation| {
            simulation.nodes[index].store.iter_mut().for_each(|store| store.set_link(&set));
            Ok(())
        })
    }

    /// Sets the links of all machines.
    fn set_links(&mut self, set: impl Fn(&mut Link)) {
        let Some(cell) = &mut self.cell else { return };
        let nodes = cell.others.iter_mut().chain([&mut self.nodes[cell.plan.node]]);
        nodes.filter_map(|node| node.store.as_mut()).for_each(|store| store.set_link(&set));
    }

    fn begin_outage(&mut self, time: Duration, keeps_leases: bool) -> Checked {
        self.counter.coverage.count(Situation::CellOutage);
        self.set_links(|link| link.delivers_requests = false);
        if let Some(cell) = self.cell.as_ref().filter(|_| keeps_leases) {
            // A full store ends no lease.
            cell.hub.set_full(true);
        }
        self.schedule(time, SimEvent::Cell(CellChange::OutageEnds { keeps_leases }));
        Ok(())
    }

    /// Performs a later change of the cell.
    pub(crate) fn change_cell(&mut self, change: CellChange) -> Checked {
        if !matches!(change, CellChange::LinkChanges { .. }) {
            self.trace.log(self.now, || format!("the cell: {change:?}"));
        }
        let Some(cell) = &mut self.cell else { return Ok(()) };
        match change {
            CellChange::LinkRepaired(number) => {
                return self.set_link(number, |link| *link = Link::default());
            }
            CellChange::LinkChanges { machine, until } => return self.change_link(machine, until),
            CellChange::OutageEnds { keeps_leases } => {
                if keeps_leases {
                    // All leases last for their whole time, as after the election of a leader.
                    cell.hub.restore(&cell.hub.snapshot());
                    cell.hub.set_full(false);
                }
                self.set_links(|link| link.delivers_requests = true);
            }
            CellChange::SetBack => {
                if let Some(snapshot) = &cell.snapshot {
                    cell.hub.restore(snapshot);
                    cell.is_set_back = true;
                    self.counter.coverage.count(Situation::SetBack);
                    self.schedule(UNTIL_REPLACED, SimEvent::Cell(CellChange::Replaced));
                }
            }
            CellChange::Replaced => {
                let hub = MemoryHub::new();
                let nodes = cell.others.iter_mut().chain([&mut self.nodes[cell.plan.node]]);
                for node in nodes {
                    node.forget(&self.plan);
                    node.store.iter_mut().for_each(|store| store.replace(&hub, self.now, REPLACEMENT));
                }
                (cell.hub, cell.is_set_back, cell.is_replaced) = (hub, false, true);
            }
        }
        Ok(())
    }

    /// Whether a process has become the owner in a store that was set back, because its machine had not seen
    /// what the store has lost. If the claim of another machine was lost as well, both have the same takeover
    /// count, and would use the same numbers. No comparison within the store prevents that
    /// (docs/decisions/0140-cells.md, rule 6). The process ends here.
    pub(crate) fn is_blind_owner(&mut self, index: usize) -> bool {
        if !self.is_cell(index) || self.cell.as_ref().is_none_or(|cell| !cell.is_set_back) {
            return false;
        }
        self.trace
            .log(self.now, || format!("{} has not seen what the store has lost", self.nodes[index].name()));
        self.counter.coverage.count(Situation::BlindOwner);
        self.nodes[index].store.iter_mut().for_each(StateStore::give_up);
        true
    }

    /// Notes that a process does not continue with the contents of its store.
    pub(crate) fn note_refusal(&mut self, index: usize, why: &str) -> Checked {
        let name = self.nodes[index].name();
        self.trace.log(self.now, || format!("{name} refuses the store: {why}"));
        self.counter.coverage.count(Situation::StoreRefused);
        if self.cell.as_ref().is_some_and(|cell| cell.is_set_back) {
            return Ok(());
        }
        violated(format!("{name} refuses a store that has lost nothing: {why}"))
    }
}
