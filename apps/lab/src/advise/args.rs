//! Arguments of `advise`.

use casemate_advise::as_if::AsIf;
use casemate_advise::goal::Goal;
use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  casemate advise                                     highest throughput of one processor, simple IMIX; 10 s
  casemate advise --goal latency                      lowest delay of one small packet
  casemate advise --goal bytes --packet-size 64       fewest bytes, for a radio link
  casemate advise --goal calls --nat                  least bandwidth for a call, ESP in UDP
  casemate advise --profile cnsa                      rules in addition to RFC 8221 and RFC 8247
  casemate advise --profile own.toml                  rules of your own
  casemate advise --as-if no-aes                      as on a processor without AES instructions
  casemate advise --as-if clock=700MHz                scaled to a slower clock
  casemate advise --thorough                          also end to end through two gateways (root, two minutes)
  casemate advise --lines swanctl                     print only lines for swanctl.conf
  casemate advise --json --explain | jq .finalists    print every sample

Goals:
  throughput  bytes per second of sealing or opening, whichever is slower
  latency     time that sealing and opening add to one small packet
  cpu         processor time per byte
  battery     the same as `cpu`: energy is not measured, and processor time stands in for it
  bytes       bytes on the wire, calculated
  calls       bandwidth of a call, calculated

Profiles: rfc8221, iot, cnsa, suite-b-128, suite-b-256, or a file in the format of these profiles.

Algorithms that RFC 8221 or RFC 8247 list as MUST NOT or SHOULD NOT are never advised, whatever their speed
and the profile. NULL encryption is advised only with --integrity-only. With --lines xfrm, counter modes (GCM,
CCM, CTR, ChaCha20-Poly1305) are not advised either: RFC 8221 section 3 forbids them with manual keys.";

/// Arguments of `advise`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// Goal: throughput, latency, cpu, battery, bytes or calls.
    #[arg(long, value_name = "GOAL", default_value = "throughput", value_parser = goal)]
    pub goal: Goal,
    /// Additional rules: rfc8221, iot, cnsa, suite-b-128, suite-b-256, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Length of packets, instead of the simple IMIX.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(40..=1420))]
    pub packet_size: Option<u16>,
    /// Allow ESP without encryption.
    #[arg(long)]
    pub integrity_only: bool,
    /// Use transport mode between two hosts.
    #[arg(long)]
    pub host_to_host: bool,
    /// Encapsulate ESP in UDP, for a path with a NAT.
    #[arg(long)]
    pub nat: bool,
    /// Use IPv6 instead of IPv4 for the inner and the outer header.
    #[arg(long)]
    pub ipv6: bool,
    /// Simulate another device: no-aes, clock=700MHz, or both separated by a comma.
    #[arg(long, value_name = "WORDS", conflicts_with = "thorough")]
    pub as_if: Option<AsIf>,
    /// Measure for a second or two only.
    #[arg(long)]
    pub quick: bool,
    /// Then measure the best suites end to end, through two gateways in network namespaces.
    #[arg(long, conflicts_with_all = ["quick", "integrity_only", "host_to_host", "nat", "ipv6"])]
    pub thorough: bool,
    /// Show all samples.
    #[arg(long)]
    pub explain: bool,
    /// Print a JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print only lines for a configuration file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "explain", "thorough"])]
    pub lines: Option<Lines>,
}

/// The configuration file that lines are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// swanctl.conf: proposals of a connection and of its child.
    Swanctl,
    /// `ip xfrm state`: both directions, with fresh keys.
    Xfrm,
}

fn goal(word: &str) -> Result<Goal, String> {
    let words = Goal::ALL.map(Goal::word).join(", ");
    Goal::from_word(word).ok_or_else(|| format!("one of {words} was expected"))
}
