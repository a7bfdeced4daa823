//! Simulation: the nodes, the network between them, and virtual time, which advances from event to
//! event.

use crate::Options;
use crate::attacker::Attacker;
use crate::cell::Cell;
use crate::config::{self, Variant};
use crate::coverage::{Coverage, CoverageCounter};
use crate::defect::Defect;
use crate::invariants::{self, Checked, Monitor, Violation, violated};
use crate::manual::{self, SavedNumbers};
use crate::mix::{CellChange, FaultSchedule, MixPlan, NodeOperation, Rules};
use crate::net::Datagram;
use crate::node::Node;
use crate::packet;
use crate::plan::{Disruptions, NetworkConditions, Plan};
use crate::process::FormerProcess;
use crate::situation::Situation;
use crate::trace::{self, Trace};
use casemate::Notice;
use casemate_ike::Event;
use casemate_test_support::TestRng;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// Interval of packets of protected hosts.
const TRAFFIC_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of disruptions.
const DISRUPTION_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the operator connects what is not established.
const OPERATOR_INTERVAL: Duration = Duration::from_secs(5);
/// After this time, all nodes of a lossless network are connected.
pub(crate) const CONNECTED: Duration = Duration::from_secs(20);
/// Time after the disruptions within which both sides of all SAs agree.
const RECOVERY: Duration = Duration::from_secs(200);
/// Time within which the nodes become idle once.
const IDLE_WITHIN: Duration = Duration::from_secs(100);
/// Time after which no state is left without a configuration.
const SHUTDOWN: Duration = Duration::from_secs(150);
/// More events than any plan needs.
const MAX_STEPS: u64 = 300_000;

/// Event of the simulation.
pub(crate) enum SimEvent {
    Arrival(Datagram),
    Traffic,
    Disruptions,
    Operator,
    /// A packet for each Child SA, to trigger traps.
    FirstPackets,
    /// The NATs lose all mappings.
    ForgetMappings,
    /// Packets of protected hosts in both directions (mix only).
    Packets {
        until: Duration,
        must_arrive: bool,
    },
    /// An operation of a node (mix only).
    Operation(NodeOperation),
    /// The store of a node works again (mix only).
    StoreRepaired(usize),
    /// A change of the cell (mix only).
    Cell(CellChange),
}

/// State of a run.
pub(crate) struct Simulation {
    pub(crate) plan: Plan,
    pub(crate) nodes: Vec<Node>,
    /// Processes that go on although another one has taken over their state.
    pub(crate) former: Vec<FormerProcess>,
    /// The cell to which one of the nodes belongs.
    pub(crate) cell: Option<Cell>,
    pub(crate) monitor: Monitor,
    pub(crate) rng: TestRng,
    pub(crate) trace: Trace,
    pub(crate) attacker: Attacker,
    pub(crate) defect: Option<Defect>,
    pub(crate) now: Duration,
    pub(crate) conditions: NetworkConditions,
    pub(crate) network_rng: TestRng,
    /// Until this time, no IKE message is lost.
    pub(crate) ike_arrives_until: Duration,
    /// Whether disruptions happen.
    pub(crate) is_disrupted: bool,
    queue: BTreeMap<(Duration, u64), SimEvent>,
    sequence: u64,
    in_flight: usize,
    pub(crate) counter: CoverageCounter,
    /// Jumps of the sequence numbers of manual SAs so far.
    pub(crate) number_jumps: u32,
    /// Covers each datagram that a node sent: time, source, destination and bytes.
    pub(crate) digest: DefaultHasher,
    /// Rules of a mix.
    pub(crate) rules: Option<Rules>,
    /// Plan of a mix, until the mix begins.
    pub(crate) mix_plan: Option<MixPlan>,
    /// Faults of single datagrams of a mix.
    pub(crate) faults: FaultSchedule,
}

impl Simulation {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut rng = TestRng::new(seed);
        let mut plan = Plan::draw(&mut rng);
        if let Some(defect) = options.defect {
            defect.prepare(&mut plan);
        }
        Self::with_plan(plan, rng, options)
    }

    pub(crate) fn with_plan(plan: Plan, mut rng: TestRng, options: Options) -> Self {
        let nodes =
            (0..plan.nodes()).map(|index| Node::new(&plan, index, rng.fork(), options.defect)).collect();
        Self {
            nodes,
            former: vec![],
            cell: None,
            monitor: Monitor::default(),
            attacker: Attacker::new(rng.fork(), plan.setup),
            network_rng: rng.fork(),
            rng: rng.fork(),
            trace: Trace { enabled: options.trace },
            defect: options.defect,
            now: Duration::ZERO,
            conditions: plan.conditions,
            ike_arrives_until: Duration::ZERO,
            is_disrupted: true,
            queue: BTreeMap::new(),
            sequence: 0,
            in_flight: 0,
            counter: CoverageCounter::default(),
            number_jumps: 0,
            digest: DefaultHasher::new(),
            rules: None,
            mix_plan: None,
            faults: FaultSchedule::default(),
            plan,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// Runs the phases: disruptions, recovery, idle state, shutdown.
    pub(crate) fn run(&mut self) -> Result<Coverage, Violation> {
        self.trace.log(self.now, || format!("{:#?}", self.plan));
        for index in 0..self.nodes.len() {
            self.nodes[index].configure(&self.plan, self.now);
            self.drain(index)?;
            self.install_manual(index, SavedNumbers::INITIAL);
        }
        self.schedule(TRAFFIC_INTERVAL, SimEvent::Traffic);
        self.schedule(DISRUPTION_INTERVAL, SimEvent::Disruptions);
        self.schedule(OPERATOR_INTERVAL, SimEvent::Operator);
        // Twice: an endpoint refuses a Child SA for the time being while the IKE SA is being rekeyed.
        self.schedule(CONNECTED / 2, SimEvent::FirstPackets);
        self.schedule(CONNECTED * 3 / 4, SimEvent::FirstPackets);
        self.run_for(self.plan.disrupted_for)?;
        self.end_disruptions()?;
        self.run_for(RECOVERY)?;
        self.wait_until_idle()?;
        self.check_traffic()?;
        self.shut_down()?;
        Ok(self.sum_up())
    }

    /// Ends the disruptions, and restores configurations that lack a child of their peers.
    fn end_disruptions(&mut self) -> Checked {
        self.trace.log(self.now, || "end of the disruptions".into());
        self.is_disrupted = false;
        self.conditions =
            NetworkConditions { max_ip_len: self.conditions.max_ip_len, ..NetworkConditions::PERFECT };
        for index in 0..self.nodes.len() {
            self.nodes[index].cut_off_until = self.now;
            if self.nodes[index].variant.without_last {
                self.nodes[index].variant = Variant::FIRST;
                self.nodes[index].configure(&self.plan, self.now);
                self.drain(index)?;
            }
        }
        Ok(())
    }

    /// Coverage of the run.
    pub(crate) fn sum_up(&mut self) -> Coverage {
        let packets = &self.monitor.packet_log;
        let coverage = &mut self.counter.coverage;
        coverage.add(Situation::Sent, packets.sent_count());
        coverage.add(Situation::Delivered, packets.delivered_count());
        coverage.add(Situation::Lossless, self.plan.is_lossless().into());
        coverage.add(Situation::NarrowPath, self.conditions.max_ip_len.is_some().into());
        coverage.add(Situation::UnderAttack, (self.plan.disruptions == Disruptions::UNDER_ATTACK).into());
        coverage.wire_digest = self.digest.finish();
        *coverage
    }

    /// Installs the SAs with manual keys of a node, if it has any.
    pub(crate) fn install_manual(&mut self, index: usize, saved_numbers: SavedNumbers) {
        if manual::is_used(&self.plan, index) {
            let outbound = manual::install(&self.plan, &mut self.nodes[index], saved_numbers, self.now);
            self.monitor.observe_manual_sa(&self.nodes[index], &outbound);
        }
    }

    pub(crate) fn schedule(&mut self, delay: Duration, what: SimEvent) {
        self.sequence += 1;
        self.in_flight += usize::from(matches!(what, SimEvent::Arrival(_)));
        self.queue.insert((self.now + delay, self.sequence), what);
    }

    pub(crate) fn run_for(&mut self, time: Duration) -> Checked {
        let until = self.now + time;
        while self.step(until)? {}
        self.now = until;
        Ok(())
    }

    /// Processes the next event until `until`. Returns `false` if there is none.
    fn step(&mut self, until: Duration) -> Result<bool, Violation> {
        self.counter.coverage.count(Situation::Step);
        if self.counter.coverage.count_of(Situation::Step) > MAX_STEPS {
            return violated("the run exceeds its number of events".into());
        }
        let due = (0..self.nodes.len())
            .filter_map(|index| Some((self.nodes[index].due()?.max(self.now), index)))
            .chain(self.former_due())
            .chain(self.cell_due())
            .min();
        let queued = self.queue.first_key_value().map(|(key, _)| key.0);
        let next = due.map(|due| due.0).into_iter().chain(queued).min();
        let Some(next) = next.filter(|next| *next <= until) else { return Ok(false) };
        self.now = next;
        self.advance_stores();
        match due.filter(|due| due.0 <= next) {
            Some((_, index)) => self.serve(index)?,
            None => {
                let (_, what) = self.queue.pop_first().expect("it is not empty");
                self.handle_event(what)?;
            }
        }
        Ok(true)
    }

    fn handle_event(&mut self, what: SimEvent) -> Checked {
        match what {
            SimEvent::Arrival(datagram) => {
                self.in_flight -= 1;
                self.arrive(datagram)
            }
            SimEvent::Traffic => {
                self.schedule(TRAFFIC_INTERVAL, SimEvent::Traffic);
                self.send_random()
            }
            SimEvent::FirstPackets => self.send_on_all_children(false),
            SimEvent::Packets { until, must_arrive } => self.send_packet_pair(until, must_arrive),
            SimEvent::Operation(operation) => self.run_operation(operation),
            SimEvent::StoreRepaired(index) => self.repair_store(index),
            SimEvent::Cell(change) => self.change_cell(change),
            SimEvent::ForgetMappings => {
                self.forget_mappings();
                Ok(())
            }
            SimEvent::Disruptions => {
                self.schedule(DISRUPTION_INTERVAL, SimEvent::Disruptions);
                let most = config::settings(&self.plan.setup).max_ike_sas;
                self.nodes.iter().try_for_each(|node| invariants::check_sizes(node, most))?;
                if self.is_disrupted { self.disrupt() } else { Ok(()) }
            }
            SimEvent::Operator => {
                self.schedule(OPERATOR_INTERVAL, SimEvent::Operator);
                if self.plan.setup.traps || self.is_disrupted { Ok(()) } else { self.connect() }
            }
        }
    }

    /// Observes the notices of a node and sends its IKE datagrams.
    pub(crate) fn drain(&mut self, index: usize) -> Checked {
        while let Some(notice) = self.nodes[index].next_notice() {
            self.trace.log(self.now, || format!("node {index}: {}", trace::format_notice(&notice)));
            let untrusted = self.plan.is_untrusted(index);
            self.counter.notice(&self.plan.setup, &self.nodes[index], untrusted, &notice);
            if self.nodes[index].is_replaced {
                self.monitor.observe(&self.nodes[index], &notice)?;
                continue;
            }
            if let Notice::Ike(Event::Retransmitted { attempt, .. }) = &notice {
                self.note_retransmission(*attempt);
            }
            let rules = self.rules.as_ref();
            rules.map_or(Ok(()), |rules| rules.check_notice(&self.monitor, &self.nodes[index], &notice))?;
            self.monitor.check_new(&self.plan, &self.nodes[index], &notice)?;
            self.monitor.check_strength(&self.plan, &self.nodes[index], &notice)?;
            if self.defect == Some(Defect::ResumedTwice) {
                self.monitor.check_strength(&self.plan, &self.nodes[index], &notice)?;
            }
            self.monitor.observe(&self.nodes[index], &notice)?;
        }
        for transmit in self.transmits_of(index)? {
            if !transmit.message.is_empty() {
                self.check_sender(index)?;
                self.monitor.check_sealed_message(&self.nodes[index], &transmit.message)?;
                if let Some(other) = self.defect.and_then(|broken| broken.resend(&transmit.message)) {
                    self.monitor.check_sealed_message(&self.nodes[index], &other)?;
                }
            }
            let datagram = packet::ike_datagram(&transmit);
            self.counter.datagram(&datagram);
            self.monitor.check_len(&self.plan.setup, &self.nodes[index], &datagram)?;
            self.send(index, datagram);
        }
        self.end_after_sending(index);
        Ok(())
    }

    /// Waits until no exchange is in progress, and checks that both sides agree.
    pub(crate) fn wait_until_idle(&mut self) -> Checked {
        let until = self.now + IDLE_WITHIN;
        loop {
            if self.in_flight == 0 && self.nodes.iter().all(|node| self.is_settled(node)) {
                self.monitor.check_peers(&self.plan, &self.nodes)?;
                return invariants::check_mirrors(&self.plan, &self.nodes, &self.monitor);
            }
            if !self.step(until)? {
                return violated(format!(
                    "the nodes never become idle: {}",
                    invariants::describe(&self.nodes)
                ));
            }
        }
    }

    /// Checks that traffic flows in both directions between all connected nodes.
    pub(crate) fn check_traffic(&mut self) -> Checked {
        self.trace.log(self.now, || "idle".into());
        self.send_on_all_children(true)?;
        let sent = self.now;
        self.run_for(Duration::from_secs(3))?;
        self.monitor.packet_log.check_arrived(sent)
    }

    /// Removes the configuration of all nodes and checks that no state is left.
    pub(crate) fn shut_down(&mut self) -> Checked {
        self.trace.log(self.now, || "shutdown".into());
        self.queue.retain(|_, what| matches!(what, SimEvent::Arrival(_)));
        for index in 0..self.nodes.len() {
            self.nodes[index].unconfigure(self.now);
            self.drain(index)?;
        }
        self.run_for(SHUTDOWN)?;
        self.nodes.iter().try_for_each(|node| invariants::check_empty(&self.plan, node))
    }
}
