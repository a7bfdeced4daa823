//! Instructions a packet, counted by valgrind's callgrind: a figure that does not move from run to run.
//!
//! Runs this program again under valgrind, once for each figure, with [`spin`] as its task. Valgrind offers neither AVX-512
//! nor the SHA instructions, so a cipher may take another path here than on the machine itself; what ESP adds to it does
//! not.

use crate::esp::{Row, rows};
use crate::report::{Compared, Figure, Report};
use crate::suites::POOL;
use casemate_crypto::{AeadAlg, CipherAlg, EspSuite};
use std::process::Command;

/// Runs of a load that are counted.
const RUNS: u32 = 50;

/// Counts the rows whose suites and sizes stand for the others.
pub(crate) fn run(report: &mut Report<'_>) {
    for row in rows().filter(stands_for_others) {
        let name = format!("instructions/{}", row.name());
        if !report.wants(&name) {
            continue;
        }
        let Some(entries) = row.entries() else { continue };
        let mut figures: Vec<Figure> = Vec::new();
        for entry in entries {
            let Some(value) = count(&row, entry.label) else {
                report.say(
                    "instructions: left out, because valgrind cannot be run (Debian: apt install valgrind)",
                );
                return;
            };
            let compare = |base: f64| Compared { over: value - base, times: value / base };
            let compared = entry.base.map(|base| compare(figures[base].value));
            figures.push(Figure { label: entry.label, value, compared });
        }
        report.show(&name, "instr", &figures);
    }
}

/// Whether this is one of a few rows of different kinds.
pub(crate) fn stands_for_others(row: &Row) -> bool {
    let suite = match row.suite {
        EspSuite::Combined(alg) => matches!(alg, AeadAlg::AesGcm { .. }) && alg.key_len() == 16,
        EspSuite::Separate(cipher, mac) => matches!(cipher, CipherAlg::AesCbc(_)) && mac.key_len() == 32,
    };
    suite && matches!(row.size, 64 | 1420)
}

/// What the child under valgrind does: the load `label` of the row `name`, some times over. `false` if there is none.
pub(crate) fn spin(name: &str, label: &str) -> bool {
    let entries = rows().find(|row| row.name() == name).and_then(|row| row.entries());
    let Some(mut entry) = entries.into_iter().flatten().find(|entry| entry.label == label) else {
        return false;
    };
    for _ in 0..RUNS {
        entry.load.run();
    }
    true
}

/// Instructions a packet; `None` without valgrind.
fn count(row: &Row, label: &str) -> Option<f64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*harness*timed*"])
        .arg(std::env::current_exe().unwrap())
        .args(["--spin", &row.name(), label])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "valgrind failed: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let total: f64 = collected.expect("callgrind says what it collected").1.trim().parse().unwrap();
    Some(total / f64::from(RUNS) / POOL as f64)
}
