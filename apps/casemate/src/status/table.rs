//! The state of an instance for people.

use serde_json::Value;
use std::fmt::Write as _;

/// Renders what an instance answered.
pub(super) fn render(answer: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "casemate {} (pid {}) on {}, {} from {}",
        show(answer, "version"),
        show(answer, "pid"),
        show(answer, "tun"),
        uptime(answer),
        show(answer, "xfrm"),
    );
    text.push_str("\nSAs\n");
    let rows: Vec<[String; 10]> = list(answer, "sas").iter().map(sa_row).collect();
    let head = ["", "spi", "from", "to", "what", "suite (provider)", "seq", "packets", "bytes", "window"];
    table(&mut text, head.map(String::from), &rows);
    text.push_str("\nPolicies\n");
    let rows: Vec<[String; 4]> = list(answer, "policies").iter().map(policy_row).collect();
    table(&mut text, ["", "packets", "action", "priority"].map(String::from), &rows);
    text.push_str("\nDrops\n");
    let drops = answer.get("drops").and_then(Value::as_object);
    let counted = drops.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let rows: Vec<[String; 2]> = counted.map(|(reason, count)| [reason.clone(), count.to_string()]).collect();
    if rows.is_empty() {
        text.push_str("  none\n");
    }
    table(&mut text, ["reason", "packets"].map(String::from), &rows);
    text
}

fn sa_row(sa: &Value) -> [String; 10] {
    let mut what = format!("{} {}", show(sa, "protocol"), show(sa, "mode"));
    for (flag, word) in [("esn", " esn"), ("udp_encapsulated", " udp")] {
        if sa.get(flag).and_then(Value::as_bool) == Some(true) {
            what.push_str(word);
        }
    }
    [
        show(sa, "direction"),
        show(sa, "spi"),
        show(sa, "src"),
        show(sa, "dst"),
        what,
        format!("{} ({})", show(sa, "suite"), show(sa, "provider")),
        show(sa, "seq"),
        show(sa, "packets"),
        show(sa, "bytes"),
        window(sa),
    ]
}

fn window(sa: &Value) -> String {
    let Some(window) = sa.get("window").filter(|window| !window.is_null()) else { return String::new() };
    let (replays, failures) = (show(window, "replays"), show(window, "icv_failures"));
    format!("{}, {replays} replays, {failures} wrong ICVs", show(window, "size"))
}

fn policy_row(policy: &Value) -> [String; 4] {
    ["direction", "selector", "action", "priority"].map(|name| show(policy, name))
}

fn uptime(answer: &Value) -> String {
    let seconds = answer.get("uptime_seconds").and_then(Value::as_f64).unwrap_or(0.0) as u64;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("up {hours}:{minutes:02}:{:02},", seconds % 60)
}

/// A value as text; strings without quotes.
fn show(object: &Value, name: &str) -> String {
    match object.get(name) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".into(),
        Some(other) => other.to_string(),
    }
}

fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Columns as wide as their widest entry; nothing at all without rows.
fn table<const N: usize>(text: &mut String, head: [String; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let mut widths = [0; N];
    for row in std::iter::once(&head).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::from(" ");
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, " {cell:width$} ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn people_see_sas_policies_and_drops_that_happened() {
        let answer = json!({
            "version": "1.2.3", "pid": 7, "tun": "tun5", "xfrm": "a.xfrm", "uptime_seconds": 3_725.5,
            "sas": [{
                "direction": "in", "spi": "0x00001001", "src": "192.0.2.1", "dst": "192.0.2.2", "protocol": "esp",
                "mode": "tunnel", "suite": "X", "provider": "aws-lc", "esn": true, "udp_encapsulated": false,
                "seq": 5, "packets": 4, "bytes": 300,
                "window": {"size": 64, "recent": "0x1", "replays": 2, "icv_failures": 1},
            }],
            "policies": [{"direction": "out", "selector": "a -> b", "action": "discard", "priority": 3}],
            "drops": {"replay": 2, "no-sa": 0},
        });
        let text = render(&answer);
        for line in [
            "casemate 1.2.3 (pid 7) on tun5, up 1:02:05, from a.xfrm",
            "  in  0x00001001  192.0.2.1  192.0.2.2  esp tunnel esn  X (aws-lc)        5    4        300    \
             64, 2 replays, 1 wrong ICVs",
            "  out  a -> b   discard  3",
            "  replay  2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no line `{line}` in:\n{text}");
        }
        assert!(!text.contains("no-sa"));
    }
}
