//! Look-ups of policies, known flows and SAs, with 1, 1,000 and 100,000 entries.

use crate::esp::{POOL, tunnel_spec};
use crate::report::{Entry, Report};
use casemate_aws_lc::AWS_LC;
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers};
use casemate_datapath::spd::{Action, Lookup, Policy, PolicyTable};
use casemate_datapath::{Config, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound};
use casemate_measure::harness::{Workload, time};
use casemate_measure::tunnel::{self, GATEWAYS, NOW, buffer_stride};
use casemate_sa::{AddrRange, Selector, SpdId, Spi};
use casemate_test_support::TestRng;
use casemate_wire::flow::{FlowKey, FlowPorts};
use casemate_wire::packet::Packet;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

const SIZES: [(usize, &str); 3] = [(1, "1"), (1_000, "1000"), (100_000, "100000")];

/// Flows that are active at once in `lookup/flow`.
const FLOWS: usize = 256;

/// Measures all selected look-ups.
pub(crate) fn run(report: &mut Report<'_>) {
    row(report, "lookup/policy", |size| Box::new(Policies::new(size)));
    row(report, "lookup/flow", |size| Box::new(Flows::new(size)));
    row(report, "lookup/sa", |size| Box::new(Sas::new(size)));
}

/// Measures one row. Each figure is compared with the previous one.
fn row(report: &mut Report<'_>, name: &str, load: impl Fn(usize) -> Box<dyn Workload>) {
    if report.wants(name) {
        let entry =
            |(at, (size, label)): (usize, _)| Entry { label, base: at.checked_sub(1), load: load(size) };
        report.measure(name, SIZES.into_iter().enumerate().map(entry).collect());
    }
}

/// Destination of policy `n`. The prefixes have four lengths, as in real tables.
fn destination(n: usize) -> AddrRange {
    network(host(n), [24, 26, 28, 32][n % 4])
}

/// Address that only policy `n` covers.
fn host(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0000 + (n as u32) * 256 + 1)
}

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

fn policy(n: usize) -> Policy {
    let selector = Selector::between(network(SOURCE, 16), destination(n));
    Policy { spd: SpdId::MAIN, selector, action: Action::Bypass, priority: n as u32 % 3 }
}

/// Policy look-up of a new flow, for random flows and policies.
struct Policies {
    table: PolicyTable,
    size: usize,
    rng: TestRng,
}

impl Policies {
    fn new(size: usize) -> Self {
        let mut table = PolicyTable::new(size, 0x5EED);
        for n in 0..size {
            table.insert(policy(n)).unwrap();
        }
        Self { table, size, rng: TestRng::new(1) }
    }
}

impl Workload for Policies {
    fn run(&mut self) -> (Duration, u32) {
        let flow = |n| FlowKey::v4(SOURCE, host(n), 17, FlowPorts::new(1000, 2000));
        let flows: Vec<FlowKey> = (0..POOL).map(|_| flow(self.rng.below(self.size))).collect();
        let elapsed = time(|| {
            for flow in &flows {
                black_box(self.table.lookup(SpdId::MAIN, flow));
            }
        });
        assert!(flows.iter().all(|flow| matches!(self.table.lookup(SpdId::MAIN, flow), Lookup::Match(..))));
        (elapsed, POOL as u32)
    }
}

/// `outbound` with packets of known flows and bypass policies.
struct Flows {
    datapath: Datapath,
    size: usize,
    rng: TestRng,
    buffers: Vec<u8>,
}

impl Flows {
    fn new(size: usize) -> Self {
        let mut datapath = empty_datapath();
        for n in 0..size {
            datapath.add_policy(Direction::Outbound, policy(n)).unwrap();
        }
        let mut load =
            Self { datapath, size, rng: TestRng::new(1), buffers: vec![0; buffer_stride(64) * POOL] };
        for _ in 0..FLOWS {
            load.run();
        }
        load
    }
}

impl Workload for Flows {
    fn run(&mut self) -> (Duration, u32) {
        let Self { datapath, size, rng, buffers } = self;
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL);
        for buffer in buffers.chunks_exact_mut(buffer_stride(64)) {
            // The known flows are spread over all policies.
            let dst = host(rng.below(FLOWS) * *size / FLOWS);
            buffer[HEAD_ROOM..HEAD_ROOM + 64].copy_from_slice(&tunnel::ipv4(17, [SOURCE, dst], 64).unwrap());
            packets.push(Packet::new(buffer, HEAD_ROOM, 64).unwrap());
        }
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); POOL];
        let elapsed = time(|| datapath.outbound(NOW, rng, &mut packets, &mut verdicts));
        assert!(verdicts.iter().all(|verdict| *verdict == Outbound::Bypass), "{verdicts:?}");
        (elapsed, POOL as u32)
    }
}

/// `inbound` with packets that are too short for their SA: the cost of a packet without cryptography.
struct Sas {
    datapath: Datapath,
    size: usize,
    rng: TestRng,
    buffers: Vec<u8>,
}

/// Length of IPv4 header, SPI and sequence number.
const SHORT: usize = 28;

impl Sas {
    fn new(size: usize) -> Self {
        let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
        let mut datapath = empty_datapath();
        for n in 0..size {
            let params = tunnel_spec(suite).sa(spi(n));
            datapath.add_sa(&params, Direction::Inbound, &Providers(&[&AWS_LC]), NOW).unwrap();
        }
        Self { datapath, size, rng: TestRng::new(1), buffers: vec![0; buffer_stride(SHORT) * POOL] }
    }
}

impl Workload for Sas {
    fn run(&mut self) -> (Duration, u32) {
        let Self { datapath, size, rng, buffers } = self;
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL);
        for buffer in buffers.chunks_exact_mut(buffer_stride(SHORT)) {
            let mut packet = tunnel::ipv4(50, [SOURCE, GATEWAYS[1]], SHORT).unwrap();
            packet[20..24].copy_from_slice(&spi(rng.below(*size)).get().to_be_bytes());
            buffer[HEAD_ROOM..HEAD_ROOM + SHORT].copy_from_slice(&packet);
            packets.push(Packet::new(buffer, HEAD_ROOM, SHORT).unwrap());
        }
        let mut verdicts = [const { Inbound::Drop(DropReason::NoRoom) }; POOL];
        let elapsed = time(|| datapath.inbound(NOW, &mut packets, &mut verdicts));
        let expected = Inbound::Drop(DropReason::Truncated);
        assert!(verdicts.iter().all(|verdict| *verdict == expected), "{verdicts:?}");
        (elapsed, POOL as u32)
    }
}

/// SPI of SA `n`, spread over the range of SPIs.
fn spi(n: usize) -> Spi {
    Spi::new((n as u32 + 1).wrapping_mul(0x9E37_79B1)).unwrap()
}

/// Data path without SAs and policies.
fn empty_datapath() -> Datapath {
    Datapath::new(Config::server(0x5EED))
}

/// Network of prefix length `len` that contains `addr`.
fn network(addr: Ipv4Addr, len: u8) -> AddrRange {
    AddrRange::prefix(addr.into(), len).unwrap()
}
