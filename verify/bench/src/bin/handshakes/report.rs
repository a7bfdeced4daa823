//! The results, as a table or as one JSON object.

use serde_json::{Value, json};

/// The middle of several samples, with the least and the greatest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// One responder in one case.
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) responder: &'static str,
    /// Handshakes a second.
    pub(crate) rate: Spread,
    /// CPU time of a handshake, in milliseconds.
    pub(crate) cpu: Spread,
    /// CPU time of the programs that the responder ran for it.
    pub(crate) programs: Spread,
    /// Growth of the process, in KiB an IKE SA with its Child SA.
    pub(crate) resident: Spread,
}

/// Casemate's responder without sockets, in one case.
pub(crate) struct InMemory {
    pub(crate) case: String,
    pub(crate) count: u32,
    /// CPU time of a handshake, in milliseconds.
    pub(crate) time: f64,
    /// Bytes of the heap for an IKE SA with its Child SA.
    pub(crate) bytes: u64,
}

/// Everything.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) in_memory: Vec<InMemory>,
    /// What could not be measured, and why.
    pub(crate) left_out: Vec<String>,
}

impl Spread {
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        Self { median: at(samples.len() / 2), least: at(0), most: at(samples.len().saturating_sub(1)) }
    }

    fn text(self, digits: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "least": self.least, "most": self.most })
    }
}

impl Report {
    pub(crate) fn print(&self) {
        println!("Responder in memory, without sockets:");
        for row in &self.in_memory {
            let InMemory { case, count, time, bytes } = row;
            println!(
                "  {case:<16} {time:.3} ms of CPU a handshake, {bytes} bytes an IKE SA with a Child SA, of {count}"
            );
        }
        println!("Responder as a process: median (least-most) of the rounds; SAs are kept");
        println!(
            "  {:<16} {:<10} {:<22} {:<24} {:<24} growth, KiB an SA",
            "handshake", "responder", "handshakes a second", "CPU, ms a handshake", "programs it ran, ms"
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
        self.left_out.iter().for_each(|what| println!("  left out: {what}"));
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
            "left_out": self.left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_samples() {
        let Spread { median, least, most } = Spread::of(vec![3.0, 1.0, 10.0]);
        assert_eq!([median, least, most], [3.0, 1.0, 10.0]);
    }
}
