//! What queueing theory says: Figure 4 on one line, priority before the engine, and how calls sound when a line fills.

use crate::Context;
use casemate_calls::codec::Codec;
use casemate_calls::packet::{Esp, Protection, Wire};
use casemate_calls::paper::LINE;
use casemate_calls::plan::Plan;
use casemate_calls::quality::Rating;
use casemate_calls::queue::{self, Class};
use casemate_calls::suite::suite;
use casemate_report::{Agreement, Axis, Figure, Finding, Part, Point, Series, Shape};
use casemate_sa::Mode;
use casemate_stage::{Error, Result};
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// The packets of Figure 4, in bytes: in clear, and in an ESP tunnel with DES alone.
const CLEAR: usize = 90;
const DES: usize = 132;
/// Packets that one stream sends in a second, where the model has streams.
pub(super) const STREAM: f64 = 10.0;

/// All parts.
pub(super) fn parts(_: &Context) -> Result<Vec<Part>> {
    Ok(vec![line(), engine(), quality()?])
}

/// Seconds that the line needs for a packet of so many bytes.
pub(super) fn service(len: usize) -> f64 {
    len as f64 * 8.0 / LINE as f64
}

/// Mean milliseconds until a packet is sent, from streams at random phases that together send so many packets a second.
pub(super) fn streams(rate: f64, service: f64) -> Option<f64> {
    queue::periodic((rate / STREAM).round() as u64, STREAM.recip(), service).map(|delay| delay * 1000.0)
}

/// The rate is in packets a second, delays are in ms.
pub(super) fn curve(name: &str, delay: impl Fn(f64) -> Option<f64>) -> Series {
    let points = (1..=18).filter_map(|tens| {
        let rate = f64::from(tens) * 10.0;
        Some(Point::at(rate, delay(rate)?))
    });
    Series::ours(name, Shape::Line, points)
}

fn line() -> Part {
    let knees = [CLEAR, DES].map(|len| service(len).recip());
    Part {
        title: "Waiting for a line of 128 kbit/s, in theory".into(),
        text: "Computed, for one line. The paper solved a network of queues and does not say which; in product form each hop of it is M/M/1. \
               Its streams began at random times; periodic streams of 10 packets a second at random phases are the sum of D over D/1."
            .into(),
        figures: [("clear", CLEAR), ("DES", DES)].map(|(name, len)| delays(name, len)).into(),
        findings: vec![Finding {
            what: "load at which the line is full".into(),
            paper: "smaller with encryption".into(),
            ours: format!("{:.0} packets a second in clear, {:.0} with DES", knees[0], knees[1]),
            agreement: Agreement::of(knees[1] < knees[0]),
            why: "Packets of 90 bytes become 132 long. That alone moves the curve; the time that encryption takes is not in it.".into(),
        }],
        ..Part::default()
    }
}

/// Packets of one length, and every model.
fn delays(name: &str, len: usize) -> Figure {
    let service = service(len);
    let ms = |delay: Option<f64>| delay.map(|delay| delay * 1000.0);
    Figure {
        title: format!("Figure 4, {name}: packets of {CLEAR} bytes, {len} on the line"),
        caption: "The models differ most where the line is nearly full.".into(),
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

/// Voice that takes 0.6 ms of an engine, 200 times a second, and bulk that takes 4 ms.
fn engine() -> Part {
    const VOICE: Class = Class { rate: 200.0, service: 0.000_6 };
    let classes = |bulk: f64| [VOICE, Class { rate: bulk, service: 0.004 }];
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
        text: "Computed: mean waiting time before an engine that finishes what it has begun (Cobham 1954). 200 packets of voice a second take \
               0.6 ms each, and packets of bulk 4 ms. Above 220 of these a second there is more work than time."
            .into(),
        figures: vec![Figure {
            title: "Waiting for the engine".into(),
            caption: "With priority, voice waits for the packet in service and for other voice, however much bulk comes.".into(),
            x: Axis::linear("packets of bulk a second"),
            y: Axis::log("mean wait, ms"),
            series: vec![
                Series::ours("everybody, one queue", Shape::Line, points(&fifo)),
                Series::ours("voice, with priority", Shape::Line, points(&first)),
                Series::ours("bulk, behind voice", Shape::Line, points(&second)),
            ],
        }],
        findings: vec![Finding {
            what: "the engine harms voice because its queue knows no priority".into(),
            paper: "the main reason, rather than slow ciphers".into(),
            ours: format!(
                "200 packets of bulk a second: voice waits {} in one queue, {} with priority; 300: {} and {}",
                at(fifo(200.0)),
                at(first(200.0)),
                at(fifo(300.0)),
                at(first(300.0))
            ),
            agreement: Agreement::of(first(300.0).is_some() && fifo(300.0).is_none()),
            why: "The engine is as slow in both cases; only the order differs.".into(),
        }],
        ..Part::default()
    }
}

/// What a queue holds when more comes than the line can send.
const FULL_QUEUE: Duration = Duration::from_millis(100);
/// What is spent elsewhere, for play-out and other lines.
const ELSEWHERE: Duration = Duration::from_millis(60);

fn quality() -> Result<Part> {
    let ways = [("clear", None), ("aes128gcm16", Some("aes128gcm16")), ("3des-sha1", Some("3des-sha1"))];
    let mut series = Vec::new();
    let mut most = Vec::new();
    for (name, words) in ways {
        let plan = call(words)?;
        most.push(format!("{} {name}", plan.calls()));
        let points = (1..=8).filter_map(|calls| Some(Point::at(calls as f64, rating(plan, calls)?.mos())));
        series.push(Series::ours(name, Shape::Line, points));
    }
    let ends = [2, 3].map(|calls| {
        call(Some("aes128gcm16")).ok().and_then(|plan| rating(plan, calls)).map_or(0.0, Rating::mos)
    });
    Ok(Part {
        title: "How calls sound on a line that fills".into(),
        text: format!(
            "Computed: G.729A on 128 kbit/s over IPv4, with ITU-T G.107. {} ms from mouth to ear are spent elsewhere. When more calls come \
             than the line carries, its queue is full, which takes {} ms, and what has no room is lost.",
            ELSEWHERE.as_millis(),
            FULL_QUEUE.as_millis()
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
                "An AEAD tunnel adds 56 bytes to packets of 60. One call too many harms all of them: the score falls from {:.1} to {:.1}.",
                ends[0], ends[1]
            ),
        }],
        ..Part::default()
    })
}

/// A call with G.729A, in clear or in a tunnel.
fn call(words: Option<&str>) -> Result<Plan> {
    let codec = Codec::named("g729").ok_or_else(|| Error::new("G.729 is not known"))?;
    let stream = codec.stream(None).map_err(|error| Error::new(error.to_string()))?;
    let protection = match words {
        None => Protection::Clear,
        Some(words) => {
            let sizes = suite(words).map_err(Error::new)?.into();
            Protection::Esp(Esp { sizes, mode: Mode::Tunnel, encap: false })
        }
    };
    let wire = Wire { version: IpVersion::V4, protection, link: 0 };
    Ok(Plan { line: LINE, stream, packet: wire.packet_len(stream.payload) })
}

fn rating(plan: Plan, calls: u64) -> Option<Rating> {
    let impairment = Codec::named("g729")?.impairment?;
    let line = queue::periodic(calls, plan.stream.interval().as_secs_f64(), plan.serialisation());
    let line = line.map_or(FULL_QUEUE, Duration::from_secs_f64);
    let loss = (1.0 - plan.load(calls).recip()).max(0.0);
    let delay = plan.stream.interval() + impairment.look_ahead + line + ELSEWHERE;
    Some(Rating::of(impairment, delay, loss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_is_heard() {
        let plan = call(Some("aes128gcm16")).unwrap();
        assert_eq!((call(None).unwrap().calls(), plan.calls()), (5, 2));
        let mos = |calls| rating(plan, calls).unwrap().mos();
        assert!(mos(1) - mos(2) < 0.1 && mos(2) - mos(3) > 0.5, "{} {} {}", mos(1), mos(2), mos(3));
    }

    #[test]
    fn curves_stay_in_order() {
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
