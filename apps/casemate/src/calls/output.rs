//! Output of `casemate calls`: the results and the table of the paper, as text and as JSON. Times in JSON
//! are in seconds, rates in bits per second.

use super::{Answer, Question};
use casemate_calls::paper::{PacketType, Row};
use casemate_calls::plan::Plan;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Version of the JSON output (docs/manual/schema/calls.json).
const SCHEMA_VERSION: u32 = 1;

/// Formats a rate with a suitable unit.
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

/// Formats a table for a comparison, or a list for one suite.
pub(super) fn text(question: &Question, answers: &[Answer]) -> String {
    match answers {
        [answer] if !question.is_comparison => single(question, answer),
        _ => table(question, answers),
    }
}

fn single(question: &Question, answer: &Answer) -> String {
    let Plan { packet_len: packet, stream, .. } = answer.plan;
    let (plan, calls) = (&answer.plan, answer.plan.calls());
    let mut lines = vec![
        (
            "bytes per packet",
            format!(
                "{packet}, of which {} ({:.0}%) are speech",
                stream.payload,
                plan.payload_share() * 100.0
            ),
        ),
        ("kbit/s per call", format!("{:.1}", plan.bandwidth() / 1000.0)),
        ("calls", format!("{calls}, taking {:.0}% of the line", plan.utilization(calls) * 100.0)),
        ("sending a packet", format!("{:.2} ms", plan.serialization_time() * 1000.0)),
    ];
    if let Some(delay) = answer.delay {
        let parts = format!(
            "{} in the packet, {} look-ahead, {} on the full line, {} elsewhere",
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
        (None, _, None) => "not known: no codec was given".into(),
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
        let dash = || "-".to_owned();
        let cells = [
            plan.packet_len.to_string(),
            format!("{:.0}%", plan.payload_share() * 100.0),
            format!("{:.1}", plan.bandwidth() / 1000.0),
            plan.calls().to_string(),
            delay.map_or_else(dash, |delay| ms(delay.total())),
            rating.map_or_else(dash, |rating| format!("{:.1}", rating.value())),
            rating.map_or_else(dash, |rating| format!("{:.2}", rating.mos())),
        ];
        let _ = write!(text, "\n{:width$}", choice.name);
        for cell in cells {
            let _ = write!(text, "{cell:>8}");
        }
    }
    text.push_str(
        "\n\nkbit/s: one call, one direction. delay: average ms from mouth to ear with the maximum number of \
         calls.\n",
    );
    if answers.iter().any(|answer| answer.rating.is_none() && answer.plan.calls() > 0) {
        let why = match question.codec {
            Some(codec) => format!("ITU-T G.113 Appendix I has no pair of values for {}", codec.name),
            None => "no codec was given".into(),
        };
        let _ = writeln!(text, "R and MOS are not known: {why}.");
    }
    text
}

/// Formats a value as one line.
pub(super) fn json_line(value: &Value) -> String {
    format!("{value}\n")
}

/// The results of all choices.
pub(super) fn json(question: &Question, answers: &[Answer]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "line": question.line,
        "codec": question.codec.map(|codec| codec.keyword),
        "payload": question.stream.payload,
        "interval": question.stream.interval().as_secs_f64(),
        "loss": question.loss,
        "choices": answers.iter().map(answer_json).collect::<Vec<_>>(),
    })
}

fn answer_json(Answer { choice, plan, delay, rating }: &Answer) -> Value {
    json!({
        "name": choice.name,
        "packet": plan.packet_len,
        "calls": plan.calls(),
        "bandwidth": plan.bandwidth(),
        "load": plan.utilization(plan.calls()),
        "serialisation": plan.serialization_time(),
        "line_delay": delay.map(|delay| delay.line.as_secs_f64()),
        "mouth_to_ear": delay.map(|delay| delay.total().as_secs_f64()),
        "r": rating.map(|rating| rating.value()),
        "mos": rating.map(|rating| rating.mos()),
    })
}

const TITLE: &str = "\
\"Voice over IPsec: Analysis and Solutions\" (ACSAC 2002), Table 3: 40 bytes of speech, 50 packets/s, 128 kbit/s

                          header  packet   ratio  larger  wasted   calls
";

const NOTE: &str = "\
larger, wasted: packet size and bandwidth compared with cRTP.
";

/// The table as text.
pub(super) fn paper_text() -> String {
    let mut text = TITLE.to_owned();
    for kind in PacketType::ALL {
        write_row(&mut text, kind.name(), "printed", kind.printed());
        write_row(&mut text, "", "exact", kind.exact());
    }
    let _ = write!(text, "\n{NOTE}");
    for kind in PacketType::ALL {
        if let Some(why) = kind.misprint() {
            let (printed, exact) = (kind.printed().packet, kind.exact().packet);
            let _ = writeln!(text, "misprint: {} {printed} instead of {exact} bytes: {why}.", kind.name());
        }
    }
    text
}

fn write_row(text: &mut String, name: &str, whose: &str, row: Row) {
    let Row { header, packet, ratio, increase, reduction, calls } = row;
    let percent = |number| format!("{number}%");
    let _ = writeln!(
        text,
        "{name:<16}{whose:<8}{header:>8}{packet:>8}{:>8}{:>8}{:>8}{calls:>8}",
        percent(ratio),
        percent(increase),
        percent(reduction)
    );
}

/// The table as JSON.
pub(super) fn paper_json() -> Value {
    let row = |Row { header, packet, ratio, increase, reduction, calls }| {
        json!({
            "header": header, "packet": packet, "ratio_percent": ratio, "increase_percent": increase,
            "reduction_percent": reduction, "calls": calls,
        })
    };
    let rows = PacketType::ALL.map(|kind| {
        json!({
            "name": kind.name(), "printed": row(kind.printed()), "exact": row(kind.exact()), "misprint": kind.misprint(),
        })
    });
    json!({ "schema_version": SCHEMA_VERSION, "table": 3, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_suitable_units() {
        assert_eq!(
            [999, 128_000, 1_544_000, 1_000_000_000].map(rate),
            ["999 bit/s", "128 kbit/s", "1.544 Mbit/s", "1 Gbit/s"]
        );
    }
}
