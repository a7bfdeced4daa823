//! Speed of ESP in UDP: one TCP stream through two gateways (`casemate run`) with `encap = auto`, compared
//! with the same stream through ESP alone.
//!
//! The gateways of both tunnels are in network namespaces and start before the first round. In each round,
//! both tunnels carry a stream, one after the other; the ratio is computed within the round.

use crate::end_to_end::traffic;
use casemate_measure::report::{Agreement, Bound};
use casemate_measure::stats::{Interval, Spread};
use casemate_testbed::gateway::{Gateway, IkeTunnel};
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Background, Error, Result, TempDir, is_root};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Ratios between these two count as no difference.
const SAME: (f64, f64) = (0.9, 1.1);

/// Extent of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncapsulationPlan {
    /// Number of rounds. Each has one stream without and one with encapsulation.
    pub rounds: usize,
    /// Duration of a stream.
    pub stream: Duration,
}

impl EncapsulationPlan {
    /// Seven seconds of streams. The interval of nine rounds leaves out the extremes, so one disturbed
    /// round does not prevent a verdict.
    pub const USUAL: Self = Self { rounds: 9, stream: Duration::from_millis(400) };
}

/// Throughputs of the streams in Gbit/s, one of each kind for each round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EncapsulationSamples {
    /// ESP alone (`encap = no`).
    pub esp: Vec<f64>,
    /// ESP in UDP (`encap = auto` on both gateways).
    pub in_udp: Vec<f64>,
}

/// What follows from the ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncapsulationVerdict {
    /// ESP in UDP is faster.
    Faster,
    /// The ratio is close to 1.
    Same,
    /// ESP in UDP is slower.
    Slower,
    /// The rounds are too few, or contradict each other.
    Unknown,
}

impl EncapsulationVerdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Slower => "slower",
            Self::Unknown => "unknown",
        }
    }
}

impl EncapsulationSamples {
    /// Throughput of ESP in UDP relative to that of ESP alone.
    pub fn ratio(&self) -> Option<Spread> {
        Spread::of_ratios(self.in_udp.iter().copied(), self.esp.iter().copied())
    }

    /// Judges the ratios by their interval (decision 0072).
    pub fn verdict(&self) -> EncapsulationVerdict {
        let (low, high) = SAME;
        let holds =
            |bound: Bound| self.ratio().is_some_and(|ratio| bound.judge(&[ratio]) == Agreement::Agrees);
        if holds(Bound::Above(high)) {
            EncapsulationVerdict::Faster
        } else if holds(Bound::Below(low)) {
            EncapsulationVerdict::Slower
        } else if holds(Bound::Within(low, high)) {
            EncapsulationVerdict::Same
        } else {
            EncapsulationVerdict::Unknown
        }
    }

    /// Ratio and interval in words.
    pub fn comparison(&self) -> String {
        let Some(Spread { median, interval: Some(Interval { low, high }), .. }) = self.ratio() else {
            return "too few rounds to compare ESP in UDP with ESP alone".into();
        };
        match self.verdict() {
            EncapsulationVerdict::Faster | EncapsulationVerdict::Slower => format!(
                "ESP in UDP is {median:.1} ({low:.1}-{high:.1}) times as fast as ESP alone on this machine"
            ),
            EncapsulationVerdict::Same => format!(
                "ESP in UDP makes no difference on this machine ({median:.2}, {low:.2}-{high:.2} times as \
                 fast as ESP alone)"
            ),
            EncapsulationVerdict::Unknown => format!(
                "whether ESP in UDP is faster is unknown: the rounds contradict each other ({median:.2}, \
                 {low:.2}-{high:.2} times as fast as ESP alone)"
            ),
        }
    }

    /// Sentence with [`comparison`](Self::comparison) and what follows for the setting `encap`.
    pub fn sentence(&self) -> String {
        let setting = match self.verdict() {
            EncapsulationVerdict::Faster => "set `encap = auto`",
            EncapsulationVerdict::Slower | EncapsulationVerdict::Same => "leave `encap = no`",
            EncapsulationVerdict::Unknown => "measure again while nothing else runs",
        };
        format!("{}: {setting}", self.comparison())
    }

    /// Returns verdict, ratio, interval and all samples as a JSON object.
    pub fn json(&self) -> Value {
        let ratio = self.ratio();
        let interval = ratio.and_then(|ratio| ratio.interval);
        json!({
            "verdict": self.verdict().word(),
            "ratio": ratio.map(|ratio| ratio.median),
            "interval": interval.map(|Interval { low, high }| [low, high]),
            "esp_gbit_per_second": self.esp,
            "udp_gbit_per_second": self.in_udp,
        })
    }

    /// Reads the samples from the JSON object of [`json`](Self::json).
    pub fn from_json(value: &Value) -> Option<Self> {
        let samples = |key: &str| -> Option<Vec<f64>> {
            value.get(key)?.as_array()?.iter().map(Value::as_f64).collect()
        };
        Some(Self { esp: samples("esp_gbit_per_second")?, in_udp: samples("udp_gbit_per_second")? })
    }
}

/// Measures both tunnels in turns. `suite` is the value of `esp_proposals`, and `programs` the directory of
/// the program `casemate`.
///
/// # Errors
/// Fails without root, at least in a user namespace, and for any error in the namespaces.
pub fn measure(suite: &str, programs: &Path, plan: EncapsulationPlan) -> Result<EncapsulationSamples> {
    if !is_root() {
        return Err(Error::new("gateways in network namespaces require root"));
    }
    let (gateway, directory) = (Gateway::in_directory(programs)?, TempDir::new("advise-encap")?);
    let start = |encap: &'static str| StartedTunnel::new(&gateway, suite, encap, directory.path());
    let (plain, in_udp) = (start("no")?, start("auto")?);
    let mut samples = EncapsulationSamples::default();
    for round in 0..plan.rounds {
        // Each round begins with the other tunnel.
        if round % 2 == 0 {
            samples.esp.push(plain.stream(plan.stream)?);
        }
        samples.in_udp.push(in_udp.stream(plan.stream)?);
        if round % 2 == 1 {
            samples.esp.push(plain.stream(plan.stream)?);
        }
    }
    Ok(samples)
}

/// Two gateways with an established tunnel.
struct StartedTunnel {
    /// Dropped before the namespaces.
    _gateways: Vec<Background>,
    veth: VethPair,
}

impl StartedTunnel {
    fn new(gateway: &Gateway, suite: &str, encap: &str, directory: &Path) -> Result<Self> {
        let directory = directory.join(encap);
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        let veth = VethPair::new()?;
        let connection = format!("encap = {encap}");
        let tunnel = IkeTunnel { suite, connection: &connection, child: "", scheduler: "" };
        let gateways = [0, 1].map(|end| tunnel.start(gateway, &veth, end, &directory));
        let gateways = gateways.into_iter().collect::<Result<_>>()?;
        veth.wait_until_connected()?;
        let status = gateway.status(&veth, 0)?;
        let sas = status.get("sas").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let wanted = Value::Bool(encap == "auto");
        if sas.is_empty() || sas.iter().any(|sa| sa.get("udp_encapsulated") != Some(&wanted)) {
            return Err(Error::new(format!("the SAs of a gateway do not follow encap = {encap}")));
        }
        Ok(Self { _gateways: gateways, veth })
    }

    /// Throughput of one TCP stream in Gbit/s.
    fn stream(&self, duration: Duration) -> Result<f64> {
        traffic::stream(&self.veth, duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ratios: &[f64]) -> EncapsulationSamples {
        EncapsulationSamples {
            esp: vec![2.0; ratios.len()],
            in_udp: ratios.iter().map(|ratio| 2.0 * ratio).collect(),
        }
    }

    #[test]
    fn verdict_needs_an_interval_on_one_side() {
        let verdict = |ratios: &[f64]| samples(ratios).verdict();
        assert_eq!(verdict(&[3.1, 3.4, 3.3, 3.7, 3.5]), EncapsulationVerdict::Faster);
        assert_eq!(verdict(&[0.5, 0.6, 0.5, 0.7, 0.8]), EncapsulationVerdict::Slower);
        assert_eq!(verdict(&[1.0, 0.95, 1.05, 1.0, 1.0]), EncapsulationVerdict::Same);
        assert_eq!(verdict(&[1.0, 1.2, 1.3, 1.2, 1.2]), EncapsulationVerdict::Unknown);
        assert_eq!(verdict(&[3.0; 4]), EncapsulationVerdict::Unknown, "four rounds decide nothing");
        assert_eq!(verdict(&[]), EncapsulationVerdict::Unknown);
        // The interval of nine rounds leaves out the extremes.
        assert_eq!(verdict(&[0.2, 3.0, 3.0, 3.1, 3.0, 3.2, 3.0, 3.0, 9.0]), EncapsulationVerdict::Faster);
    }

    #[test]
    fn sentence_contains_ratio_interval_and_setting() {
        let sentence = |ratios: &[f64]| samples(ratios).sentence();
        assert_eq!(
            sentence(&[3.1, 3.4, 3.3, 3.7, 3.5]),
            "ESP in UDP is 3.4 (3.1-3.7) times as fast as ESP alone on this machine: set `encap = auto`"
        );
        assert!(sentence(&[1.0; 5]).starts_with("ESP in UDP makes no difference on this machine (1.00,"));
        assert!(sentence(&[0.5; 5]).ends_with("leave `encap = no`"));
        assert!(sentence(&[0.5, 2.0, 1.0, 1.0, 1.0]).contains("(1.00, 0.50-2.00 times"));
        assert!(sentence(&[3.0]).starts_with("too few rounds"));
    }

    #[test]
    fn samples_survive_json() {
        let samples = samples(&[3.0, 3.5, 3.25, 3.0, 3.0]);
        assert_eq!(EncapsulationSamples::from_json(&samples.json()), Some(samples.clone()));
        assert_eq!(samples.json()["verdict"], "faster");
        assert_eq!(EncapsulationSamples::from_json(&json!({ "esp_gbit_per_second": [1.0] })), None);
    }
}
