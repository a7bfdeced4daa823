//! The paper's table beside that of the formats.

use casemate_calls::paper::{PacketType, Row};
use serde_json::{Value, json};
use std::fmt::Write as _;

const TITLE: &str = "\
\"Voice over IPsec: Analysis and Solutions\" (ACSAC 2002), Table 3: 40 bytes of speech, 50 packets a second, 128 kbit/s

                          header  packet   ratio  larger  wasted   calls
";

const NOTE: &str = "\
larger, wasted: against cRTP, in size and in bandwidth.
";

/// For a person.
pub(super) fn text() -> String {
    let mut text = TITLE.to_owned();
    for kind in PacketType::ALL {
        line(&mut text, kind.name(), "printed", kind.printed());
        line(&mut text, "", "exact", kind.exact());
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

fn line(text: &mut String, name: &str, whose: &str, row: Row) {
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

/// For a program.
pub(super) fn json() -> Value {
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
    json!({ "table": 3, "rows": rows })
}
