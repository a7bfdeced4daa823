//! Arguments and output of the image. The other side is in verify/bare.

use super::Plan;
use crate::embedded::flow::{FLOWS, Flow};
use crate::embedded::protection::Suite;

/// Names of the rows in the image.
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
/// Names of the flows, in the order of [`FLOWS`].
const FLOW_WORDS: [&str; 4] = ["host-asks", "device-asks", "device-sends", "host-sends"];
/// Maximum deviation of the clock in a hundred thousand instructions. A clock that does not count
/// instructions deviates far more.
const CLOCK_TOLERANCE: u64 = 10;

/// One count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) suite: Suite,
    pub(super) flow: Flow,
    /// Length of a message in bytes.
    pub(super) size: usize,
    /// Instructions of the device.
    pub(super) instructions: f64,
    /// Number of transactions or bytes.
    pub(super) units: f64,
}

/// Parsed output.
#[derive(Debug, PartialEq)]
pub(super) struct Counts {
    pub(super) cells: Vec<Cell>,
    /// Whether the output is complete.
    pub(super) is_complete: bool,
}

impl Cell {
    /// Instructions per transaction or per byte.
    pub(super) fn cost(&self) -> f64 {
        self.instructions / self.units
    }
}

impl Plan {
    /// Arguments of the image.
    pub(super) fn words(&self) -> Vec<String> {
        let rows = self.suites.iter().filter_map(|suite| ROWS.iter().find(|(_, known)| known == suite));
        rows.map(|(word, _)| (*word).into()).chain(self.sizes.iter().map(ToString::to_string)).collect()
    }
}

/// Parses the complete lines of the output so far. Errors name the line.
pub(super) fn read(output: &str, plan: &Plan) -> Result<Counts, String> {
    let complete = output.rfind('\n').map_or("", |end| output.get(..end).unwrap_or_default());
    let mut lines = complete.lines().enumerate();
    let mut counts = Counts { cells: Vec::new(), is_complete: false };
    let Some((_, first)) = lines.next() else { return Ok(counts) };
    clock(first)?;
    let mut expected = plan.cells();
    for (number, line) in lines {
        let wrong = |what: &str| Err(format!("line {}: `{line}`: expected {what}", number + 1));
        match (expected.next(), counts.is_complete) {
            (None, false) if line == "end" => counts.is_complete = true,
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

impl Plan {
    /// Expected cells, in order.
    fn cells(&self) -> impl Iterator<Item = (Suite, Flow, usize)> {
        self.suites.iter().flat_map(move |suite| {
            FLOWS.iter().flat_map(move |flow| self.sizes.iter().map(move |size| (*suite, *flow, *size)))
        })
    }
}

/// Name of a cell in the output.
fn words(suite: Suite, flow: Flow, size: usize) -> String {
    let row = ROWS.iter().find(|(_, known)| *known == suite).map_or("", |(word, _)| word);
    let flow = FLOWS.iter().zip(FLOW_WORDS).find(|(known, _)| **known == flow).map_or("", |(_, word)| word);
    format!("{row} {flow} {size}")
}

/// Parses the count of this cell.
fn cell(line: &str, suite: Suite, flow: Flow, size: usize) -> Option<Cell> {
    let rest = line.strip_prefix(&format!("cell {} ", words(suite, flow, size)))?;
    let (instructions, units) = rest.split_once(' ')?;
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).map(|number| number as f64);
    Some(Cell { suite, flow, size, instructions: number(instructions)?, units: number(units)? })
}

/// Checks the first line: a number of instructions, and the number that the clock counted.
fn clock(line: &str) -> Result<(), String> {
    let numbers = || {
        let (known, counted) = line.strip_prefix("clock ")?.split_once(' ')?;
        Some((known.parse::<u64>().ok()?, counted.parse::<u64>().ok()?))
    };
    let (known, counted) =
        numbers().ok_or_else(|| format!("line 1: `{line}`: expected `clock INSTRUCTIONS COUNTED`"))?;
    if known.abs_diff(counted) > CLOCK_TOLERANCE {
        return Err(format!("QEMU's clock does not count instructions: {counted} for {known}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { suites: vec![Suite::AhMd5], sizes: vec![1] }
    }

    const SAID: &str = "clock 100000 100001\ncell ah-md5 host-asks 1 400 4\ncell ah-md5 device-asks 1 500 4\n\
        cell ah-md5 device-sends 1 3000 1000\ncell ah-md5 host-sends 1 4000 1000\nend\n";

    #[test]
    fn complete_lines_are_parsed() {
        assert_eq!(plan().words(), ["ah-md5", "1"]);
        let counts = read(SAID, &plan()).unwrap();
        assert!(counts.is_complete);
        let costs: Vec<f64> = counts.cells.iter().map(Cell::cost).collect();
        assert_eq!(costs, [100.0, 125.0, 3.0, 4.0]);
        assert_eq!(counts.cells[1].flow, Flow::DeviceAsks);
        // The output arrives byte by byte.
        for end in 0..SAID.len() {
            let part = read(&SAID[..end], &plan()).unwrap();
            assert!(!part.is_complete && part.cells.len() <= 4, "{part:?}");
        }
    }

    #[test]
    fn invalid_output_is_rejected_with_its_line() {
        let wrong = |from: &str, to: &str| read(&SAID.replace(from, to), &plan()).unwrap_err();
        assert!(wrong("clock 100000 100001", "clock 100000 97").contains("does not count instructions"));
        assert!(wrong("clock 100000 100001", "hello").starts_with("line 1: `hello`"));
        assert!(wrong("device-asks", "host-asks").starts_with("line 3: `cell ah-md5 host-asks 1 500 4`"));
        assert!(wrong(" 500 4", " 500 0").contains("line 3"));
        assert!(wrong(" 500 4", " 500").contains("line 3"));
        assert!(wrong("end\n", "panic\n").contains("expected `end`"));
        assert!(wrong("end\n", "end\nend\n").contains("nothing after"));
    }
}
