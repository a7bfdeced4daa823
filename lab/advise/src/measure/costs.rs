//! The samples of one suite.

use casemate_crypto::EspSuite;
use casemate_measure::fit::Line;
use casemate_measure::spread::Spread;
use serde_json::{Value, json};

/// The samples for packets of one length, in nanoseconds a packet, one for each round.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Length of the packet that is protected, in bytes.
    pub size: usize,
    /// Sealing.
    pub seal: Vec<f64>,
    /// Opening.
    pub open: Vec<f64>,
}

/// What a suite costs with a provider, or with several in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// The suite.
    pub suite: EspSuite,
    /// Whose code runs.
    pub provider: String,
    /// Lengths in order.
    pub samples: Vec<Samples>,
}

impl Costs {
    /// How many rounds there were.
    pub fn rounds(&self) -> usize {
        self.samples
            .iter()
            .map(|samples| samples.seal.len().min(samples.open.len()))
            .min()
            .unwrap_or_default()
    }

    /// Sealing a packet of this length in a round, in nanoseconds; not a number if it was not measured.
    pub fn seal_at(&self, size: usize, round: usize) -> f64 {
        self.at(size, round, |samples| &samples.seal)
    }

    /// Opening, likewise.
    pub fn open_at(&self, size: usize, round: usize) -> f64 {
        self.at(size, round, |samples| &samples.open)
    }

    fn at(&self, size: usize, round: usize, way: impl Fn(&Samples) -> &Vec<f64>) -> f64 {
        let of_size = self.samples.iter().find(|samples| samples.size == size);
        of_size.and_then(|samples| way(samples).get(round)).copied().unwrap_or(f64::NAN)
    }

    /// The same on a processor whose clock is `factor` times as slow.
    pub fn slowed(mut self, factor: f64) -> Self {
        for samples in &mut self.samples {
            samples.seal.iter_mut().chain(&mut samples.open).for_each(|nanos| *nanos *= factor);
        }
        self
    }

    /// The line through the medians of sealing and opening together: what a packet costs, and each byte.
    pub fn line(&self) -> Option<Line> {
        let points = self.samples.iter().filter_map(|samples| {
            let median = |nanos: &[f64]| Spread::of(nanos.iter().copied()).map(|spread| spread.median);
            Some((samples.size as f64, median(&samples.seal)? + median(&samples.open)?))
        });
        Line::through(&points.collect::<Vec<_>>())
    }

    /// Every sample.
    pub fn json(&self) -> Value {
        let samples = |samples: &Samples| json!({ "size": samples.size, "seal_ns": samples.seal, "open_ns": samples.open });
        json!({
            "suite": self.suite.to_string(),
            "provider": self.provider,
            "line_ns": self.line().map(Line::json),
            "samples": self.samples.iter().map(samples).collect::<Vec<_>>(),
        })
    }

    /// Of lengths, with sealing and opening, in one round.
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
    fn a_slower_clock_makes_everything_cost_more_and_the_line_fits() {
        let suite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);
        let costs = Costs::made_up(suite, &[(100, 50.0, 60.0), (1000, 500.0, 510.0)]);
        let line = costs.line().unwrap();
        assert!((line.slope - 1.0).abs() < 1e-12 && (line.fixed - 10.0).abs() < 1e-9, "{line:?}");
        let slowed = costs.slowed(3.0);
        assert_eq!((slowed.seal_at(100, 0), slowed.open_at(1000, 0)), (150.0, 1530.0));
        assert!(slowed.seal_at(200, 0).is_nan() && slowed.seal_at(100, 1).is_nan());
    }
}
