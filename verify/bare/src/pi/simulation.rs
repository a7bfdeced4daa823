//! The device, the host and the cable, and the protection of the packets: the rows of the paper's figures and
//! additional rows with current algorithms. The simulated time advances with the instructions of the device.

use super::Clock;
use super::host::{Load, TcpHost};
use crate::link::{LinkEnd, OnLink};
use crate::peers::SeededRng;
use crate::traffic::{self, LEFT, Path, RIGHT};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate::{Datapath, Endpoint};
use casemate_crypto::{AeadAlg, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, Providers};
use casemate_datapath::{Config, Direction, Unmatched};
use casemate_ike::IkeSettings;
use casemate_legacy::LEGACY;
use casemate_rustcrypto::{AES_128_CBC, AES_128_GCM, CHACHA20_POLY1305, HMAC_SHA256};
use casemate_sa::{Limits, Mode, Transform};
use casemate_smoltcp::{IpsecConfig, IpsecDevice};
use core::net::IpAddr;
use smoltcp::time::Instant;

/// Delay of the cable.
const DELAY: Ticks = 50 * MICROSECOND;
/// Time step when no packet is in transit.
const IDLE_STEP: Ticks = 1_000 * MICROSECOND;
/// Duration of a microsecond on the paper's device: 700 instructions, at one cycle per instruction and
/// 700 MHz.
const MICROSECOND: Ticks = 717;
/// Number of rounds of the host per round of the device: the host is much faster.
const HOST_ROUNDS: usize = 64;
/// Limit of rounds, larger than any measurement needs.
const MAX_ROUNDS: usize = 1 << 20;

/// Simulated time. The device's clock counts 1.024 ticks per instruction.
type Ticks = u64;

/// A running measurement.
pub(super) struct Simulation<D> {
    device: TcpHost<D>,
    host: TcpHost<D>,
    to_device: Cable,
    to_host: Cable,
    clock: Clock,
    now: Ticks,
    /// Time that the device has worked.
    spent: Ticks,
    /// IP protocol number of the device's packets: TCP, AH or ESP.
    pub(super) protocol: Option<u8>,
}

/// Packets in transit with their arrival times.
#[derive(Default)]
struct Cable(VecDeque<(Ticks, Vec<u8>)>);

impl<D: OnLink> Simulation<D> {
    /// Creates both hosts and opens a connection. `end` creates the device of a host from its own address
    /// and the peer's. Returns `None` if the stack refuses.
    pub(super) fn new(
        clock: Clock,
        load: Load,
        mut end: impl FnMut(IpAddr, IpAddr) -> Option<D>,
    ) -> Option<Self> {
        let [device, host] = load.applications();
        let mut device = TcpHost::new(end(LEFT, RIGHT)?, LEFT, device);
        let mut host = TcpHost::new(end(RIGHT, LEFT)?, RIGHT, host);
        device.listen()?;
        host.connect(LEFT)?;
        let (to_device, to_host) = (Cable::default(), Cable::default());
        Some(Self { device, host, to_device, to_host, clock, now: 0, spent: 0, protocol: None })
    }

    /// Runs until the reader has read `bytes` bytes in total. Returns `None` if this takes too long.
    pub(super) fn run_until(&mut self, reader: Reader, bytes: usize) -> Option<Progress> {
        for _ in 0..MAX_ROUNDS {
            let received = match reader {
                Reader::Device => self.device.application.received,
                Reader::Host => self.host.application.received,
            };
            if received >= bytes {
                return Some(Progress { spent: self.spent, received });
            }
            self.step();
        }
        None
    }

    /// Runs the host until it is idle, and the device for one round. If the device was idle, the time
    /// advances to the next arrival.
    fn step(&mut self) {
        let now = Instant::from_micros(i64::try_from(self.now / MICROSECOND).unwrap_or(i64::MAX));
        self.to_device.deliver(self.now, self.host.link_end());
        for _ in 0..HOST_ROUNDS {
            if !self.host.poll(now) {
                break;
            }
        }
        self.to_host.collect(self.now, self.host.link_end());
        self.to_host.deliver(self.now, self.device.link_end());
        let before = (self.clock.microseconds)();
        let is_active = self.device.poll(now);
        let elapsed = Ticks::from((self.clock.microseconds)().wrapping_sub(before));
        if is_active {
            self.spent += elapsed;
            self.now += elapsed;
        } else {
            let next = self.to_device.next().into_iter().chain(self.to_host.next()).min();
            self.now = next.unwrap_or(self.now + IDLE_STEP);
        }
        self.protocol = self.device.link_end().next_protocol().or(self.protocol);
        self.to_device.collect(self.now, self.device.link_end());
    }
}

/// State of a measurement.
pub(super) struct Progress {
    /// Time that the device has worked.
    pub(super) spent: Ticks,
    /// Number of bytes that the reader has read.
    pub(super) received: usize,
}

/// The host whose received bytes are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Device,
    Host,
}

impl Cable {
    fn collect(&mut self, now: Ticks, from: &mut LinkEnd) {
        self.0.extend(from.sent().map(|packet| (now + DELAY, packet)));
    }

    fn deliver(&mut self, now: Ticks, to: &mut LinkEnd) {
        while self.next().is_some_and(|due| due <= now) {
            if let Some((_, packet)) = self.0.pop_front() {
                to.receive_packet(packet);
            }
        }
    }

    /// Returns the arrival time of the first packet.
    fn next(&self) -> Option<Ticks> {
        self.0.front().map(|(due, _)| *due)
    }
}

/// Protection of all packets between the two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// smoltcp without IPsec.
    Plain,
    /// smoltcp with IPsec, without policies.
    Unused,
    AhMd5,
    EspTripleDes,
    AhSha2,
    Gcm,
    ChaCha,
    CbcSha2,
}

/// All rows with their names on the command line and in the output.
pub(super) const PROTECTIONS: [(&str, Protection); 8] = [
    ("plain", Protection::Plain),
    ("unused", Protection::Unused),
    ("ah-md5", Protection::AhMd5),
    ("esp-3des-md5", Protection::EspTripleDes),
    ("ah-sha256", Protection::AhSha2),
    ("esp-aes128gcm16", Protection::Gcm),
    ("esp-chacha20poly1305", Protection::ChaCha),
    ("esp-aes128-sha256", Protection::CbcSha2),
];

/// Start time of the SAs.
const NOW: casemate_sa::Instant = casemate_sa::Instant::ZERO;

impl Protection {
    fn transform(self) -> Option<Transform> {
        let md5 = MacAlg::standard(MacKind::HmacMd5);
        let transform = match self {
            Self::Plain | Self::Unused => return None,
            Self::AhMd5 => Transform::Ah { suite: AhSuite(md5), integ: traffic::key(16) },
            Self::EspTripleDes => Transform::Esp {
                suite: EspSuite::Separate(CipherAlg::TripleDesCbc, md5),
                encr: traffic::key(24),
                integ: traffic::key(16),
            },
            Self::AhSha2 => traffic::ah(),
            Self::Gcm => traffic::gcm(),
            Self::ChaCha => Transform::Esp {
                suite: EspSuite::Combined(AeadAlg::ChaCha20Poly1305),
                encr: traffic::key(36),
                integ: traffic::key(0),
            },
            Self::CbcSha2 => traffic::cbc(),
        };
        Some(transform)
    }

    /// Returns the IP protocol number of the packets on the wire.
    pub(super) const fn protocol(self) -> u8 {
        match self {
            Self::Plain | Self::Unused => 6,
            Self::AhMd5 | Self::AhSha2 => 51,
            Self::EspTripleDes | Self::Gcm | Self::ChaCha | Self::CbcSha2 => 50,
        }
    }

    /// Creates an IPsec device for the host `own` with the peer `peer`. Returns `None` if an SA is refused.
    pub(super) fn ipsec_device(self, own: IpAddr, peer: IpAddr) -> Option<IpsecDevice<LinkEnd>> {
        let limits = Limits::DEVICE;
        let unmatched = if self == Self::Unused { Unmatched::PassClear } else { Unmatched::Discard };
        let mut datapath = Datapath::new(Config { limits, unmatched, ..Config::server(1) });
        if let Some(transform) = self.transform() {
            let providers = Providers(&[&LEGACY, AES_128_GCM, CHACHA20_POLY1305, AES_128_CBC, HMAC_SHA256]);
            let [outbound, inbound] = [Path { src: own, dst: peer }, Path { src: peer, dst: own }];
            for (direction, path) in [(Direction::Outbound, outbound), (Direction::Inbound, inbound)] {
                let params = traffic::params(u32::from(path.src < path.dst), path, &transform)?;
                datapath.add_sa(&params, direction, &providers, NOW).ok()?;
                datapath.add_policy(direction, traffic::policy(path, &transform, Mode::Transport)?).ok()?;
            }
        }
        let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
        Some(IpsecDevice::new(
            LinkEnd::default(),
            IpsecConfig { endpoint, rng: Box::new(SeededRng(1)), limits },
        ))
    }
}
