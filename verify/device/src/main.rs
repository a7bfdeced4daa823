//! A device in a process: smoltcp behind Casemate, on a TAP interface.
//!
//! ```text
//!  standard input -- orders --+
//!                             v
//!   services: echo 7, HTTP 80, discard 5001     jobs: ping, TCP to an echo service
//!                             |
//!                         smoltcp -- Guarded -- Ethernet to one neighbour -- TAP
//! ```
//!
//! The matrices of verify/interop put it in Casemate's place. Each line of standard input is an order, answered by a line
//! `0 TEXT` or `1 TEXT`; when the input ends, so does the device:
//!
//! ```text
//!     keys FILE               SAs and policies of this file, in place of those before
//!     drops                   what the data path has dropped since then
//!     ping FROM TO SIZE...    echo requests of these sizes, every one answered
//!     tcp FROM TO BYTES       bytes to an echo service, and back
//! ```
#![allow(clippy::print_stdout, reason = "what is printed is the answer")]

mod jobs;
mod keys;
mod link;
mod orders;
mod services;
mod stack;

use casemate_linux::clock::Clock;
use clap::Parser;
use link::{Mac, OneNeighbour};
use orders::Orders;
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::wire::IpCidr;
use stack::Stack;
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// Puts a device on a TAP interface, that takes orders from standard input.
#[derive(Debug, Parser)]
#[command(name = "device")]
struct Arguments {
    /// TAP interface, which exists
    #[arg(long, value_name = "NAME")]
    tap: String,
    /// Our Ethernet address
    #[arg(long)]
    mac: Mac,
    /// The neighbour's
    #[arg(long)]
    neighbour: Mac,
    /// An address of ours, with the length of its network: 192.0.2.1/24
    #[arg(long = "address", value_name = "ADDRESS/LEN", required = true, value_parser = network)]
    addresses: Vec<IpCidr>,
}

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
    let device = OneNeighbour::new(tap, arguments.mac, arguments.neighbour);
    let clock = Clock::start();
    let mut stack = Stack::new(device, &arguments.addresses, clock.now())?;
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
