//! Arguments of `advise`.

use casemate_advise::as_if::AsIf;
use casemate_advise::goal::Goal;
use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  casemate advise                                     the most bytes a second through one processor, simple IMIX; some ten seconds
  casemate advise --goal latency                      one small packet at a time
  casemate advise --goal bytes --packet-size 64       a radio, where every byte costs
  casemate advise --goal calls --nat                  the least of a line for a call, ESP in UDP
  casemate advise --profile cnsa                      rules on top of RFC 8221 and RFC 8247; also iot, suite-b-128, suite-b-256
  casemate advise --profile own.toml                  your own: the files of the program show how they are written
  casemate advise --as-if no-aes                      measured as on a processor without AES instructions
  casemate advise --as-if clock=700MHz                scaled to a slower clock
  casemate advise --thorough                          and then end to end, through two gateways (root, some two minutes)
  casemate advise --lines swanctl                     lines for swanctl.conf and nothing else
  casemate advise --json --explain | jq .finalists    every sample

Goals:
  throughput  bytes a second; the slower of sealing and opening decides
  latency     time that sealing and opening add to one small packet
  cpu         processor time for a byte
  battery     the same: nothing here measures energy, and processor time stands in for it
  bytes       bytes on the air, which is arithmetic
  calls       what a call takes of a line, which is arithmetic too

What RFC 8221 or RFC 8247 says MUST NOT or SHOULD NOT to is never advised, however fast it is, whatever the profile says.
NULL encryption is advised only with --integrity-only. With --lines xfrm, counter modes (GCM, CCM, CTR, ChaCha20-Poly1305) are
not advised either: with manual keys they MUST NOT be used (RFC 8221 section 3).";

/// Arguments of `advise`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// What is wanted: throughput, latency, cpu, battery, bytes or calls.
    #[arg(long, value_name = "GOAL", default_value = "throughput", value_parser = goal)]
    pub goal: Goal,
    /// More rules: rfc8221, iot, cnsa, suite-b-128, suite-b-256, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Packets of this length instead of the simple IMIX.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(40..=1420))]
    pub packet_size: Option<u16>,
    /// Packets may be readable: ESP without encryption may be advised.
    #[arg(long)]
    pub integrity_only: bool,
    /// Both ends are the hosts themselves: transport mode.
    #[arg(long)]
    pub host_to_host: bool,
    /// A NAT is on the way: ESP in UDP.
    #[arg(long)]
    pub nat: bool,
    /// IPv6 instead of IPv4, inside and outside of the tunnel.
    #[arg(long)]
    pub ipv6: bool,
    /// Another device: no-aes, clock=700MHz, or both with a comma between.
    #[arg(long, value_name = "WORDS", conflicts_with = "thorough")]
    pub as_if: Option<AsIf>,
    /// A first impression, in a second or two.
    #[arg(long)]
    pub quick: bool,
    /// Then measure the best ones end to end, through two gateways in network namespaces.
    #[arg(long, conflicts_with_all = ["quick", "integrity_only", "host_to_host", "nat", "ipv6"])]
    pub thorough: bool,
    /// Show every sample.
    #[arg(long)]
    pub explain: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print lines for a configuration, and nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "explain", "thorough"])]
    pub lines: Option<Lines>,
}

/// Which configuration lines are for.
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
