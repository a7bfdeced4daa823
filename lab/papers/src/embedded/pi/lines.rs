//! What the image is asked, and what it says: verify/bare has the other side of it.

use super::Order;
use crate::embedded::flow::{FLOWS, Flow};
use crate::embedded::protection::Suite;

/// Rows, as the image names them.
const ROWS: [(&str, Suite); 8] = [
    ("plain", Suite::Plain),
    ("unused", Suite::Unused),
    ("ah-md5", Suite::AhMd5),
    ("esp-3des-md5", Suite::EspTripleDes),
    ("ah-sha256", Suite::AhSha2),
    ("esp-aes128gcm16", Suite::Gcm),
    ("esp-chacha20poly1305", Suite::ChaCha),
    ("esp-aes128-sha256", Suite::CbcSha2),
];
/// In the order of [`FLOWS`].
const FLOW_WORDS: [&str; 4] = ["host-asks", "device-asks", "device-sends", "host-sends"];
/// So many instructions more or less in a hundred thousand are one clock for each: any other clock is far away from that.
const SLACK: u64 = 10;

/// One count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) suite: Suite,
    pub(super) flow: Flow,
    /// Of a message, in bytes.
    pub(super) size: usize,
    /// The device's.
    pub(super) instructions: f64,
    /// Transactions, or bytes.
    pub(super) units: f64,
}

/// All that was said so far.
#[derive(Debug, PartialEq)]
pub(super) struct Counts {
    pub(super) cells: Vec<Cell>,
    /// Whether nothing more is to come.
    pub(super) is_whole: bool,
}

impl Cell {
    /// Instructions for a transaction, or for a byte.
    pub(super) fn cost(&self) -> f64 {
        self.instructions / self.units
    }
}

impl Order {
    /// As the image reads it.
    pub(super) fn words(&self) -> Vec<String> {
        let rows = self.suites.iter().filter_map(|suite| ROWS.iter().find(|(_, known)| known == suite));
        rows.map(|(word, _)| (*word).into()).chain(self.sizes.iter().map(ToString::to_string)).collect()
    }
}

/// Reads what the image has said so far, as far as its lines are whole. An error names the line.
pub(super) fn read(said: &str, order: &Order) -> Result<Counts, String> {
    let whole = said.rfind('\n').map_or("", |end| said.get(..end).unwrap_or_default());
    let mut lines = whole.lines().enumerate();
    let mut counts = Counts { cells: Vec::new(), is_whole: false };
    let Some((_, first)) = lines.next() else { return Ok(counts) };
    clock(first)?;
    let mut expected = order.cells();
    for (number, line) in lines {
        let wrong = |what: &str| Err(format!("line {}: `{line}`: expected was {what}", number + 1));
        match (expected.next(), counts.is_whole) {
            (None, false) if line == "end" => counts.is_whole = true,
            (None, false) => return wrong("`end`"),
            (None, true) => return wrong("nothing after `end`"),
            (Some((suite, flow, size)), _) => match cell(line, suite, flow, size) {
                Some(cell) => counts.cells.push(cell),
                None => return wrong(&format!("`cell {} INSTRUCTIONS UNITS`", words(suite, flow, size))),
            },
        }
    }
    Ok(counts)
}

impl Order {
    /// What is to come, in this order.
    fn cells(&self) -> impl Iterator<Item = (Suite, Flow, usize)> {
        self.suites.iter().flat_map(move |suite| {
            FLOWS.iter().flat_map(move |flow| self.sizes.iter().map(move |size| (*suite, *flow, *size)))
        })
    }
}

/// What the image calls a cell.
fn words(suite: Suite, flow: Flow, size: usize) -> String {
    let row = ROWS.iter().find(|(_, known)| *known == suite).map_or("", |(word, _)| word);
    let flow = FLOWS.iter().zip(FLOW_WORDS).find(|(known, _)| **known == flow).map_or("", |(_, word)| word);
    format!("{row} {flow} {size}")
}

/// A count of this cell.
fn cell(line: &str, suite: Suite, flow: Flow, size: usize) -> Option<Cell> {
    let rest = line.strip_prefix(&format!("cell {} ", words(suite, flow, size)))?;
    let (instructions, units) = rest.split_once(' ')?;
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).map(|number| number as f64);
    Some(Cell { suite, flow, size, instructions: number(instructions)?, units: number(units)? })
}

/// The first line: so many instructions, and what the clock made of them.
fn clock(line: &str) -> Result<(), String> {
    let numbers = || {
        let (known, counted) = line.strip_prefix("clock ")?.split_once(' ')?;
        Some((known.parse::<u64>().ok()?, counted.parse::<u64>().ok()?))
    };
    let (known, counted) =
        numbers().ok_or_else(|| format!("line 1: `{line}`: expected was `clock INSTRUCTIONS COUNTED`"))?;
    if known.abs_diff(counted) > SLACK {
        return Err(format!("QEMU's clock does not count instructions: {counted} for {known}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order { suites: vec![Suite::AhMd5], sizes: vec![1] }
    }

    const SAID: &str = "clock 100000 100001\ncell ah-md5 host-asks 1 400 4\ncell ah-md5 device-asks 1 500 4\n\
        cell ah-md5 device-sends 1 3000 1000\ncell ah-md5 host-sends 1 4000 1000\nend\n";

    #[test]
    fn what_is_whole_is_read() {
        assert_eq!(order().words(), ["ah-md5", "1"]);
        let counts = read(SAID, &order()).unwrap();
        assert!(counts.is_whole);
        let costs: Vec<f64> = counts.cells.iter().map(Cell::cost).collect();
        assert_eq!(costs, [100.0, 125.0, 3.0, 4.0]);
        assert_eq!(counts.cells[1].flow, Flow::DeviceAsks);
        // As it comes, byte by byte.
        for end in 0..SAID.len() {
            let part = read(&SAID[..end], &order()).unwrap();
            assert!(!part.is_whole && part.cells.len() <= 4, "{part:?}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        let wrong = |from: &str, to: &str| read(&SAID.replace(from, to), &order()).unwrap_err();
        assert!(wrong("clock 100000 100001", "clock 100000 97").contains("does not count instructions"));
        assert!(wrong("clock 100000 100001", "hello").starts_with("line 1: `hello`"));
        assert!(wrong("device-asks", "host-asks").starts_with("line 3: `cell ah-md5 host-asks 1 500 4`"));
        assert!(wrong(" 500 4", " 500 0").contains("line 3"));
        assert!(wrong(" 500 4", " 500").contains("line 3"));
        assert!(wrong("end\n", "panic\n").contains("expected was `end`"));
        assert!(wrong("end\n", "end\nend\n").contains("nothing after"));
    }
}
