//! Operations whose cost is measured, and their timed workloads: one packet per call, as on the paper's
//! machine.

use casemate_crypto::{
    AeadAlg, AesBits, CipherAlg, CipherKey, EspSuite, JobStatus, MacAlg, MacJob, MacKey, MacKind, Provider,
    Providers, Tag,
};
use casemate_datapath::{Direction, DropReason};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::{Workload, time};
use casemate_measure::tunnel::{HOSTS, Tunnel, TunnelSpec, ipv4};
use casemate_sa::{Limits, Mode};
use std::time::Duration;

/// Payload lengths of the paper's packets, in bytes.
pub(super) fn sizes() -> impl Iterator<Item = usize> {
    (1..=16).map(|n| n * 64)
}

/// Cipher of the paper.
pub(super) const CIPHER: CipherAlg = CipherAlg::AesCbc(AesBits::B128);
/// MAC of the paper, HMAC-SHA1-96.
pub(super) const MAC: MacAlg = MacAlg::standard(MacKind::HmacSha1);

/// Algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// AES-128-CBC with HMAC-SHA1-96, the paper's suite.
    Paper,
    /// AES-128-GCM.
    Modern,
}

impl Suite {
    pub(super) const fn algorithms(self) -> EspSuite {
        match self {
            Self::Paper => EspSuite::Separate(CIPHER, MAC),
            Self::Modern => EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "AES-CBC, HMAC-SHA1",
            Self::Modern => "AES-GCM",
        }
    }
}

/// Timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// ESP in the data path.
    Esp(Suite, Mode),
    /// MAC over the data that it covers in the paper's suite in tunnel mode.
    Mac,
    /// Cipher over the data that it covers in the paper's suite in tunnel mode.
    Cipher,
    /// Inbound processing of a packet that is dropped at this step.
    Dropped(DropStep),
}

/// Step at which an inbound packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DropStep {
    /// Look-up of the SA: the SPI is unknown.
    LookUp,
    /// Replay check: the SA is known, and the packet has been received before.
    Replay,
}

impl DropStep {
    const fn reason(self) -> DropReason {
        match self {
            Self::LookUp => DropReason::NoSa,
            Self::Replay => DropReason::Replay,
        }
    }
}

/// An operation with direction and packet length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Benchmark {
    pub(super) operation: Operation,
    pub(super) direction: Direction,
    /// Payload of the packet in bytes.
    pub(super) size: usize,
}

impl Benchmark {
    pub(super) fn name(self) -> String {
        format!("{}, {}, {} bytes", self.operation.name(), direction_name(self.direction), self.size)
    }
}

impl Operation {
    pub(super) fn name(self) -> String {
        match self {
            Self::Esp(suite, mode) => format!("ESP {mode}, {}", suite.name()),
            Self::Mac => "HMAC-SHA1 alone".into(),
            Self::Cipher => "AES-CBC alone".into(),
            Self::Dropped(DropStep::LookUp) => "dropped: no SA".into(),
            Self::Dropped(DropStep::Replay) => "dropped: replay".into(),
        }
    }
}

pub(super) const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
    }
}

/// All operations.
pub(super) const OPERATIONS: [Operation; 6] = [
    Operation::Esp(Suite::Paper, Mode::Tunnel),
    Operation::Esp(Suite::Paper, Mode::Transport),
    Operation::Mac,
    Operation::Cipher,
    Operation::Esp(Suite::Modern, Mode::Tunnel),
    Operation::Esp(Suite::Modern, Mode::Transport),
];

/// Both directions, in the order of the paper's figures.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];

/// Every operation with both directions and all packet lengths.
pub(super) fn all() -> Vec<Benchmark> {
    let pairs =
        DIRECTIONS.into_iter().flat_map(|direction| OPERATIONS.map(|operation| (direction, operation)));
    let costs = pairs
        .flat_map(|(direction, operation)| sizes().map(move |size| Benchmark { operation, direction, size }));
    costs.chain(steps()).collect()
}

/// Payload whose ESP packet in tunnel mode has no padding, and one with the longest padding of the same
/// ciphertext, 15 bytes.
pub(super) const UNPADDED: usize = 66;
pub(super) const PADDED: usize = 51;
/// Payload of the packets that are dropped.
pub(super) const DROPPED: usize = 1_024;

/// Benchmarks of single steps (table II of the paper).
fn steps() -> impl Iterator<Item = Benchmark> {
    let drops = [DropStep::LookUp, DropStep::Replay].map(|step| Benchmark {
        operation: Operation::Dropped(step),
        direction: Direction::Inbound,
        size: DROPPED,
    });
    let operation = Operation::Esp(Suite::Paper, Mode::Tunnel);
    let padding = DIRECTIONS
        .into_iter()
        .flat_map(move |direction| [UNPADDED, PADDED].map(|size| Benchmark { operation, direction, size }));
    drops.into_iter().chain(padding)
}

/// Packets between two readings of the clock.
const POOL_SIZE: u32 = 32;
/// Length of SPI, sequence number and the IV of AES-CBC.
const ESP_PREFIX_LEN: usize = 8 + 16;
const IPV4_HEADER_LEN: usize = 20;
const ICMP_HEADER_LEN: usize = 8;

fn providers() -> [&'static dyn Provider; 2] {
    [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO]
}

/// Returns the workload of a benchmark; `None` if it does not work correctly.
pub(super) fn workload(benchmark: Benchmark) -> Option<Box<dyn Workload>> {
    // Data that the paper's suite encrypts in tunnel mode: packet, padding and trailer, in whole blocks.
    let text = (IPV4_HEADER_LEN + ICMP_HEADER_LEN + benchmark.size + 2).next_multiple_of(16);
    let providers = providers();
    let providers = Providers(&providers);
    Some(match benchmark.operation {
        Operation::Esp(suite, mode) => Box::new(Esp::new(suite, mode, benchmark)?),
        Operation::Dropped(step) => Box::new(Dropped::new(step, benchmark)?),
        Operation::Mac => {
            let key = providers.mac(MAC, &vec![0x24; MAC.key_len()]).ok()?;
            Box::new(Mac { key, data: vec![0x5A; ESP_PREFIX_LEN + text] })
        }
        Operation::Cipher => {
            let key = providers
                .0
                .iter()
                .find_map(|provider| provider.cipher(CIPHER, &vec![0x42; CIPHER.key_len()]).ok())?;
            Box::new(Cipher { key, direction: benchmark.direction, text: vec![0x5A; text] })
        }
    })
}

struct Mac {
    key: Box<dyn MacKey>,
    data: Vec<u8>,
}

impl Workload for Mac {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, data } = self;
        let spent = time(|| {
            for _ in 0..POOL_SIZE {
                let tag = Tag::zeroed(MAC.tag_len());
                let mut jobs = [MacJob { nonce: [0; 12], data, tag, status: JobStatus::Pending }];
                key.sign(&mut jobs);
                std::hint::black_box(&jobs);
            }
        });
        (spent, POOL_SIZE)
    }
}

struct Cipher {
    key: Box<dyn CipherKey>,
    direction: Direction,
    text: Vec<u8>,
}

impl Workload for Cipher {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, direction, text } = self;
        let spent = time(|| {
            for n in 0..POOL_SIZE {
                let iv = [n as u8; 16];
                match direction {
                    Direction::Outbound => key.encrypt(&iv, text),
                    Direction::Inbound => key.decrypt(&iv, text),
                };
            }
        });
        (spent, POOL_SIZE)
    }
}

/// Two hosts with an SA between them.
struct Esp {
    tunnel: Tunnel<SystemRng>,
    direction: Direction,
}

impl Esp {
    fn new(suite: Suite, mode: Mode, benchmark: Benchmark) -> Option<Self> {
        let spec = TunnelSpec::between_hosts(suite.algorithms(), mode, Limits::DEVICE);
        let rng = SystemRng::new().ok()?;
        let tunnel = Tunnel::new(&spec, &providers(), rng, echo(benchmark.size)?, POOL_SIZE as usize)?;
        let mut esp = Self { tunnel, direction: benchmark.direction };
        esp.run_once().map(|_| esp)
    }

    /// Seals and opens all packets and returns both times; `None` if a packet is lost.
    fn run_once(&mut self) -> Option<[Duration; 2]> {
        let mut round = self.tunnel.fill();
        let sealing = time(|| round.seal(1));
        let opening = time(|| round.open(1));
        let all = round.sealed() == POOL_SIZE as usize && round.opened() == POOL_SIZE as usize;
        all.then_some([sealing, opening])
    }
}

impl Workload for Esp {
    fn run(&mut self) -> (Duration, u32) {
        // The constructor has checked that it works. Otherwise the time is zero, which would be visible in
        // every figure.
        let [sealing, opening] = self.run_once().unwrap_or_default();
        (if self.direction == Direction::Outbound { sealing } else { opening }, POOL_SIZE)
    }
}

/// A receiver with packets that it drops.
struct Dropped {
    tunnel: Tunnel<SystemRng>,
    step: DropStep,
    images: Vec<Vec<u8>>,
}

impl Dropped {
    fn new(step: DropStep, benchmark: Benchmark) -> Option<Self> {
        let Esp { mut tunnel, .. } = Esp::new(Suite::Paper, Mode::Tunnel, benchmark)?;
        let mut round = tunnel.fill();
        round.seal(1);
        let mut images = round.images();
        // From now on, the receiver has seen these packets.
        round.open(1);
        if step == DropStep::LookUp {
            // The SPI follows the outer header.
            images.iter_mut().for_each(|image| {
                image.iter_mut().skip(IPV4_HEADER_LEN).take(4).for_each(|byte| *byte ^= 0xff);
            });
        }
        let mut dropped = Self { tunnel, step, images };
        dropped.run_once().map(|_| dropped)
    }

    /// Drops all packets and returns the time; `None` if one is dropped for another reason.
    fn run_once(&mut self) -> Option<Duration> {
        let mut round = self.tunnel.refill(&self.images);
        let spent = time(|| round.open(1));
        (round.dropped(self.step.reason()) == POOL_SIZE as usize).then_some(spent)
    }
}

impl Workload for Dropped {
    fn run(&mut self) -> (Duration, u32) {
        (self.run_once().unwrap_or_default(), POOL_SIZE)
    }
}

/// ICMP echo request with this payload, as sent by the paper's machines. The ICMP checksum is not computed,
/// because nothing verifies it.
fn echo(payload: usize) -> Option<Vec<u8>> {
    const ECHO_REQUEST: u8 = 8;
    let mut packet = ipv4(1, HOSTS, IPV4_HEADER_LEN + ICMP_HEADER_LEN + payload)?;
    *packet.get_mut(IPV4_HEADER_LEN)? = ECHO_REQUEST;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::super::benchmark::all;
    use super::*;

    #[test]
    fn every_benchmark_works() {
        for benchmark in all() {
            let mut load = workload(benchmark).unwrap_or_else(|| panic!("{}", benchmark.name()));
            let (spent, count) = load.run();
            assert!(spent > Duration::ZERO && count == POOL_SIZE, "{}", benchmark.name());
        }
    }
}
