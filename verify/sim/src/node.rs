//! One endpoint with what it needs: a clock that may jump, randomness, keys, routes, and a NAT perhaps.

use crate::config;
use crate::dice::Dice;
use crate::net::{Carries, Datagram, Nat};
use crate::plan::Plan;
use crate::sabotage::Sabotage;
use casemate::{Endpoint, Means, Notice, Routes};
use casemate_crypto::{Providers, PublicKey, SecretBytes, SignatureAlg};
use casemate_datapath::{Config, Datapath, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_datapath_tests::packets;
use casemate_ike::config::{Connection, Identity};
use casemate_ike::{
    AuthorityHash, ChildStatus, Credentials, IkeStatus, NotTrusted, OwnKey, Path, PeerCertificates, Transmit,
};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// One key for everybody.
struct Keys(SecretBytes);

impl Credentials for Keys {
    fn shared_key(&self, _: &Connection, _: &Identity, _: &Identity) -> Option<&SecretBytes> {
        Some(&self.0)
    }

    fn own_key(&self, _: &Connection, _: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        None
    }

    fn authorities(&self, _: &Connection) -> Vec<AuthorityHash> {
        vec![]
    }

    fn peer_key(
        &self,
        _: &Connection,
        _: &PeerCertificates<'_>,
        _: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        Err(NotTrusted)
    }

    fn takes(&self, _: &Connection, _: SignatureAlg) -> bool {
        false
    }

    fn makes(&self, _: &Connection) -> &[SignatureAlg] {
        &[]
    }

    fn name_matches(&self, _: &str, _: &[u8]) -> bool {
        false
    }
}

struct OneAddress(Ipv4Addr);

impl Routes for OneAddress {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(self.0.into())
    }
}

/// One endpoint.
pub(crate) struct Node {
    /// Which one.
    pub(crate) index: usize,
    /// Its address, as it knows it.
    pub(crate) addr: Ipv4Addr,
    /// The NAT in front of it.
    pub(crate) nat: Option<Nat>,
    /// How often it lost its memory.
    pub(crate) lives: u32,
    /// Which configuration it has.
    pub(crate) variant: u32,
    /// By how much its clock is ahead of the world's.
    pub(crate) ahead: Duration,
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
        let addr = if is_behind_nat { config::private(index) } else { config::outer(index) };
        let mut first_dice = dice;
        let ahead = Duration::from_millis(first_dice.below(1_000_000_000) as u64);
        Self {
            index,
            addr,
            nat: is_behind_nat.then(|| Nat::new(addr, config::outer(index))),
            lives: 0,
            variant: 1,
            ahead,
            endpoint: fresh(plan, sabotage),
            dice: first_dice.clone(),
            first_dice,
            keys: Keys(SecretBytes::new(b"a key that all have")),
            sabotage,
        }
    }

    /// The endpoint, to look at.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
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
        self.act(now, |endpoint, means| endpoint.configure(connections, &[config::pool()], means))
            .expect("there is room for all policies");
    }

    /// Has nothing configured any more.
    pub(crate) fn unconfigure(&mut self, now: Duration) {
        self.act(now, |endpoint, means| endpoint.configure(vec![], &[], means)).expect("nothing always fits");
    }

    /// Its own time.
    fn clock(&self, now: Duration) -> Instant {
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
        (to, from): (SocketAddrV4, SocketAddrV4),
    ) {
        let mut message = message.to_vec();
        let path = Path { local: SocketAddr::V4(to), remote: SocketAddr::V4(from) };
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
pub(crate) fn of_transmit(transmit: &Transmit) -> Option<Datagram> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (transmit.path.local, transmit.path.remote) else {
        return None;
    };
    let payload = match (transmit.message.is_empty(), transmit.marker) {
        (true, _) => vec![0xff],
        (false, true) => [&[0; 4], &*transmit.message].concat(),
        (false, false) => transmit.message.clone(),
    };
    Some(Datagram { from, to, carries: Carries::Udp(payload) })
}

/// What a protected packet is on the network; `udp_payload` is where the payload of UDP begins, if there is UDP.
pub(crate) fn of_packet(packet: Vec<u8>, udp_payload: Option<u16>) -> Datagram {
    let addr = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let (src, dst) = (addr(12), addr(16));
    let Some(at) = udp_payload.map(usize::from) else {
        let (from, to) = (SocketAddrV4::new(src, 0), SocketAddrV4::new(dst, 0));
        return Datagram { from, to, carries: Carries::Ip(packet) };
    };
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (from, to) = (SocketAddrV4::new(src, port(at - 8)), SocketAddrV4::new(dst, port(at - 6)));
    Datagram { from, to, carries: Carries::Udp(packet[at..].to_vec()) }
}

/// A UDP datagram as the IP packet that arrives.
pub(crate) fn to_packet(datagram: &Datagram) -> Vec<u8> {
    match &datagram.carries {
        Carries::Ip(packet) => packet.clone(),
        Carries::Udp(payload) => {
            let (from, to) = (datagram.from, datagram.to);
            let ports = (from.port(), to.port());
            packets::udp((*from.ip()).into(), (*to.ip()).into(), ports, payload, false)
        }
    }
}
