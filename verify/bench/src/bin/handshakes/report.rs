//! Results, as a table or as one JSON object.

use casemate_measure::stats::Spread;
use serde_json::{Value, json};

/// Results of one responder in one case.
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) responder: &'static str,
    /// Handshakes per second.
    pub(crate) rate: Spread,
    /// CPU time of a handshake, in milliseconds.
    pub(crate) cpu: Spread,
    /// CPU time of child processes of the responder for a handshake, in milliseconds.
    pub(crate) programs: Spread,
    /// Growth of the resident memory, in KiB per IKE SA with its Child SA.
    pub(crate) resident: Spread,
}

/// Results of Casemate's responder without sockets in one case.
pub(crate) struct InMemory {
    pub(crate) case: String,
    pub(crate) count: u32,
    /// CPU time of a handshake, in milliseconds.
    pub(crate) time: f64,
    /// Heap bytes of an IKE SA with its Child SA.
    pub(crate) bytes: u64,
}

/// All results.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) in_memory: Vec<InMemory>,
    /// Skipped measurements, and the reasons.
    pub(crate) skipped: Vec<String>,
}

impl Report {
    pub(crate) fn print(&self) {
        println!("Responder in memory, without sockets:");
        for row in &self.in_memory {
            let InMemory { case, count, time, bytes } = row;
            println!(
                "  {case:<16} {time:.3} ms of CPU per handshake, {bytes} bytes per IKE SA with a Child SA ({count} SAs)"
            );
        }
        println!("Responder as a process: median (minimum-maximum) of the rounds; the SAs are kept");
        println!(
            "  {:<16} {:<10} {:<22} {:<24} {:<24} growth, KiB/SA",
            "handshake", "responder", "handshakes/s", "CPU, ms/handshake", "child processes, ms"
        );
        for row in &self.rows {
            println!(
                "  {:<16} {:<10} {:<22} {:<24} {:<24} {}",
                row.case,
                row.responder,
                row.rate.text(0),
                row.cpu.text(3),
                row.programs.text(3),
                row.resident.text(1)
            );
        }
        self.skipped.iter().for_each(|what| println!("  skipped: {what}"));
    }

    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "case": row.case, "responder": row.responder, "handshakes_per_second": row.rate.json(),
                "cpu_ms": row.cpu.json(), "programs_ms": row.programs.json(), "resident_kib": row.resident.json(),
            })
        };
        let in_memory = |row: &InMemory| json!({ "case": row.case, "count": row.count, "ms": row.time, "bytes": row.bytes });
        json!({
            "processes": self.rows.iter().map(row).collect::<Vec<_>>(),
            "in_memory": self.in_memory.iter().map(in_memory).collect::<Vec<_>>(),
            "left_out": self.skipped,
        })
    }
}
