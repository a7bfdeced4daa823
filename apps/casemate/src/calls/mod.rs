//! `casemate calls`: how many calls a line carries, and how they sound. The arithmetic is that of the crate `casemate-calls`.

pub mod args;
mod json;
mod paper;
mod text;

use crate::failure::Failure;
use args::CallsArgs;
use casemate_calls::choice::{self, Choice};
use casemate_calls::codec::{Codec, Stream};
use casemate_calls::packet::Wire;
use casemate_calls::plan::Plan;
use casemate_calls::quality::Rating;
use casemate_wire::ip::IpVersion;
use std::time::Duration;

/// Without a codec: 50 packets a second, as the paper has it.
const USUAL_FRAME: Duration = Duration::from_millis(20);

/// What was asked.
struct Question {
    /// Bits a second.
    line: u64,
    /// None if only a number of bytes was given.
    codec: Option<Codec>,
    stream: Stream,
    /// From 0 to 1.
    loss: f64,
    elsewhere: Duration,
    /// Side by side, or one.
    is_comparison: bool,
}

/// What becomes of a call that is sent in one way.
struct Answer {
    choice: Choice,
    plan: Plan,
    /// None if the line carries no call.
    delay: Option<Delay>,
    /// None if the line carries no call, or if G.113 has no values for the codec.
    rating: Option<Rating>,
}

/// From mouth to ear.
#[derive(Clone, Copy)]
struct Delay {
    /// Until a packet has its speech.
    packet: Duration,
    /// What the codec waits for beyond that.
    look_ahead: Duration,
    /// Waiting for the line and being sent, on average.
    line: Duration,
    /// What `--delay` says.
    elsewhere: Duration,
}

impl Delay {
    fn total(self) -> Duration {
        self.packet + self.look_ahead + self.line + self.elsewhere
    }
}

/// Runs the command.
pub fn calls(args: &CallsArgs) -> Result<(), Failure> {
    // The parser asks for a line unless the paper is wanted.
    let Some(line) = args.line else {
        print!("{}", if args.json { json::line(&paper::json()) } else { paper::text() });
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
        Some(given) => vec![Choice::esp(&given.words, given.suite.into(), args.mode, args.encap)],
        None => choice::usual(args.mode, args.encap),
    };
    let answers: Vec<Answer> = choices
        .into_iter()
        .map(|choice| {
            let wire = Wire { version, protection: choice.protection, link: args.link_overhead.into() };
            question.answer(choice, wire)
        })
        .collect();
    print!(
        "{}",
        if args.json { json::line(&json::of(&question, &answers)) } else { text::of(&question, &answers) }
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
    stream.ok_or_else(|| Failure::bad_input("--frame: more than no time was expected"))
}

impl Question {
    fn answer(&self, choice: Choice, wire: Wire) -> Answer {
        let plan =
            Plan { line: self.line, stream: self.stream, packet: wire.packet_len(self.stream.payload) };
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

    /// What is sent, in words.
    fn title(&self) -> String {
        let name = self.codec.map_or("speech", |codec| codec.name);
        let Stream { payload, .. } = self.stream;
        format!(
            "{name}, {payload} bytes every {:?}, on a line of {}",
            self.stream.interval(),
            text::rate(self.line)
        )
    }
}
