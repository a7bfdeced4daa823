//! What the device does when it is told to.

mod exchange;
mod ping;

use crate::stack::Stack;
use smoltcp::time::Instant;
use std::net::IpAddr;

/// Work that goes on while the stack does.
pub(crate) trait Job {
    /// Goes on; what came of it, at the end.
    fn step(&mut self, stack: &mut Stack, now: Instant) -> Option<Result<String, String>>;
}

/// `ping FROM TO SIZE...` or `tcp FROM TO BYTES`, as `probe` of verify/interop takes them.
pub(crate) fn parse(order: &str, stack: &mut Stack, now: Instant) -> Result<Box<dyn Job>, String> {
    let words: Vec<&str> = order.split_whitespace().collect();
    match words.as_slice() {
        ["ping", from, to, sizes @ ..] => {
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
        _ => Err(format!(
            "`{order}`: keys FILE, drops, ping FROM TO SIZE... or tcp FROM TO BYTES was expected"
        )),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}
