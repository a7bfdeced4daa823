//! A gateway with a keeper, its peer, the store between owners, and the oracle.

use casemate::{Context, Datapath, Endpoint, OwnedRecord, Routes};
use casemate_cell::{
    Handover, Keeper, KeeperStatus, StartError, Started, StoreKeys, Tenure, WRAPPING_KEY_LEN, WrappingKey,
    WrappingKeys,
};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, DropReason, Inbound, Outbound};
use casemate_ike::config::{
    AddrPattern, ChildConfig, Connection, IdPattern, Identity, Lifespan, ReplayTakeover,
};
use casemate_ike::{IkeSettings, Path, SharedKeys, Transmit};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{AddrRange, Instant, SpdId};
use casemate_store::{Link, MemoryHub, MemoryStore, Store};
use casemate_test_support::TestRng;
use casemate_wire::packet::Packet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const GATEWAY: [u8; 4] = [192, 0, 2, 1];
pub(crate) const PEER: [u8; 4] = [192, 0, 2, 2];

/// Time after which SAs end. Only clocks that are wrong make it pass.
pub(crate) const LIFETIME: Duration = Duration::from_hours(30 * 24);

struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

fn connection(own: [u8; 4], peer: [u8; 4]) -> Connection {
    let identity = |addr: [u8; 4]| Identity::Address(addr.into());
    let only = |addr: [u8; 4]| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
    let lifespan = Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(LIFETIME) };
    let child = ChildConfig { lifespan, ..ChildConfig::new("net") };
    Connection {
        local_addrs: only(own),
        remote_addrs: only(peer),
        children: vec![Arc::new(child)],
        lifespan,
        dpd_delay: (own == PEER).then_some(Duration::from_secs(10)),
        ..Connection::with_shared_key("peer", identity(own), identity(peer))
    }
}

/// A host with its own random source, and for the gateway a keeper.
pub(crate) struct Host<K = Keeper<MemoryStore>> {
    endpoint: Endpoint,
    pub(crate) keeper: K,
    hub: MemoryHub,
    pub(crate) now: Instant,
    rng: TestRng,
    sent: Vec<Transmit>,
    own: [u8; 4],
}

fn endpoint() -> Endpoint {
    Endpoint::new(Datapath::new(Config::server(1)), IkeSettings::SERVER)
}

fn with_context<T>(
    endpoint: &mut Endpoint,
    now: Instant,
    rng: &mut TestRng,
    act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> T,
) -> T {
    let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
    let mut context = Context {
        now,
        unix_time: 0,
        rng,
        providers: &Providers(&list),
        credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"a secret of both")),
        routes: &NoRoutes,
    };
    act(endpoint, &mut context)
}

/// Continues the start of a keeper.
pub(crate) fn step(keeper: &mut Keeper<MemoryStore>, now: Instant) -> Result<Started, StartError> {
    step_at(keeper, Duration::ZERO, now)
}

/// The same, on a host whose clock is so far ahead.
pub(crate) fn step_at<S: Store>(
    keeper: &mut Keeper<S>,
    ahead: Duration,
    now: Instant,
) -> Result<Started, StartError> {
    let unix_time = ahead.as_micros().try_into().unwrap();
    keeper.start(unix_time, now, &Providers(&[&RUSTCRYPTO]), &mut TestRng::new(now.as_micros()))
}

/// Claims the state. Returns the records, and the number of those that cannot be read.
fn claim(
    hub: &MemoryHub,
    keeper: &mut Keeper<MemoryStore>,
    now: Instant,
) -> Result<(Vec<OwnedRecord>, usize), StartError> {
    for _ in 0..100 {
        let started = step(keeper, now)?;
        hub.advance(Duration::from_millis(1));
        if let Started::Records { records, unreadable } = started {
            return Ok((records, unreadable));
        }
    }
    panic!("the state was not claimed");
}

impl Host<()> {
    fn peer(now: Instant, seed: u64) -> Self {
        let mut rng = TestRng::new(seed);
        let mut endpoint = endpoint();
        endpoint.keep_records(u64::MAX, u64::MAX);
        with_context(&mut endpoint, now, &mut rng, |endpoint, context| {
            endpoint.configure(vec![connection(PEER, GATEWAY).into()], &[], context).unwrap();
        });
        Self { endpoint, keeper: (), hub: MemoryHub::new(), now, rng, sent: Vec::new(), own: PEER }
    }

    /// Another host that continues the IKE SA of this one, and accepts higher numbers than this one only.
    fn next_owner(&self, received: u64) -> Self {
        let ike = self.endpoint.ike().status().next().unwrap().id;
        let mut record = self.endpoint.record(ike, self.now).unwrap();
        for child in record.sequences().collect::<Vec<_>>() {
            record.set_sequence_numbers(child.spi, child.sent, received);
        }
        let mut next = Self::peer(self.now, 101);
        let (records, connections) =
            (vec![OwnedRecord { record, owners: 1 }], vec![connection(PEER, GATEWAY).into()]);
        with_context(&mut next.endpoint, next.now, &mut next.rng, |endpoint, context| {
            let failed = endpoint.configure_and_restore(connections, &[], records, context).unwrap();
            assert_eq!(failed, []);
            endpoint.begin_restored(&[], context);
        });
        next
    }

    fn work(&mut self) {
        with_context(&mut self.endpoint, self.now, &mut self.rng, Endpoint::handle_timeouts);
        self.sent.extend(std::iter::from_fn(|| self.endpoint.next_transmit()));
    }
}

impl Host {
    /// A keeper for the store, before its start.
    pub(crate) fn keeper(
        hub: &MemoryHub,
        wrapping_key: u8,
        (node, tenure): (&[u8], Tenure),
    ) -> Keeper<MemoryStore> {
        Self::keeper_with(hub, (wrapping_key, None), (node, tenure))
    }

    /// The same with two wrapping keys, or one.
    pub(crate) fn keeper_with(
        hub: &MemoryHub,
        (first, second): (u8, Option<u8>),
        (node, tenure): (&[u8], Tenure),
    ) -> Keeper<MemoryStore> {
        let key = |byte| {
            let key = SecretBytes::new(&[byte; WRAPPING_KEY_LEN]);
            WrappingKey::new(&key, &Providers(&[&RUSTCRYPTO])).unwrap()
        };
        let wrapping = WrappingKeys::new(key(first), second.map(key));
        Keeper::new(hub.store(), StoreKeys::new(b"test/"), wrapping, node, tenure)
    }

    /// A gateway that claims the state in the store. Returns it and the number of unreadable records.
    pub(crate) fn with_keeper(hub: &MemoryHub, seed: u64, wrapping_key: u8) -> (Self, usize) {
        let (host, failed, unreadable) = Self::start(hub, seed, wrapping_key, connection(GATEWAY, PEER));
        assert_eq!(failed, 0);
        (host, unreadable)
    }

    /// A gateway whose connection has another name.
    pub(crate) fn with_other_connection(hub: &MemoryHub, seed: u64) -> Self {
        let other = Connection { name: "other".into(), ..connection(GATEWAY, PEER) };
        let (host, failed, _) = Self::start(hub, seed, 1, other);
        assert_eq!(failed, 1);
        host
    }

    /// Starts a gateway. Returns it and the numbers of IKE SAs that were not restored and not readable.
    fn start(hub: &MemoryHub, seed: u64, wrapping_key: u8, connection: Connection) -> (Self, usize, usize) {
        let now = Instant::from_secs(1_000 + seed);
        let mut keeper = Self::keeper(hub, wrapping_key, (b"node", Tenure::SingleMachine));
        let (records, unreadable) = claim(hub, &mut keeper, now).unwrap();
        let (host, failed) = Self::restored(hub, keeper, (now, seed), connection, records);
        (host, failed, unreadable)
    }

    /// The first owner of a cell.
    pub(crate) fn node(hub: &MemoryHub, name: &[u8], lease: Duration) -> Self {
        let now = Instant::from_secs(1_000);
        let mut keeper = Self::keeper(hub, 1, (name, Tenure::Cell { lease }));
        let (records, _) = claim(hub, &mut keeper, now).unwrap();
        Self::owner(hub, keeper, now, records)
    }

    /// A node of a cell that has claimed the slot.
    pub(crate) fn owner(
        hub: &MemoryHub,
        keeper: Keeper<MemoryStore>,
        now: Instant,
        records: Vec<OwnedRecord>,
    ) -> Self {
        let (host, failed) =
            Self::restored(hub, keeper, (now, now.as_micros()), connection(GATEWAY, PEER), records);
        assert_eq!(failed, 0);
        host
    }

    fn restored(
        hub: &MemoryHub,
        keeper: Keeper<MemoryStore>,
        (now, seed): (Instant, u64),
        connection: Connection,
        records: Vec<OwnedRecord>,
    ) -> (Self, usize) {
        let mut endpoint = endpoint();
        endpoint.keep_records(casemate_cell::SENT_BLOCK, casemate_cell::RECEIVED_BLOCK);
        let mut rng = TestRng::new(seed);
        let failed = with_context(&mut endpoint, now, &mut rng, |endpoint, context| {
            endpoint.configure_and_restore(vec![connection.into()], &[], records, context).unwrap()
        });
        let hub = hub.clone();
        let mut host = Self { endpoint, keeper, hub, now, rng, sent: Vec::new(), own: GATEWAY };
        host.collect();
        if host.begin() && failed.is_empty() {
            host.work();
        }
        (host, failed.len())
    }

    /// Lets the restored SAs go on. Returns whether they do, or wait for a former owner.
    pub(crate) fn begin(&mut self) -> bool {
        let Self { endpoint, keeper, hub, now, rng, .. } = self;
        with_context(endpoint, *now, rng, |endpoint, context| {
            let mut has_begun = || {
                hub.advance(Duration::from_millis(1));
                keeper.begin(endpoint, context)
            };
            (0..10).any(|_| has_begun())
        })
    }

    /// Gives the messages of the endpoint to the keeper.
    fn collect(&mut self) {
        let Self { endpoint, keeper, now, rng, sent, .. } = self;
        with_context(endpoint, *now, rng, |endpoint, context| {
            let transmits = std::iter::from_fn(|| endpoint.next_transmit()).collect();
            sent.extend(keeper.collect(endpoint, transmits, 0, context));
        });
    }

    /// Begins to hand over to another node.
    pub(crate) fn begin_handover(&mut self) {
        let Self { endpoint, keeper, now, rng, sent, .. } = self;
        sent.extend(with_context(endpoint, *now, rng, |endpoint, context| {
            keeper.begin_handover(endpoint, 0, context)
        }));
    }

    /// Continues to hand over.
    pub(crate) fn hand_over(&mut self) -> Handover {
        let Self { endpoint, keeper, hub, now, rng, sent, .. } = self;
        sent.extend(with_context(endpoint, *now, rng, |endpoint, context| {
            hub.advance(Duration::from_millis(1));
            keeper.poll(endpoint, false, 0, context)
        }));
        keeper.handover()
    }

    /// Does what the control plane of an adapter does.
    pub(crate) fn work(&mut self) {
        let Self { endpoint, keeper, hub, now, rng, sent, .. } = self;
        with_context(endpoint, *now, rng, |endpoint, context| {
            endpoint.handle_timeouts(context);
            let transmits = std::iter::from_fn(|| endpoint.next_transmit()).collect();
            sent.extend(keeper.collect(endpoint, transmits, 0, context));
            hub.advance(Duration::from_millis(1));
            sent.extend(keeper.poll(endpoint, false, 0, context));
        });
    }

    /// Gets an address. Returns the messages that it sends then.
    pub(crate) fn get_address(&mut self, addr: [u8; 4]) -> Vec<Vec<u8>> {
        with_context(&mut self.endpoint, self.now, &mut self.rng, |endpoint, context| {
            endpoint.resend_from(addr.into(), context);
        });
        self.work();
        self.take_sent().into_iter().map(|transmit| transmit.message).collect()
    }

    /// Writes the state at the end.
    pub(crate) fn finish(&mut self) {
        let Self { endpoint, keeper, hub, now, rng, .. } = self;
        with_context(endpoint, *now, rng, |endpoint, context| {
            keeper.finish(endpoint, 0, context);
            for _ in 0..100 {
                hub.advance(Duration::from_millis(1));
                keeper.poll(endpoint, false, 0, context);
            }
        });
        assert!(self.keeper.is_idle());
    }

    /// Deletes the state, as at an end that closes the SAs.
    pub(crate) fn clear(&mut self) {
        let Self { endpoint, keeper, now, rng, .. } = self;
        with_context(endpoint, *now, rng, |endpoint, context| keeper.clear(endpoint, 0, context));
        (0..10).for_each(|_| self.work());
        assert!(self.keeper.is_idle());
    }

    /// Rekeys the youngest Child SA.
    pub(crate) fn rekey(&mut self) {
        let child = self.endpoint.ike().status().next().unwrap().children.last().unwrap().id;
        with_context(&mut self.endpoint, self.now, &mut self.rng, |endpoint, context| {
            assert!(endpoint.rekey_child(child, context));
        });
    }
}

impl<K> Host<K> {
    pub(crate) fn children(&self) -> usize {
        self.endpoint.ike().status().map(|ike| ike.children.len()).sum()
    }

    pub(crate) fn ikes(&self) -> usize {
        self.endpoint.ike().status().count()
    }

    /// SPIs of the inbound SAs.
    pub(crate) fn spis(&self) -> Vec<u32> {
        self.endpoint.ike().status().flat_map(|ike| ike.children).map(|child| child.spi_in.get()).collect()
    }

    pub(crate) fn take_sent(&mut self) -> Vec<Transmit> {
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn try_protect(&mut self) -> Result<Vec<u8>, DropReason> {
        let to = if self.own == GATEWAY { PEER } else { GATEWAY };
        let header = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 253, 0, 0];
        let (bytes, mut storage) = ([&header[..], &self.own, &to, &[0; 8]].concat(), vec![0; 600]);
        let mut packet = Packet::new(&mut storage, 256, bytes.len()).unwrap();
        packet.data_mut().copy_from_slice(&bytes);
        let (datapath, mut rng) = (self.endpoint.datapath_mut(), TestRng::new(1));
        match datapath.outbound_reassembled(SpdId::MAIN, self.now, &mut rng, &mut packet) {
            Outbound::Send { .. } => Ok(packet.data().to_vec()),
            Outbound::Drop(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    /// Protects a packet to the other host.
    pub(crate) fn protect(&mut self) -> Vec<u8> {
        self.try_protect().unwrap()
    }

    /// Receives a protected packet. Returns why it was dropped.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Option<DropReason> {
        let mut storage = vec![0; 600];
        let mut packet = Packet::new(&mut storage, 100, bytes.len()).unwrap();
        packet.data_mut().copy_from_slice(bytes);
        let mut verdict = [Inbound::Drop(DropReason::MalformedHeader)];
        self.endpoint.datapath_mut().inbound(self.now, std::slice::from_mut(&mut packet), &mut verdict);
        match verdict[0] {
            Inbound::Drop(reason) => Some(reason),
            _ => None,
        }
    }

    /// The highest number of the peer that the inbound SA has seen.
    pub(crate) fn highest_received(&self) -> u64 {
        let inbound = self.endpoint.sas_of_spi(self.spis()[0]).unwrap().inbound;
        self.endpoint.datapath().sa_sequence(inbound).unwrap()
    }

    /// Leaves out sequence numbers of the SAs to the other host.
    pub(crate) fn skip_numbers(&mut self, count: u64) {
        for spi in self.spis() {
            let outbound = self.endpoint.sas_of_spi(spi).unwrap().outbound.unwrap();
            self.endpoint.datapath_mut().skip_numbers(outbound, count).unwrap();
        }
    }

    fn deliver(&mut self, transmit: Transmit) {
        let Transmit { path, mut message, .. } = transmit;
        if message.is_empty() {
            return;
        }
        let path = Path { local: path.remote, remote: path.local };
        with_context(&mut self.endpoint, self.now, &mut self.rng, |endpoint, context| {
            endpoint.receive_ike(&mut message, path, context);
        });
    }
}

/// What all owners of the gateway's state have sent so far.
#[derive(Default)]
pub(crate) struct Oracle {
    /// SPI and sequence number.
    esp: BTreeSet<(u32, u32)>,
    /// SPIs of the IKE SA and IV of encrypted messages, which differ in their message.
    ike: BTreeSet<(Vec<u8>, Vec<u8>)>,
    messages: BTreeSet<Vec<u8>>,
}

impl Oracle {
    pub(crate) fn note_esp(&mut self, packet: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        assert!(self.esp.insert((number(20), number(24))), "a sequence number occurs twice");
    }

    fn note_ike(&mut self, message: &[u8]) {
        // A repeated message is the same message. Without encryption there is no IV.
        if message.len() < 40 || message[16] != 46 || !self.messages.insert(message.to_vec()) {
            return;
        }
        let key = (message[..16].to_vec(), message[32..40].to_vec());
        assert!(self.ike.insert(key), "an IV occurs twice");
    }
}

/// The gateway, its peer and the store.
pub(crate) struct Simulation {
    pub(crate) gateway: Host,
    pub(crate) peer: Host<()>,
    pub(crate) hub: MemoryHub,
    pub(crate) oracle: Oracle,
    link: Link,
    owners: u64,
    policy: ReplayTakeover,
}

impl Simulation {
    pub(crate) fn new() -> Self {
        Self::with_policy(ReplayTakeover::Sync)
    }

    /// A gateway whose later owners follow this policy.
    pub(crate) fn with_policy(policy: ReplayTakeover) -> Self {
        let hub = MemoryHub::new();
        let (gateway, _) = Host::with_keeper(&hub, 1, 1);
        Self { policy, ..Self::with_gateway(hub, gateway) }
    }

    pub(crate) fn with_gateway(hub: MemoryHub, gateway: Host) -> Self {
        let peer = Host::peer(gateway.now, 100);
        Self {
            gateway,
            peer,
            hub,
            oracle: Oracle::default(),
            link: Link::default(),
            owners: 1,
            policy: ReplayTakeover::Sync,
        }
    }

    pub(crate) fn link(&mut self, link: Link) {
        self.link = link;
        self.gateway.keeper.store().set_link(link);
    }

    pub(crate) fn status(&self) -> KeeperStatus {
        self.gateway.keeper.status(self.gateway.now)
    }

    /// Number of records in the store.
    pub(crate) fn records(&self) -> usize {
        self.hub.entries().iter().filter(|entry| entry.key.starts_with(b"test/sas/")).count()
    }

    /// Exchanges messages until there are none.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            self.gateway.work();
            self.peer.work();
            let (to_peer, to_gateway) = (self.gateway.take_sent(), self.peer.take_sent());
            if to_peer.is_empty() && to_gateway.is_empty() {
                return;
            }
            for transmit in to_peer {
                self.oracle.note_ike(&transmit.message);
                self.peer.deliver(transmit);
            }
            to_gateway.into_iter().for_each(|transmit| self.gateway.deliver(transmit));
        }
        panic!("the hosts keep sending");
    }

    /// Delivers what the gateway has sent so far.
    pub(crate) fn deliver_to_peer(&mut self) {
        for transmit in self.gateway.take_sent() {
            self.oracle.note_ike(&transmit.message);
            self.peer.deliver(transmit);
        }
        self.peer.work();
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        let step = Duration::from_millis(500);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.gateway.now = self.gateway.now.after(step);
            self.peer.now = self.peer.now.after(step);
            self.hub.advance(step);
            self.run();
        }
    }

    fn peer_acts(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>)) {
        let Host { endpoint, now, rng, .. } = &mut self.peer;
        with_context(endpoint, *now, rng, act);
        self.run();
    }

    pub(crate) fn initiate_from_peer(&mut self) {
        self.peer_acts(|endpoint, context| {
            let connection = endpoint.ike().connections()[0].clone();
            endpoint.initiate(&connection, connection.children.first(), context).unwrap();
        });
    }

    pub(crate) fn peer_rekeys(&mut self) {
        let child = self.peer.endpoint.ike().status().next().unwrap().children[0].id;
        self.peer_acts(|endpoint, context| assert!(endpoint.rekey_child(child, context)));
    }

    pub(crate) fn peer_rekeys_ike(&mut self) {
        let ike = self.peer.endpoint.ike().status().next().unwrap().id;
        self.peer_acts(|endpoint, context| assert!(endpoint.rekey(ike, context)));
    }

    pub(crate) fn peer_closes(&mut self) {
        let ike = self.peer.endpoint.ike().status().next().unwrap().id;
        self.peer_acts(|endpoint, context| assert!(endpoint.terminate(ike, context)));
    }

    /// The peer ends, and another host continues its IKE SA and asks the gateway to leave out numbers.
    pub(crate) fn replace_peer(&mut self, received: u64) {
        self.peer = self.peer.next_owner(received);
    }

    /// Ends the gateway at once, and starts another one.
    pub(crate) fn crash(&mut self) {
        drop(self.replace());
    }

    /// Ends the gateway in an orderly way, and starts another one.
    pub(crate) fn restart(&mut self) {
        self.gateway.finish();
        drop(self.replace());
    }

    /// Ends the gateway at once, and starts another one with these wrapping keys and this link to the store.
    /// An error if that is refused; then there is no new gateway.
    pub(crate) fn crash_to(&mut self, keys: (u8, Option<u8>), link: Link) -> Result<(), StartError> {
        self.hub.advance(Duration::from_secs(20 * 366 * 86_400));
        self.owners += 1;
        let mut keeper = Host::keeper_with(&self.hub, keys, (b"node", Tenure::SingleMachine));
        let (records, unreadable) = claim(&self.hub, &mut keeper, self.peer.now)?;
        assert_eq!(unreadable, 0, "a record is lost");
        keeper.store().set_link(link);
        let start = (self.peer.now, self.owners);
        let (gateway, failed) = Host::restored(&self.hub, keeper, start, connection(GATEWAY, PEER), records);
        assert_eq!(failed, 0);
        self.gateway = gateway;
        Ok(())
    }

    /// Another process becomes the gateway. Returns the former one.
    pub(crate) fn replace(&mut self) -> Host {
        // Its lease ends.
        self.hub.advance(Duration::from_secs(20 * 366 * 86_400));
        self.owners += 1;
        let connection = Connection { replay_takeover: self.policy, ..connection(GATEWAY, PEER) };
        let (mut gateway, failed, unreadable) = Host::start(&self.hub, self.owners, 1, connection);
        assert_eq!((failed, unreadable), (0, 0));
        gateway.now = self.peer.now;
        std::mem::replace(&mut self.gateway, gateway)
    }

    /// A packet of the gateway to the peer. Returns why it was dropped.
    pub(crate) fn send_to_peer(&mut self) -> Option<DropReason> {
        match self.gateway.try_protect() {
            Ok(packet) => {
                self.oracle.note_esp(&packet);
                self.peer.receive(&packet)
            }
            Err(reason) => Some(reason),
        }
    }

    /// A packet of the gateway that is lost. Returns why it was not sent.
    pub(crate) fn send_to_nowhere(&mut self) -> Option<DropReason> {
        let packet = self.gateway.try_protect();
        packet.map(|packet| self.oracle.note_esp(&packet)).err()
    }

    pub(crate) fn packet_to_gateway(&mut self) -> Vec<u8> {
        self.peer.protect()
    }

    /// A packet of the peer to the gateway. Returns why it was dropped.
    pub(crate) fn send_to_gateway(&mut self) -> Option<DropReason> {
        let packet = self.packet_to_gateway();
        self.gateway.receive(&packet)
    }
}
