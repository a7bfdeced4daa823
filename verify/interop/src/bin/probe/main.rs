//! Agent of the tests that runs where packets start and end: in the guest, and in namespaces of the host.
//!
//! ```text
//!     probe serve PORT            execute scripts of the host (guest only); the script `probe encap`
//!     decapsulates ESP in UDP
//!     probe echo                  TCP echo service
//!     probe ping SRC DST SIZE...  send echo requests of these sizes, and require all replies
//!     probe ping-tos SRC DST TOS SIZE...   as ping, with this type of service or traffic class, for
//!     example 0xb8
//!     probe ping-bursts SRC DST COUNT SIZE...   send requests of all sizes at once, COUNT times, and
//!     require all replies
//!     probe flow SRC DST          send echo requests until standard input ends, and report how many are
//!     lost
//!     probe flood SRC DST HEX COUNT ADDRESSES   send this IKE_SA_INIT request repeatedly, each with another
//!     SPI, from spoofed addresses: SRC and the following ones
//!     probe tcp SRC DST BYTES     send bytes to a TCP echo service, and require them back
//!     probe site SRC DST TIMES    fetch the first page of lwIP's web server, with one connection each time
//!     probe page SRC DST TIMES    fetch a device's page over one connection, and compare each byte
//!     probe rate SRC DST SECONDS  fetch the page continuously over several connections, and report
//!     requests per second
//!     probe discard SRC DST BYTES send bytes to a device's TCP discard service
//!     probe burst SRC DST COUNT   send UDP datagrams to a closed port as fast as possible
//!     probe gather ADDR COUNT     receive the datagrams of burst, and report their number
//! ```
//! SIZE is a number of bytes or a range such as 1-100, or 4-100/8 for every eighth size.

mod bursts;
mod half_open;
mod page;
mod ping;
mod serve;
mod tcp;

use casemate_interop::{Error, Result};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::str::FromStr;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", port] => serve::serve(port).map(|()| String::new()),
        ["echo"] => tcp::serve_echo().map(|()| String::new()),
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

/// Runs a command that sends something and ends by itself.
fn exchange(words: &[&str]) -> Result<String> {
    match words {
        ["ping", from, to, sizes @ ..] => ping::ping(address(from)?, address(to)?, 0, &all(sizes)?),
        ["ping-tos", from, to, tos, sizes @ ..] => {
            ping::ping(address(from)?, address(to)?, byte(tos)?, &all(sizes)?)
        }
        ["ping-bursts", from, to, count, sizes @ ..] => {
            bursts::ping_bursts(address(from)?, address(to)?, number(count)?, all(sizes)?)
        }
        ["flow", from, to] => ping::run_flow(address(from)?, address(to)?),
        ["flood", from, to, request, count, addresses] => {
            half_open::flood(address(from)?, address(to)?, request, [number(count)?, number(addresses)?])
        }
        ["burst", from, to, count] => tcp::send_burst(address(from)?, address(to)?, number(count)?),
        ["gather", at, count] => tcp::receive_burst(address(at)?, number(count)?),
        ["tcp", from, to, bytes] => tcp::exchange_echo(address(from)?, address(to)?, number(bytes)?),
        ["site", from, to, times] => page::visit(address(from)?, address(to)?, number(times)?),
        ["page", from, to, times] => page::fetch(address(from)?, address(to)?, number(times)?),
        ["rate", from, to, seconds] => page::requests(address(from)?, address(to)?, seconds),
        ["discard", from, to, bytes] => tcp::send_discard(address(from)?, address(to)?, number(bytes)?),
        _ => Err(Error::new(
            "usage: probe serve PORT | echo | ping SRC DST SIZE... | ping-tos SRC DST TOS SIZE... | \
             ping-bursts SRC DST COUNT SIZE... | flow SRC DST | tcp SRC DST BYTES | \
             site SRC DST TIMES | page SRC DST TIMES | rate SRC DST SECONDS | discard SRC DST BYTES",
        )),
    }
}

fn address(text: &str) -> Result<IpAddr> {
    text.parse().map_err(Error::context(text))
}

/// Sizes, with all sizes of ranges.
fn all(sizes: &[&str]) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for size in sizes {
        let (range, step) = size.split_once('/').unwrap_or((size, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let step = NonZeroUsize::from_str(step).map_err(Error::context(size))?;
        all.extend((number(first)?..=number(last)?).step_by(step.get()));
    }
    Ok(all)
}

/// Byte in decimal, or in hexadecimal digits after `0x`.
fn byte(text: &str) -> Result<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(Error::context(text))
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(Error::context(text))
}
