//! Queueing models: figure 4 for one line, priority before the engine, and speech quality on a full line.

use crate::Context;
use casemate_calls::codec::Codec;
use casemate_calls::packet::{Esp, PacketFormat, Protection};
use casemate_calls::paper::LINE;
use casemate_calls::plan::Plan;
use casemate_calls::quality::Rating;
use casemate_calls::queue::{self, TrafficClass};
use casemate_calls::scheme::parse_suite;
use casemate_measure::report::{Agreement, Axis, Figure, Finding, Part, Point, Series, Shape};
use casemate_sa::Mode;
use casemate_testbed::{Error, Result};
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// Packet lengths of figure 4 in bytes: in clear, and in an ESP tunnel with DES without authentication.
const CLEAR_LEN: usize = 90;
const DES_LEN: usize = 132;
/// Packets per second of one stream.
pub(super) const STREAM_RATE: f64 = 10.0;

/// Runs the step.
pub(super) fn parts(_: &Context) -> Result<Vec<Part>> {
    Ok(vec![line(), engine(), quality()?])
}

/// Time in seconds to transmit a packet of this length.
pub(super) fn service_time(len: usize) -> f64 {
    len as f64 * 8.0 / LINE as f64
}

/// Mean delay in milliseconds until a packet is sent, for streams at random phases with this total rate.
pub(super) fn streams(rate: f64, service: f64) -> Option<f64> {
    queue::periodic((rate / STREAM_RATE).round() as u64, STREAM_RATE.recip(), service)
        .map(|delay| delay * 1000.0)
}

/// Curve of the delay in ms against the rate in packets per second.
pub(super) fn curve(name: &str, delay: impl Fn(f64) -> Option<f64>) -> Series {
    let points = (1..=18).filter_map(|tens| {
        let rate = f64::from(tens) * 10.0;
        Some(Point::at(rate, delay(rate)?))
    });
    Series::ours(name, Shape::Curve, points)
}

fn line() -> Part {
    let capacities = [CLEAR_LEN, DES_LEN].map(|len| service_time(len).recip());
    Part {
        title: "Waiting for a line of 128 kbit/s, in theory".into(),
        text: "Computed for one line. The paper solved a network of queues without specifying it; in \
             product form, each hop is M/M/1. Its streams began at random times; periodic streams of 10 \
             packets per second at random phases are the sum of D over D/1."
            .into(),
        figures: [("clear", CLEAR_LEN), ("DES", DES_LEN)].map(|(name, len)| delays(name, len)).into(),
        findings: vec![Finding {
            what: "load that fills the line".into(),
            paper: "smaller with encryption".into(),
            ours: format!("{:.0} packets per second in clear, {:.0} with DES", capacities[0], capacities[1]),
            agreement: Agreement::of(capacities[1] < capacities[0]),
            why: "Packets of 90 bytes become 132 bytes long. This alone moves the curve; the time of \
                 encryption is not included."
                .into(),
        }],
        ..Part::default()
    }
}

/// Delays of packets of one length with every model.
fn delays(name: &str, len: usize) -> Figure {
    let service = service_time(len);
    let ms = |delay: Option<f64>| delay.map(|delay| delay * 1000.0);
    Figure {
        title: format!("Figure 4, {name}: packets of {CLEAR_LEN} bytes, {len} on the line"),
        caption: "The models differ most near the capacity of the line.".into(),
        x: Axis::linear("packets a second"),
        y: Axis::log("mean delay, ms"),
        series: vec![
            curve("no queue", |rate| ms(queue::ideal(rate, service))),
            curve("streams", |rate| streams(rate, service)),
            curve("M/D/1", |rate| ms(queue::md1(rate, service))),
            curve("M/M/1", |rate| ms(queue::mm1(rate, service))),
        ],
    }
}

/// Voice at 200 packets per second that take 0.6 ms of an engine each, and bulk packets that take 4 ms.
fn engine() -> Part {
    const VOICE: TrafficClass = TrafficClass { rate: 200.0, service: 0.000_6 };
    let classes = |bulk: f64| [VOICE, TrafficClass { rate: bulk, service: 0.004 }];
    let points = |wait: &dyn Fn(f64) -> Option<f64>| {
        let rates = (0..=30).map(|tens| f64::from(tens) * 10.0);
        rates.filter_map(|rate| Some(Point::at(rate, wait(rate)? * 1000.0))).collect::<Vec<_>>()
    };
    let fifo = |bulk: f64| queue::fifo(&classes(bulk));
    let first = |bulk: f64| queue::priority(&classes(bulk)).first().copied().flatten();
    let second = |bulk: f64| queue::priority(&classes(bulk)).get(1).copied().flatten();
    let at = |wait: Option<f64>| {
        wait.map_or_else(|| "without end".into(), |wait| format!("{:.1} ms", wait * 1000.0))
    };
    Part {
        title: "Priority before the engine, in theory".into(),
        text: "Computed: mean waiting time before an engine with non-preemptive priority (Cobham 1954). \
             200 voice packets per second take 0.6 ms each, bulk packets take 4 ms each. More than 220 \
             bulk packets per second overload the engine."
            .into(),
        figures: vec![Figure {
            title: "Waiting for the engine".into(),
            caption: "With priority, voice waits only for the packet in service and for other voice \
                 packets, regardless of the bulk traffic."
                .into(),
            x: Axis::linear("packets of bulk a second"),
            y: Axis::log("mean wait, ms"),
            series: vec![
                Series::ours("everybody, one queue", Shape::Line, points(&fifo)),
                Series::ours("voice, with priority", Shape::Line, points(&first)),
                Series::ours("bulk, behind voice", Shape::Line, points(&second)),
            ],
        }],
        findings: vec![Finding {
            what: "the engine harms voice because its queue has no priorities".into(),
            paper: "the main reason, rather than slow ciphers".into(),
            ours: format!(
                "200 bulk packets per second: voice waits {} in one queue, {} with priority; 300: {} and \
                     {}",
                at(fifo(200.0)),
                at(first(200.0)),
                at(fifo(300.0)),
                at(first(300.0))
            ),
            agreement: Agreement::of(first(300.0).is_some() && fifo(300.0).is_none()),
            why: "The engine is equally slow in both cases; only the order differs.".into(),
        }],
        ..Part::default()
    }
}

/// Delay of a full queue on an overloaded line.
const FULL_QUEUE_DELAY: Duration = Duration::from_millis(100);
/// Delay outside of the line, for play-out and other links.
const OTHER_DELAY: Duration = Duration::from_millis(60);

fn quality() -> Result<Part> {
    let protections =
        [("clear", None), ("aes128gcm16", Some("aes128gcm16")), ("3des-sha1", Some("3des-sha1"))];
    let mut series = Vec::new();
    let mut most = Vec::new();
    for (name, words) in protections {
        let plan = call(words)?;
        most.push(format!("{} {name}", plan.calls()));
        let points = (1..=8).filter_map(|calls| Some(Point::at(calls as f64, rating(plan, calls)?.mos())));
        series.push(Series::ours(name, Shape::Line, points));
    }
    let ends = [2, 3].map(|calls| {
        call(Some("aes128gcm16")).ok().and_then(|plan| rating(plan, calls)).map_or(0.0, Rating::mos)
    });
    Ok(Part {
        title: "Speech quality on a line that fills".into(),
        text: format!(
            "Computed: G.729A on 128 kbit/s over IPv4, with ITU-T G.107. {} ms of the mouth-to-ear delay \
                 arise elsewhere. If there are more calls than the line carries, its full queue adds {} \
                 ms, and excess packets are lost.",
            OTHER_DELAY.as_millis(),
            FULL_QUEUE_DELAY.as_millis()
        ),
        figures: vec![Figure {
            title: "Quality and number of calls".into(),
            caption: "Below 3.1 nearly all users are dissatisfied.".into(),
            x: Axis::linear("calls"),
            y: Axis::linear("mean opinion score"),
            series,
        }],
        findings: vec![Finding {
            what: "calls of G.729A with IPsec, compared with IP".into(),
            paper: "half as many".into(),
            ours: most.join(", "),
            agreement: Agreement::of(call(Some("aes128gcm16"))?.calls() <= call(None)?.calls().div_ceil(2)),
            why: format!(
                "An AEAD tunnel adds 56 bytes to packets of 60 bytes. One call too many harms all calls: \
                     the score falls from {:.1} to {:.1}.",
                ends[0], ends[1]
            ),
        }],
        ..Part::default()
    })
}

/// A G.729A call, in clear or in a tunnel.
fn call(words: Option<&str>) -> Result<Plan> {
    let codec = Codec::named("g729").ok_or_else(|| Error::new("G.729 is not known"))?;
    let stream = codec.stream(None).map_err(|error| Error::new(error.to_string()))?;
    let protection = match words {
        None => Protection::Clear,
        Some(words) => {
            let sizes = parse_suite(words).map_err(Error::new)?.into();
            Protection::Esp(Esp { sizes, mode: Mode::Tunnel, encap: false })
        }
    };
    let wire = PacketFormat { version: IpVersion::V4, protection, link: 0 };
    Ok(Plan { line_rate: LINE, stream, packet_len: wire.packet_len(stream.payload) })
}

fn rating(plan: Plan, calls: u64) -> Option<Rating> {
    let impairment = Codec::named("g729")?.impairment?;
    let line = queue::periodic(calls, plan.stream.interval().as_secs_f64(), plan.serialization_time());
    let line = line.map_or(FULL_QUEUE_DELAY, Duration::from_secs_f64);
    let loss = (1.0 - plan.utilization(calls).recip()).max(0.0);
    let delay = plan.stream.interval() + impairment.look_ahead + line + OTHER_DELAY;
    Some(Rating::of(impairment, delay, loss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_reduces_the_quality() {
        let plan = call(Some("aes128gcm16")).unwrap();
        assert_eq!((call(None).unwrap().calls(), plan.calls()), (5, 2));
        let mos = |calls| rating(plan, calls).unwrap().mos();
        assert!(mos(1) - mos(2) < 0.1 && mos(2) - mos(3) > 0.5, "{} {} {}", mos(1), mos(2), mos(3));
    }

    #[test]
    fn models_are_ordered_by_delay() {
        let part = line();
        for figure in part.figures {
            for pair in figure.series.windows(2) {
                for (lower, upper) in pair[0].points.iter().zip(&pair[1].points) {
                    assert!(
                        lower.y <= upper.y * 1.000_001,
                        "{} over {} at {}",
                        pair[0].name,
                        pair[1].name,
                        lower.x
                    );
                }
            }
        }
    }

    #[test]
    fn theory_agrees_with_the_paper() {
        for part in [line(), engine(), quality().unwrap()] {
            assert!(
                part.findings.iter().all(|finding| finding.agreement == Agreement::Agrees),
                "{:?}",
                part.findings
            );
        }
    }
}
