//! `casemate trace`: follows the next packets of a flow through the running instance.
//!
//! The client checks the selector and asks the instance (`selector`). The instance runs the trace in its data
//! path and sends one line of JSON for each packet (`session`, with the facts of `facts`). The client prints
//! the lines in words (`render`) or as they are.

mod facts;
mod render;
mod selector;
mod session;

pub(crate) use session::RunningTrace;

use crate::control::{self, Request};
use crate::failure::Failure;
use crate::output;
use crate::printable;
use crate::why;
use casemate_linux::netlink::Netlink;
use clap::{Args, value_parser};
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  casemate trace src 10.1.0.0/16 dst 10.2.0.5 proto icmp   the next 10 packets, in both directions
  casemate trace dst 10.2.0.5 proto tcp dport 443 --count 2
  casemate trace peer 192.0.2.2 dir in                     what arrives from a peer
  casemate trace spi 0xc1e38f02 --json                     an object for each packet with this SPI

The selector has the words of `ip xfrm`, each with a value:
  src, dst      address or prefix of the packet without protection
  proto         protocol by name or number
  sport, dport  port; with proto tcp, udp, udplite, sctp or dccp
  type, code    of ICMP; with proto icmp or ipv6-icmp
  dscp          number from 0 to 63, or a name such as ef, af41 or cs5
  spi           SPI of the protected packet
  peer          address of the other end of the protected packet
  dir           in or out; without it, both
A packet must match all of them. The words from src to dscp also match the replies. They cannot match a
packet that is dropped before it is decrypted (no-sa, replay, icv-mismatch): use peer or spi for these.
Without a selector, all packets match.

The trace contains no key and no payload. docs/manual/trace.md explains the steps.";

/// Largest number of packets of a trace.
const MAX_COUNT: i64 = 1_000;
/// Longest duration of a trace in seconds.
const MAX_TIMEOUT: i64 = 3_600;

/// Arguments of `trace`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// Which packets to trace, such as `src 10.1.0.0/16 proto icmp`.
    #[arg(value_name = "SELECTOR")]
    pub selector: Vec<String>,
    /// End after so many packets.
    #[arg(long, value_name = "PACKETS", default_value_t = 10, value_parser = value_parser!(u16).range(1..=MAX_COUNT))]
    pub count: u16,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u16).range(1..=MAX_TIMEOUT))]
    pub timeout: u16,
    /// Print a JSON object for each packet instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let selector = args.selector.join(" ");
    selector::parse(&selector).map_err(Failure::bad_input)?;
    let request = Request::Trace { selector, count: args.count, timeout: args.timeout };
    let mut lines = control::stream(&request)?;
    let begin = next(&mut lines)?.ok_or_else(ended_early)?;
    if let Some(error) = begin.get("error").and_then(Value::as_str) {
        return Err(Failure::failed(error));
    }
    output::show_error(&format_args!(
        "tracing the next {} for at most {} s; Ctrl-C ends the trace",
        output::counted(args.count, "packet", "packets"),
        args.timeout
    ));
    let begin_shown = printable::value(begin.clone());
    for note in begin_shown.get("notes").and_then(Value::as_array).into_iter().flatten() {
        output::show_error(&format_args!(
            "{}; packets outside the negotiated selectors may not reach this instance",
            note.as_str().unwrap_or_default()
        ));
    }
    let mut routes = Routes::new(begin.get("mark").and_then(Value::as_u64).unwrap_or_default());
    while let Some(mut line) = next(&mut lines)? {
        if line.get("end").is_some() {
            output::show_error(&render::summary(&printable::value(line)));
            return Ok(());
        }
        routes.add_to(&mut line);
        let text = if args.json {
            format!("{}\n", printable::json(&line))
        } else {
            render::packet(&printable::value(line))
        };
        if !output::print_if_open(&text)? {
            return Ok(());
        }
    }
    Err(ended_early())
}

/// Looks up the routes of sent packets, as every user may.
struct Routes {
    netlink: Option<Netlink>,
    /// Mark of the packets that the instance sends.
    mark: u32,
}

impl Routes {
    fn new(mark: u64) -> Self {
        Self { netlink: Netlink::open().ok(), mark: u32::try_from(mark).unwrap_or_default() }
    }

    /// Adds the route to the destination of a packet, if the packet was sent.
    fn add_to(&mut self, packet: &mut Value) {
        let Some(netlink) = &mut self.netlink else { return };
        let Some(steps) = packet.get_mut("steps").and_then(Value::as_array_mut) else { return };
        let text = |step: &Value, name: &str| step.get(name).and_then(Value::as_str).map(str::to_owned);
        if steps.last().and_then(|last| text(last, "step")).as_deref() != Some("sent") {
            return;
        }
        // The outermost header; that of the source if the packet left in clear.
        let dst = steps.iter().rev().find_map(|step| text(step, "dst")?.parse().ok());
        let Some(dst) = dst else { return };
        let mut route = why::route(netlink, dst, self.mark);
        route.as_object_mut().map(|fields| fields.insert("step".into(), "route".into()));
        steps.push(route);
    }
}

/// The next line of the response; `None` at its end.
fn next(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Result<Option<Value>, Failure> {
    let Some(line) = lines.next() else { return Ok(None) };
    let line = line.map_err(Failure::failed)?;
    serde_json::from_str(&line).map(Some).map_err(|_| ended_early())
}

fn ended_early() -> Failure {
    Failure::failed("the instance has ended, or it ended the trace because nobody read it for 2 seconds")
}
