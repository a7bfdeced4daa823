//! A device in a process: smoltcp behind Casemate, on a TAP interface (docs/manual/smoltcp.md).
//!
//! ```text
//!  standard input -- orders --+
//!                             v
//!   services: echo 7, HTTP 80, discard 5001     jobs: ping, TCP to an echo service, commands to IKE
//!                             |
//!                         smoltcp -- Guarded -- Ethernet -- TAP
//! ```
//!
//! The matrices of verify/interop put it in Casemate's place. Each line of standard input is an order, answered by a line
//! `0 TEXT` or `1 TEXT`; when the input ends, so does the device. What happens is told on standard error.
#![allow(clippy::print_stdout, reason = "what is printed is the answer")]

mod jobs;
mod keys;
mod link;
mod orders;
mod stack;

use casemate_linux::clock::Clock;
use clap::Parser;
use link::{Link, Mac};
use orders::Orders;
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::wire::IpCidr;
use stack::Stack;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Puts a device on a TAP interface, that takes orders from standard input.
#[derive(Debug, Parser)]
#[command(name = "casemate-device", after_help = ORDERS)]
struct Arguments {
    /// TAP interface, which exists and is up
    #[arg(long, value_name = "NAME")]
    tap: String,
    /// Our Ethernet address
    #[arg(long, value_name = "ADDRESS", default_value = "02:00:00:00:00:02")]
    mac: Mac,
    /// The Ethernet address of the only neighbour: there is neither ARP nor neighbour discovery then
    #[arg(long, value_name = "ADDRESS", conflicts_with = "gateways")]
    neighbour: Option<Mac>,
    /// An address of ours, with the length of its network: 192.0.2.1/24
    #[arg(long = "address", value_name = "ADDRESS/LEN", required = true, value_parser = network)]
    addresses: Vec<IpCidr>,
    /// Through whom others are reached; one for IPv4, one for IPv6
    #[arg(long = "gateway", value_name = "ADDRESS")]
    gateways: Vec<IpAddr>,
    /// Keys from IKE: connections, keys and certificates as `casemate run --config` takes them
    #[arg(long, value_name = "FILE", conflicts_with = "xfrm")]
    config: Option<PathBuf>,
    /// Manual keys, as `casemate run --xfrm` takes them
    #[arg(long, value_name = "FILE")]
    xfrm: Option<PathBuf>,
}

const ORDERS: &str = "Orders, a line each:
  keys FILE               manual keys of this file, in place of those before
  connections FILE        connections of this file, in place of those before
  initiate NAME [--ike]   set up a child, or a connection; with --ike without Child SAs
  terminate NAME          close it
  rekey NAME [--ike]      begin to replace a Child SA; with --ike an IKE SA
  status                  IKE SAs, as JSON
  drops                   what the data path has dropped
  ping FROM TO SIZE...    echo requests of these sizes (1, or 1-70), every one answered
  tcp FROM TO BYTES       bytes to an echo service, and back
  flow FROM TO            echo requests from now on, until `stop`, which says how many were lost";

fn network(text: &str) -> Result<IpCidr, String> {
    text.parse().map_err(|()| "192.0.2.1/24 or fd00::1/64 was expected".into())
}

/// How long to wait at most for something to do, in milliseconds: smoltcp's own timers come on top.
const PATIENCE: u64 = 20;

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
    let link = Link::new(tap, arguments.mac, arguments.neighbour);
    let clock = Clock::start();
    // On a link without addresses a gateway is only a name for "out".
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
    let mut orders = Orders::listen();
    println!("0 ready");
    while !orders.have_ended() {
        let now = casemate_smoltcp::to_smoltcp(clock.now());
        stack.poll(now);
        orders.work(&mut stack, now);
        let delay = stack.delay(now).min(PATIENCE);
        // An error of `select` is none of the device's: it looks again.
        let _ = wait(descriptor, Some(smoltcp::time::Duration::from_millis(delay)));
    }
    Ok(())
}
