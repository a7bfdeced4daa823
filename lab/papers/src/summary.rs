//! What an experiment came to, for a terminal.

use casemate_report::{Agreement, Record};
use std::fmt::Write;

/// The findings, what was left out, and whether the machine was noisy; ends with a line break.
pub fn summary(record: &Record) -> String {
    let mut text = String::new();
    let paper = &record.paper;
    let _ = writeln!(text, "{}: {}, {} ({})", record.experiment, paper.authors, paper.title, paper.year);
    for finding in record.findings() {
        let sign = match finding.agreement {
            Agreement::Agrees => "agrees ",
            Agreement::Differs => "differs",
            Agreement::NotMeasured => "unknown",
        };
        let _ = writeln!(text, "  {sign}  {}: {}; paper: {}", finding.what, finding.ours, finding.paper);
    }
    for out in record.left_out() {
        let _ = writeln!(text, "  left out: {}: {}", out.what, out.why);
    }
    for reason in record.noise() {
        let _ = writeln!(text, "  noisy machine: {reason}");
    }
    text
}
