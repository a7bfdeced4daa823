//! Ten thousand tunnels between two gateways, compared with one tunnel (`cargo xtask bench many`): the
//! memory of an idle tunnel, and the throughput of all tunnels relative to one tunnel with the same
//! packets.
//!
//! In each round, every provider is measured with one tunnel and with all tunnels, with new
//! namespaces and gateways. Everything runs on two CPUs.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use casemate_bench::cli::{self, CommonOptions, Program, number};
use casemate_bench::goal::{Bound, Goal};
use casemate_interop::{Background, ENCAP_PORT, Error, Result};
use casemate_measure::stats::Spread;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::packet_rate::{self, PORT, PacketRate};
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use casemate_testbed::{Meter, sys};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

fn main() -> ExitCode {
    cli::run::<Options>()
}

/// Measurements with one provider.
#[derive(Debug)]
pub(crate) struct ProviderRounds {
    provider: &'static str,
    /// One pair for each round.
    pairs: Vec<Pair>,
}

fn rounds(options: &Options, directory: &Path) -> Result<Vec<ProviderRounds>> {
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let second = if casemate_ring::RING.is_fastest() { "ring" } else { "aws-lc" };
    let mut gateways = vec![(second, gateway.clone().without_ipsec_mb(directory)?)];
    match casemate_ipsec_mb::IPSEC_MB.available() {
        Ok(()) => gateways.push(("ipsec-mb", gateway)),
        Err(absent) => eprintln!("skipped: ipsec-mb: {absent}"),
    }
    let empty = |provider: &&'static str| ProviderRounds { provider, pairs: Vec::new() };
    let mut all: Vec<ProviderRounds> = gateways.iter().map(|(name, _)| empty(name)).collect();
    for round in 1..=options.common.rounds {
        for ((name, gateway), rounds) in gateways.iter().zip(&mut all) {
            let run = |tunnels: u32| {
                let directory = directory.join(format!("{round}-{name}-{tunnels}"));
                let load = Load { tunnels, addresses: options.tunnels };
                run(gateway, load, options.common.seconds, &directory)
            };
            let pair = Pair { one: run(1)?, all: run(options.tunnels)?, tunnels: options.tunnels };
            eprintln!("round {round}: {name}: {}", pair.line());
            rounds.pairs.push(pair);
        }
    }
    Ok(all)
}

const HELP: &str = "Memory and throughput of ten thousand tunnels, compared with one tunnel.

Usage: many [--json] [--rounds N] [--seconds N] [--tunnels N] [--programs DIR]

  --tunnels N     number of tunnels, at least 2 (default: 10000)
  --rounds N      rounds; each measures every provider with one tunnel and with all (default: 3)
  --seconds N     duration of a measurement (default: 4)
  --programs DIR  directory of `casemate` (default: that of this program)
  --json          print one JSON object
";

/// Limited by the number of addresses.
const MOST: u32 = 60_000;

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) tunnels: u32,
}

impl Program for Options {
    const NAME: &str = "many";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut common, mut tunnels) = (CommonOptions::new(3, 4)?, 10_000);
        common.parse_all(words, |_, word, words| {
            let is_known = word == "--tunnels";
            if is_known {
                tunnels = number(word, words.next(), MOST)?.max(2);
            }
            Ok(is_known)
        })?;
        Ok(Self { common, tunnels })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        show(&rounds(self, directory)?, self);
        Ok(true)
    }
}

/// Length of a packet, IPv4 header included, and of its headers. Packets are small because the measurement
/// is about the look-up of SAs.
const LENGTH: usize = 256;
const HEADERS: usize = 28;

/// Longest time that a full queue may block the sender.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);

/// Result of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) traffic: PacketRate,
    /// Resident bytes of the first gateway before the first packet, and after the last one.
    pub(crate) idle: u64,
    pub(crate) used: u64,
}

/// Tunnels, and the traffic through them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tunnels: u32,
    /// Number of destinations, to which packets are sent in turn. It is the same with one tunnel, so that
    /// only the number of tunnels differs.
    pub(crate) addresses: u32,
}

/// Measures a pair of gateways under this load.
pub(crate) fn run(gateway: &Gateway, load: Load, seconds: Duration, directory: &Path) -> Result<Turn> {
    let Load { tunnels, addresses } = load;
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let veth = VethPair::new()?;
    let (own, via) = (INNER_ADDRS[0], LINK_ADDRS[1]);
    veth.ends[0].ip(&format!("route add {NETWORK} via {via} src {own}\n"))?;
    veth.ends[1]
        .ip(&format!("route add local {NETWORK} dev lo\nroute add {own}/32 via {}\n", LINK_ADDRS[0]))?;
    let start = |end: usize| {
        let file = directory.join(format!("{end}.xfrm"));
        fs::write(&file, xfrm(end, tunnels)).map_err(Error::context(file.display()))?;
        let counters = directory.join(format!("{end}.counters"));
        gateway.start(&veth, end, ["--xfrm".into(), file, "--counters".into(), counters], directory)
    };
    let processes: Vec<Background> = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
    let memory = || sys::resident_memory(processes[0].pid()).map_err(Error::context("a gateway"));
    let idle = memory()?;
    veth.wait_for_ping(&address(0).to_string())?;
    let traffic = packet_rate::measure(&veth, &Meter::new(&processes), seconds, || open(addresses))?;
    Ok(Turn { traffic, idle, used: memory()? })
}

/// Sends one packet to each address in turn.
fn open(addresses: u32) -> io::Result<impl FnMut()> {
    let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    let mut next = 0;
    Ok(move || {
        next = (next + 1) % addresses;
        // A packet that cannot be sent counts as lost.
        let _ = socket.send_to(&[0; LENGTH - HEADERS], SocketAddrV4::new(address(next), PORT));
    })
}

/// Destination addresses of the packets: one for each possible tunnel.
pub(crate) const NETWORK: &str = "10.128.0.0/16";

/// Destination address number `n`.
pub(crate) fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + n)
}

/// SAs and policies of one end, with AES-GCM in UDP. A single tunnel covers all addresses; otherwise each
/// tunnel covers one address.
pub(crate) fn xfrm(end: usize, tunnels: u32) -> String {
    let mut lines = String::new();
    for n in 0..tunnels {
        let far = if tunnels == 1 { NETWORK.into() } else { format!("{}/32", address(n)) };
        let near = format!("{}/32", INNER_ADDRS[0]);
        for from in [0, 1] {
            let (src, dst) = (LINK_ADDRS[from], LINK_ADDRS[1 - from]);
            let (behind, other) = if from == 0 { (&near, &far) } else { (&far, &near) };
            let direction = if from == end { "out" } else { "in" };
            // Each SA has its own key. The keys protect nothing.
            let (spi, key) = (0x100 + n, 2 * n + from as u32);
            let _ = write!(
                lines,
                "xfrm state add src {src} dst {dst} proto esp spi {spi:#x} mode tunnel replay-window 1024 \
                 aead 'rfc4106(gcm(aes))' 0x{key:040x} 128 encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0 \
                 reqid {reqid}\n\
                 xfrm policy add src {behind} dst {other} dir {direction} \
                 tmpl src {src} dst {dst} proto esp mode tunnel reqid {reqid}\n",
                reqid = n + 1
            );
        }
    }
    lines
}

/// Goal for the throughput of all tunnels, relative to one tunnel.
const SHARE: f64 = 0.8;
/// Goal for the memory of a tunnel, in KiB.
const KIB: f64 = 12.0;

/// Measurements of a round with one tunnel, and with all tunnels.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) one: Turn,
    pub(crate) all: Turn,
    pub(crate) tunnels: u32,
}

/// Column of the table.
struct Column {
    name: &'static str,
    key: &'static str,
    digits: usize,
    value: fn(&Pair) -> f64,
}

const COLUMNS: [Column; 8] = [
    Column { name: "1: packets/s", key: "one", digits: 0, value: |pair| pair.one.traffic.packets_per_second },
    Column {
        name: "all: packets/s",
        key: "all",
        digits: 0,
        value: |pair| pair.all.traffic.packets_per_second,
    },
    Column { name: "all, times 1", key: "share", digits: 2, value: Pair::share },
    Column { name: "1: CPU, us/packet", key: "one_cpu_us", digits: 2, value: |pair| pair.one.traffic.cpu_us },
    Column {
        name: "all: CPU, us/packet",
        key: "all_cpu_us",
        digits: 2,
        value: |pair| pair.all.traffic.cpu_us,
    },
    Column { name: "share lost", key: "lost", digits: 5, value: |pair| pair.all.traffic.loss },
    Column { name: "idle tunnel, KiB", key: "idle_kib", digits: 2, value: |pair| pair.kib(|turn| turn.idle) },
    Column { name: "used tunnel, KiB", key: "used_kib", digits: 2, value: |pair| pair.kib(|turn| turn.used) },
];

impl Pair {
    /// Throughput of all tunnels, relative to one tunnel.
    fn share(&self) -> f64 {
        self.all.traffic.packets_per_second / self.one.traffic.packets_per_second
    }

    /// Memory of the gateway for each additional tunnel, in KiB.
    fn kib(&self, memory: fn(&Turn) -> u64) -> f64 {
        let more = memory(&self.all) as f64 - memory(&self.one) as f64;
        more / f64::from(self.tunnels - 1) / 1_024.0
    }

    /// One line about a round, for people.
    pub(crate) fn line(&self) -> String {
        let columns = COLUMNS.iter();
        let words =
            columns.map(|column| format!("{} {:.*}", column.name, column.digits, (column.value)(self)));
        words.collect::<Vec<_>>().join("; ")
    }
}

fn spread(pairs: &[Pair], value: fn(&Pair) -> f64) -> Option<Spread> {
    Spread::of(pairs.iter().map(value))
}

fn goals(all: &[ProviderRounds]) -> Vec<Goal> {
    let of = |ProviderRounds { provider: name, pairs }: &ProviderRounds| {
        let median = |value| spread(pairs, value).map(|spread| spread.median);
        [
            Goal {
                what: format!("{name}: throughput of all tunnels, relative to one"),
                bound: Bound::AtLeast,
                wanted: SHARE,
                unit: "",
                got: median(Pair::share),
            },
            Goal {
                what: format!("{name}: memory of an idle tunnel"),
                bound: Bound::AtMost,
                wanted: KIB,
                unit: " KiB",
                got: median(|pair| pair.kib(|turn| turn.idle)),
            },
        ]
    };
    all.iter().flat_map(of).collect()
}

/// Prints the results.
pub(crate) fn show(all: &[ProviderRounds], options: &Options) {
    if options.common.json {
        return println!("{}", to_json(all, options));
    }
    println!(
        "{} tunnels; median (minimum-maximum) of the rounds; {}",
        options.tunnels,
        cli::describe_machine()
    );
    for ProviderRounds { provider, pairs } in all {
        println!("\n{provider}");
        for Column { name, digits, value, .. } in &COLUMNS {
            let text = spread(pairs, *value).map(|spread| spread.text(*digits));
            println!("  {name:<22} {}", text.unwrap_or_default());
        }
    }
    println!("\nGoals");
    goals(all).iter().for_each(|goal| println!("  {}", goal.line()));
}

fn to_json(all: &[ProviderRounds], options: &Options) -> Value {
    let provider = |ProviderRounds { provider: name, pairs }: &ProviderRounds| {
        let mut provider = json!({ "name": name, "rounds": pairs.len() });
        for column in &COLUMNS {
            provider[column.key] = json!(spread(pairs, column.value).map(Spread::json));
        }
        provider
    };
    json!({
        "machine": cli::describe_machine(),
        "tunnels": options.tunnels,
        "providers": all.iter().map(provider).collect::<Vec<_>>(),
        "goals": goals(all).iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_app::xfrm::XfrmFile;
    use casemate_testbed::packet_rate::PacketRate;

    #[test]
    fn number_of_tunnels_is_bounded() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--tunnels 100 --rounds 1").unwrap().tunnels, 100);
        assert!(parse("--tunnels 60001").is_err() && parse("100").is_err());
    }

    #[test]
    fn every_tunnel_has_an_sa_and_a_policy_in_each_direction() {
        let file = XfrmFile::parse(xfrm(0, 300).as_bytes()).unwrap();
        assert_eq!((file.states.len(), file.policies.len()), (600, 600));
        assert_eq!(address(299), Ipv4Addr::new(10, 128, 1, 43));
    }

    #[test]
    fn memory_of_a_tunnel_is_the_increase() {
        let turn = |packets_per_second, idle| Turn {
            traffic: PacketRate { packets_per_second, cpu_us: 1.0, loss: 0.0 },
            idle,
            used: idle,
        };
        let pair = Pair { one: turn(100.0, 1 << 20), all: turn(90.0, (1 << 20) + 99 * 2_048), tunnels: 100 };
        assert_eq!((pair.share(), pair.kib(|turn| turn.idle)), (0.9, 2.0));
        let lines: Vec<String> = goals(&[ProviderRounds { provider: "aws-lc", pairs: vec![pair] }])
            .iter()
            .map(Goal::line)
            .collect();
        assert!(lines.iter().all(|line| line.starts_with("met: aws-lc")), "{lines:?}");
    }
}
