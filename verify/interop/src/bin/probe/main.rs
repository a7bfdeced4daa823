//! The part of the tests that runs where the packets start and end: inside the guest, and in the host's namespace.
//!
//! ```text
//!     probe serve PORT            take scripts from the host (guest only); the script `probe encap` decapsulates ESP in UDP
//!     probe echo                  answer TCP connections with what they send
//!     probe ping SRC DST SIZE...  send echo requests of these sizes, demand every answer
//!     probe ping-tos SRC DST TOS SIZE...   the same with this type of service or traffic class, such as 0xb8
//!     probe flow SRC DST          send echo requests until standard input ends, say how many were lost
//!     probe half-open SRC DST HEX COUNT   send this IKE_SA_INIT request again and again, each with another SPI
//!     probe flood SRC DST HEX COUNT ADDRESSES   the same from addresses that need not be ours: SRC and those behind it
//!     probe tcp SRC DST BYTES     send bytes over TCP to an echo service and demand them back
//!     probe site SRC DST TIMES    fetch the first page of lwIP's web server, over a connection each
//!     probe page SRC DST TIMES    fetch a device's page over one connection, every byte compared
//!     probe rate SRC DST SECONDS  fetch it all the time over four connections, say how often in a second
//!     probe discard SRC DST BYTES   send bytes over TCP to a device's discard service
//!     probe burst SRC DST COUNT   send datagrams that nobody wants, as fast as they go
//!     probe gather ADDR COUNT     receive those datagrams, say how many came
//! ```
//! SIZE is a number of bytes or a range such as 1-100.

mod burst;
mod discard;
mod echo;
mod encap;
mod flow;
mod gather;
mod half_open;
mod page;
mod ping;
mod serve;
mod tcp;

use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", port] => serve::serve(port).map(|()| String::new()),
        ["echo"] => echo::serve().map(|()| String::new()),
        words => exchange(words),
    };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The commands that send something and come to an end by themselves.
fn exchange(words: &[&str]) -> Result<String> {
    match words {
        ["ping", from, to, sizes @ ..] => ping::ping(address(from)?, address(to)?, 0, &all(sizes)?),
        ["ping-tos", from, to, tos, sizes @ ..] => {
            ping::ping(address(from)?, address(to)?, byte(tos)?, &all(sizes)?)
        }
        ["flow", from, to] => flow::run(address(from)?, address(to)?),
        ["half-open", from, to, request, count] => {
            half_open::send(address(from)?, address(to)?, request, number(count)?)
        }
        ["flood", from, to, request, count, addresses] => {
            half_open::flood(address(from)?, address(to)?, request, [number(count)?, number(addresses)?])
        }
        ["burst", from, to, count] => burst::send(address(from)?, address(to)?, number(count)?),
        ["gather", at, count] => gather::receive(address(at)?, number(count)?),
        ["tcp", from, to, bytes] => echo::exchange(address(from)?, address(to)?, number(bytes)?),
        ["site", from, to, times] => page::visit(address(from)?, address(to)?, number(times)?),
        ["page", from, to, times] => page::fetch(address(from)?, address(to)?, number(times)?),
        ["rate", from, to, seconds] => page::requests(address(from)?, address(to)?, seconds),
        ["discard", from, to, bytes] => discard::send(address(from)?, address(to)?, number(bytes)?),
        _ => Err(Error::new(
            "usage: probe serve PORT | echo | ping SRC DST SIZE... | ping-tos SRC DST TOS SIZE... | flow SRC DST | tcp SRC DST BYTES | \
             site SRC DST TIMES | page SRC DST TIMES | rate SRC DST SECONDS | discard SRC DST BYTES",
        )),
    }
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(Error::in_front(text))
}

/// Sizes, and all that are in ranges of them.
fn all(sizes: &[&str]) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for size in sizes {
        let (first, last) = size.split_once('-').unwrap_or((size, size));
        all.extend(number(first)?..=number(last)?);
    }
    Ok(all)
}

/// A byte, decimal or hexadecimal after `0x`.
fn byte(text: &str) -> Result<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(Error::in_front(text))
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(Error::in_front(text))
}
