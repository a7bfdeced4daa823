//! One endpoint with its environment: clock, random source, keys, routes, and an optional NAT.

use crate::addresses;
use crate::config::{self, Variant};
use crate::defect::Defect;
use crate::invariants::PacketSpec;
use crate::keys::Keys;
use crate::net::{Datagram, Nat};
use crate::plan::Plan;
use crate::state_store::StateStore;
use casemate::{Context, Endpoint, NotRestored, Notice, OwnedRecord, Routes};
use casemate_cell::{KeeperRole, RECEIVED_BLOCK, SENT_BLOCK};
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_ike::config::Connection;
use casemate_ike::{ChildStatus, IkeStatus, Path, Transmit};
use casemate_sa::Instant;
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

struct OneAddress(IpAddr);

impl Routes for OneAddress {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(self.0)
    }
}

/// A node between two restarts. SA identifiers are unique only within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Incarnation {
    /// Number of the node.
    pub(crate) node: usize,
    pub(crate) restarts: u32,
}

/// What a stopped process has not processed yet.
pub(crate) enum Queued {
    /// A datagram from the network.
    Arrival(Datagram),
    /// A packet of a protected host.
    Packet { number: usize, packet: Vec<u8>, spec: PacketSpec },
}

/// Maximum number of packets that wait for a stopped process.
const MAX_QUEUED: usize = 256;

/// One endpoint.
pub(crate) struct Node {
    /// Number of the node.
    pub(crate) index: usize,
    /// Address that the node is configured with.
    pub(crate) addr: IpAddr,
    /// NAT in front of the node.
    pub(crate) nat: Option<Nat>,
    /// How often the node restarted and lost its state.
    pub(crate) restarts: u32,
    /// Current configuration.
    pub(crate) variant: Variant,
    /// Offset of the node's clock to the time of the simulation.
    pub(crate) clock_offset: Duration,
    /// Until this time the node neither sends nor receives.
    pub(crate) cut_off_until: Duration,
    /// Store of the node's state; none in most simulations.
    pub(crate) store: Option<StateStore>,
    /// Whether another process has taken over.
    pub(crate) is_replaced: bool,
    /// Until this time the process does nothing; `None` if it runs.
    pub(crate) stopped_until: Option<Duration>,
    /// What a stopped process has not processed yet.
    pub(crate) queued: Vec<Queued>,
    last_time: Instant,
    endpoint: Box<Endpoint>,
    initial_rng: TestRng,
    rng: TestRng,
    keys: Keys,
    defect: Option<Defect>,
}

impl Node {
    /// Node without configuration.
    pub(crate) fn new(plan: &Plan, index: usize, rng: TestRng, defect: Option<Defect>) -> Self {
        let is_behind_nat = plan.setup.nat && index > 0;
        let addr = addresses::own(&plan.setup, index);
        let trusts_all = defect == Some(Defect::TrustAll);
        let mut initial_rng = rng;
        let clock_offset = Duration::from_millis(initial_rng.below(1_000_000_000) as u64);
        Self {
            index,
            addr,
            nat: is_behind_nat.then(|| Nat::new(addr, addresses::outer(&plan.setup, index))),
            restarts: 0,
            variant: Variant::FIRST,
            clock_offset,
            cut_off_until: Duration::ZERO,
            store: None,
            is_replaced: false,
            stopped_until: None,
            queued: vec![],
            last_time: Instant::ZERO,
            endpoint: Box::new(new_endpoint(plan, defect)),
            rng: initial_rng.clone(),
            initial_rng,
            keys: Keys::new(plan, index, trusts_all),
            defect,
        }
    }

    /// The node since its last restart.
    pub(crate) const fn incarnation(&self) -> Incarnation {
        Incarnation { node: self.index, restarts: self.restarts }
    }

    /// Endpoint, for inspection.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Endpoint, to install SAs with manual keys.
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Restarts the node. It loses all state and reads its configuration again.
    pub(crate) fn restart(&mut self, plan: &Plan, now: Duration) {
        self.restarts += 1;
        *self.endpoint = new_endpoint(plan, self.defect);
        if self.defect == Some(Defect::RepeatedRandomness) {
            self.rng = self.initial_rng.clone();
        }
        self.configure(plan, now);
    }

    /// Loads the configuration of the node.
    pub(crate) fn configure(&mut self, plan: &Plan, now: Duration) {
        let connections = self.connections(plan);
        let pools = [addresses::pool(&plan.setup)];
        self.act(now, |endpoint, context| endpoint.configure(connections, &pools, context))
            .expect("there is room for all policies");
    }

    fn connections(&self, plan: &Plan) -> Vec<Arc<Connection>> {
        let connections = config::connections(plan, self.index, self.variant);
        match self.defect {
            Some(defect) => connections.into_iter().map(|known| defect.change(known)).collect(),
            None => connections,
        }
    }

    /// Makes records of the IKE SAs that follow.
    pub(crate) fn keep_records(&mut self) {
        self.endpoint.keep_records(SENT_BLOCK, RECEIVED_BLOCK);
    }

    /// Ends the process of the node. Its successor does not know anything yet.
    pub(crate) fn forget(&mut self, plan: &Plan) {
        self.restarts += 1;
        self.stopped_until = None;
        self.queued.clear();
        *self.endpoint = new_endpoint(plan, self.defect);
        if self.store.is_some() {
            self.keep_records();
        }
    }

    /// Loads the configuration, and continues the IKE SAs of records. Returns those that were not restored.
    pub(crate) fn restore(
        &mut self,
        plan: &Plan,
        records: Vec<OwnedRecord>,
        now: Duration,
    ) -> Vec<NotRestored> {
        let connections = self.connections(plan);
        let pools = [addresses::pool(&plan.setup)];
        let restored = self.act(now, |endpoint, context| {
            endpoint.configure_and_restore(connections, &pools, records, context)
        });
        restored.expect("there is room for all policies")
    }

    /// Another process with the identity of this one, which does not know anything yet.
    pub(crate) fn successor(&mut self, plan: &Plan) -> Self {
        let rng = self.rng.fork();
        let mut successor = Self::new(plan, self.index, rng, self.defect);
        successor.variant = self.variant;
        successor.clock_offset = self.clock_offset;
        successor.cut_off_until = self.cut_off_until;
        successor.store = self.store.as_ref().map(StateStore::successor);
        successor.restarts = self.restarts;
        successor.forget(plan);
        successor
    }

    /// Whether the process knows that another one has taken over.
    pub(crate) fn has_lost_state(&self) -> bool {
        self.store.as_ref().is_some_and(StateStore::is_lost)
    }

    /// Whether the node has a process that sends and receives.
    pub(crate) fn is_up(&self) -> bool {
        self.store.as_ref().is_none_or(StateStore::is_running)
    }

    /// Whether the process moves packets while IKE and timers stand still.
    pub(crate) fn hands_over(&self) -> bool {
        self.store.as_ref().is_some_and(StateStore::hands_over)
    }

    /// Whether the node has a process that protects and opens packets.
    pub(crate) fn moves_packets(&self) -> bool {
        self.is_up() || self.hands_over()
    }

    /// Name in traces.
    pub(crate) fn name(&self) -> String {
        let machine = self.store.as_ref().filter(|store| store.is_of_cell());
        let machine = machine.map(|store| format!(" on machine {}", store.machine.number));
        format!("node {}{}", self.index, machine.unwrap_or_default())
    }

    /// What the process of a node does with its state.
    pub(crate) fn role(&self, now: Duration) -> Option<KeeperRole> {
        self.store.as_ref().and_then(|store| store.role(self.clock(now)))
    }

    /// Keeps a packet for a stopped process, as the buffers of its sockets do. Returns whether it is stopped.
    pub(crate) fn queue_if_stopped(&mut self, packet: impl FnOnce() -> Queued) -> bool {
        let is_stopped = self.stopped_until.is_some();
        if is_stopped && self.moves_packets() && self.queued.len() < MAX_QUEUED {
            self.queued.push(packet());
        }
        is_stopped
    }

    /// Removes the whole configuration.
    pub(crate) fn unconfigure(&mut self, now: Duration) {
        self.act(now, |endpoint, context| endpoint.configure(vec![], &[], context))
            .expect("nothing always fits");
    }

    /// Node time of the last call of [`act`](Self::act).
    pub(crate) fn time(&self) -> Instant {
        self.last_time
    }

    /// Simulation time of the last call of [`act`](Self::act): the time of the node without the jumps of its
    /// clock.
    pub(crate) fn simulation_time(&self) -> Duration {
        self.last_time.since(Instant::ZERO).saturating_sub(self.clock_offset)
    }

    pub(crate) fn clock(&self, now: Duration) -> Instant {
        Instant::ZERO.after(now + self.clock_offset)
    }

    /// Next deadline of the endpoint, in simulation time.
    pub(crate) fn due(&self) -> Option<Duration> {
        if self.stopped_until.is_some() {
            return self.stopped_until;
        }
        let endpoint = self
            .endpoint
            .next_timeout()
            .filter(|_| self.is_up())
            .map(|due| Duration::from_micros(due.as_micros()).saturating_sub(self.clock_offset));
        endpoint.into_iter().chain(self.store.as_ref().and_then(StateStore::due)).min()
    }

    /// Calls the endpoint with the context of this node.
    pub(crate) fn act<T>(
        &mut self,
        now: Duration,
        act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T,
    ) -> T {
        self.last_time = self.clock(now);
        let list = Defect::providers(self.defect);
        let providers = Providers(&list);
        let mut context = Context {
            now: self.clock(now),
            unix_time: 0,
            rng: &mut self.rng,
            providers: &providers,
            credentials: &self.keys,
            routes: &OneAddress(self.addr),
        };
        act(&mut self.endpoint, &mut context)
    }

    /// Runs the timers that are due.
    pub(crate) fn serve(&mut self, now: Duration) {
        if !self.hands_over() {
            self.act(now, Endpoint::handle_timeouts);
        }
    }

    /// Next notice of the endpoint.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.endpoint.next_notice()
    }

    /// IKE datagrams of the endpoint.
    pub(crate) fn transmits(&mut self) -> Vec<Transmit> {
        std::iter::from_fn(|| self.endpoint.next_transmit()).collect()
    }

    /// Calls the store of the node, if it has one.
    pub(crate) fn with_store<T>(
        &mut self,
        now: Duration,
        act: impl FnOnce(&mut StateStore, &mut Endpoint, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let mut store = self.store.take()?;
        let done = self.act(now, |endpoint, context| act(&mut store, endpoint, context));
        self.store = Some(store);
        Some(done)
    }

    /// Processes a packet from a protected host. Returns the verdict and the packet to send.
    pub(crate) fn outbound(&mut self, now: Duration, packet: &[u8]) -> (Outbound, Vec<u8>) {
        let mut buffer = vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM];
        buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
        let mut packets = [Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap()];
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom)];
        let clock = self.clock(now);
        self.endpoint.datapath_mut().outbound(clock, &mut self.rng, &mut packets, &mut verdicts);
        let bytes = packets[0].data().to_vec();
        self.serve(now);
        (verdicts[0], bytes)
    }

    /// Processes a packet from the network. Returns the verdict and the packet to deliver.
    pub(crate) fn inbound(&mut self, now: Duration, packet: &[u8]) -> (Inbound, Vec<u8>) {
        let mut buffer = vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM];
        buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
        let mut packets = [Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap()];
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom)];
        let clock = self.clock(now);
        self.endpoint.datapath_mut().inbound(clock, &mut packets, &mut verdicts);
        let bytes = packets[0].data().to_vec();
        self.serve(now);
        let [verdict] = verdicts;
        (verdict, bytes)
    }

    /// Next packet with only feedback of header compression. Returns the verdict and the packet to send.
    pub(crate) fn next_rohc_feedback(&mut self, now: Duration) -> Option<(Outbound, Vec<u8>)> {
        let mut buffer = [0; HEAD_ROOM + TAIL_ROOM];
        let mut packet = Packet::new(&mut buffer, HEAD_ROOM, 0).unwrap();
        let clock = self.clock(now);
        let verdict = self.endpoint.datapath_mut().next_rohc_feedback(clock, &mut self.rng, &mut packet)?;
        Some((verdict, packet.data().to_vec()))
    }

    /// Processes an IKE message.
    pub(crate) fn receive_ike(&mut self, now: Duration, message: &[u8], path: Path) {
        let mut message = message.to_vec();
        self.act(now, |endpoint, context| endpoint.receive_ike(&mut message, path, context));
    }

    /// All IKE SAs of the node.
    pub(crate) fn ikes(&self) -> Vec<IkeStatus> {
        self.endpoint.ike().status().collect()
    }

    /// All Child SAs of the node.
    pub(crate) fn children(&self) -> Vec<ChildStatus> {
        self.endpoint.ike().status().flat_map(|ike| ike.children).collect()
    }
}

fn new_endpoint(plan: &Plan, defect: Option<Defect>) -> Endpoint {
    let unmatched = defect.map_or_else(Default::default, Defect::unmatched);
    let config = Config { limits: config::LIMITS, unmatched, ..Config::server(7) };
    let mut endpoint = Endpoint::new(Datapath::new(config), config::settings(&plan.setup));
    endpoint.report_keys(true);
    endpoint.datapath_mut().enable_rohc();
    endpoint
}
