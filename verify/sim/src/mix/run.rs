//! Run of a mix: setup, operations, quiet phase, and checks.

use super::plan::{DatagramFault, FaultSchedule};
use super::{Mix, MixPlan, NodeOperation, Operation, Rules};
use crate::addresses::HostPair;
use crate::config::Variant;
use crate::invariants::{self, Checked, violated};
use crate::node::Node;
use crate::plan::NetworkConditions;
use crate::simulation::{SimEvent, Simulation};
use crate::state_store::StateStore;
use crate::{Options, trace};
use casemate_ike::{ChildState, ChildStatus, IkeSpis, IkeState, IkeStatus};
use casemate_sa::Spi;
use casemate_test_support::TestRng;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Time after which both endpoints are connected.
const SET_UP: Duration = Duration::from_secs(5);
/// Time after which all operations, retransmissions and delayed datagrams are over.
const QUIET: Duration = Duration::from_secs(400);
/// Interval of packets of the protected hosts.
const TRAFFIC_INTERVAL: Duration = Duration::from_millis(250);
/// Largest number of SAs in the SAD for each wanted Child SA while both sides rekey it: the old SAs, the SAs
/// of both rekeyings, and inbound SAs that linger.
const MAX_SAS: usize = 10;
/// Time within which no inbound SA of an ended Child SA lingers at least once.
const LINGER_TIME: Duration = Duration::from_secs(60);
/// Largest number of consecutive packets that a direction may lose on a network with a loss of 5 %.
const MAX_CONSECUTIVE_LOSSES: usize = 12;
/// Time after the first operation during which packets are sent.
const BUSY: Duration = Duration::from_secs(40);

impl Simulation {
    /// Simulation of a mix. The seed also determines its operations.
    pub(crate) fn for_mix(mix: Mix, seed: u64, options: Options) -> Self {
        let mut rng = TestRng::new(seed ^ (mix as u64 + 1) << 56);
        let mix_plan = MixPlan::new(mix, &mut rng);
        let mut simulation = Self::with_plan(mix_plan.plan.clone(), rng, options);
        (simulation.rules, simulation.mix_plan) = (Some(mix_plan.rules.clone()), Some(mix_plan));
        simulation
    }

    /// Runs the mix of this simulation.
    pub(crate) fn run_mix(&mut self) -> Checked {
        let mix_plan = self.mix_plan.take().expect("the simulation belongs to a mix");
        self.trace.log(self.now(), || format!("{mix_plan:#?}"));
        self.is_disrupted = false;
        let conditions = self.conditions;
        self.conditions =
            NetworkConditions { max_delay: conditions.min_delay, ..conditions.without_faults() };
        let rules = mix_plan.rules;
        if rules.allows_no_ike_sa() {
            self.faults.begin(mix_plan.faults);
            return self.run_refused();
        }
        for index in &rules.stores {
            self.nodes[*index].store = Some(StateStore::new());
            self.nodes[*index].keep_records();
        }
        if let Some(cell) = &rules.cell {
            self.set_up_cell(cell);
        }
        self.configure_nodes()?;
        self.run_for(SET_UP)?;
        self.conditions = conditions.without_faults();
        self.check_count(
            rules.initial_ike_sas..=rules.initial_ike_sas,
            rules.initial_ike_sas..=rules.initial_ike_sas,
        )?;
        if !self.plan.disrupted_for.is_zero() {
            self.conditions = conditions;
            self.soak(*rules.children.end())?;
            self.conditions = conditions.without_faults();
            return self.check_after_soak(rules.children);
        }
        self.faults.begin(mix_plan.faults);
        for (time, operation) in mix_plan.operations {
            self.schedule(time, SimEvent::Operation(operation));
        }
        let until = self.now() + mix_plan.after + BUSY;
        self.schedule(TRAFFIC_INTERVAL, SimEvent::Packets { until, must_arrive: rules.lossless });
        self.run_bounded(QUIET, *rules.children.end())?;
        // Otherwise liveness checks may be late one after the other, and a datagram is always on its way.
        self.faults = FaultSchedule::default();
        self.monitor.packet_log.check_arrived(self.now())?;
        self.wait_until_idle()?;
        // Before packets take time, in which another reauthentication may begin.
        self.check_records()?;
        let rules = if self.monitor.was_silent() { rules.with_silence() } else { rules };
        self.check_cell()?;
        self.check_count(rules.ikes.clone(), rules.children.clone())?;
        self.check_use(&rules)?;
        self.check_sad()?;
        self.shut_down()?;
        self.check_records()
    }

    /// Loads the configuration of both endpoints.
    pub(super) fn configure_nodes(&mut self) -> Checked {
        if self.plan.single_initiator {
            self.nodes[0].variant = Variant { ike: 0, ..Variant::FIRST };
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].store.is_some() {
                self.continue_start(index)?;
                self.with_machines(index, |simulation| simulation.continue_start(index))?;
                continue;
            }
            let now = self.now();
            self.nodes[index].configure(&self.plan, now);
            self.drain(index)?;
        }
        Ok(())
    }

    /// Advances time, and checks every second that the SAs are not more than `children` rekeyed Child SAs
    /// need.
    fn run_bounded(&mut self, time: Duration, children: usize) -> Checked {
        let until = self.now() + time;
        while self.now() < until {
            self.run_for(Duration::from_secs(1))?;
            self.check_bound(children)?;
        }
        Ok(())
    }

    fn check_bound(&self, children: usize) -> Checked {
        let most = MAX_SAS * children.max(1);
        for node in &self.nodes {
            let sas = node.endpoint().datapath().sas().count();
            if sas > most {
                return violated(format!("node {} has {sas} SAs instead of {most} at most", node.index));
            }
        }
        Ok(())
    }

    /// Waits until the SAD contains a pair of SAs for each Child SA and no other SA.
    fn check_sad(&mut self) -> Checked {
        let until = self.now() + LINGER_TIME;
        let is_exact = |node: &Node| node.endpoint().datapath().sas().count() == 2 * node.children().len();
        while !self.nodes.iter().all(is_exact) {
            if self.now() > until {
                return violated(format!("SAs without a Child SA: {}", invariants::describe(&self.nodes)));
            }
            self.run_for(Duration::from_secs(1))?;
        }
        Ok(())
    }

    /// Checks the number of IKE SAs and Child SAs at both endpoints.
    fn check_count(&self, ikes: RangeInclusive<usize>, children: RangeInclusive<usize>) -> Checked {
        for node in &self.nodes {
            let has = (node.ikes().len(), node.children().len());
            if !ikes.contains(&has.0) || !children.contains(&has.1) {
                return violated(format!(
                    "node {} has {} IKE SAs instead of {ikes:?}, and {} Child SAs instead of {children:?}",
                    node.index, has.0, has.1
                ));
            }
        }
        Ok(())
    }

    /// Whether no exchange is in progress and, in a mix, an IKE SA exists. It may be absent while it is set
    /// up again.
    pub(crate) fn is_settled(&self, node: &Node) -> bool {
        let is_written = node.store.as_ref().is_none_or(StateStore::is_idle);
        let may_be_absent = self.rules.as_ref().is_none_or(Rules::may_end_without_ike_sa);
        invariants::is_idle(node) && is_written && (may_be_absent || !node.ikes().is_empty())
    }

    /// Checks that the SAs carry traffic and that either side can rekey them.
    fn check_use(&mut self, rules: &Rules) -> Checked {
        if self.nodes[0].children().is_empty() {
            return Ok(());
        }
        let children = self.nodes[0].children().len();
        self.check_traffic()?;
        for index in 0..self.nodes.len() {
            for operation in [Operation::RekeyChild, Operation::RekeyIke] {
                self.run_operation(NodeOperation { node: index, operation })?;
                self.run_for(Duration::from_secs(20))?;
            }
        }
        self.wait_until_idle()?;
        // One of two IKE SAs that were initiated at once may have been closed.
        let is_sure = rules.ikes.start() == rules.ikes.end();
        let wanted = if is_sure { children..=children } else { rules.children.clone() };
        self.check_count(rules.ikes.clone(), wanted)?;
        self.check_traffic()
    }

    /// Timers rekey for minutes. The number of SAs stays bounded, and traffic keeps passing.
    fn soak(&mut self, children: usize) -> Checked {
        let until = self.now() + self.plan.disrupted_for;
        self.schedule(TRAFFIC_INTERVAL, SimEvent::Packets { until, must_arrive: false });
        self.run_bounded(self.plan.disrupted_for, children)?;
        // A host drops an IKE SA whose peer seems to be silent. The peer learns it from an INFORMATIONAL
        // message.
        let late = if self.monitor.was_silent() {
            self.conditions.informational_delay.as_millis() / TRAFFIC_INTERVAL.as_millis()
        } else {
            0
        };
        self.monitor.packet_log.check_gaps(MAX_CONSECUTIVE_LOSSES + late as usize)
    }

    /// Timers keep running. At some moment both sides have the same Child SAs.
    fn check_after_soak(&mut self, count: RangeInclusive<usize>) -> Checked {
        self.run_for(QUIET)?;
        for _ in 0..200 {
            self.run_for(Duration::from_millis(500))?;
            let [ours, theirs] = [0, 1].map(|index| child_sa_spis(&self.nodes[index]));
            let mirror: BTreeSet<_> = theirs.into_iter().map(ChildSaSpis::mirrored).collect();
            self.check_bound(*count.end())?;
            if count.contains(&ours.len()) && ours == mirror {
                return self.check_traffic();
            }
        }
        violated(format!("both sides never have the same Child SAs: {}", invariants::describe(&self.nodes)))
    }

    /// Sends a packet in both directions, and schedules the next ones.
    pub(crate) fn send_packet_pair(&mut self, until: Duration, must_arrive: bool) -> Checked {
        let pair = HostPair { from: 0, to: 1, child: 0 };
        self.send_packet(pair, must_arrive)?;
        self.send_packet(pair.reversed(), must_arrive)?;
        self.with_former(0, |simulation| simulation.send_packet(pair, false))?;
        self.with_former(1, |simulation| simulation.send_packet(pair.reversed(), false))?;
        self.with_machines(0, |simulation| simulation.send_as_former(pair))?;
        self.with_machines(1, |simulation| simulation.send_as_former(pair.reversed()))?;
        if self.now() < until {
            self.schedule(TRAFFIC_INTERVAL, SimEvent::Packets { until, must_arrive });
        }
        Ok(())
    }

    /// Performs an operation on an SA that is not being replaced or closed.
    pub(crate) fn run_operation(&mut self, planned: NodeOperation) -> Checked {
        let NodeOperation { node: index, operation } = planned;
        let now = self.now();
        if let Operation::Cell(step) = operation {
            return self.run_cell_step(index, step);
        }
        let is_at_work = self.nodes[index].is_up() && self.nodes[index].stopped_until.is_none();
        if !is_at_work && !matches!(operation, Operation::Store(_)) {
            return Ok(());
        }
        match operation {
            Operation::Process(operation) => return self.run_process_operation(index, operation),
            Operation::Store(fault) => {
                self.run_store_fault(index, fault);
                return Ok(());
            }
            Operation::Restart => return self.restart_node(index),
            Operation::CutOff(seconds) => {
                self.trace.log(now, || format!("node {index} is cut off for {seconds} s"));
                self.nodes[index].cut_off_until = now + Duration::from_secs(seconds);
                return Ok(());
            }
            Operation::Rebind => {
                self.forget_mappings();
                return Ok(());
            }
            _ => {}
        }
        let ikes: Vec<_> =
            self.nodes[index].ikes().into_iter().filter(|ike| ike.state == IkeState::Established).collect();
        let is_live =
            |child: &ChildStatus| matches!(child.state, ChildState::Installed | ChildState::Awaiting);
        let ike = (!ikes.is_empty()).then(|| self.rng.pick(&ikes));
        let children: Vec<_> = ikes.iter().flat_map(|ike| &ike.children).filter(|c| is_live(c)).collect();
        let child = (!children.is_empty()).then(|| self.rng.pick(&children).id);
        let ike = ike.map(|ike| ike.id);
        self.trace.log(now, || format!("node {index}: {operation:?}, IKE SA {ike:?}, Child SA {child:?}"));
        let node = &mut self.nodes[index];
        match (operation, ike, child) {
            (Operation::RekeyIke, Some(ike), _) => {
                node.act(now, |endpoint, context| endpoint.rekey(ike, context));
            }
            (Operation::RekeyChild, _, Some(child)) => {
                node.act(now, |endpoint, context| endpoint.rekey_child(child, context));
            }
            (Operation::Terminate, Some(ike), _) => {
                node.act(now, |endpoint, context| endpoint.terminate(ike, context));
            }
            (Operation::DeleteChild, _, Some(child)) => {
                node.act(now, |endpoint, context| endpoint.terminate_child(child, context));
            }
            (Operation::CreateChild, Some(_), _) => {
                let connection = node.endpoint().ike().connections()[0].clone();
                let child = connection.children[0].clone();
                let begun =
                    node.act(now, |endpoint, context| endpoint.initiate(&connection, Some(&child), context));
                begun.or_else(|why| violated(format!("node {index} does not create a Child SA: {why:?}")))?;
            }
            _ => {}
        }
        self.drain(index)
    }

    /// Delivers an IKE datagram according to its fault.
    pub(crate) fn apply_fault(&mut self, delay: Duration, mut datagram: crate::net::Datagram) {
        self.strip(&mut datagram);
        let fault = self.faults.next();
        self.trace.log(self.now(), || {
            let fault = fault.map_or_else(|| "sent    ".into(), |fault| format!("{fault:?}"));
            format!("{fault} {}", trace::format_datagram(&datagram))
        });
        match fault {
            Some(DatagramFault::Lost) => {}
            Some(DatagramFault::Delayed(by)) => self.schedule(delay + by, SimEvent::Arrival(datagram)),
            Some(DatagramFault::Duplicated(by)) => {
                self.schedule(delay, SimEvent::Arrival(datagram.clone()));
                self.schedule(delay + by, SimEvent::Arrival(datagram));
            }
            None => self.schedule(delay, SimEvent::Arrival(datagram)),
        }
    }
}

/// SPIs of a Child SA and of its IKE SA.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ChildSaSpis {
    ike: IkeSpis,
    inbound: Spi,
    outbound: Spi,
}

impl ChildSaSpis {
    fn of(ike: &IkeStatus, child: &ChildStatus) -> Self {
        Self { ike: ike.spis, inbound: child.spi_in, outbound: child.spi_out }
    }

    /// The same Child SA at the other endpoint.
    fn mirrored(self) -> Self {
        Self { inbound: self.outbound, outbound: self.inbound, ..self }
    }
}

/// SPIs of all Child SAs of an endpoint.
fn child_sa_spis(node: &Node) -> BTreeSet<ChildSaSpis> {
    let spis_of =
        |ike: &IkeStatus| ike.children.iter().map(|child| ChildSaSpis::of(ike, child)).collect::<Vec<_>>();
    node.ikes().iter().flat_map(spis_of).collect()
}
