//! Instructions per packet, counted by valgrind's callgrind: numbers that do not vary between runs.
//!
//! Runs this program again under valgrind, once for each figure, with [`run_under_callgrind`] as its task.
//! Valgrind supports neither AVX-512 nor the SHA instructions, so a cipher may take another code path than
//! without valgrind. The overhead of ESP is the same.

use crate::esp::POOL;
use crate::esp::{Row, rows};
use crate::report::{Compared, Figure, Report};
use casemate_crypto::{AeadAlg, CipherAlg, EspSuite};
use std::process::Command;

/// Counted runs of a load.
const RUNS: u32 = 50;

/// Counts the instructions of the representative suites and sizes.
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
                    "instructions: skipped, because valgrind does not start (Debian: apt install valgrind)",
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

/// Whether the row is one of a few representative rows.
pub(crate) fn stands_for_others(row: &Row) -> bool {
    let suite = match row.suite {
        EspSuite::Combined(alg) => matches!(alg, AeadAlg::AesGcm { .. }) && alg.key_len() == 16,
        EspSuite::ImplicitIv(_) => false,
        EspSuite::Separate(cipher, mac) => matches!(cipher, CipherAlg::AesCbc(_)) && mac.key_len() == 32,
    };
    suite && matches!(row.size, 64 | 1420)
}

/// Task of the child under valgrind: runs the load `label` of the row `name`. `false` if it does not exist.
pub(crate) fn run_under_callgrind(name: &str, label: &str) -> bool {
    let entries = rows().find(|row| row.name() == name).and_then(|row| row.entries());
    let Some(mut entry) = entries.into_iter().flatten().find(|entry| entry.label == label) else {
        return false;
    };
    for _ in 0..RUNS {
        entry.load.run();
    }
    true
}

/// Instructions per packet; `None` without valgrind.
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
    let total: f64 = collected.expect("callgrind reports its count").1.trim().parse().unwrap();
    Some(total / f64::from(RUNS) / POOL as f64)
}
