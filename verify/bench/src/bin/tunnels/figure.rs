//! Figure of the results: the common tunnels beside each other, from the JSON object of `--json`.

use casemate_interop::{Error, Result};
use casemate_measure::report::{BarColumn, BarRole, BarSubject, BarTable, svg};
use casemate_measure::stats::Spread;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Subjects of the figure from top to bottom, their names in it, and their roles.
const SUBJECTS: [(&str, &str, BarRole); 5] = [
    ("casemate-aes-gcm-udp", "Casemate, ESP in UDP", BarRole::Own),
    ("casemate-aes-gcm", "Casemate, ESP", BarRole::Own),
    ("wireguard-go", "wireguard-go", BarRole::Other),
    ("boringtun", "boringtun", BarRole::Other),
    ("forwarder", "forwarder, no cipher", BarRole::Reference),
];

/// JSON key of a measure, title, note, and number of decimals.
const COLUMNS: [(&str, &str, &str, usize); 3] = [
    ("stream", "TCP stream, Gbit/s", "more is better", 2),
    ("small", "small packets/s", "more is better", 0),
    ("echo", "idle round trip, µs", "less is better", 0),
];

/// Reads results from the file `from` and draws them into the file `to`.
pub(crate) fn draw_file(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).map_err(Error::context(from.display()))?;
    let results = serde_json::from_str(&text).map_err(Error::context(from.display()))?;
    write(&results, to)
}

/// Draws results into a file.
pub(crate) fn write(results: &Value, file: &Path) -> Result<()> {
    let drawing = svg::draw_bar_table(&bar_table(results)?).map_err(Error::new)?;
    fs::write(file, drawing).map_err(Error::context(file.display()))
}

fn bar_table(results: &Value) -> Result<BarTable> {
    let measured =
        results["subjects"].as_array().ok_or_else(|| Error::new("the results have no subjects"))?;
    let find = |name: &str| measured.iter().find(|subject| subject["name"] == name);
    if !SUBJECTS.iter().any(|(name, ..)| find(name).is_some()) {
        return Err(Error::new("the results contain none of the subjects of the figure"));
    }
    let columns = COLUMNS.map(|(key, title, note, digits)| BarColumn {
        title: title.into(),
        note: note.into(),
        digits,
        values: SUBJECTS.iter().map(|(name, ..)| spread(&find(name)?[key]["value"])).collect(),
    });
    let subjects = SUBJECTS.map(|(_, name, role)| BarSubject { name: name.into(), role });
    Ok(BarTable { subjects: subjects.into(), columns: columns.into(), caption: caption(results) })
}

fn spread(value: &Value) -> Option<Spread> {
    let number = |name: &str| value[name].as_f64();
    Some(Spread { median: number("median")?, min: number("least")?, max: number("most")?, interval: None })
}

fn caption(results: &Value) -> String {
    let text = |key: &str| results[key].as_str().unwrap_or("unknown").to_owned();
    let number = |key: &str| results[key].as_u64().unwrap_or_default();
    let rounds = match number("rounds") {
        1 => "One round".to_owned(),
        rounds => format!("Median of {rounds} rounds, with a line from the minimum to the maximum"),
    };
    format!(
        "{rounds}. Casemate uses AES-128-GCM, WireGuard ChaCha20-Poly1305; the forwarder does everything but \
         encrypt. Commit {}; {}, {} CPUs, Linux {}.",
        text("commit"),
        text("processor"),
        number("cpus"),
        text("kernel")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn results() -> Value {
        let value = |median: f64| json!({ "value": { "median": median, "least": median, "most": median } });
        let subject = |name: &str, factor: f64| json!({ "name": name, "stream": value(1.5 * factor), "small": value(1e5 * factor), "echo": value(200.0) });
        json!({
            "commit": "0123abc", "processor": "Some CPU with AVX-512", "cpus": 2, "kernel": "6.18.5", "rounds": 3,
            "subjects": [subject("forwarder", 3.0), subject("casemate-aes-gcm-udp", 2.0), subject("strongswan", 7.0)],
        })
    }

    #[test]
    fn values_are_in_the_order_of_the_figure() {
        let table = bar_table(&results()).unwrap();
        let medians: Vec<Option<f64>> =
            table.columns[0].values.iter().map(|value| value.map(|spread| spread.median)).collect();
        assert_eq!(medians, [Some(3.0), None, None, None, Some(4.5)]);
        assert!(table.caption.starts_with("Median of 3 rounds"), "{}", table.caption);
        assert!(
            table.caption.ends_with("Commit 0123abc; Some CPU with AVX-512, 2 CPUs, Linux 6.18.5."),
            "{}",
            table.caption
        );
    }

    #[test]
    fn the_drawing_contains_names_numbers_and_the_caption() {
        let drawing = svg::draw_bar_table(&bar_table(&results()).unwrap()).unwrap();
        for text in [
            "Casemate, ESP in UDP",
            "forwarder, no cipher",
            "3.00",
            "300,000",
            "not measured",
            "0123abc",
            "6.18.5",
        ] {
            assert!(drawing.contains(text), "no {text} in {drawing}");
        }
        assert!(!drawing.contains('…'), "a text is shortened: {drawing}");
    }

    #[test]
    fn results_without_tunnels_are_rejected() {
        for wrong in [json!({}), json!({ "subjects": [] }), json!({ "subjects": [{ "name": "link" }] })] {
            assert!(bar_table(&wrong).is_err(), "{wrong}");
        }
    }
}
