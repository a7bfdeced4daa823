//! Full load while keys change (`cargo xtask bench soak`): rekeying must lose no packet, and memory must
//! not grow.
//!
//! Two gateways rekey their Child SA every few seconds, each at its own times, so that rekeyings also
//! collide. Packets flow in both directions as fast as they arrive, so that no queue is ever
//! full.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use casemate_bench::cli::{self, CommonOptions, Program, number, value};
use casemate_bench::goal::{Bound, Goal};
use casemate_interop::{Background, Error, Result};
use casemate_testbed::gateway::{Gateway, IkeTunnel};
use casemate_testbed::packet_rate::{CountingSink, PORT};
use casemate_testbed::sys;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use serde_json::{Value, json};
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    cli::run::<Options>()
}

const HELP: &str = "Lost packets and memory under full load while keys change.

Usage: soak [--json] [--minutes N | --seconds N] [--rekey SECONDS] [--suite WORDS] [--programs DIR]

  --minutes N      duration (default: 10)
  --seconds N      duration in seconds
  --rekey SECONDS  rekey time (default: 5)
  --suite WORDS    suite, as in `esp_proposals` (default: aes128gcm16)
  --programs DIR   directory of `casemate` (default: that of this program)
  --json           print one JSON object
";

const MINUTE: u64 = 60;

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) common: CommonOptions,
    pub(crate) rekey: u32,
    pub(crate) suite: String,
}

impl Program for Options {
    const NAME: &str = "soak";
    const HELP: &str = HELP;

    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut common = CommonOptions::new(1, 10 * MINUTE)?;
        let (mut rekey, mut suite) = (5, "aes128gcm16".into());
        common.parse_all(words, |common, word, words| {
            match word {
                "--minutes" => {
                    let minutes = number(word, words.next(), 10_000)?;
                    common.seconds = Duration::from_secs(u64::from(minutes) * MINUTE);
                }
                "--rekey" => rekey = number(word, words.next(), 1_000)?,
                "--suite" => suite = value(word, words.next())?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { common, rekey, suite })
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn start(&self, directory: &Path) -> Result<bool> {
        let results = run(self, directory)?;
        Ok(show(&results, self))
    }
}

/// UDP payload: 1,200 bytes minus the headers of IPv4 and UDP.
const PAYLOAD: usize = 1_200 - 28;
/// Largest number of packets in flight. The queue of a TUN interface holds 500.
const WINDOW: u64 = 300;
/// Time that the sender sleeps when the window is full.
const PAUSE: Duration = Duration::from_micros(200);
/// Packets in flight are considered lost when nothing has arrived for this time. It is long because a
/// gateway that gets no CPU time for a while loses nothing, while additional packets would overflow a
/// queue.
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);

/// Counted packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
}

impl Count {
    /// Packets that did not arrive.
    pub(crate) const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }
}

/// Sockets of one direction.
pub(crate) struct Flow {
    pid: u32,
    socket: UdpSocket,
    sink: CountingSink,
}

impl Flow {
    /// Opens the sockets of the direction from this end to the other.
    pub(crate) fn open(veth: &VethPair, from: usize) -> Result<Self> {
        let sink = veth.run_in(1 - from, || CountingSink::bind(PORT))?;
        let socket = veth.run_in(from, || {
            let socket = UdpSocket::bind((INNER_ADDRS[from], 0))?;
            socket.connect((INNER_ADDRS[1 - from], PORT))?;
            Ok(socket)
        })?;
        Ok(Self { pid: veth.ends[from].pid(), socket, sink })
    }

    /// Sends until `is_over`, and then waits for the packets in flight.
    pub(crate) fn run(&mut self, is_over: &AtomicBool) -> io::Result<Count> {
        sys::enter_netns_of(self.pid)?;
        let (mut count, mut given_up, mut since) = (Count::default(), 0, Instant::now());
        loop {
            let arrived = self.sink.received()?;
            if arrived != count.arrived {
                (count.arrived, since) = (arrived, Instant::now());
            }
            let on_the_way = (count.sent - given_up).saturating_sub(arrived);
            let is_still = since.elapsed() > LOSS_TIMEOUT;
            if is_over.load(Ordering::Relaxed) {
                if on_the_way == 0 || is_still {
                    return Ok(count);
                }
            } else {
                if is_still {
                    (given_up, since) = (given_up + on_the_way, Instant::now());
                }
                for _ in on_the_way..WINDOW {
                    self.socket.send(&[0; PAYLOAD])?;
                    count.sent += 1;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Interval of the memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Memory counts from this number of rekeyings on, because buffers are allocated when they are first
/// needed.
const WARM_UP: u32 = 2;

/// Resident memory of a gateway, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) most: u64,
}

/// Results of the run.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) elapsed: Duration,
    /// Child SAs that replaced another one.
    pub(crate) rekeys: usize,
    /// Packets from the first end to the second, and back.
    pub(crate) counts: [Count; 2],
    pub(crate) memory: [Memory; 2],
    /// Drops of both gateways, by reason.
    pub(crate) drops: [Vec<(String, u64)>; 2],
}

pub(crate) fn run(options: &Options, directory: &Path) -> Result<Results> {
    let rekey = options.rekey;
    // The old keys receive for longer than any packet is in flight. A random time makes both ends rekey at
    // different times.
    let child = format!("rekey_time = {rekey}s\n rand_time = 1s\n life_time = {}s", rekey * 4 + 10);
    let tunnel = IkeTunnel { suite: &options.suite, connection: "", child: &child, scheduler: "" };
    let gateway = Gateway::in_directory(&options.common.programs)?;
    let veth = VethPair::new()?;
    let gateways =
        [tunnel.start(&gateway, &veth, 0, directory)?, tunnel.start(&gateway, &veth, 1, directory)?];
    veth.wait_until_connected()?;
    let flows = [Flow::open(&veth, 0)?, Flow::open(&veth, 1)?];
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    let (memory, counts) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let flows = flows.map(|mut flow| scope.spawn(move || flow.run(is_over)));
        let memory = sample_memory(&gateways, options);
        is_over.store(true, Ordering::Relaxed);
        let counts =
            flows.map(|flow| flow.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked"))));
        (memory, counts)
    });
    let [there, back] = counts.map(|count| count.map_err(Error::context("packets")));
    Ok(Results {
        elapsed: begin.elapsed(),
        rekeys: gateways[0].output().matches(", replaces {").count(),
        counts: [there?, back?],
        memory: memory?,
        drops: [gateway.drops(&veth, 0)?, gateway.drops(&veth, 1)?],
    })
}

/// Samples the memory of both gateways until the end of the run.
fn sample_memory(gateways: &[Background; 2], options: &Options) -> Result<[Memory; 2]> {
    let (start, warm_up) = (Instant::now(), Duration::from_secs((WARM_UP * options.rekey).into()));
    let memory =
        |which: usize| sys::resident_memory(gateways[which].pid()).map_err(Error::context("a gateway"));
    std::thread::sleep(warm_up.min(options.common.seconds / 2));
    let first = [memory(0)?, memory(1)?];
    let mut results = first.map(|begin| Memory { begin, end: begin, most: begin });
    while start.elapsed() < options.common.seconds {
        std::thread::sleep(SAMPLE_INTERVAL);
        for (which, results) in results.iter_mut().enumerate() {
            results.end = memory(which)?;
            results.most = results.most.max(results.end);
        }
    }
    Ok(results)
}

/// Goal for the growth of a gateway's memory, in MiB: none, except for temporary buffers.
const GROWTH: f64 = 1.0;

const DIRECTIONS: [&str; 2] = ["there", "back"];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn goals(results: &Results) -> [Goal; 2] {
    let lost: u64 = results.counts.iter().map(|count| count.lost()).sum();
    let growth = results.memory.map(|memory| mib(memory.end) - mib(memory.begin));
    [
        Goal {
            what: "packets lost".into(),
            bound: Bound::AtMost,
            wanted: 0.0,
            unit: "",
            got: (results.rekeys > 0).then_some(lost as f64),
        },
        Goal {
            what: "growth of a gateway's memory".into(),
            bound: Bound::AtMost,
            wanted: GROWTH,
            unit: " MiB",
            got: growth.into_iter().reduce(f64::max),
        },
    ]
}

/// Prints the results. Returns whether the goals are met.
pub(crate) fn show(results: &Results, options: &Options) -> bool {
    let goals = goals(results);
    if options.common.json {
        println!("{}", to_json(results, &goals, options));
    } else {
        print(results, options);
        println!("\nGoals");
        goals.iter().for_each(|goal| println!("  {}", goal.line()));
    }
    goals.iter().all(|goal| goal.got.is_some_and(|got| goal.bound.is_held(got, goal.wanted)))
}

fn print(results: &Results, options: &Options) {
    let seconds = results.elapsed.as_secs_f64();
    println!("{}; {}", options.suite, cli::describe_machine());
    println!("{seconds:.0} s, {} rekeys", results.rekeys);
    for (direction, count) in DIRECTIONS.iter().zip(&results.counts) {
        let Count { sent, .. } = count;
        let rate = *sent as f64 / seconds;
        println!("  {direction:<6} {sent} packets sent, {rate:.0} per second; {} lost", count.lost());
    }
    for (which, (memory, drops)) in results.memory.iter().zip(&results.drops).enumerate() {
        let Memory { begin, end, most } = memory;
        let [begin, end, most] = [begin, end, most].map(|bytes| format!("{:.2}", mib(*bytes)));
        println!("  gateway {}: {begin} MiB at the start, {end} at the end, maximum {most}", which + 1);
        for (reason, count) in drops {
            println!("    dropped {count}: {reason}");
        }
    }
}

fn to_json(results: &Results, goals: &[Goal], options: &Options) -> Value {
    let count = |count: Count| json!({ "sent": count.sent, "lost": count.lost() });
    let memory = |memory: Memory| json!({ "begin": memory.begin, "end": memory.end, "most": memory.most });
    json!({
        "machine": cli::describe_machine(),
        "suite": options.suite,
        "seconds": results.elapsed.as_secs_f64(),
        "rekeys": results.rekeys,
        "packets": results.counts.map(count),
        "memory": results.memory.map(memory),
        "drops": results.drops,
        "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn duration_is_in_minutes_or_seconds() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(String::from));
        assert_eq!(parse("--minutes 2 --rekey 3").unwrap().common.seconds, Duration::from_secs(120));
        assert_eq!(parse("--seconds 7").unwrap().common.seconds, Duration::from_secs(7));
        assert!(parse("--minutes 0").is_err() && parse("--rekey").is_err());
    }

    fn results(lost: u64, rekeys: usize) -> Results {
        let memory = Memory { begin: 10 << 20, end: 10 << 20, most: 11 << 20 };
        Results {
            elapsed: Duration::from_secs(60),
            rekeys,
            counts: [Count { sent: 100, arrived: 100 }, Count { sent: 100, arrived: 100 - lost }],
            memory: [memory; 2],
            drops: [Vec::new(), Vec::new()],
        }
    }

    #[test]
    fn goal_needs_a_rekey_and_no_lost_packet() {
        let held = |results: &Results| goals(results)[0].line();
        assert!(held(&results(0, 10)).starts_with("met"));
        assert!(held(&results(1, 10)).starts_with("not met"));
        assert!(held(&results(0, 0)).starts_with("not measured"));
    }
}
