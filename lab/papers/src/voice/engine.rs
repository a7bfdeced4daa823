//! Throughput of the engine under increasing load, measured: figures 5 and 6.

use super::bottleneck::{Bottleneck, Cpus, FlowRates};
use crate::Context;
use casemate_measure::report::{Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape};
use casemate_testbed::Result;
use std::time::Duration;

/// Packet lengths of the paper, in bytes.
const LENGTHS: [usize; 4] = [60, 100, 250, 1000];
/// First load in packets per second. Every step doubles it.
const FIRST_RATE: u64 = 4_000;
const STEPS: u32 = 9;
/// The engine is saturated below this share of the offered load. Number of further steps beyond that.
const SATURATED: f64 = 0.7;
const MAX_SATURATED_STEPS: usize = 2;
/// An engine that keeps this share of its peak under overload has no falling throughput.
const MAX_REMAINING_SHARE: f64 = 0.8;

/// An engine and its measurements.
struct LoadSweep {
    name: &'static str,
    flows: Vec<FlowRates>,
    /// Packets of each length per second under overload.
    by_length: Vec<f64>,
}

/// Runs the step.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let (suites, time): (&[Option<&'static str>], _) = match context.quick {
        true => (&[Some("aes128gcm16"), Some("3des-sha1")], Duration::from_millis(200)),
        false => {
            let suites = &[None, Some("des-sha1"), Some("null-sha1"), Some("3des-sha1"), Some("aes128gcm16")];
            (suites, Duration::from_millis(700))
        }
    };
    let cpus = Cpus::of_this_thread()?;
    context.progress.set_total(suites.len());
    let sweeps = suites.iter().map(|suite| sweep(context, cpus, *suite, time)).collect::<Result<Vec<_>>>()?;
    Ok(vec![part(&sweeps)])
}

fn sweep(context: &Context, cpus: Cpus, suite: Option<&'static str>, time: Duration) -> Result<LoadSweep> {
    let name = suite.unwrap_or("plain");
    context.progress.advance(name);
    let bottleneck = Bottleneck::build(context, cpus, suite, "scheduler {\n enabled = no\n}", 0)?;
    let (mut flows, mut beyond) = (Vec::new(), 0);
    for rate in (0..STEPS).map(|step| FIRST_RATE << step) {
        let flow = bottleneck.flood_for(&LENGTHS, rate, time)?;
        beyond += usize::from(flow.delivered < flow.offered * SATURATED);
        flows.push(flow);
        if beyond > MAX_SATURATED_STEPS {
            break;
        }
    }
    let enough = flows.iter().map(|flow| flow.offered).fold(0.0, f64::max) as u64;
    let of_length = |len: &usize| {
        bottleneck.wait_until_idle()?;
        bottleneck.flood_for(&[*len], enough, time).map(|flow| flow.delivered)
    };
    let by_length = LENGTHS.iter().map(of_length).collect::<Result<_>>()?;
    Ok(LoadSweep { name, flows, by_length })
}

impl LoadSweep {
    /// Peak throughput in packets per second.
    fn peak_rate(&self) -> f64 {
        self.flows.iter().map(|flow| flow.delivered).fold(0.0, f64::max)
    }

    /// Share of the peak throughput under the highest load.
    fn remaining_share(&self) -> f64 {
        self.flows.last().map_or(0.0, |flow| flow.delivered) / self.peak_rate()
    }

    fn mbit_per_second(&self) -> impl Iterator<Item = f64> {
        self.by_length.iter().zip(LENGTHS).map(|(rate, len)| rate * len as f64 * 8.0 / 1e6)
    }
}

fn part(sweeps: &[LoadSweep]) -> Part {
    let through = sweeps.iter().map(|sweep| {
        let points = sweep.flows.iter().map(|flow| Point::at(flow.offered, flow.delivered));
        Series::ours(sweep.name, Shape::Line, points)
    });
    let mbit = sweeps.iter().map(|sweep| {
        let points = sweep.mbit_per_second().enumerate().map(|(place, rate)| Point::at(place as f64, rate));
        Series::ours(sweep.name, Shape::Bars, points)
    });
    let samples = sweeps.iter().map(|sweep| Samples {
        name: format!("{}, throughput, each load twice the previous one", sweep.name),
        unit: "packets/s".into(),
        repeated: false,
        values: sweep.flows.iter().map(|flow| flow.delivered).collect(),
    });
    Part {
        title: "Throughput of the engine".into(),
        text: "A gateway with its own processor and without the scheduler. Packets of 60, 100, 250 and \
             1,000 bytes arrive in equal numbers, and the load doubles until it far exceeds the capacity. \
             Packets that leave the gateway are counted on the link."
            .into(),
        figures: vec![
            Figure {
                title: "Figure 5: throughput and load".into(),
                caption: "The paper's best engine, DES, reached slightly more than 1,000 packets per \
                     second, and its throughput fell beyond that."
                    .into(),
                x: Axis::log("offered, packets a second"),
                y: Axis::log("through the engine, packets a second"),
                series: through.collect(),
            },
            Figure {
                title: "Figure 6: throughput and length of packets".into(),
                caption: "IP packets before protection, under overload.".into(),
                x: Axis::names("bytes", LENGTHS.map(|len| len.to_string())),
                y: Axis::log("Mbit/s"),
                series: mbit.collect(),
            },
        ],
        findings: findings(sweeps),
        samples: samples.collect(),
        ..Part::default()
    }
}

fn findings(sweeps: &[LoadSweep]) -> Vec<Finding> {
    let engines = || sweeps.iter().filter(|sweep| sweep.name != "plain");
    let list = |tell: &dyn Fn(&LoadSweep) -> String| engines().map(tell).collect::<Vec<_>>().join(", ");
    let grows = engines().all(|sweep| sweep.mbit_per_second().next() < sweep.mbit_per_second().last());
    let slope = engines().all(|sweep| sweep.remaining_share() < MAX_REMAINING_SHARE);
    vec![
        Finding {
            what: "the engine levels off".into(),
            paper: "the best one, DES, slightly above 1,000 packets per second".into(),
            ours: list(&|sweep| format!("{} {:.0}", sweep.name, sweep.peak_rate())),
            agreement: Agreement::of(engines().all(|sweep| {
                sweep.flows.last().is_some_and(|flow| flow.delivered < flow.offered * SATURATED)
            })),
            why: "Processors and links are much faster today. The saturation point has moved but still \
                 exists."
                .into(),
        },
        Finding {
            what: "throughput falls under overload".into(),
            paper: "yes, because of the packets that it discards".into(),
            ours: list(&|sweep| {
                format!("{} keeps {:.0} % of its best", sweep.name, sweep.remaining_share() * 100.0)
            }),
            agreement: Agreement::of(slope),
            why: "Excess packets are dropped by the queue in front of the engine, on the CPU of the \
                 sender, and cost the engine nothing."
                .into(),
        },
        Finding {
            what: "longer packets give a higher bit rate".into(),
            paper: "yes".into(),
            ours: list(&|sweep| {
                let (short, long) = (
                    sweep.mbit_per_second().next().unwrap_or(0.0),
                    sweep.mbit_per_second().last().unwrap_or(0.0),
                );
                format!("{} {short:.0} Mbit/s of 60 bytes, {long:.0} of 1,000", sweep.name)
            }),
            agreement: Agreement::of(grows),
            why: "Part of the work is done once per packet, regardless of its length.".into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(through: &[f64]) -> LoadSweep {
        let flows = through
            .iter()
            .enumerate()
            .map(|(n, through)| FlowRates { offered: f64::from(1000 << n), delivered: *through });
        LoadSweep { name: "des-sha1", flows: flows.collect(), by_length: vec![1000.0, 900.0, 800.0, 700.0] }
    }

    #[test]
    fn falling_throughput_is_detected() {
        let agreement = |through: &[f64]| findings(&[sweep(through)]).map_agreement();
        assert_eq!(agreement(&[1000.0, 1900.0, 2000.0, 1000.0]), [Agreement::Agrees; 3]);
        assert_eq!(agreement(&[1000.0, 1900.0, 2000.0, 1990.0])[1], Agreement::Differs);
        assert_eq!(agreement(&[1000.0, 2000.0])[0], Agreement::Differs);
    }

    trait Agreements {
        fn map_agreement(&self) -> Vec<Agreement>;
    }

    impl Agreements for Vec<Finding> {
        fn map_agreement(&self) -> Vec<Agreement> {
            self.iter().map(|finding| finding.agreement).collect()
        }
    }
}
