//! `casemate calls`: how many calls a link carries, and their quality. The crate `casemate-calls` does
//! the arithmetic.

pub mod args;
mod output;

use crate::failure::Failure;
use args::CallsArgs;
use casemate_calls::codec::{Codec, Stream};
use casemate_calls::packet::PacketFormat;
use casemate_calls::plan::Plan;
use casemate_calls::quality::Rating;
use casemate_calls::scheme::{self, Scheme};
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// Default frame without a codec: 50 packets per second, as in the paper.
const USUAL_FRAME: Duration = Duration::from_millis(20);

/// The parameters of the question.
struct Question {
    /// Rate of the link in bits per second.
    line: u64,
    /// `None` if only the payload length was given.
    codec: Option<Codec>,
    stream: Stream,
    /// Packet loss, from 0 to 1.
    loss: f64,
    elsewhere: Duration,
    /// Whether several suites are compared.
    is_comparison: bool,
}

/// The result for one kind of protection.
struct Answer {
    choice: Scheme,
    plan: Plan,
    /// `None` if the link carries no call.
    delay: Option<Delay>,
    /// `None` if the link carries no call, or if G.113 has no values for the codec.
    rating: Option<Rating>,
}

/// Mouth-to-ear delay by cause.
#[derive(Clone, Copy)]
struct Delay {
    /// Packetization: time to fill a packet.
    packet: Duration,
    /// Look-ahead of the codec.
    look_ahead: Duration,
    /// Average queueing and transmission time on the link.
    line: Duration,
    /// The value of `--delay`.
    elsewhere: Duration,
}

impl Delay {
    fn total(self) -> Duration {
        self.packet + self.look_ahead + self.line + self.elsewhere
    }
}

/// Runs the command.
pub fn calls(args: &CallsArgs) -> Result<(), Failure> {
    // The parser requires `--line` unless `--paper` is given.
    let Some(line) = args.line else {
        print!("{}", if args.json { output::json_line(&output::paper_json()) } else { output::paper_text() });
        return Ok(());
    };
    let question = Question {
        line,
        codec: args.payload.is_none().then_some(args.codec),
        stream: stream(args)?,
        loss: args.loss,
        elsewhere: args.delay,
        is_comparison: args.suite.is_none(),
    };
    let version = if args.ipv6 { IpVersion::V6 } else { IpVersion::V4 };
    let choices = match &args.suite {
        Some(given) => vec![Scheme::esp(&given.words, given.suite.into(), args.mode, args.encap)],
        None => scheme::common(args.mode, args.encap),
    };
    let answers: Vec<Answer> = choices
        .into_iter()
        .map(|choice| {
            let wire =
                PacketFormat { version, protection: choice.protection, link: args.link_overhead.into() };
            question.answer(choice, wire)
        })
        .collect();
    print!(
        "{}",
        if args.json {
            output::json_line(&output::json(&question, &answers))
        } else {
            output::text(&question, &answers)
        }
    );
    Ok(())
}

fn stream(args: &CallsArgs) -> Result<Stream, Failure> {
    let Some(payload) = args.payload else {
        let stream = args.codec.stream(args.frame);
        return stream
            .map_err(|error| Failure::bad_input(format!("--frame: {error} for {}", args.codec.name)));
    };
    let stream = Stream::new(payload.into(), args.frame.unwrap_or(USUAL_FRAME));
    stream.ok_or_else(|| Failure::bad_input("--frame: a time above 0 was expected"))
}

impl Question {
    fn answer(&self, choice: Scheme, wire: PacketFormat) -> Answer {
        let plan = Plan {
            line_rate: self.line,
            stream: self.stream,
            packet_len: wire.packet_len(self.stream.payload),
        };
        let impairment = self.codec.and_then(|codec| codec.impairment);
        let delay = plan.delay_when_full().map(|line| Delay {
            packet: self.stream.interval(),
            look_ahead: impairment.map_or(Duration::ZERO, |impairment| impairment.look_ahead),
            line: Duration::from_secs_f64(line),
            elsewhere: self.elsewhere,
        });
        let rating =
            delay.zip(impairment).map(|(delay, impairment)| Rating::of(impairment, delay.total(), self.loss));
        Answer { choice, plan, delay, rating }
    }

    /// A title that describes the traffic.
    fn title(&self) -> String {
        let name = self.codec.map_or("speech", |codec| codec.name);
        let Stream { payload, .. } = self.stream;
        format!(
            "{name}, {payload} bytes every {:?}, on a line of {}",
            self.stream.interval(),
            output::rate(self.line)
        )
    }
}
