//! `casemate calls`: how many calls a link carries, and their quality. The crate `casemate-calls` does the
//! arithmetic. This module has the arguments, with parsers for numbers with units.

mod output;

use crate::failure::Failure;
use crate::output::print;
use casemate_calls::codec::{CODECS, Codec, Stream};
use casemate_calls::packet::PacketFormat;
use casemate_calls::plan::Plan;
use casemate_calls::quality::Rating;
use casemate_calls::scheme::{self, Scheme, SchemeOptions, parse_suite};
use casemate_crypto::EspSuite;
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;
use clap::Args;
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
        let text = if args.json { output::json_line(&output::paper_json()) } else { output::paper_text() };
        return print(&text);
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
    let choices = choices(args)?;
    let answers: Vec<Answer> = choices
        .into_iter()
        .map(|choice| {
            let wire =
                PacketFormat { version, protection: choice.protection, link: args.link_overhead.into() };
            question.answer(choice, wire)
        })
        .collect();
    print(&if args.json {
        output::json_line(&output::json(&question, &answers))
    } else {
        output::text(&question, &answers)
    })
}

/// The ways to send a call that are shown.
fn choices(args: &CallsArgs) -> Result<Vec<Scheme>, Failure> {
    let &CallsArgs { mode, encap, no_udp_checksum, .. } = args;
    let options = SchemeOptions { mode, encap, has_udp_checksum: !no_udp_checksum };
    let Some(Suite { words, suite }) = &args.suite else { return Ok(scheme::common(options)) };
    if !args.rohc {
        return Ok(vec![Scheme::esp(words, (*suite).into(), options)]);
    }
    if mode != Mode::Tunnel {
        return Err(Failure::bad_input(
            "--rohc: --mode tunnel was expected, because RFC 5856 compresses the \
             headers inside a tunnel",
        ));
    }
    Ok(vec![Scheme::compressed_esp(words, (*suite).into(), options)])
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

const EXAMPLES: &str = "\
Examples:
  casemate calls --line 128k                                   G.729 in clear, over SRTP and each ESP suite
  casemate calls --line 128k --codec g729 --suite aes128gcm16  one suite, with its delay in detail
  casemate calls --line 128k --suite aes128ccm8iiv --rohc      implicit IVs and header compression
  casemate calls --line 2M --codec g711 --suite aes128-sha256 --encap --ipv6
  casemate calls --line 512k --codec g723 --delay 80ms --loss 1%
  casemate calls --line 10M --codec opus --frame 40ms --link-overhead 38   Ethernet, with preamble and gap
  casemate calls --line 128k --payload 40 --json | jq '.choices[] | {name, calls}'
  casemate calls --paper                                       a table of 2002 and its two misprints

The calculation covers one direction of the link; a call sends the same amount in the other direction. Suites
are written as in esp_proposals of swanctl.conf. The quality is that of ITU-T G.107 with its default
telephones and random loss, on a link that carries the maximum number of calls.";

/// Arguments of `calls`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CallsArgs {
    /// Rate of the link: 128k, 2M or 1G for kbit/s, Mbit/s and Gbit/s, or 56000bit.
    #[arg(long, value_name = "RATE", required_unless_present = "paper", value_parser = rate)]
    pub line: Option<u64>,
    /// Codec: g711, g722, g723, g726, g729, gsm-efr, ilbc or opus.
    #[arg(long, value_name = "NAME", default_value = "g729", value_parser = codec)]
    pub codec: Codec,
    /// Payload bytes per packet, for a codec that is not in the list.
    #[arg(long, value_name = "BYTES", conflicts_with = "codec", value_parser = clap::value_parser!(u16).range(1..))]
    pub payload: Option<u16>,
    /// Speech per packet [default: 20ms, or the codec's frame if that is longer]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub frame: Option<Duration>,
    /// A single suite instead of the usual ones, in the notation of esp_proposals.
    #[arg(long, value_name = "WORDS", value_parser = suite)]
    pub suite: Option<Suite>,
    /// Compress the headers inside the tunnel (ROHCv2), as with rohc = yes in swanctl.conf.
    #[arg(long, requires = "suite")]
    pub rohc: bool,
    /// Voice packets without UDP checksum, which compressed headers would contain.
    #[arg(long, conflicts_with = "ipv6")]
    pub no_udp_checksum: bool,
    /// Mode of ESP: tunnel or transport.
    #[arg(long, value_name = "MODE", default_value = "tunnel", value_parser = mode)]
    pub mode: Mode,
    /// Encapsulate ESP in UDP, as behind a NAT.
    #[arg(long)]
    pub encap: bool,
    /// Use IPv6 instead of IPv4 for the inner and the outer header.
    #[arg(long)]
    pub ipv6: bool,
    /// Bytes per packet of the link layer's framing.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub link_overhead: u16,
    /// Packet loss.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pub loss: f64,
    /// Mouth-to-ear delay outside of this link: other links, and the play-out buffer.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = time)]
    pub delay: Duration,
    /// Print a JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Print the table of the paper beside the exact values.
    #[arg(long, conflicts_with_all = ["line", "payload", "frame", "suite", "no_udp_checksum", "encap", "ipv6"])]
    pub paper: bool,
}

/// A suite with its name.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The name as given.
    pub words: String,
    /// The algorithms.
    pub suite: EspSuite,
}

fn suite(words: &str) -> Result<Suite, String> {
    parse_suite(words).map(|suite| Suite { words: words.into(), suite })
}

fn codec(keyword: &str) -> Result<Codec, String> {
    let known = || CODECS.map(|codec| codec.keyword).join(", ");
    Codec::named(keyword).copied().ok_or_else(|| format!("one of {} was expected", known()))
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "tunnel" => Ok(Mode::Tunnel),
        "transport" => Ok(Mode::Transport),
        _ => Err("tunnel or transport was expected".into()),
    }
}

/// Splits a non-negative number from its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    digits.parse().ok().map(|number| (number, unit))
}

fn rate(text: &str) -> Result<u64, String> {
    let bits = number(text).and_then(|(number, unit)| match unit {
        "bit" => Some(number),
        "k" => Some(number * 1e3),
        "M" => Some(number * 1e6),
        "G" => Some(number * 1e9),
        _ => None,
    });
    let whole = bits.filter(|bits| (1.0..=1e15).contains(bits)).map(|bits| bits.round() as u64);
    whole.ok_or_else(|| match number(text) {
        Some((_, "")) => format!(
            "the unit is missing: {text}k for kbit/s, {text}M for Mbit/s or {text}bit for bit/s was expected"
        ),
        _ => "bits per second such as 128k, 2M or 1G were expected".into(),
    })
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = number(text).and_then(|(number, unit)| match unit {
        "us" => Some(number / 1e6),
        "ms" => Some(number / 1e3),
        "s" => Some(number),
        _ => None,
    });
    let time = seconds.filter(|seconds| *seconds <= 3600.0).map(|seconds| (seconds * 1e6).round() as u64);
    time.map(Duration::from_micros).ok_or_else(|| "a time such as 20ms or 0.5s was expected".into())
}

fn percent(text: &str) -> Result<f64, String> {
    let part = number(text).filter(|(number, unit)| *unit == "%" && *number <= 100.0);
    part.map(|(number, _)| number / 100.0)
        .ok_or_else(|| "a percentage such as 1% or 0.5% was expected".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_parsed() {
        assert_eq!(
            [rate("128k"), rate("2M"), rate("1.5M"), rate("56000bit")].map(Result::unwrap),
            [128_000, 2_000_000, 1_500_000, 56_000]
        );
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!((percent("1%"), percent("0.5%")), (Ok(0.01), Ok(0.005)));
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for wrong in ["", "k", "0", "-1k", "128K", "1e9", "nan", "1..2", "128 k", "9999999G", "128"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            rate("128").unwrap_err(),
            "the unit is missing: 128k for kbit/s, 128M for Mbit/s or 128bit for bit/s was expected"
        );
        for wrong in ["20", "ms", "-1ms", "2h", "99999s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1", "101%", "%", "-1%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
