//! One endpoint with what it needs: a clock that may jump, randomness, keys, routes, and a NAT perhaps.

use crate::config::{self, Variant};
use crate::dice::Dice;
use crate::keys::Keys;
use crate::net::{Carries, Datagram, Nat};
use crate::places;
use crate::plan::Plan;
use crate::sabotage::Sabotage;
use casemate::{Endpoint, Means, Notice, Routes};
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_datapath_tests::packets;
use casemate_ike::{ChildStatus, IkeStatus, Path, Transmit};
use casemate_sa::Instant;
use casemate_wire::ip::proto;
use casemate_wire::packet::Packet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

struct OneAddress(IpAddr);

impl Routes for OneAddress {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(self.0)
    }
}

/// One endpoint.
pub(crate) struct Node {
    /// Which one.
    pub(crate) index: usize,
    /// Its address, as it knows it.
    pub(crate) addr: IpAddr,
    /// The NAT in front of it.
    pub(crate) nat: Option<Nat>,
    /// How often it lost its memory.
    pub(crate) lives: u32,
    /// Which configuration it has.
    pub(crate) variant: Variant,
    /// By how much its clock is ahead of the world's.
    pub(crate) ahead: Duration,
    /// Until when nothing reaches it, and nothing that it sends reaches anybody.
    pub(crate) cut_off_until: Duration,
    last_time: Instant,
    endpoint: Endpoint,
    first_dice: Dice,
    dice: Dice,
    keys: Keys,
    sabotage: Option<Sabotage>,
}

impl Node {
    /// A node without configuration.
    pub(crate) fn new(plan: &Plan, index: usize, dice: Dice, sabotage: Option<Sabotage>) -> Self {
        let is_behind_nat = plan.style.nat && index > 0;
        let addr = places::own(&plan.style, index);
        let trusts_all = sabotage == Some(Sabotage::TrustAll);
        let mut first_dice = dice;
        let ahead = Duration::from_millis(first_dice.below(1_000_000_000) as u64);
        Self {
            index,
            addr,
            nat: is_behind_nat.then(|| Nat::new(addr, places::outer(&plan.style, index))),
            lives: 0,
            variant: Variant::FIRST,
            ahead,
            cut_off_until: Duration::ZERO,
            last_time: Instant::ZERO,
            endpoint: fresh(plan, sabotage),
            dice: first_dice.clone(),
            first_dice,
            keys: Keys::new(index, plan.is_stranger(index), trusts_all),
            sabotage,
        }
    }

    /// The endpoint, to look at.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The endpoint, to give it SAs with manual keys.
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// All memory is lost; the configuration is on disk.
    pub(crate) fn restart(&mut self, plan: &Plan, now: Duration) {
        self.lives += 1;
        self.endpoint = fresh(plan, self.sabotage);
        if self.sabotage == Some(Sabotage::FrozenDice) {
            self.dice = self.first_dice.clone();
        }
        self.configure(plan, now);
    }

    /// Reads its configuration.
    pub(crate) fn configure(&mut self, plan: &Plan, now: Duration) {
        let mut connections = config::connections(plan, self.index, self.variant);
        if let Some(sabotage) = self.sabotage {
            connections = connections.into_iter().map(|known| sabotage.change(known)).collect();
        }
        let mut pools = vec![places::pool(&plan.style)];
        if let Some(sabotage) = self.sabotage {
            sabotage.change_pools(&mut pools);
        }
        self.act(now, |endpoint, means| endpoint.configure(connections, &pools, means))
            .expect("there is room for all policies");
    }

    /// Has nothing configured any more.
    pub(crate) fn unconfigure(&mut self, now: Duration) {
        self.act(now, |endpoint, means| endpoint.configure(vec![], &[], means)).expect("nothing always fits");
    }

    /// Its own time, when it last did something.
    pub(crate) fn time(&self) -> Instant {
        self.last_time
    }

    pub(crate) fn clock(&self, now: Duration) -> Instant {
        Instant::ZERO.after(now + self.ahead)
    }

    /// When it wants to be served, in the world's time.
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = Duration::from_micros(self.endpoint.due()?.as_micros());
        Some(due.saturating_sub(self.ahead))
    }

    /// Lets the endpoint do something.
    pub(crate) fn act<T>(
        &mut self,
        now: Duration,
        act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> T,
    ) -> T {
        self.last_time = self.clock(now);
        let list = [self.sabotage.map_or(Sabotage::HONEST, Sabotage::provider)];
        let providers = Providers(&list);
        let mut means = Means {
            now: self.clock(now),
            unix_time: 0,
            rng: &mut self.dice,
            providers: &providers,
            credentials: &self.keys,
            routes: &OneAddress(self.addr),
        };
        act(&mut self.endpoint, &mut means)
    }

    /// Does what is due.
    pub(crate) fn serve(&mut self, now: Duration) {
        self.act(now, Endpoint::serve);
    }

    /// The next notice.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.endpoint.next_notice()
    }

    /// The next IKE datagram.
    pub(crate) fn next_transmit(&mut self) -> Option<Transmit> {
        self.endpoint.next_transmit()
    }

    /// Takes a packet of a host that it protects. Answers what goes out.
    pub(crate) fn outbound(&mut self, now: Duration, packet: &[u8]) -> (Outbound, Vec<u8>) {
        let mut buffer = vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM];
        buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
        let mut packets = [Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap()];
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom)];
        let clock = self.clock(now);
        self.endpoint.datapath_mut().outbound(clock, &mut self.dice, &mut packets, &mut verdicts);
        let bytes = packets[0].data().to_vec();
        self.serve(now);
        (verdicts[0], bytes)
    }

    /// Takes a packet from the network.
    pub(crate) fn inbound(&mut self, now: Duration, packet: &[u8]) -> (Inbound, Vec<u8>) {
        let mut buffer = vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM];
        buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(packet);
        let mut packets = [Packet::new(&mut buffer, HEAD_ROOM, packet.len()).unwrap()];
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom)];
        let clock = self.clock(now);
        self.endpoint.datapath_mut().inbound(clock, &mut packets, &mut verdicts);
        let bytes = packets[0].data().to_vec();
        self.serve(now);
        (verdicts[0], bytes)
    }

    /// Takes an IKE message.
    pub(crate) fn receive_ike(
        &mut self,
        now: Duration,
        message: &[u8],
        (to, from): (SocketAddr, SocketAddr),
    ) {
        let mut message = message.to_vec();
        let path = Path { local: to, remote: from };
        self.act(now, |endpoint, means| endpoint.receive_ike(&mut message, path, means));
    }

    /// All its IKE SAs.
    pub(crate) fn ikes(&self) -> Vec<IkeStatus> {
        self.endpoint.ike().status().collect()
    }

    /// All its Child SAs.
    pub(crate) fn children(&self) -> Vec<ChildStatus> {
        self.endpoint.ike().status().flat_map(|ike| ike.children).collect()
    }
}

fn fresh(plan: &Plan, sabotage: Option<Sabotage>) -> Endpoint {
    let unmatched = sabotage.map_or_else(Default::default, Sabotage::unmatched);
    let config = Config { limits: config::LIMITS, unmatched, ..Config::server(7) };
    let mut endpoint = Endpoint::new(Datapath::new(config), config::settings(&plan.style));
    endpoint.tell_keys(true);
    endpoint
}

/// What an IKE datagram is on the network.
pub(crate) fn of_transmit(transmit: &Transmit) -> Datagram {
    let payload = match (transmit.message.is_empty(), transmit.marker) {
        (true, _) => vec![0xff],
        (false, true) => [&[0; 4], &*transmit.message].concat(),
        (false, false) => transmit.message.clone(),
    };
    Datagram { from: transmit.path.local, to: transmit.path.remote, carries: Carries::Udp(payload) }
}

/// A packet that an SA protects, as it leaves: without options, and never a fragment.
pub(crate) struct Protected {
    bytes: Vec<u8>,
    /// Where the payload of UDP begins, if there is UDP.
    udp_payload: Option<usize>,
}

impl Protected {
    /// One that an endpoint made.
    pub(crate) fn new(bytes: Vec<u8>, udp_payload: Option<u16>) -> Self {
        Self { bytes, udp_payload: udp_payload.map(usize::from) }
    }

    fn is_v6(&self) -> bool {
        self.bytes[0] >> 4 == 6
    }

    /// What ESP or AH made, and whether it is AH.
    pub(crate) fn payload(&self) -> (&[u8], bool) {
        let (header, protocol) = if self.is_v6() { (40, self.bytes[6]) } else { (20, self.bytes[9]) };
        (&self.bytes[self.udp_payload.unwrap_or(header)..], protocol == proto::AH)
    }

    /// What it is on the network.
    pub(crate) fn into_datagram(self) -> Datagram {
        let (src, dst) = self.addrs();
        let Some(at) = self.udp_payload else {
            let (from, to) = (SocketAddr::new(src, 0), SocketAddr::new(dst, 0));
            return Datagram { from, to, carries: Carries::Ip(self.bytes) };
        };
        let port = |at: usize| u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        let (from, to) = (SocketAddr::new(src, port(at - 8)), SocketAddr::new(dst, port(at - 6)));
        Datagram { from, to, carries: Carries::Udp(self.bytes[at..].to_vec()) }
    }

    fn addrs(&self) -> (IpAddr, IpAddr) {
        let v4 = |at: usize| Ipv4Addr::from(*self.bytes[at..].first_chunk::<4>().unwrap()).into();
        let v6 = |at: usize| Ipv6Addr::from(*self.bytes[at..].first_chunk::<16>().unwrap()).into();
        if self.is_v6() { (v6(8), v6(24)) } else { (v4(12), v4(16)) }
    }
}

/// A UDP datagram as the IP packet that arrives.
pub(crate) fn to_packet(datagram: &Datagram) -> Vec<u8> {
    match &datagram.carries {
        Carries::Ip(packet) => packet.clone(),
        Carries::Udp(payload) => {
            let (from, to) = (datagram.from, datagram.to);
            packets::udp(from.ip(), to.ip(), (from.port(), to.port()), payload, false)
        }
    }
}
