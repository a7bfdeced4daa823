//! Counts the instructions that a device needs for its packets: TCP between two hosts in one process,
//! with and without IPsec.
//!
//! One host is the device. Only its work is counted, with the clock of an emulator in which each
//! instruction takes the same time (QEMU's `-icount shift=10`: 1,024 nanoseconds). The other host and the
//! cable are simulated around it. The command line selects the rows and the message sizes. For each
//! combination the program prints a line per figure of the paper:
//!
//! ```text
//! clock 100000 100007
//! cell ah-md5 host-asks 256 91340 8
//! end
//! ```
//!
//! A `cell` line ends with the number of instructions and the number of transactions or bytes. The
//! `clock` line compares a loop of known length with its measured length.

mod host;
mod simulation;

use crate::link::{LinkEnd, OnLink};
use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;
use host::{FLOWS, Flow, Load, MAX_MESSAGE};
use simulation::{PROTECTIONS, Protection, Reader, Simulation};

/// Maximum length of the command line in bytes.
pub const MAX_COMMAND_LINE: usize = 512;

/// The clock of the machine.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Returns the time in microseconds; it wraps around to 0.
    pub microseconds: fn() -> u32,
    /// Executes a loop of two instructions `rounds` times.
    pub spin: fn(u32),
}

/// Nanoseconds per instruction.
const INSTRUCTION_NANOS: u64 = 1_024;
/// Number of rounds of the loop that checks the clock.
const ROUNDS: u32 = 50_000;
/// Number of transactions counted, after some that are not counted.
const TRANSACTIONS: usize = 4;
/// Number of messages of a stream that are counted, and limits of their total size in bytes.
const MESSAGES: usize = 64;
const MIN_BYTES: usize = 16 << 10;
const MAX_BYTES: usize = 256 << 10;

/// Runs the measurements that `words` selects. Returns false if `words` is empty or invalid, or if a
/// measurement does not finish.
pub fn run(print: fn(&str), clock: Clock, words: &str) -> bool {
    let Some(Selection { rows, sizes }) = parse_command_line(words) else {
        print(&format!("invalid command line: {words}\n"));
        return false;
    };
    let before = (clock.microseconds)();
    (clock.spin)(ROUNDS);
    let taken = (clock.microseconds)().wrapping_sub(before);
    print(&format!("clock {} {}\n", 2 * ROUNDS, instructions(taken.into())));
    for (name, row) in rows {
        for (flow_name, flow) in FLOWS {
            for size in &sizes {
                let load = Load { flow, size: *size };
                let Some(Cost { microseconds, units }) = measure_protection(clock, row, load) else {
                    print(&format!("{name} {flow_name} {size} does not finish\n"));
                    return false;
                };
                print(&format!("cell {name} {flow_name} {size} {} {units}\n", instructions(microseconds)));
            }
        }
    }
    print("end\n");
    true
}

/// The selected measurements.
struct Selection {
    rows: Vec<(&'static str, Protection)>,
    /// Message sizes in bytes.
    sizes: Vec<usize>,
}

/// Parses the command line. Returns `None` without a row or size, and for any other word.
fn parse_command_line(words: &str) -> Option<Selection> {
    let mut selection = Selection { rows: Vec::new(), sizes: Vec::new() };
    for word in words.split_whitespace() {
        match PROTECTIONS.iter().find(|(name, _)| *name == word) {
            Some(row) => selection.rows.push(*row),
            None => selection.sizes.push(word.parse().ok().filter(|size| (1..=MAX_MESSAGE).contains(size))?),
        }
    }
    (!selection.rows.is_empty() && !selection.sizes.is_empty()).then_some(selection)
}

fn instructions(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1_000) / INSTRUCTION_NANOS
}

/// Work of the device.
struct Cost {
    /// Time that the device worked.
    microseconds: u64,
    /// Number of transactions or bytes.
    units: usize,
}

fn measure_protection(clock: Clock, row: Protection, load: Load) -> Option<Cost> {
    match row {
        Protection::Plain => measure(clock, row, load, |_, _| Some(LinkEnd::default())),
        _ => measure(clock, row, load, |own, peer| row.ipsec_device(own, peer)),
    }
}

fn measure<D: OnLink>(
    clock: Clock,
    row: Protection,
    load: Load,
    end: impl FnMut(IpAddr, IpAddr) -> Option<D>,
) -> Option<Cost> {
    let Load { flow, size } = load;
    let mut simulation = Simulation::new(clock, load, end)?;
    let reader = if flow == Flow::DeviceSends { Reader::Host } else { Reader::Device };
    let bytes = match flow.is_latency() {
        true => TRANSACTIONS * size,
        false => (MESSAGES * size).clamp(MIN_BYTES, MAX_BYTES),
    };
    let first = simulation.run_until(reader, bytes / 2)?;
    let last = simulation.run_until(reader, first.received + bytes)?;
    // Make sure that the packets were protected.
    (simulation.protocol == Some(row.protocol())).then_some(())?;
    let received = last.received - first.received;
    let units = if flow.is_latency() { received / size } else { received };
    Some(Cost { microseconds: last.spent.saturating_sub(first.spent), units })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use std::string::String;
    use std::thread_local;

    thread_local! {
        static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
        static TIME: RefCell<u32> = const { RefCell::new(u32::MAX - 1_000) };
    }

    fn run_and_capture(words: &str) -> (bool, String) {
        let clock = Clock {
            // Each call advances the time by 10 ms.
            microseconds: || {
                TIME.with_borrow_mut(|time| {
                    *time = time.wrapping_add(10_000);
                    *time
                })
            },
            spin: |_| (),
        };
        let passed = run(|text| OUTPUT.with_borrow_mut(|output| output.push_str(text)), clock, words);
        (passed, OUTPUT.take())
    }

    #[test]
    fn every_row_finishes() {
        let rows: Vec<&str> = PROTECTIONS.iter().map(|(name, _)| *name).collect();
        let (passed, text) = run_and_capture(&format!("{} 1 1360 16384", rows.join(" ")));
        assert!(passed, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("cell ")).count(), 8 * 4 * 3);
        assert_eq!(text.lines().last(), Some("end"));
        for line in text.lines().filter(|line| line.contains("-asks ")) {
            assert!(line.ends_with(" 4"), "{line}");
        }
    }

    #[test]
    fn an_invalid_command_line_is_reported() {
        for words in ["", "plain", "1", "plain 0", "plain 16385", "plain 1 nonsense"] {
            let (passed, text) = run_and_capture(words);
            assert!(!passed && text == format!("invalid command line: {words}\n"), "{text}");
        }
    }
}
