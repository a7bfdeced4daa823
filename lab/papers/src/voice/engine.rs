//! Figures 5 and 6, measured: how many packets an engine protects when more and more come.

use super::rig::{Cpus, Flow, Rig};
use crate::Context;
use casemate_report::{Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape};
use casemate_stage::Result;
use std::time::Duration;

/// Lengths of the paper's packets, in bytes.
const LENGTHS: [usize; 4] = [60, 100, 250, 1000];
/// The load that a ramp begins with, in packets a second; each is twice the one before.
const FIRST: u64 = 4_000;
const STEPS: u32 = 9;
/// Below so much of what is offered the engine is saturated; so many loads are tried beyond.
const SATURATED: f64 = 0.7;
const BEYOND: usize = 2;
/// An engine that still does so much of its best when too much comes has no negative slope.
const KEPT: f64 = 0.8;

/// An engine, and what it did.
struct Ramp {
    name: &'static str,
    flows: Vec<Flow>,
    /// Packets of each length a second, when more of them come than it can take.
    by_length: Vec<f64>,
}

/// The part.
pub(super) fn parts(context: &Context) -> Result<Vec<Part>> {
    let (suites, time): (&[Option<&'static str>], _) = match context.quick {
        true => (&[Some("aes128gcm16"), Some("3des-sha1")], Duration::from_millis(200)),
        false => {
            let suites = &[None, Some("des-sha1"), Some("null-sha1"), Some("3des-sha1"), Some("aes128gcm16")];
            (suites, Duration::from_millis(700))
        }
    };
    let cpus = Cpus::of_this_thread()?;
    context.progress.expect(suites.len());
    let ramps = suites.iter().map(|suite| ramp(context, cpus, *suite, time)).collect::<Result<Vec<_>>>()?;
    Ok(vec![part(&ramps)])
}

fn ramp(context: &Context, cpus: Cpus, suite: Option<&'static str>, time: Duration) -> Result<Ramp> {
    let name = suite.unwrap_or("plain");
    context.progress.next(name);
    let rig = Rig::build(context, cpus, suite, "scheduler {\n enabled = no\n}", 0)?;
    let (mut flows, mut beyond) = (Vec::new(), 0);
    for rate in (0..STEPS).map(|step| FIRST << step) {
        let flow = rig.flow(&LENGTHS, rate, time)?;
        beyond += usize::from(flow.through < flow.offered * SATURATED);
        flows.push(flow);
        if beyond > BEYOND {
            break;
        }
    }
    let enough = flows.iter().map(|flow| flow.offered).fold(0.0, f64::max) as u64;
    let of_length = |len: &usize| {
        rig.settle()?;
        rig.flow(&[*len], enough, time).map(|flow| flow.through)
    };
    let by_length = LENGTHS.iter().map(of_length).collect::<Result<_>>()?;
    Ok(Ramp { name, flows, by_length })
}

impl Ramp {
    /// The most that got through, in packets a second.
    fn most(&self) -> f64 {
        self.flows.iter().map(|flow| flow.through).fold(0.0, f64::max)
    }

    /// What of that is left under the greatest load.
    fn kept(&self) -> f64 {
        self.flows.last().map_or(0.0, |flow| flow.through) / self.most()
    }

    fn mbit(&self) -> impl Iterator<Item = f64> {
        self.by_length.iter().zip(LENGTHS).map(|(rate, len)| rate * len as f64 * 8.0 / 1e6)
    }
}

fn part(ramps: &[Ramp]) -> Part {
    let through = ramps.iter().map(|ramp| {
        let points = ramp.flows.iter().map(|flow| Point::at(flow.offered, flow.through));
        Series::ours(ramp.name, Shape::Line, points)
    });
    let mbit = ramps.iter().map(|ramp| {
        let points = ramp.mbit().enumerate().map(|(place, rate)| Point::at(place as f64, rate));
        Series::ours(ramp.name, Shape::Bars, points)
    });
    let samples = ramps.iter().map(|ramp| Samples {
        name: format!("{}, through the engine, each load twice the one before", ramp.name),
        unit: "packets/s".into(),
        repeated: false,
        values: ramp.flows.iter().map(|flow| flow.through).collect(),
    });
    Part {
        title: "Throughput of the engine".into(),
        text: "A gateway with one processor for itself, without the scheduler. As many packets of 60, 100, 250 and 1,000 bytes come, twice as \
               many with each load, until far more come than it can take. What leaves it is counted on the link."
            .into(),
        figures: vec![
            Figure {
                title: "Figure 5: throughput and load".into(),
                caption: "The paper's best engine, DES, came to slightly more than 1,000 packets a second, and fell behind it.".into(),
                x: Axis::log("offered, packets a second"),
                y: Axis::log("through the engine, packets a second"),
                series: through.collect(),
            },
            Figure {
                title: "Figure 6: throughput and length of packets".into(),
                caption: "IP packets before they are protected, more than the engine can take.".into(),
                x: Axis::names("bytes", LENGTHS.map(|len| len.to_string())),
                y: Axis::log("Mbit/s"),
                series: mbit.collect(),
            },
        ],
        findings: findings(ramps),
        samples: samples.collect(),
        ..Part::default()
    }
}

fn findings(ramps: &[Ramp]) -> Vec<Finding> {
    let engines = || ramps.iter().filter(|ramp| ramp.name != "plain");
    let list = |tell: &dyn Fn(&Ramp) -> String| engines().map(tell).collect::<Vec<_>>().join(", ");
    let grows = engines().all(|ramp| ramp.mbit().next() < ramp.mbit().last());
    let slope = engines().all(|ramp| ramp.kept() < KEPT);
    vec![
        Finding {
            what: "the engine levels off".into(),
            paper: "the best one, DES, slightly above 1,000 packets a second".into(),
            ours: list(&|ramp| format!("{} {:.0}", ramp.name, ramp.most())),
            agreement: Agreement::of(engines().all(|ramp| {
                ramp.flows.last().is_some_and(|flow| flow.through < flow.offered * SATURATED)
            })),
            why: "Processors and links are much faster today; the end of the engine has moved, and is still there.".into(),
        },
        Finding {
            what: "throughput falls when more comes than the engine can take".into(),
            paper: "yes, because of packets that it discards".into(),
            ours: list(&|ramp| format!("{} keeps {:.0} % of its best", ramp.name, ramp.kept() * 100.0)),
            agreement: Agreement::of(slope),
            why: "What has no room is dropped by the queue before the engine, by whoever sends it, and costs the engine nothing.".into(),
        },
        Finding {
            what: "longer packets bring more bits through".into(),
            paper: "yes".into(),
            ours: list(&|ramp| {
                let (short, long) = (ramp.mbit().next().unwrap_or(0.0), ramp.mbit().last().unwrap_or(0.0));
                format!("{} {short:.0} Mbit/s of 60 bytes, {long:.0} of 1,000", ramp.name)
            }),
            agreement: Agreement::of(grows),
            why: "A part of the work is done once for each packet, whatever its length.".into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(through: &[f64]) -> Ramp {
        let flows = through
            .iter()
            .enumerate()
            .map(|(n, through)| Flow { offered: f64::from(1000 << n), through: *through });
        Ramp { name: "des-sha1", flows: flows.collect(), by_length: vec![1000.0, 900.0, 800.0, 700.0] }
    }

    #[test]
    fn an_engine_that_falls_is_told_from_one_that_does_not() {
        let agreement = |through: &[f64]| findings(&[ramp(through)]).map_agreement();
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
