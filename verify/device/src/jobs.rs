//! What the device does when it is told to.

mod echo;
mod exchange;
pub(crate) mod flow;
mod ike;
mod ping;

use crate::stack::Stack;
use smoltcp::time::Instant;
use std::net::IpAddr;

/// Work that goes on while the stack does.
pub(crate) trait Job {
    /// Goes on; what came of it, at the end.
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>>;
}

/// The order in these words; `ping` and `tcp` are as `probe` of verify/interop takes them.
pub(crate) fn parse(order: &[&str], stack: &mut Stack, now: Instant) -> Result<Box<dyn Job>, String> {
    match *order {
        ["ping", from, to, ref sizes @ ..] => {
            let mut all = Vec::new();
            for size in sizes {
                let (first, last) = size.split_once('-').unwrap_or((size, size));
                all.extend(number(first)?..=number(last)?);
            }
            Ok(Box::new(ping::Ping::new((address(from)?, address(to)?), all, stack, now)?))
        }
        ["tcp", from, to, bytes] => {
            Ok(Box::new(exchange::Exchange::new((address(from)?, address(to)?), number(bytes)?, stack, now)?))
        }
        ["initiate", name] => Ok(Box::new(ike::Command::initiate(name, false, stack, now)?)),
        ["initiate", name, "--ike"] => Ok(Box::new(ike::Command::initiate(name, true, stack, now)?)),
        ["terminate", name] => Ok(Box::new(ike::Command::terminate(name, stack, now)?)),
        _ => Err(format!("`{}`: no such order (--help)", order.join(" "))),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}
