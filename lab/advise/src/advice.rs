//! The advice: measurements, resulting settings, and what would change them, and its text form.

use crate::as_if::AsIf;
use crate::encapsulation::EncapsulationSamples;
use crate::end_to_end::{Contender, EndToEnd, Sample};
use crate::goal::{Goal, UseCase};
use crate::measure::{Costs, KexCost, Measurements};
use crate::probe::Device;
use crate::rank::RankedSuite;
use crate::rules::Filter;
use crate::settings::Settings;
use crate::suites::{ClassifiedSuites, RefusedSuite};
use casemate_crypto::EspSuite;
use casemate_measure::stats::Spread;
use std::fmt::{self, Write as _};

mod json;

/// Complete advice.
pub struct Advice {
    /// The device.
    pub device: Device,
    /// Simulated differences of the device.
    pub as_if: AsIf,
    /// Available providers in order of preference, and why others are unavailable.
    pub providers: Vec<String>,
    /// Goal of the user.
    pub goal: Goal,
    /// Packets of the user.
    pub use_case: UseCase,
    /// Rules in force.
    pub filter: Filter,
    /// Classification of all suites before the measurement.
    pub suites: ClassifiedSuites,
    /// Measured costs.
    pub measurements: Measurements,
    /// Finalists, best first. Never empty.
    pub ranking: Vec<RankedSuite>,
    /// Key exchange methods, cheapest first.
    pub kex: Vec<KexCost>,
    /// Recommended settings.
    pub settings: Settings,
    /// Streams through ESP in UDP and through ESP alone, or why they were not measured.
    pub encapsulation: Result<EncapsulationSamples, String>,
    /// Result of the end-to-end measurement or why it failed, if it was requested.
    pub end_to_end: Option<Result<EndToEnd, String>>,
    /// Further sentences about what would or would not change the advice.
    pub notes: Vec<String>,
}

impl Advice {
    /// Recommended suite.
    pub fn first(&self) -> Option<EspSuite> {
        self.ranking.first().map(|place| place.scored.suite)
    }

    /// Sentences about what would change the advice.
    pub fn changes(&self) -> Vec<String> {
        let runner_up = self.ranking.get(1).map(runner_up);
        let faster = self
            .ranking
            .iter()
            .filter(|place| place.gap < 0.0 && place.scored.admitted.status.is_being_phased_out());
        let leaving = faster.map(|place| {
            let RankedSuite { scored, gap: behind, .. } = place;
            format!(
                "{} is {} better, but being phased out: {} ({}). Use it only for a peer that supports \
                     nothing newer.",
                scored.suite,
                percent(-behind),
                scored.admitted.status,
                scored.admitted.source
            )
        });
        let providers = self.other_providers();
        runner_up.into_iter().chain(leaving.take(1)).chain(providers).chain(self.notes.clone()).collect()
    }

    /// Cost of the first suite with each provider alone, if there are several.
    fn other_providers(&self) -> Option<String> {
        if self.goal.is_exact() {
            return None;
        }
        let first = self.ranking.first()?;
        let of_first =
            self.measurements.per_provider.iter().filter(|costs| costs.suite == first.scored.suite);
        let alone: Vec<String> = of_first
            .filter_map(|costs| {
                let times = self.goal.undisturbed_score(costs, &self.use_case)? / first.scored.score;
                Some(format!("{} {times:.2}", costs.provider))
            })
            .collect();
        (alone.len() > 1).then(|| {
            format!(
                "Other crypto providers: cost of {} relative to the default order (1.00): {}.",
                first.scored.suite,
                alone.join(", ")
            )
        })
    }
}

fn runner_up(second: &RankedSuite) -> String {
    let suite = second.scored.suite;
    if second.is_tied && second.gap.abs() < 0.5 {
        format!(
            "{suite} ties with the first within the accuracy of the measurement; the rules decide the \
                 order of the two."
        )
    } else {
        format!("{suite} is second, {} behind the first.", percent(second.gap))
    }
}

/// Formats a share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

impl Advice {
    /// Returns about thirty lines, optionally followed by every sample.
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
            writeln!(out, "  simulated as {}", self.as_if)?;
        }
        writeln!(out, "\nGoal: {}, {}, {}", self.goal.word(), self.use_case.mix.name, self.use_case.mode)?;
        for profile in self.filter.profiles() {
            let history = if profile.is_history { "; historic, not for use" } else { "" };
            writeln!(out, "Rules: {} (read {}{history})", profile.title, profile.read)?;
            profile.unmet.iter().try_for_each(|unmet| writeln!(out, "  not satisfied: {unmet}"))?;
        }
        self.write_ranking(out)?;
        write_encapsulation(out, &self.encapsulation)?;
        if let Some(thorough) = &self.end_to_end {
            write_thorough(out, thorough)?;
        }
        self.write_refusals(out)?;
        writeln!(
            out,
            "\nKey exchanges: us of the initiator (generate + agree) and the responder, bytes of both values"
        )?;
        self.kex.iter().try_for_each(|cost| self.write_kex(out, cost))?;
        writeln!(out, "\nswanctl.conf\n{}", indented(&self.settings.swanctl()))?;
        writeln!(out, "Reasons\n{}", listed(&self.settings.reasons))?;
        writeln!(out, "What would change this answer\n{}", listed(&self.changes()))
    }

    fn write_ranking(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\nRanking by {}: median (least-most)", self.goal.unit())?;
        for (rank, place) in self.ranking.iter().enumerate() {
            let RankedSuite { scored, gap: behind, is_tied, .. } = place;
            let number = Spread::of(scored.scores.iter().copied())
                .map_or_else(String::new, |spread| spread.text(digits(spread.median)));
            let tie = if *is_tied { ", tie" } else { "" };
            let note = scored.admitted.note.as_ref().map_or_else(String::new, |note| format!(", {note}"));
            let behind =
                if rank == 0 { "-".into() } else { format!("{behind:+.0} %", behind = behind * 100.0) };
            writeln!(
                out,
                "  {:>2} {:<42} {number:<28} {behind:>7}{tie}  {} ({}{note})",
                rank + 1,
                scored.suite.to_string(),
                scored.admitted.status,
                scored.admitted.source
            )?;
        }
        let others = self.measurements.screening.len().saturating_sub(self.ranking.len());
        writeln!(
            out,
            "  {others} more were screened and are behind the best of their family; see `--json --explain`"
        )
    }

    /// Writes each reason once, with the number of suites that it excludes.
    fn write_refusals(&self, out: &mut String) -> fmt::Result {
        let mut reasons: Vec<(String, usize)> = Vec::new();
        for RefusedSuite { refusal, .. } in &self.suites.refused {
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
        let KexCost { method, generate, agree, .. } = cost;
        let bytes = method.public_len().saturating_add(method.response_len());
        writeln!(
            out,
            "  {:<26} {:>9.0} ({:.0} + {:.0}) {:>9.0} us {bytes:>6} bytes  {level}",
            method.to_string(),
            cost.initiator_micros(),
            generate.min,
            agree.min,
            cost.responder_micros(),
        )
    }

    fn write_samples(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\nSamples: nanoseconds a packet, one for each round")?;
        for costs in self.measurements.finalists.iter().chain(&self.measurements.per_provider) {
            write_costs(out, costs)?;
        }
        Ok(())
    }
}

fn write_encapsulation(out: &mut String, measured: &Result<EncapsulationSamples, String>) -> fmt::Result {
    writeln!(out, "\nESP in UDP between two Casemates (encap = auto)")?;
    let samples = match measured {
        Ok(samples) => samples,
        Err(reason) => return writeln!(out, "  not measured: {reason}"),
    };
    let text = |streams: &[f64]| {
        Spread::of(streams.iter().copied()).map_or_else(String::new, |spread| spread.text(2))
    };
    let (esp, in_udp) = (text(&samples.esp), text(&samples.in_udp));
    writeln!(out, "  one TCP stream, median (least-most): {in_udp} Gbit/s in UDP, {esp} Gbit/s without")?;
    writeln!(out, "  {}", samples.sentence())
}

fn write_thorough(out: &mut String, thorough: &Result<EndToEnd, String>) -> fmt::Result {
    let thorough = match thorough {
        Ok(thorough) => thorough,
        Err(why) => return writeln!(out, "\nEnd to end: not measured: {why}"),
    };
    writeln!(out, "\nEnd to end, through two gateways: median (least-most) of {} turns", thorough.rounds())?;
    for Contender { suite, samples: turns } in &thorough.contenders {
        let text = |number: fn(&Sample) -> f64, digits| {
            Spread::of(turns.iter().map(number)).map_or_else(String::new, |spread| spread.text(digits))
        };
        writeln!(
            out,
            "  {:<42} {} packets/s, {} us of CPU each, {} us round trip, {} Gbit/s of TCP",
            suite.to_string(),
            text(|turn| turn.packets_per_second, 0),
            text(|turn| turn.cpu_us, 2),
            text(|turn| turn.round_trip_us, 0),
            text(|turn| turn.stream_gbit_per_second, 2)
        )?;
    }
    writeln!(out, "  {}", thorough.verdict())
}

/// Number of decimals that makes differences visible.
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
            "    sealing and opening: {:.0} + {:.3} n ns for n bytes, which explains {fit}",
            line.intercept, line.slope
        )?;
    }
    for samples in &costs.samples {
        for (operation, nanos) in [("seal", &samples.seal), ("open", &samples.open)] {
            let nanos: Vec<String> = nanos.iter().map(|nanos| format!("{nanos:.0}")).collect();
            writeln!(out, "    {:>5} bytes, {operation}: {}", samples.size, nanos.join(" "))?;
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
