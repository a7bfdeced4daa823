//! Look-ups with 1, 1,000 and 100,000 entries: policies, flows that are known already, SAs.

use crate::report::{Entry, Report};
use crate::suites::POOL;
use crate::world::{Counting, empty, ipv4, network, spec};
use casemate_aws_lc::AWS_LC;
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers};
use casemate_datapath::spd::{Action, Lookup, Policy, PolicyTable};
use casemate_datapath::{Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound};
use casemate_measure::harness::{Load, time};
use casemate_measure::tunnel::{GATEWAYS, NOW, stride};
use casemate_sa::{AddrRange, Selector, Spi};
use casemate_wire::flow::FlowKey;
use casemate_wire::packet::Packet;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

const SIZES: [(usize, &str); 3] = [(1, "1"), (1_000, "1000"), (100_000, "100000")];

/// Flows that are in use at once, in `lookup/flow`.
const FLOWS: usize = 256;

/// Measures them.
pub(crate) fn run(report: &mut Report<'_>) {
    row(report, "lookup/policy", |size| Box::new(Policies::new(size)));
    row(report, "lookup/flow", |size| Box::new(Flows::new(size)));
    row(report, "lookup/sa", |size| Box::new(Sas::new(size)));
}

/// Each figure is compared with the one before it.
fn row(report: &mut Report<'_>, name: &str, load: impl Fn(usize) -> Box<dyn Load>) {
    if report.wants(name) {
        let entry =
            |(at, (size, label)): (usize, _)| Entry { label, base: at.checked_sub(1), load: load(size) };
        report.measure(name, SIZES.into_iter().enumerate().map(entry).collect());
    }
}

/// Where policy number `n` leads; the prefixes are of four lengths, as in real tables.
fn destination(n: usize) -> AddrRange {
    network(host(n), [24, 26, 28, 32][n % 4])
}

/// An address that policy number `n` names and no other does.
fn host(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0000 + (n as u32) * 256 + 1)
}

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

fn policy(n: usize) -> Policy {
    let selector = Selector::between(network(SOURCE, 16), destination(n));
    Policy { selector, action: Action::Bypass, priority: n as u32 % 3 }
}

/// The policy of a flow that has not been seen before; any flow, any policy.
struct Policies {
    table: PolicyTable,
    size: usize,
    rng: Counting,
}

impl Policies {
    fn new(size: usize) -> Self {
        let mut table = PolicyTable::new(size, 0x5EED);
        for n in 0..size {
            table.insert(policy(n)).unwrap();
        }
        Self { table, size, rng: Counting::new() }
    }
}

impl Load for Policies {
    fn run(&mut self) -> (Duration, u32) {
        let flow = |n| FlowKey::v4(SOURCE, host(n), 17, (1000, 2000));
        let flows: Vec<FlowKey> = (0..POOL).map(|_| flow(self.rng.below(self.size))).collect();
        let spent = time(|| {
            for flow in &flows {
                black_box(self.table.lookup(flow));
            }
        });
        assert!(flows.iter().all(|flow| matches!(self.table.lookup(flow), Lookup::Match(..))));
        (spent, POOL as u32)
    }
}

/// Packets of known flows through the whole of `outbound`, by a policy that lets them pass as they are.
struct Flows {
    datapath: Datapath,
    size: usize,
    rng: Counting,
    buffers: Vec<u8>,
}

impl Flows {
    fn new(size: usize) -> Self {
        let mut datapath = empty();
        for n in 0..size {
            datapath.add_policy(Direction::Outbound, policy(n)).unwrap();
        }
        let mut load = Self { datapath, size, rng: Counting::new(), buffers: vec![0; stride(64) * POOL] };
        for _ in 0..FLOWS {
            load.run();
        }
        load
    }
}

impl Load for Flows {
    fn run(&mut self) -> (Duration, u32) {
        let Self { datapath, size, rng, buffers } = self;
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL);
        for buffer in buffers.chunks_exact_mut(stride(64)) {
            // Known flows are spread over all policies.
            let dst = host(rng.below(FLOWS) * *size / FLOWS);
            buffer[HEAD_ROOM..HEAD_ROOM + 64].copy_from_slice(&ipv4(17, [SOURCE, dst], 64));
            packets.push(Packet::new(buffer, HEAD_ROOM, 64).unwrap());
        }
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); POOL];
        let spent = time(|| datapath.outbound(NOW, rng, &mut packets, &mut verdicts));
        assert!(verdicts.iter().all(|verdict| *verdict == Outbound::Bypass), "{verdicts:?}");
        (spent, POOL as u32)
    }
}

/// Arriving packets find their SA, any of all, and are found to be too short for it: what a packet costs without its
/// cryptography.
struct Sas {
    datapath: Datapath,
    size: usize,
    rng: Counting,
    buffers: Vec<u8>,
}

/// IPv4, SPI and sequence number.
const SHORT: usize = 28;

impl Sas {
    fn new(size: usize) -> Self {
        let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
        let mut datapath = empty();
        for n in 0..size {
            let params = spec(suite).sa(spi(n));
            datapath.add_sa(&params, Direction::Inbound, &Providers(&[&AWS_LC]), NOW).unwrap();
        }
        Self { datapath, size, rng: Counting::new(), buffers: vec![0; stride(SHORT) * POOL] }
    }
}

impl Load for Sas {
    fn run(&mut self) -> (Duration, u32) {
        let Self { datapath, size, rng, buffers } = self;
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL);
        for buffer in buffers.chunks_exact_mut(stride(SHORT)) {
            let mut packet = ipv4(50, [SOURCE, GATEWAYS[1]], SHORT);
            packet[20..24].copy_from_slice(&spi(rng.below(*size)).get().to_be_bytes());
            buffer[HEAD_ROOM..HEAD_ROOM + SHORT].copy_from_slice(&packet);
            packets.push(Packet::new(buffer, HEAD_ROOM, SHORT).unwrap());
        }
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); POOL];
        let spent = time(|| datapath.inbound(NOW, &mut packets, &mut verdicts));
        let expected = Inbound::Drop(DropReason::Truncated);
        assert!(verdicts.iter().all(|verdict| *verdict == expected), "{verdicts:?}");
        (spent, POOL as u32)
    }
}

/// The SPI of SA number `n`, as if drawn at random.
fn spi(n: usize) -> Spi {
    Spi::new((n as u32 + 1).wrapping_mul(0x9E37_79B1)).unwrap()
}
