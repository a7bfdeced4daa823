//! Answers as programs read them. Times are in seconds, rates in bits a second.

use super::{Answer, Question};
use serde_json::{Value, json};

/// One line of output.
pub(super) fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// All answers.
pub(super) fn of(question: &Question, answers: &[Answer]) -> Value {
    json!({
        "line": question.line,
        "codec": question.codec.map(|codec| codec.keyword),
        "payload": question.stream.payload,
        "interval": question.stream.interval().as_secs_f64(),
        "loss": question.loss,
        "choices": answers.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(Answer { choice, plan, delay, rating }: &Answer) -> Value {
    json!({
        "name": choice.name,
        "offered": choice.is_offered,
        "packet": plan.packet,
        "calls": plan.calls(),
        "bandwidth": plan.bandwidth(),
        "load": plan.load(plan.calls()),
        "serialisation": plan.serialisation(),
        "line_delay": delay.map(|delay| delay.line.as_secs_f64()),
        "mouth_to_ear": delay.map(|delay| delay.total().as_secs_f64()),
        "r": rating.map(|rating| rating.value()),
        "mos": rating.map(|rating| rating.mos()),
    })
}
