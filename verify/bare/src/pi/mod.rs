//! How many instructions a device takes for its packets: TCP between two hosts in one memory, without IPsec and with.
//!
//! One of them is the device, and only its turns are counted, by the clock of an emulation in which each instruction takes the same time
//! (QEMU's `-icount shift=10`: 1,024 nanoseconds). The other one and the cable stand around it. What is measured is ordered in words: names of rows, and sizes of
//! messages. Each is answered by a line for each of the paper's figures:
//!
//! ```text
//! clock 100000 100007
//! cell ah-md5 host-asks 256 91340 8
//! end
//! ```
//!
//! A cell has the instructions of so many transactions, or of so many bytes. The first line is what the clock makes of a loop of so many instructions.

mod application;
mod host;
mod row;
mod scene;

use crate::wire::{Above, End};
use alloc::format;
use alloc::vec::Vec;
use application::{FLOWS, Flow, LONGEST};
use core::net::IpAddr;
use row::{ROWS, Row};
use scene::{Reader, Scene};

/// Bytes of the longest order.
pub const LONGEST_ORDER: usize = 512;

/// What the machine tells time with.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Microseconds; after the largest number comes 0.
    pub microseconds: fn() -> u32,
    /// Two instructions, so often.
    pub spin: fn(u32),
}

/// Nanoseconds of an instruction.
const INSTRUCTION: u64 = 1_024;
/// Rounds of the loop that the clock is tried with.
const ROUNDS: u32 = 50_000;
/// Transactions that are counted, after others that are not.
const TRANSACTIONS: usize = 4;
/// Messages of a stream that are counted, within these bounds of bytes.
const MESSAGES: usize = 64;
const LEAST: usize = 16 << 10;
const MOST: usize = 256 << 10;

/// Does what the words say. False if there are none, or there is one that is not known, or something does not come to its end.
pub fn run(print: fn(&str), clock: Clock, words: &str) -> bool {
    let Some(Order { rows, sizes }) = order(words) else {
        print(&format!("not understood: {words}\n"));
        return false;
    };
    let before = (clock.microseconds)();
    (clock.spin)(ROUNDS);
    let taken = (clock.microseconds)().wrapping_sub(before);
    print(&format!("clock {} {}\n", 2 * ROUNDS, instructions(taken.into())));
    for (name, row) in rows {
        for (flow_name, flow) in FLOWS {
            for size in &sizes {
                let Some((spent, units)) = cell(clock, row, flow, *size) else {
                    print(&format!("{name} {flow_name} {size} does not come to its end\n"));
                    return false;
                };
                print(&format!("cell {name} {flow_name} {size} {} {units}\n", instructions(spent)));
            }
        }
    }
    print("end\n");
    true
}

/// What is to be measured.
struct Order {
    rows: Vec<(&'static str, Row)>,
    /// Of messages, in bytes.
    sizes: Vec<usize>,
}

/// `None` without a row or without a size, and with anything else.
fn order(words: &str) -> Option<Order> {
    let mut order = Order { rows: Vec::new(), sizes: Vec::new() };
    for word in words.split_whitespace() {
        match ROWS.iter().find(|(name, _)| *name == word) {
            Some(row) => order.rows.push(*row),
            None => order.sizes.push(word.parse().ok().filter(|size| (1..=LONGEST).contains(size))?),
        }
    }
    (!order.rows.is_empty() && !order.sizes.is_empty()).then_some(order)
}

fn instructions(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1_000) / INSTRUCTION
}

fn cell(clock: Clock, row: Row, flow: Flow, size: usize) -> Option<(u64, usize)> {
    match row {
        Row::Plain => measure(clock, row, (flow, size), |_, _| Some(End::default())),
        _ => measure(clock, row, (flow, size), |own, far| row.guard(own, far)),
    }
}

/// What the device takes, in microseconds of the clock, for how many transactions or bytes.
fn measure<D: Above>(
    clock: Clock,
    row: Row,
    (flow, size): (Flow, usize),
    end: impl FnMut(IpAddr, IpAddr) -> Option<D>,
) -> Option<(u64, usize)> {
    let mut scene = Scene::new(clock, (flow, size), end)?;
    let reader = if flow == Flow::DeviceSends { Reader::Host } else { Reader::Device };
    let bytes = match flow.is_latency() {
        true => TRANSACTIONS * size,
        false => (MESSAGES * size).clamp(LEAST, MOST),
    };
    let (before, first) = scene.until(reader, bytes / 2)?;
    let (after, last) = scene.until(reader, first + bytes)?;
    // A guard that lets everything pass would be fast.
    (scene.protocol == Some(row.protocol())).then_some(())?;
    let units = if flow.is_latency() { (last - first) / size } else { last - first };
    Some((after.saturating_sub(before), units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use std::string::String;
    use std::thread_local;

    thread_local! {
        static SAID: RefCell<String> = const { RefCell::new(String::new()) };
        static TIME: RefCell<u32> = const { RefCell::new(u32::MAX - 1_000) };
    }

    fn said(words: &str) -> (bool, String) {
        let clock = Clock {
            // A turn of the device takes ten thousand.
            microseconds: || {
                TIME.with_borrow_mut(|time| {
                    *time = time.wrapping_add(10_000);
                    *time
                })
            },
            spin: |_| (),
        };
        let passed = run(|text| SAID.with_borrow_mut(|said| said.push_str(text)), clock, words);
        (passed, SAID.take())
    }

    #[test]
    fn every_row_comes_to_its_end() {
        let rows: Vec<&str> = ROWS.iter().map(|(name, _)| *name).collect();
        let (passed, text) = said(&format!("{} 1 1360 16384", rows.join(" ")));
        assert!(passed, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("cell ")).count(), 8 * 4 * 3);
        assert_eq!(text.lines().last(), Some("end"));
        for line in text.lines().filter(|line| line.contains("-asks ")) {
            assert!(line.ends_with(" 4"), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for words in ["", "plain", "1", "plain 0", "plain 16385", "plain 1 nonsense"] {
            let (passed, text) = said(words);
            assert!(!passed && text == format!("not understood: {words}\n"), "{text}");
        }
    }
}
