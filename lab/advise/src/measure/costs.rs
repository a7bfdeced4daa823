//! Measured cost of one suite.

use casemate_crypto::EspSuite;
use casemate_measure::stats::LinearFit;
use casemate_measure::stats::Spread;
use serde_json::{Value, json};

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
