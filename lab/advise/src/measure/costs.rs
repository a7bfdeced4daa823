//! Measured costs of one suite, with the workload that passes packets through a tunnel in memory.

use casemate_crypto::{EspSuite, Provider};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::{Workload, time};
use casemate_measure::stats::{LinearFit, Spread};
use casemate_measure::tunnel::{HOSTS, Tunnel, TunnelSpec, ipv4};
use casemate_sa::Limits;
use serde_json::{Value, json};
use std::time::Duration;

/// Samples for one packet length, in nanoseconds per packet, one per round.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Length of the unprotected packet in bytes.
    pub size: usize,
    /// Time to seal a packet.
    pub seal: Vec<f64>,
    /// Time to open a packet.
    pub open: Vec<f64>,
}

/// Cost of a suite with one provider, or with several in order of preference.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// ESP suite.
    pub suite: EspSuite,
    /// Name of the provider.
    pub provider: String,
    /// Samples by ascending packet length.
    pub samples: Vec<Samples>,
}

impl Costs {
    /// Number of complete rounds.
    pub fn rounds(&self) -> usize {
        self.samples
            .iter()
            .map(|samples| samples.seal.len().min(samples.open.len()))
            .min()
            .unwrap_or_default()
    }

    /// Time to seal a packet of `size` bytes in a round, in nanoseconds; NaN if it was not measured.
    pub fn seal_at(&self, size: usize, round: usize) -> f64 {
        self.at(size, round, |samples| &samples.seal)
    }

    /// Time to open a packet of `size` bytes in a round, in nanoseconds; NaN if it was not measured.
    pub fn open_at(&self, size: usize, round: usize) -> f64 {
        self.at(size, round, |samples| &samples.open)
    }

    fn at(&self, size: usize, round: usize, operation: impl Fn(&Samples) -> &Vec<f64>) -> f64 {
        let of_size = self.samples.iter().find(|samples| samples.size == size);
        of_size.and_then(|samples| operation(samples).get(round)).copied().unwrap_or(f64::NAN)
    }

    /// The cost on an undisturbed machine, as one round: the lower quartile of each series. Other programs
    /// only add time, so it is stable even if most rounds are disturbed.
    pub fn undisturbed(&self) -> Self {
        let quartile = |nanos: &Vec<f64>| {
            let mut sorted = nanos.clone();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 4).copied().into_iter().collect()
        };
        let of_size = |samples: &Samples| Samples {
            size: samples.size,
            seal: quartile(&samples.seal),
            open: quartile(&samples.open),
        };
        let samples = self.samples.iter().map(of_size).collect();
        Self { suite: self.suite, provider: self.provider.clone(), samples }
    }

    /// Scales the cost to a processor that is `factor` times slower.
    pub fn slowed(mut self, factor: f64) -> Self {
        for samples in &mut self.samples {
            samples.seal.iter_mut().chain(&mut samples.open).for_each(|nanos| *nanos *= factor);
        }
        self
    }

    /// Line through the medians of sealing plus opening: cost per packet and per byte.
    pub fn line(&self) -> Option<LinearFit> {
        let points = self.samples.iter().filter_map(|samples| {
            let median = |nanos: &[f64]| Spread::of(nanos.iter().copied()).map(|spread| spread.median);
            Some((samples.size as f64, median(&samples.seal)? + median(&samples.open)?))
        });
        LinearFit::fit(&points.collect::<Vec<_>>())
    }

    /// Returns every sample as JSON.
    pub fn json(&self) -> Value {
        let samples = |samples: &Samples| -> Value {
            let Samples { size, seal, open } = samples;
            json!({ "size": size, "seal_ns": seal, "open_ns": open })
        };
        json!({
            "suite": self.suite.to_string(),
            "provider": self.provider,
            "line_ns": self.line().map(LinearFit::json),
            "samples": self.samples.iter().map(samples).collect::<Vec<_>>(),
        })
    }

    /// Creates costs of one round from packet lengths and the times of sealing and opening.
    #[cfg(test)]
    pub(crate) fn made_up(suite: EspSuite, samples: &[(usize, f64, f64)]) -> Self {
        let samples =
            samples.iter().map(|&(size, seal, open)| Samples { size, seal: vec![seal], open: vec![open] });
        Self { suite, provider: "made up".into(), samples: samples.collect() }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::AeadAlg;

    #[test]
    fn a_slower_clock_scales_all_costs() {
        let suite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);
        let costs = Costs::made_up(suite, &[(100, 50.0, 60.0), (1000, 500.0, 510.0)]);
        let line = costs.line().unwrap();
        assert!((line.slope - 1.0).abs() < 1e-12 && (line.intercept - 10.0).abs() < 1e-9, "{line:?}");
        let slowed = costs.slowed(3.0);
        assert_eq!((slowed.seal_at(100, 0), slowed.open_at(1000, 0)), (150.0, 1530.0));
        assert!(slowed.seal_at(200, 0).is_nan() && slowed.seal_at(100, 1).is_nan());
    }
}
