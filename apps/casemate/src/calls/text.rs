//! Answers as a person reads them.

use super::{Answer, Question};
use casemate_calls::plan::Plan;
use std::fmt::Write as _;
use std::time::Duration;

/// A rate with the unit that suits it.
pub(super) fn rate(bits: u64) -> String {
    let (size, unit) = match bits {
        0..1_000 => (1.0, "bit/s"),
        1_000..1_000_000 => (1e3, "kbit/s"),
        1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
        _ => (1e9, "Gbit/s"),
    };
    format!("{} {unit}", bits as f64 / size)
}

pub(super) fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

/// All answers: a table of several, sentences about one.
pub(super) fn of(question: &Question, answers: &[Answer]) -> String {
    match answers {
        [answer] if !question.is_comparison => one(question, answer),
        _ => table(question, answers),
    }
}

fn one(question: &Question, answer: &Answer) -> String {
    let Plan { packet, stream, .. } = answer.plan;
    let (plan, calls) = (&answer.plan, answer.plan.calls());
    let mut lines = vec![
        (
            "bytes a packet",
            format!("{packet}, of which {} ({:.0}%) are speech", stream.payload, plan.ratio() * 100.0),
        ),
        ("kbit/s a call", format!("{:.1}", plan.bandwidth() / 1000.0)),
        ("calls", format!("{calls}, which take {:.0}% of the line", plan.load(calls) * 100.0)),
        ("sending a packet", format!("{:.2} ms", plan.serialisation() * 1000.0)),
    ];
    if let Some(delay) = answer.delay {
        let parts = format!(
            "{} in the packet, {} looked ahead, {} on the full line, {} elsewhere",
            ms(delay.packet),
            ms(delay.look_ahead),
            ms(delay.line),
            ms(delay.elsewhere)
        );
        lines.push(("mouth to ear", format!("{} ms: {parts}", ms(delay.total()))));
    }
    lines.push(("quality", quality(question, answer)));
    let mut text = format!("{}\n{}\n\n", question.title(), answer.choice.name);
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<18}{value}");
    }
    text
}

fn quality(question: &Question, answer: &Answer) -> String {
    match (answer.rating, answer.plan.calls(), question.codec) {
        (Some(rating), ..) => {
            let (r, mos) = (rating.value(), rating.mos());
            format!("R {r:.1}, MOS {mos:.2}: {}", rating.opinion())
        }
        (None, 0, _) => "none: the line carries no call".into(),
        (None, _, Some(codec)) => {
            format!("not known: ITU-T G.113 Appendix I has no pair of values for {}", codec.name)
        }
        (None, _, None) => "not known: no codec is named".into(),
    }
}

fn table(question: &Question, answers: &[Answer]) -> String {
    let width = answers.iter().map(|answer| answer.choice.name.len() + 2).max().unwrap_or(0);
    let mut text = format!("{}\n\n", question.title());
    let heads = ["bytes", "speech", "kbit/s", "calls", "delay", "R", "MOS"];
    let _ = write!(text, "{:width$}", "");
    for head in heads {
        let _ = write!(text, "{head:>8}");
    }
    for Answer { choice, plan, delay, rating } in answers {
        let mark = if choice.is_offered { "" } else { " *" };
        let dash = || "-".to_owned();
        let cells = [
            plan.packet.to_string(),
            format!("{:.0}%", plan.ratio() * 100.0),
            format!("{:.1}", plan.bandwidth() / 1000.0),
            plan.calls().to_string(),
            delay.map_or_else(dash, |delay| ms(delay.total())),
            rating.map_or_else(dash, |rating| format!("{:.1}", rating.value())),
            rating.map_or_else(dash, |rating| format!("{:.2}", rating.mos())),
        ];
        let _ = write!(text, "\n{:width$}", format!("{}{mark}", choice.name));
        for cell in cells {
            let _ = write!(text, "{cell:>8}");
        }
    }
    text.push_str("\n\nkbit/s: of a call, in one direction. delay: ms from mouth to ear, on average, on a line full of calls.\n");
    if answers.iter().any(|answer| answer.rating.is_none() && answer.plan.calls() > 0) {
        let why = match question.codec {
            Some(codec) => format!("ITU-T G.113 Appendix I has no pair of values for {}", codec.name),
            None => "no codec is named".into(),
        };
        let _ = writeln!(text, "R and MOS are not known: {why}.");
    }
    if answers.iter().any(|answer| !answer.choice.is_offered) {
        text.push_str(
            "* Casemate does not have it: header compression (RFC 5856) and implicit IVs (RFC 8750).\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_unit_that_suits_them() {
        assert_eq!(
            [999, 128_000, 1_544_000, 1_000_000_000].map(rate),
            ["999 bit/s", "128 kbit/s", "1.544 Mbit/s", "1 Gbit/s"]
        );
    }
}
