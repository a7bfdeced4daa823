//! Results, as tables or as one JSON object, and the goals for them.

use crate::case::{Auth, Case, X25519_ML_KEM_768};
use crate::memory::Cost;
use crate::responder::CASEMATE;
use casemate_bench::goal::{Bound, Goal};
use casemate_measure::stats::Spread;
use serde_json::{Value, json};
use std::time::Duration;

/// Results of one responder in one case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) responder: &'static str,
    /// Handshakes per second.
    pub(crate) rate: Spread,
    /// CPU time of a handshake, in milliseconds.
    pub(crate) cpu: Spread,
    /// CPU time in relation to that of the same program with X25519 alone, if that was measured.
    pub(crate) to_base: Option<Spread>,
    /// CPU time in relation to that of charon with X25519 alone, if that was measured.
    pub(crate) to_charon: Option<Spread>,
    /// CPU time of child processes of the responder for a handshake, in milliseconds.
    pub(crate) programs: Spread,
    /// Growth of the resident memory, in KiB per IKE SA with its Child SA.
    pub(crate) resident: Spread,
}

/// Results without sockets in one case.
pub(crate) struct InMemory {
    pub(crate) case: Case,
    pub(crate) provider: &'static str,
    /// Number of IKE SAs.
    pub(crate) count: u32,
    pub(crate) cost: Cost,
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
        println!("Both sides in memory, without sockets: CPU time, IPv4 packets, and heap of the responder");
        println!(
            "  {:<27} {:<10} {:>13} {:>8} {:>13} {:>7} {:>7} {:>12} {:>14}",
            "handshake",
            "provider",
            "responder, ms",
            "x X25519",
            "initiator, ms",
            "packets",
            "bytes",
            "half-open, B",
            "established, B"
        );
        self.in_memory.iter().for_each(|row| self.print_in_memory(row));
        if !self.rows.is_empty() {
            self.print_processes();
        }
        self.skipped.iter().for_each(|what| println!("  skipped: {what}"));
    }

    fn print_in_memory(&self, row: &InMemory) {
        let Cost { responder, initiator, packets, wire_bytes, half_open_bytes, established_bytes } = row.cost;
        let ratio = self.in_memory_ratio(row).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        println!(
            "  {:<27} {:<10} {:>13.3} {ratio:>8} {:>13.3} {packets:>7} {wire_bytes:>7} {half_open_bytes:>12} {established_bytes:>14}",
            row.case.name(),
            row.provider,
            ms(responder),
            ms(initiator),
        );
    }

    /// CPU time of the responder in relation to that with X25519 alone.
    fn in_memory_ratio(&self, row: &InMemory) -> Option<f64> {
        let is_base = |other: &&InMemory| other.case == row.case.base() && other.provider == row.provider;
        let base = self.in_memory.iter().find(is_base)?;
        Some(row.cost.responder.as_secs_f64() / base.cost.responder.as_secs_f64())
    }

    fn print_processes(&self) {
        println!("Responder as a process: median (minimum-maximum) of the rounds; the SAs are kept");
        println!(
            "  {:<27} {:<10} {:<22} {:<22} {:<18} {:<18} {:<22} growth, KiB/SA",
            "handshake",
            "responder",
            "handshakes/s",
            "CPU, ms/handshake",
            "x X25519",
            "x charon X25519",
            "child processes, ms"
        );
        let ratio = |ratio: Option<Spread>| ratio.map_or_else(String::new, |ratio| ratio.text(2));
        for row in &self.rows {
            println!(
                "  {:<27} {:<10} {:<22} {:<22} {:<18} {:<18} {:<22} {}",
                row.case.name(),
                row.responder,
                row.rate.text(0),
                row.cpu.text(3),
                ratio(row.to_base),
                ratio(row.to_charon),
                row.programs.text(3),
                row.resident.text(1)
            );
        }
        self.goals().iter().for_each(|goal| println!("  {}", goal.line()));
    }

    /// Goals for the median of the rounds.
    fn goals(&self) -> Vec<Goal> {
        let goals = [Auth::Psk, Auth::Ecdsa].map(|auth| {
            let case = Case::new(auth, X25519_ML_KEM_768);
            let row = self.rows.iter().find(|row| row.case == case && row.responder == CASEMATE);
            let goal = |base: &str, wanted, got: Option<Spread>| Goal {
                what: format!("{}, CPU time of Casemate beside {base} with X25519 alone", case.name()),
                bound: Bound::AtMost,
                wanted,
                unit: " times",
                got: got.map(|ratio| ratio.median),
            };
            let [own, charon] = [row.and_then(|row| row.to_base), row.and_then(|row| row.to_charon)];
            [goal("Casemate", 2.5, own), goal("charon", 1.0, charon)]
        });
        goals.into_iter().flatten().collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "case": row.case.name(), "responder": row.responder, "handshakes_per_second": row.rate.json(),
                "cpu_ms": row.cpu.json(), "cpu_to_x25519": row.to_base.map(Spread::json),
                "cpu_to_charon_x25519": row.to_charon.map(Spread::json),
                "programs_ms": row.programs.json(), "resident_kib": row.resident.json(),
            })
        };
        let in_memory = |row: &InMemory| {
            json!({
                "case": row.case.name(), "provider": row.provider, "count": row.count,
                "responder_ms": ms(row.cost.responder), "responder_to_x25519": self.in_memory_ratio(row),
                "initiator_ms": ms(row.cost.initiator),
                "packets": row.cost.packets, "wire_bytes": row.cost.wire_bytes,
                "half_open_bytes": row.cost.half_open_bytes, "established_bytes": row.cost.established_bytes,
            })
        };
        json!({
            "processes": self.rows.iter().map(row).collect::<Vec<_>>(),
            "in_memory": self.in_memory.iter().map(in_memory).collect::<Vec<_>>(),
            "goals": self.goals().iter().map(Goal::json).collect::<Vec<_>>(),
            "left_out": self.skipped,
        })
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
