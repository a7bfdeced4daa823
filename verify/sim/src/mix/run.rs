//! Run of a mix: setup, operations, quiet phase, checks, and the conditions that must hold during the run and
//! at its end.

use super::plan::DatagramFault;
use super::{Mix, MixPlan, NodeOperation, Operation};
use crate::addresses::HostPair;
use crate::config::Variant;
use crate::invariants::{self, Checked, Monitor, violated};
use crate::node::Node;
use crate::plan::{NetworkConditions, Plan, Topology};
use crate::simulation::{SimEvent, Simulation};
use crate::{Options, trace};
use casemate::Notice;
use casemate_ike::{ChildState, ChildStatus, DownReason, Event, IkeSpis, IkeState, IkeStatus};
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
        if self.plan.single_initiator {
            self.nodes[0].variant = Variant { ike: 0, ..Variant::FIRST };
        }
        for index in 0..self.nodes.len() {
            let now = self.now();
            self.nodes[index].configure(&self.plan, now);
            self.drain(index)?;
        }
        self.run_for(SET_UP)?;
        self.conditions = conditions.without_faults();
        let rules = mix_plan.rules;
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
        self.monitor.packet_log.check_arrived(self.now())?;
        self.wait_until_idle()?;
        self.check_count(rules.ikes.clone(), rules.children.clone())?;
        self.check_use(&rules)?;
        self.check_sad()?;
        self.shut_down()
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
        invariants::is_idle(node) && (self.rules.is_none() || !node.ikes().is_empty())
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
        self.monitor.packet_log.check_gaps(MAX_CONSECUTIVE_LOSSES)
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
        if self.now() < until {
            self.schedule(TRAFFIC_INTERVAL, SimEvent::Packets { until, must_arrive });
        }
        Ok(())
    }

    /// Performs an operation on an SA that is not being replaced or closed.
    pub(crate) fn run_operation(&mut self, planned: NodeOperation) -> Checked {
        let NodeOperation { node: index, operation } = planned;
        let now = self.now();
        match operation {
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
    pub(crate) fn apply_fault(&mut self, delay: Duration, datagram: crate::net::Datagram) {
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

/// Conditions of a mix.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// IKE SAs before the first operation.
    pub(super) initial_ike_sas: usize,
    /// IKE SAs at the end.
    pub(super) ikes: RangeInclusive<usize>,
    /// Child SAs at the end.
    pub(super) children: RangeInclusive<usize>,
    /// Whether every packet has to arrive.
    pub(super) lossless: bool,
    /// Permitted reasons for the end of an SA.
    pub(super) allowed_ends: AllowedEnds,
}

/// Permitted reasons for the end of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedEnds {
    /// The SA is rekeyed or deleted.
    Orderly,
    /// As `Orderly`; or the IKE SA is terminated, reauthenticated, or replaced by a new one with the same
    /// peer.
    Intended,
    /// As `Intended`; or the peer does not respond.
    Outage,
}

impl Rules {
    /// One IKE SA with one Child SA at the end.
    pub(super) const fn one(lossless: bool, allowed_ends: AllowedEnds) -> Self {
        Self { initial_ike_sas: 1, ikes: 1..=1, children: 1..=1, lossless, allowed_ends }
    }

    /// Rules of a mix that only rekeys, creates and deletes SAs.
    pub(super) fn for_rekeyings(plan: &Plan, operations: &[NodeOperation]) -> Self {
        let parallel = if plan.topology == Topology::Sites { 2 } else { 1 };
        let count = |wanted| operations.iter().filter(|planned| planned.operation == wanted).count();
        let (created, deleted) = (count(Operation::CreateChild), count(Operation::DeleteChild));
        Self {
            initial_ike_sas: parallel,
            ikes: parallel..=parallel,
            children: (parallel + created).saturating_sub(deleted)..=parallel + created,
            // Without a Delete payload, the new SA always exists before the old one is removed.
            lossless: deleted == 0,
            allowed_ends: AllowedEnds::Orderly,
        }
    }

    /// Checks that no endpoint declares a live peer dead or reports a fault of a conforming peer.
    pub(crate) fn check_notice(&self, monitor: &Monitor, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(event) = notice else { return Ok(()) };
        // After 7 s without a response, a host sets up a new IKE SA and may drop the old one (decision 0080).
        let allowed = if monitor.was_silent() { AllowedEnds::Outage } else { self.allowed_ends };
        match event {
            Event::IkeDown { ike, reason: why, .. }
                if !allowed.allows_ike(*why) && monitor.was_up(node, *ike) =>
            {
                violated(format!("node {}: an IKE SA ended: {why}", node.index))
            }
            Event::ChildDown { reason: why, .. } if !allowed.allows_child(*why) => {
                violated(format!("node {}: a Child SA ended: {why}", node.index))
            }
            _ => Ok(()),
        }
    }
}

impl AllowedEnds {
    fn allows_ike(self, why: DownReason) -> bool {
        match why {
            DownReason::Replaced | DownReason::Unconfigured | DownReason::Peer => true,
            DownReason::Local
            | DownReason::Reauth
            | DownReason::Forgotten { is_reauthenticated: true, .. }
            | DownReason::InitialContact
            | DownReason::NotUnique => self != Self::Orderly,
            DownReason::DeadPeer | DownReason::Forgotten { .. } => self == Self::Outage,
            DownReason::Expired | DownReason::Inactive | DownReason::Refused(_) | DownReason::Fault(_) => {
                false
            }
        }
    }

    fn allows_child(self, why: DownReason) -> bool {
        let is_outage =
            matches!(why, DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. });
        !matches!(why, DownReason::Fault(_) | DownReason::Expired) && (!is_outage || self == Self::Outage)
    }
}
