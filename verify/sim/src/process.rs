//! Processes of nodes that keep their state in a store: starts, ends, takeovers, and faults of the store.

use crate::invariants::{Checked, Violation, violated};
use crate::mix::{ProcessOperation, StoreFault};
use crate::node::Node;
use crate::packet::ike_datagram;
use crate::simulation::{SimEvent, Simulation};
use crate::situation::Situation;
use crate::state_store::{EndMoment, EndStep, Sent, StartStep, StateStore};
use casemate::OwnedRecord;
use casemate_ike::{IkeState, Transmit};
use std::time::Duration;

/// Time within which the moment of a planned end comes. The process ends then at the latest.
const MOMENT_WITHIN: Duration = Duration::from_secs(10);

/// A process that goes on although another one has taken over its state.
pub(crate) struct FormerProcess {
    node: Node,
    until: Duration,
}

impl Simulation {
    /// Advances the stores to the time of the simulation.
    pub(crate) fn advance_stores(&self) {
        self.nodes.iter().filter_map(|node| node.store.as_ref()).for_each(|store| store.advance(self.now));
    }

    /// Times at which former processes have something to do, with the numbers of their nodes.
    pub(crate) fn former_due(&self) -> impl Iterator<Item = (Duration, usize)> {
        self.former.iter().map(|former| {
            let due = former.node.due().map_or(former.until, |due| due.min(former.until));
            (due.max(self.now), former.node.index)
        })
    }

    /// Runs the timers of a node, and of the processes that it has replaced.
    pub(crate) fn serve(&mut self, index: usize) -> Checked {
        let now = self.now;
        self.former.retain(|former| former.until > now && !former.node.has_lost_state());
        self.with_former(index, |simulation| simulation.serve_process(index))?;
        self.serve_cell(index)
    }

    /// Lets the process of a node do what is due.
    pub(crate) fn serve_process(&mut self, index: usize) -> Checked {
        let now = self.now;
        match self.nodes[index].stopped_until {
            Some(until) if until > now => return Ok(()),
            Some(_) => self.resume_process(index)?,
            None => {}
        }
        if self.nodes[index].is_up() {
            self.nodes[index].serve(now);
            self.drain(index)?;
            let end = self.nodes[index].store.as_mut().and_then(|store| store.take_end(now));
            end.into_iter().for_each(|down_for| self.crash(index, down_for));
            return Ok(());
        }
        self.continue_start(index)?;
        self.continue_end(index)
    }

    /// Continues an orderly end.
    fn continue_end(&mut self, index: usize) -> Checked {
        let now = self.now;
        let step = self.nodes[index]
            .with_store(now, |store, endpoint, context| store.continue_end(now, endpoint, context));
        let Some(EndStep { released, has_handed_over, ended }) = step.flatten() else { return Ok(()) };
        self.send_ike(index, &released)?;
        if has_handed_over {
            self.note_handover(index);
        }
        ended.into_iter().for_each(|down_for| self.crash(index, down_for));
        Ok(())
    }

    /// Sends IKE messages of a process that ends. Their records are written, so that they may also leave just
    /// after the process has given up the state: the next owner repeats the same ones.
    fn send_ike(&mut self, index: usize, messages: &[Transmit]) -> Checked {
        for transmit in messages.iter().filter(|transmit| !transmit.message.is_empty()) {
            self.monitor.check_sealed_message(&self.nodes[index], &transmit.message)?;
            self.send(index, ike_datagram(transmit));
        }
        Ok(())
    }

    /// Starts a process, or continues its start.
    pub(crate) fn continue_start(&mut self, index: usize) -> Checked {
        let now = self.now;
        let step = self.nodes[index].with_store(now, |store, _, context| store.start(now, context));
        match step.flatten() {
            None => self.begin_restored(index),
            Some(StartStep::Waiting) => Ok(()),
            Some(StartStep::Refused(why)) => self.note_refusal(index, why),
            Some(StartStep::Failed(why)) => violated(format!("node {index} does not start: {why}")),
            Some(StartStep::Restored { unreadable, .. }) if self.is_blind_owner(index) => {
                self.trace.log(now, || format!("{unreadable} records cannot be read"));
                Ok(())
            }
            Some(StartStep::Restored { unreadable: 1.., .. }) => {
                violated(format!("node {index} does not start: a record cannot be read"))
            }
            Some(StartStep::Restored { records, .. }) => self.restore(index, records),
        }
    }

    fn restore(&mut self, index: usize, records: Vec<OwnedRecord>) -> Checked {
        let (now, count) = (self.now, records.len());
        self.trace.log(now, || format!("{} has started with {count} records", self.nodes[index].name()));
        self.counter.coverage.add(Situation::Restored, count);
        let failed = self.nodes[index].restore(&self.plan, records, now);
        if let Some(failed) = failed.first() {
            return violated(format!("node {index} does not restore an IKE SA: {}", failed.error));
        }
        self.begin_restored(index)
    }

    /// Lets restored SAs go on, unless a former owner still uses them.
    fn begin_restored(&mut self, index: usize) -> Checked {
        let now = self.now;
        let has_begun =
            self.nodes[index].with_store(now, |store, endpoint, context| store.begin(now, endpoint, context));
        if self.nodes[index].has_lost_state() && self.is_cell(index) {
            self.end_lost(index);
        }
        if has_begun != Some(true) {
            return Ok(());
        }
        self.trace.log(now, || format!("{} begins", self.nodes[index].name()));
        self.note_owner(index);
        self.monitor.inherit_keys(&self.nodes[index]);
        self.drain(index)?;
        if self.cell.as_ref().is_some_and(|cell| cell.is_replaced) {
            return Ok(());
        }
        self.nodes
            .iter()
            .filter(|peer| peer.index != index && peer.is_up())
            .try_for_each(|peer| self.monitor.check_known(&self.nodes[index], peer))
    }

    /// The IKE messages of a node that leave now. Without a store, these are all messages.
    pub(crate) fn transmits_of(&mut self, index: usize) -> Result<Vec<Transmit>, Violation> {
        let now = self.now;
        let transmits = self.nodes[index].transmits();
        if self.nodes[index].store.is_none() {
            return Ok(transmits);
        }
        let sent = self.nodes[index]
            .with_store(now, |store, endpoint, context| store.pass(now, transmits, endpoint, context));
        match sent {
            Some(Sent::Messages(sent)) if !self.nodes[index].has_lost_state() => Ok(sent),
            Some(Sent::Messages(_)) if self.is_cell(index) => {
                self.end_lost(index);
                Ok(vec![])
            }
            Some(Sent::Messages(_)) if self.nodes[index].is_replaced => Ok(vec![]),
            Some(Sent::Messages(_)) => violated(format!("node {index} has lost its state to nobody")),
            Some(Sent::Ends(down_for)) => {
                self.crash(index, down_for);
                Ok(vec![])
            }
            None => Ok(vec![]),
        }
    }

    /// Ends the process of a node whose end was planned for this moment.
    pub(crate) fn end_after_sending(&mut self, index: usize) {
        let now = self.now;
        if let Some(down_for) = self.nodes[index].store.as_mut().and_then(|store| store.take_end(now)) {
            self.crash(index, down_for);
        }
    }

    /// Ends the process of a node at once. The next one starts after a pause.
    pub(crate) fn crash(&mut self, index: usize, down_for: Duration) {
        let now = self.now;
        self.trace.log(now, || format!("the process of {} ends for {down_for:?}", self.nodes[index].name()));
        self.counter.coverage.count(Situation::ProcessEnd);
        let node = &mut self.nodes[index];
        node.forget(&self.plan);
        node.store.iter_mut().for_each(|store| store.end(now, down_for));
    }

    /// Changes the process of a node.
    pub(crate) fn run_process_operation(&mut self, index: usize, operation: ProcessOperation) -> Checked {
        let now = self.now;
        self.trace.log(now, || format!("node {index}: {operation:?}"));
        match operation {
            ProcessOperation::Crash(EndMoment::Now, down_for) => self.crash(index, down_for),
            ProcessOperation::Crash(moment, down_for) => {
                let store = self.nodes[index].store.iter_mut();
                store.for_each(|store| store.plan_end(moment, now + MOMENT_WITHIN, down_for));
            }
            ProcessOperation::Restart(down_for) => {
                self.counter.coverage.count(Situation::OrderlyEnd);
                let messages = self.nodes[index].with_store(now, |store, endpoint, context| {
                    store.begin_end(now, down_for, endpoint, context)
                });
                self.send_ike(index, &messages.unwrap_or_default())?;
                return self.serve_process(index);
            }
            ProcessOperation::TakeOver(goes_on_for) => self.take_over(index, now + goes_on_for),
        }
        if self.nodes[index].is_up() { Ok(()) } else { self.continue_start(index) }
    }

    /// Starts another process with the state of a node. The former one goes on until then.
    fn take_over(&mut self, index: usize, until: Duration) {
        if self.former.iter().any(|former| former.node.index == index) {
            return;
        }
        self.counter.coverage.count(Situation::TakeOver);
        let mut successor = self.nodes[index].successor(&self.plan);
        std::mem::swap(&mut successor.nat, &mut self.nodes[index].nat);
        let mut node = std::mem::replace(&mut self.nodes[index], successor);
        node.is_replaced = true;
        node.store.iter_mut().for_each(StateStore::keep_running);
        self.former.push(FormerProcess { node, until });
    }

    /// Lets each former process of a node act in place of the present one.
    pub(crate) fn with_former(&mut self, index: usize, mut act: impl FnMut(&mut Self) -> Checked) -> Checked {
        let position = self.former.iter().position(|former| former.node.index == index);
        let Some(position) = position else { return Ok(()) };
        self.exchange(position, index);
        let done = act(self);
        self.exchange(position, index);
        done
    }

    /// Exchanges a former process and the present one. Both are behind the same NAT.
    fn exchange(&mut self, position: usize, index: usize) {
        let (former, node) = (&mut self.former[position].node, &mut self.nodes[index]);
        std::mem::swap(former, node);
        std::mem::swap(&mut former.nat, &mut node.nat);
    }

    /// Starts a fault of the store of a node.
    pub(crate) fn run_store_fault(&mut self, index: usize, fault: StoreFault) {
        self.trace.log(self.now, || format!("the store of node {index}: {fault:?}"));
        let Some(store) = &mut self.nodes[index].store else { return };
        let until = match fault {
            StoreFault::Delays { request, answer } => {
                store.set_link(|link| (link.request_delay, link.answer_delay) = (request, answer));
                return;
            }
            StoreFault::LosesRequests(time) => {
                store.set_link(|link| link.delivers_requests = false);
                time
            }
            StoreFault::LosesAnswers(time) => {
                store.set_link(|link| link.delivers_answers = false);
                time
            }
            StoreFault::IsFull(time) => {
                store.set_full(true);
                time
            }
        };
        self.counter.coverage.count(Situation::StoreOutage);
        self.schedule(until, SimEvent::StoreRepaired(index));
    }

    /// Ends the faults of the store of a node.
    pub(crate) fn repair_store(&mut self, index: usize) -> Checked {
        self.trace.log(self.now, || format!("the store of node {index} works again"));
        if let Some(store) = &mut self.nodes[index].store {
            store.set_link(|link| (link.delivers_requests, link.delivers_answers) = (true, true));
            store.set_full(false);
        }
        Ok(())
    }

    /// Checks that the store of each node has a record for each of its IKE SAs, and no other one.
    pub(crate) fn check_records(&self) -> Checked {
        for node in &self.nodes {
            let Some(records) = node.store.as_ref().map(StateStore::records) else { continue };
            let ikes = node.ikes().iter().filter(|ike| ike.state != IkeState::Connecting).count();
            if records != ikes {
                return violated(format!("node {} has {records} records of {ikes} IKE SAs", node.index));
            }
        }
        Ok(())
    }
}
