//! The answer for people.

use super::{Answer, percent};
use crate::measure::{Costs, KexCost};
use crate::rank::Place;
use crate::thorough::{Contender, Thorough, Turn};
use casemate_measure::spread::Spread;
use std::fmt::{self, Write as _};

impl Answer {
    /// Some thirty lines; with every sample behind them if they are wanted.
    pub fn text(&self, with_samples: bool) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = self.write(&mut text);
        if with_samples {
            let _ = self.write_samples(&mut text);
        }
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "Device\n{}  providers: {}", self.device.text(), self.providers.join("; "))?;
        if self.as_if != Default::default() {
            writeln!(out, "  taken as if it were {}", self.as_if)?;
        }
        writeln!(out, "\nGoal: {}, {}, {}", self.goal.word(), self.use_case.mix.name, self.use_case.mode)?;
        for profile in self.filter.profiles() {
            let history = if profile.is_history { "; of the past, not to be used" } else { "" };
            writeln!(out, "Rules: {} (read {}{history})", profile.title, profile.read)?;
        }
        self.write_ranking(out)?;
        if let Some(thorough) = &self.thorough {
            write_thorough(out, thorough)?;
        }
        self.write_refusals(out)?;
        writeln!(out, "\nKey exchanges, one side")?;
        self.kex.iter().try_for_each(|cost| self.write_kex(out, cost))?;
        writeln!(out, "\nswanctl.conf\n{}", indented(&self.settings.swanctl()))?;
        writeln!(out, "Reasons\n{}", listed(&self.settings.reasons))?;
        writeln!(out, "What would change this answer\n{}", listed(&self.changes()))
    }

    fn write_ranking(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\nRanking by {}: median (least-most)", self.goal.unit())?;
        for (rank, place) in self.places.iter().enumerate() {
            let Place { spot, behind, is_tied, .. } = place;
            let number = Spread::of(spot.scores.iter().copied())
                .map_or_else(String::new, |spread| spread.text(digits(spread.median)));
            let tie = if *is_tied { ", tie" } else { "" };
            let note = spot.admitted.note.as_ref().map_or_else(String::new, |note| format!(", {note}"));
            let behind =
                if rank == 0 { "-".into() } else { format!("{behind:+.0} %", behind = behind * 100.0) };
            writeln!(
                out,
                "  {:>2} {:<42} {number:<28} {behind:>7}{tie}  {} ({}{note})",
                rank + 1,
                spot.suite.to_string(),
                spot.admitted.status,
                spot.admitted.source
            )?;
        }
        let others = self.found.first_look.len().saturating_sub(self.places.len());
        writeln!(
            out,
            "  {others} more had a short look and are behind the best of their kind; `--json --explain` has them"
        )
    }

    /// Each reason once, with how many suites it keeps out.
    fn write_refusals(&self, out: &mut String) -> fmt::Result {
        let mut reasons: Vec<(String, usize)> = Vec::new();
        for (_, refusal) in &self.sorted.refused {
            let same_part = refusal.why.starts_with("MUST") || refusal.why.starts_with("SHOULD");
            let reason =
                if same_part { refusal.to_string() } else { format!("{} ({})", refusal.why, refusal.source) };
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        writeln!(out, "\nNot advised, however fast")?;
        reasons.iter().try_for_each(|(reason, count)| writeln!(out, "  {count:>3} suites: {reason}"))
    }

    fn write_kex(&self, out: &mut String, cost: &KexCost) -> fmt::Result {
        let level = match self.filter.kex(cost.method) {
            Ok(admitted) => format!("{} ({})", admitted.status, admitted.source),
            Err(refusal) => format!("refused: {} ({})", refusal.why, refusal.source),
        };
        writeln!(out, "  {:<26} {:>9.0} us  {level}", cost.method.to_string(), cost.micros.median)
    }

    fn write_samples(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\nSamples: nanoseconds a packet, one for each round")?;
        for costs in self.found.finalists.iter().chain(&self.found.alone) {
            write_costs(out, costs)?;
        }
        Ok(())
    }
}

fn write_thorough(out: &mut String, thorough: &Result<Thorough, String>) -> fmt::Result {
    let thorough = match thorough {
        Ok(thorough) => thorough,
        Err(why) => return writeln!(out, "\nEnd to end: not measured: {why}"),
    };
    writeln!(out, "\nEnd to end, through two gateways: median (least-most) of {} turns", thorough.turns())?;
    for Contender { suite, turns } in &thorough.contenders {
        let text = |number: fn(&Turn) -> f64, digits| {
            Spread::of(turns.iter().map(number)).map_or_else(String::new, |spread| spread.text(digits))
        };
        writeln!(
            out,
            "  {:<42} {} packets/s, {} us of CPU each, {} us there and back, {} Gbit/s of TCP",
            suite.to_string(),
            text(|turn| turn.packets_per_second, 0),
            text(|turn| turn.cpu_us, 2),
            text(|turn| turn.round_trip_us, 0),
            text(|turn| turn.stream_gbit_per_second, 2)
        )?;
    }
    writeln!(out, "  {}", thorough.verdict())
}

/// So many that differences show, and no more.
fn digits(number: f64) -> usize {
    match number {
        ..10.0 => 3,
        10.0..100.0 => 1,
        _ => 0,
    }
}

fn write_costs(out: &mut String, costs: &Costs) -> fmt::Result {
    writeln!(out, "  {} by {}", costs.suite, costs.provider)?;
    if let Some(line) = costs.line() {
        let fit = percent(line.r_squared);
        writeln!(
            out,
            "    both together: {:.0} + {:.3} n ns for n bytes, which explains {fit}",
            line.fixed, line.slope
        )?;
    }
    for samples in &costs.samples {
        for (way, nanos) in [("seal", &samples.seal), ("open", &samples.open)] {
            let nanos: Vec<String> = nanos.iter().map(|nanos| format!("{nanos:.0}")).collect();
            writeln!(out, "    {:>5} bytes, {way}: {}", samples.size, nanos.join(" "))?;
        }
    }
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn listed(items: &[String]) -> String {
    items.iter().map(|item| format!("  - {item}\n")).collect()
}
