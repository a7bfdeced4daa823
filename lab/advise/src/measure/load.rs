//! Workload that passes packets through a tunnel in memory, from one data path to another.

use casemate_crypto::{EspSuite, Provider};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::{Workload, time};
use casemate_measure::tunnel::{HOSTS, Tunnel, TunnelSpec, ipv4};
use casemate_sa::Limits;
use std::time::Duration;

/// Packets between two readings of the clock.
const POOL_SIZE: usize = 32;
/// Number of passes of which the fastest counts.
const ATTEMPTS: usize = 5;
/// A pass of this duration is slow because of the machine, not because of an interruption.
const SLOW: Duration = Duration::from_millis(2);
/// Cost of a failed pass: one second per packet, so that the suite is never recommended.
const FAILED: (Duration, u32) = (Duration::from_secs(1), 1);
/// Protocol number without ports, reserved for experiments (RFC 3692).
const EXPERIMENTAL_PROTOCOL: u8 = 253;
/// The replay window is that of a gateway.
const LIMITS: Limits = Limits { replay_window: 1_024, ..Limits::DEVICE };

/// Timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Seal,
    Open,
}

/// Description of a workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkSpec {
    pub(super) suite: EspSuite,
    pub(super) operation: Operation,
    /// Length of the unprotected packet in bytes.
    pub(super) size: usize,
    /// Packets per call, at most 32.
    pub(super) batch: usize,
}

/// Returns the workload; `None` if no provider supports the suite or the packets cannot be opened.
pub(super) fn workload(work: WorkSpec, providers: &[&dyn Provider]) -> Option<Box<dyn Workload>> {
    let spec = TunnelSpec::between_networks(work.suite, LIMITS);
    let image = ipv4(EXPERIMENTAL_PROTOCOL, HOSTS, work.size)?;
    let tunnel = Tunnel::new(&spec, providers, SystemRng::new().ok()?, image, POOL_SIZE)?;
    let mut packets = PacketPool { tunnel, work };
    let (_, opened) = packets.run_once(Operation::Open);
    (opened == POOL_SIZE).then(|| Box::new(packets) as _)
}

/// Pool of packets that passes through the tunnel repeatedly.
struct PacketPool {
    tunnel: Tunnel<SystemRng>,
    work: WorkSpec,
}

impl Workload for PacketPool {
    /// Returns the fastest of several passes, because others may have been interrupted on a busy machine. A
    /// slow pass is not repeated.
    fn run(&mut self) -> (Duration, u32) {
        let mut best = self.run_once(self.work.operation);
        for _ in 1..ATTEMPTS {
            if best.0 < SLOW {
                best = best.min(self.run_once(self.work.operation));
            }
        }
        if best.1 > 0 { (best.0, best.1 as u32) } else { FAILED }
    }
}

impl PacketPool {
    /// Passes the pool through the tunnel. Returns the time of `operation` and the number of packets that
    /// succeeded.
    fn run_once(&mut self, operation: Operation) -> (Duration, usize) {
        let batch = self.work.batch;
        let mut round = self.tunnel.fill();
        let sealing = time(|| round.seal(batch));
        match operation {
            Operation::Seal => (sealing, round.sealed()),
            Operation::Open => (time(|| round.open(batch)), round.opened()),
        }
    }
}
