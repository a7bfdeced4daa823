//! A device as a process: smoltcp with Casemate on a TAP interface (docs/manual/smoltcp.md).
//!
//! ```text
//!  standard input -- commands --+
//!                               v
//!   services: echo 7, HTTP 80, discard 5001     jobs: ping, TCP to an echo service, IKE commands
//!                               |
//!                         smoltcp -- IpsecDevice -- Ethernet -- TAP
//! ```
//!
//! The test matrices of verify/interop use it in place of Casemate on Linux. Each line of standard input
//! is a command, and the response is a line `0 TEXT` for success or `1 TEXT` for failure. The device
//! exits at the end of the input. Events are logged to standard error.
#![allow(clippy::print_stdout, reason = "the output is the result")]

mod config;
mod jobs;
mod stack;

use casemate_app::command;
use casemate_linux::process::Clock;
use clap::Parser;
use jobs::{Flow, Job};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::time::Instant;
use smoltcp::wire::IpCidr;
use stack::{EthernetLink, Mac, Stack};
use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Runs a device on a TAP interface that takes commands from standard input.
#[derive(Debug, Parser)]
#[command(name = "casemate-device", after_help = COMMANDS)]
struct Arguments {
    /// Existing TAP interface that is up
    #[arg(long, value_name = "NAME")]
    tap: String,
    /// Ethernet address of the device
    #[arg(long, value_name = "ADDRESS", default_value = "02:00:00:00:00:02")]
    mac: Mac,
    /// Ethernet address of the only neighbour; disables ARP and neighbour discovery
    #[arg(long, value_name = "ADDRESS", conflicts_with = "gateways")]
    neighbour: Option<Mac>,
    /// Address of the device with prefix length, such as 192.0.2.1/24
    #[arg(long = "address", value_name = "ADDRESS/LEN", required = true, value_parser = network)]
    addresses: Vec<IpCidr>,
    /// Default router; one for IPv4, one for IPv6
    #[arg(long = "gateway", value_name = "ADDRESS")]
    gateways: Vec<IpAddr>,
    /// IKE configuration: connections, keys and certificates, in the format of `casemate run --config`
    #[arg(long, value_name = "FILE", conflicts_with = "xfrm")]
    config: Option<PathBuf>,
    /// Manual keys, in the format of `casemate run --xfrm`
    #[arg(long, value_name = "FILE")]
    xfrm: Option<PathBuf>,
}

const COMMANDS: &str = "Commands, one per line:
  keys FILE               replace the manual keys by those of this file
  connections FILE        replace the IKE connections by those of this file
  initiate NAME [--ike]   initiate a child, or a connection; with --ike without Child SAs
  terminate NAME          close a child, or a connection
  rekey NAME [--ike]      start rekeying of a Child SA; with --ike of an IKE SA
  status                  print the IKE SAs as JSON
  drops                   print the drop counters of the data path
  ping FROM TO SIZE...    send echo requests of these sizes (1, or 1-70); each must be answered
  tcp FROM TO BYTES       send bytes to an echo service and receive them again
  flow FROM TO            send echo requests until `stop`, which prints how many were lost";

fn network(text: &str) -> Result<IpCidr, String> {
    text.parse().map_err(|()| "expected an address such as 192.0.2.1/24 or fd00::1/64".into())
}

/// Maximum time to wait for events in milliseconds, beside smoltcp's own timers.
const MAX_WAIT_MILLIS: u64 = 20;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let tap = TunTapInterface::new(&arguments.tap, Medium::Ethernet);
    let tap = tap.map_err(|error| format!("TAP interface {}: {error}", arguments.tap))?;
    let descriptor = tap.as_raw_fd();
    let link = EthernetLink::new(tap, arguments.mac, arguments.neighbour);
    let clock = Clock::start();
    // Without address resolution the address of the gateway does not matter.
    let everything = [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::LOCALHOST.into()];
    let gateways = if arguments.neighbour.is_some() { &everything[..] } else { &arguments.gateways };
    let mut stack = Stack::new(link, &arguments.addresses, gateways, clock.now())?;
    let now = casemate_smoltcp::to_smoltcp(clock.now());
    if let Some(path) = &arguments.config {
        stack.load_connections(path, now)?;
    }
    if let Some(path) = &arguments.xfrm {
        stack.load_keys(path, now)?;
    }
    let mut commands = CommandQueue::listen();
    println!("0 ready");
    while !commands.is_finished() {
        let now = casemate_smoltcp::to_smoltcp(clock.now());
        stack.poll(now);
        commands.run(&mut stack, now);
        let delay = stack.delay(now).min(MAX_WAIT_MILLIS);
        // An error of `select` is ignored: the next round polls the interface.
        let _ = wait(descriptor, Some(smoltcp::time::Duration::from_millis(delay)));
    }
    Ok(())
}

/// Commands from standard input, executed one at a time.
struct CommandQueue {
    lines: Receiver<String>,
    job: Option<Box<dyn Job>>,
    /// Echo requests that are sent while other commands run.
    flow: Option<Flow>,
    ended: bool,
}

impl CommandQueue {
    fn listen() -> Self {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, job: None, flow: None, ended: false }
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.ended && self.job.is_none()
    }

    /// Continues the current job, or starts the next command.
    fn run(&mut self, stack: &mut Stack, now: Instant) {
        if let Some(flow) = &mut self.flow {
            flow.step(stack, now);
        }
        if self.job.is_none() {
            match self.lines.try_recv() {
                Ok(line) => self.execute(&line, stack, now),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
        if let Some(job) = &mut self.job
            && let Some(done) = job.step(stack, now)
        {
            self.job = None;
            print_result(&done);
        }
    }

    fn execute(&mut self, line: &str, stack: &mut Stack, now: Instant) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words.as_slice() {
            ["keys", path] => stack.load_keys(Path::new(path), now).map(|()| "loaded".into()),
            ["connections", path] => stack.load_connections(Path::new(path), now).map(|()| "loaded".into()),
            ["drops"] => Ok(stack.drops()),
            ["status"] => Ok(stack.ike_sas(now)),
            ["rekey", name, rest @ ..] => {
                let ike = rest == ["--ike"];
                let started =
                    stack.with_ike(now, |endpoint, context| command::rekey(name, ike, endpoint, context));
                started.map(|()| "begun".into())
            }
            ["flow", from, to] => Flow::new(from, to, stack, now).map(|flow| {
                self.flow = Some(flow);
                "begun".into()
            }),
            ["stop"] => match self.flow.take() {
                Some(flow) => return self.job = Some(Box::new(flow.stop(now))),
                None => Err("no flow is running".into()),
            },
            words => match jobs::parse(words, stack, now) {
                Ok(job) => return self.job = Some(job),
                Err(error) => Err(error),
            },
        };
        print_result(&done);
    }
}

fn print_result(done: &Result<String, String>) {
    let mut out = std::io::stdout().lock();
    // A response is one line. Write errors are ignored: the reader has gone.
    let _ = match done {
        Ok(text) => writeln!(out, "0 {text}"),
        Err(text) => writeln!(out, "1 {}", text.replace('\n', "; ")),
    };
    let _ = out.flush();
}
