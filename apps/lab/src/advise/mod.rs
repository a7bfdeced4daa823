//! `casemate advise`: recommends settings for this device, based on measurements. The crate
//! `casemate-advise` does the work with the providers of this program.

mod encapsulation;
mod xfrm_lines;

use casemate_advise::advice::Advice;
use casemate_advise::as_if::AsIf;
use casemate_advise::end_to_end::{self, EndToEnd, EndToEndPlan, EndToEndRequest};
use casemate_advise::goal::{Goal, Mix, UseCase};
use casemate_advise::measure::{Budget, Session, measure_key_exchanges};
use casemate_advise::probe::Device;
use casemate_advise::rank::{ScoredSuite, rank};
use casemate_advise::rules::{Filter, Keying, Profile};
use casemate_advise::settings::Settings;
use casemate_advise::suites;
use casemate_app::failure::Failure;
use casemate_app::lab_program::RunnableArgs;
use casemate_app::output;
use casemate_app::providers;
use casemate_crypto::Provider;
use casemate_sa::Mode;
use casemate_testbed::CpuFeatureMask;
use casemate_wire::ip::IpVersion;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::Value;
use std::process::Command;

/// Steps of the progress bar.
const STEPS: f64 = 1_000.0;

const EXAMPLES: &str = "\
Examples:
  casemate advise                                     highest throughput of one processor, simple IMIX; 20 s
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

Profiles: rfc8221, iot, cnsa, cnsa2, suite-b-128, suite-b-256, or a file in the format of these profiles.

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
    /// Additional rules: rfc8221, iot, cnsa, cnsa2, suite-b-128, suite-b-256, or a file.
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
    /// The peer is not Casemate: no implicit IVs and no header compression for the goals bytes and calls.
    #[arg(long)]
    pub other_peer: bool,
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
    /// Measure one TCP stream through ESP in UDP and through ESP with this suite, and print the samples.
    #[arg(long, value_name = "SUITE", hide = true)]
    pub measure_encapsulation: Option<String>,
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

impl RunnableArgs for AdviseArgs {
    fn run(&self) -> Result<(), Failure> {
        if let Some(suite) = &self.measure_encapsulation {
            return encapsulation::run(suite);
        }
        let as_if = self.as_if.unwrap_or_default();
        if as_if.no_aes && !is_masked()? {
            return run_masked();
        }
        let answer = answer(self)?;
        let text = match self.lines {
            Some(Lines::Swanctl) => answer.settings.swanctl(),
            Some(Lines::Xfrm) => xfrm_lines::lines(&answer)?.to_string(),
            None if self.json => format!("{:#}\n", answer.json(self.explain)),
            None => answer.text(self.explain),
        };
        output::print(&text)
    }
}

fn answer(args: &AdviseArgs) -> Result<Advice, Failure> {
    let as_if = args.as_if.unwrap_or_default();
    let profile = args.profile.as_deref().map(Profile::named).transpose().map_err(Failure::bad_input)?;
    let filter = Filter::new(profile, args.integrity_only).map_err(Failure::bad_input)?;
    let keying = if args.lines == Some(Lines::Xfrm) { Keying::Manual } else { Keying::Negotiated };
    let sorted = suites::classify(&filter, keying, args.goal, !args.other_peer);
    // Header compression serves the goals about lengths only.
    let saves_bytes = args.goal.is_exact() && !args.other_peer;
    let device = Device::probe();
    let slower = as_if.slowdown(device.clock_mhz).map_err(Failure::failed)?;
    let (providers, use_case) = (providers_for(as_if.no_aes), use_case(args));
    let effort = if args.quick { Budget::QUICK } else { Budget::USUAL };
    let session = Session {
        providers: &providers,
        use_case: &use_case,
        goal: args.goal,
        budget: effort,
        slowdown: slower,
    };
    // The bar is hidden if standard error is not a terminal.
    let bar = ProgressBar::new(STEPS as u64);
    let found = session.measure(&sorted.candidates, |share| bar.set_position((share * STEPS) as u64));
    bar.finish_and_clear();
    let spots = sorted
        .candidates
        .iter()
        .filter_map(|one| ScoredSuite::new(one, &found.finalists, args.goal, &use_case));
    let places = rank(spots.collect(), args.goal);
    let kex = measure_key_exchanges(&providers, slower);
    let mut settings = Settings::recommend(&places, &found.finalists, &kex, &filter, &use_case, args.goal)
        .ok_or_else(|| {
            Failure::failed(
                "the rules exclude every suite that the providers support: see --profile and --lines",
            )
        })?;
    if let Some(first) = places.first().filter(|_| saves_bytes) {
        settings = settings.with_header_compression(first.scored.suite, &use_case);
    }
    let encapsulation = encapsulation::measure(args, &settings.esp);
    settings = settings.with_encapsulation(encapsulation.as_ref().map_err(String::as_str), &use_case);
    let mut answer = Advice {
        device,
        as_if,
        providers: names(&providers),
        goal: args.goal,
        use_case,
        filter,
        suites: sorted,
        measurements: found,
        ranking: places,
        kex,
        settings,
        encapsulation,
        end_to_end: None,
        notes: Vec::new(),
    };
    if args.thorough {
        answer.end_to_end = Some(end_to_end(&answer));
    }
    answer.notes.extend(without_aes(args, &answer));
    Ok(answer)
}

/// Measures the best suites end to end through two gateways that run this program. An error is part of
/// the answer.
fn end_to_end(answer: &Advice) -> Result<EndToEnd, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = program.parent().ok_or("the directory of this program is unknown")?;
    let bar = ProgressBar::new_spinner();
    let Advice { ranking: places, goal, use_case, settings, .. } = answer;
    let tell = |what: &str| bar.set_message(what.to_owned());
    let question = EndToEndRequest { ranking: places, goal: *goal, mix: &use_case.mix, settings };
    let found = end_to_end::measure(&question, directory, EndToEndPlan::USUAL, tell);
    bar.finish_and_clear();
    found.map_err(|error| error.to_string())
}

fn goal(word: &str) -> Result<Goal, String> {
    let words = Goal::ALL.map(Goal::word).join(", ");
    Goal::from_word(word).ok_or_else(|| format!("one of {words} was expected"))
}

/// The traffic and the path of the use case.
fn use_case(args: &AdviseArgs) -> UseCase {
    UseCase {
        mix: args.packet_size.map_or_else(Mix::simple, |size| Mix::single(size.into())),
        mode: if args.host_to_host { Mode::Transport } else { Mode::Tunnel },
        version: if args.ipv6 { IpVersion::V6 } else { IpVersion::V4 },
        behind_nat: args.nat,
    }
}

/// The providers of `casemate run`. Without AES instructions only AWS-LC can be measured: the others
/// detect the processor themselves.
fn providers_for(no_aes: bool) -> Vec<&'static dyn Provider> {
    if no_aes { vec![&casemate_aws_lc::AWS_LC] } else { providers::modern() }
}

/// Names of the available providers in order of preference, and why Intel's library is not among them.
fn names(providers: &[&dyn Provider]) -> Vec<String> {
    let names = providers.iter().map(|provider| provider.name().to_owned());
    let absent = casemate_ipsec_mb::IPSEC_MB.available().err().map(|why| format!("no ipsec-mb ({why})"));
    names.chain(absent).collect()
}

/// Whether this process runs without AES instructions.
fn is_masked() -> Result<bool, Failure> {
    let mask = CpuFeatureMask::NO_AES.ok_or_else(|| {
        Failure::bad_input("--as-if no-aes: AWS-LC cannot disable instructions on this architecture")
    })?;
    Ok(mask.is_active())
}

/// Runs the program with the same arguments without AES instructions. Its output is the result.
fn run_masked() -> Result<(), Failure> {
    let mut command = again().map_err(Failure::failed)?;
    let status = command.args(std::env::args_os().skip(1)).status().map_err(Failure::failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::failed(format!("without AES instructions: {status}")))
    }
}

/// A note on the suite that would be best without AES instructions, if this processor has them and can work
/// without them.
fn without_aes(args: &AdviseArgs, answer: &Advice) -> Option<String> {
    let is_known = answer.device.has_aes() && answer.as_if == AsIf::default() && !answer.goal.is_exact();
    if !is_known || args.quick || args.lines.is_some() || CpuFeatureMask::NO_AES.is_none() {
        return None;
    }
    let own = answer.first()?.to_string();
    Some(match first_without_aes(args) {
        Ok(first) if first == own => {
            format!("Without AES instructions {first} would be first as well (--as-if no-aes).")
        }
        Ok(first) => format!("Without AES instructions {first} would be first (--as-if no-aes)."),
        Err(why) => format!("Which suite would be first without AES instructions was not measured: {why}"),
    })
}

/// Measures briefly which suite is best without AES instructions, in another process.
fn first_without_aes(args: &AdviseArgs) -> Result<String, String> {
    let mut command = again().map_err(|error| error.to_string())?;
    command.args(["advise", "--as-if", "no-aes", "--quick", "--json", "--goal", args.goal.word()]);
    let flags = [("--integrity-only", args.integrity_only), ("--host-to-host", args.host_to_host)];
    command.args(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    command.args(args.packet_size.map(|size| format!("--packet-size={size}")));
    command.args(args.profile.as_ref().map(|profile| format!("--profile={profile}")));
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{}; {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    let other: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let first = other.pointer("/ranking/0/suite").and_then(Value::as_str);
    first.map(str::to_owned).ok_or_else(|| "the ranking is empty".to_owned())
}

fn again() -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.envs(CpuFeatureMask::NO_AES.map(CpuFeatureMask::env_var));
    Ok(command)
}
