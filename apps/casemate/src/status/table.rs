//! The state of an instance as text tables.

use super::ike_table;
use crate::output;
use casemate_linux::dns::DnsMethod;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::str::FromStr;

/// Formats the JSON response of an instance.
pub(super) fn render(answer: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "casemate {} (pid {}) on {}, {} from {}",
        show(answer, "version"),
        show(answer, "pid"),
        show(answer, "tun"),
        uptime(answer),
        show(answer, if answer.get("config").is_some_and(Value::is_string) { "config" } else { "xfrm" }),
    );
    ike_table::add(&mut text, answer);
    text.push_str("\nSAs\n");
    let rows: Vec<[String; 10]> = list(answer, "sas").iter().map(sa_row).collect();
    let head = ["", "spi", "from", "to", "what", "suite (provider)", "seq", "packets", "bytes", "window"];
    table(&mut text, head.map(String::from), &rows);
    header_compression(&mut text, answer);
    text.push_str("\nPolicies\n");
    let rows: Vec<[String; 4]> = list(answer, "policies").iter().map(policy_row).collect();
    table(&mut text, ["", "packets", "action", "priority"].map(String::from), &rows);
    classes(&mut text, answer);
    text.push_str("\nDrops\n");
    counts(&mut text, answer, "drops", ["reason", "packets"]);
    let rejected = answer.get("rejected_joined_writes").and_then(Value::as_u64);
    if let Some(count) = rejected.filter(|count| *count > 0) {
        let count = output::counted(count, "combined write", "combined writes");
        let _ = writeln!(text, "\nThe kernel rejected {count}; the packets were written one by one.");
    }
    batch_padding(&mut text, answer);
    broken_invariants(&mut text, answer);
    guard(&mut text, answer);
    link_sending(&mut text, answer);
    name_servers(&mut text, answer);
    store(&mut text, answer);
    cell(&mut text, answer);
    text
}

/// The SAs that compress headers, if there are any.
fn header_compression(text: &mut String, answer: &Value) {
    let with_rohc = |sa: &Value| {
        let rohc = sa.get("rohc").filter(|rohc| !rohc.is_null())?;
        let of = ["contexts", "packets", "header_bytes", "compressed_bytes", "failures"];
        let [contexts, packets, before, after, failures] = of.map(|name| show(rohc, name));
        Some([show(sa, "direction"), show(sa, "spi"), contexts, packets, before, after, failures])
    };
    let rows: Vec<[String; 7]> = list(answer, "sas").iter().filter_map(with_rohc).collect();
    if !rows.is_empty() {
        text.push_str("\nHeader compression\n");
    }
    let head = ["", "spi", "contexts", "packets", "header bytes", "compressed", "not restored"];
    table(text, head.map(String::from), &rows);
}

/// What padding to the length of other packets cost, if there was any.
fn batch_padding(text: &mut String, answer: &Value) {
    let of_padding = |name| answer.get("batch_padding").and_then(|padding| padding.get(name)?.as_u64());
    if let (Some(packets @ 1..), Some(bytes)) = (of_padding("packets"), of_padding("bytes")) {
        let packets = output::counted(packets, "packet was", "packets were");
        let bytes = output::counted(bytes, "byte", "bytes");
        let _ = writeln!(text, "\n{packets} padded with {bytes} to leave in one batch with others.");
    }
}

/// States that only a defect of the program explains.
fn broken_invariants(text: &mut String, answer: &Value) {
    let count = answer.get("broken_invariants").and_then(Value::as_u64);
    if let Some(count) = count.filter(|count| *count > 0) {
        let count = output::counted(count, "broken invariant", "broken invariants");
        let _ = writeln!(text, "\nThe program found {count}. This is a defect; please report it.");
    }
}

/// Changes of the guard by other programs.
fn guard(text: &mut String, answer: &Value) {
    let of_guard = |name| answer.get("guard").and_then(|guard| guard.get(name));
    if let Some(count) = of_guard("restored").and_then(Value::as_u64).filter(|count| *count > 0) {
        let count = output::counted(count, "time", "times");
        let _ =
            writeln!(text, "\nAnother program changed or removed the guard, and it was restored: {count}.");
    }
    if of_guard("stands").and_then(Value::as_bool) == Some(false) {
        text.push_str("\nAnother program changed or removed the guard, and it is not restored yet.\n");
    }
}

/// How protected packets leave that are not sent in batches.
fn link_sending(text: &mut String, answer: &Value) {
    let Some(state) = answer.get("link_sending") else { return };
    let _ = match state.get("reason").and_then(Value::as_str) {
        None => writeln!(text, "\nSingle packets are sent directly to the next hop."),
        Some(reason) => writeln!(text, "\nSingle packets are sent through the raw socket: {reason}."),
    };
}

/// Name servers of tunnels that are in use, and why others are not.
fn name_servers(text: &mut String, answer: &Value) {
    let Some(state) = answer.get("name_servers") else { return };
    let all = |name| list(state, name).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    if let Some(method) = state.get("method").and_then(Value::as_str) {
        let is_for_all = state.get("all_names").and_then(Value::as_bool) == Some(true);
        let names = if is_for_all { "all names".to_owned() } else { all("domains") };
        let _ = writeln!(text, "\nName servers in use: {} for {names} (set by {method}).", all("servers"));
        let limits = DnsMethod::from_str(method).is_ok_and(DnsMethod::limits_domains);
        if !is_for_all && !limits {
            let _ =
                writeln!(text, "They get all other names, too: {method} cannot limit servers to domains.");
        }
    }
    for reason in list(state, "unused").iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "\n{reason}");
    }
}

/// The store of SAs, if there is one.
fn store(text: &mut String, answer: &Value) {
    let Some(store) = answer.get("store").filter(|store| store.is_object()) else { return };
    let count = |name| store.get(name).and_then(Value::as_u64).unwrap_or_default();
    let sas = output::counted(count("ike_sas"), "IKE SA", "IKE SAs");
    let _ = writeln!(text, "\n{sas} in the store {}, which the next run continues.", show(store, "file"));
    if store.get("needs_second_key").and_then(Value::as_bool) == Some(true) {
        let _ = writeln!(text, "Its data keys are encrypted with the second wrapping key.");
    }
    if let Some(problem) = store.get("problem").and_then(Value::as_str) {
        let held = output::counted(count("held_messages"), "IKE message waits", "IKE messages wait");
        let _ = writeln!(text, "Not written: {problem}. Traffic goes on, nothing new is negotiated; {held}.");
    }
}

/// The node of a cell, if this is one.
fn cell(text: &mut String, answer: &Value) {
    if let Some(cell) = answer.get("cell").filter(|cell| cell.is_object()) {
        text.push('\n');
        crate::cell::describe(text, cell);
    }
}

/// The packet counters of each class, if there is a scheduler.
fn classes(text: &mut String, answer: &Value) {
    let names = ["class", "taken", "over_cap", "late", "full"];
    let rows: Vec<[String; 5]> =
        list(answer, "classes").iter().map(|class| names.map(|name| show(class, name))).collect();
    if !rows.is_empty() {
        text.push_str("\nClasses of outbound packets\n");
    }
    table(text, ["", "protected", "over the cap", "late", "full"].map(String::from), &rows);
}

/// Formats a time as hours, minutes and seconds.
pub(super) fn time(object: &Value, name: &str) -> String {
    let Some(seconds) = object.get(name).and_then(Value::as_f64) else { return "-".into() };
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A table of the counters that are not 0.
pub(super) fn counts(text: &mut String, answer: &Value, name: &str, head: [&str; 2]) {
    let all = answer.get(name).and_then(Value::as_object);
    let counted = all.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let rows: Vec<[String; 2]> = counted.map(|(reason, count)| [reason.clone(), count.to_string()]).collect();
    if rows.is_empty() {
        text.push_str("  none\n");
    }
    table(text, head.map(String::from), &rows);
}

fn sa_row(sa: &Value) -> [String; 10] {
    [
        show(sa, "direction"),
        show(sa, "spi"),
        show(sa, "src"),
        show(sa, "dst"),
        what(sa),
        format!("{} ({})", show(sa, "suite"), show(sa, "provider")),
        show(sa, "seq"),
        show(sa, "packets"),
        show(sa, "bytes"),
        window(sa),
    ]
}

/// Protocol and mode of an SA, flags that are set, and the DSCP values that it serves.
pub(super) fn what(sa: &Value) -> String {
    let mut what = format!("{} {}", show(sa, "protocol"), show(sa, "mode"));
    for (flag, word) in [("esn", " esn"), ("udp_encapsulated", " udp"), ("narrowed", " narrowed")] {
        if sa.get(flag).and_then(Value::as_bool) == Some(true) {
            what.push_str(word);
        }
    }
    let points: Vec<&str> = list(sa, "dscp_values").iter().filter_map(Value::as_str).collect();
    if !points.is_empty() {
        what.push_str(" dscp ");
        what.push_str(&points.join(","));
    }
    match ["interface_in", "interface_out"].map(|name| sa.get(name).and_then(Value::as_str)) {
        [None, None] => {}
        [inn, out] if inn == out => {
            let _ = write!(what, " at {}", out.unwrap_or_default());
        }
        [inn, out] => {
            let _ = write!(what, " at {}/{}", inn.unwrap_or("-"), out.unwrap_or("-"));
        }
    }
    if let Some(path) = sa.get("path_mtu").filter(|path| path.is_object()) {
        let _ = write!(what, " mtu {} ({})", show(path, "bytes"), show(path, "source"));
    }
    what
}

fn window(sa: &Value) -> String {
    let Some(window) = sa.get("window").filter(|window| !window.is_null()) else { return String::new() };
    let counted = |name, singular, plural| match window.get(name).and_then(Value::as_u64) {
        Some(count) => output::counted(count, singular, plural),
        None => format!("? {plural}"),
    };
    let replays = counted("replays", "replay", "replays");
    let failures = counted("icv_failures", "wrong ICV", "wrong ICVs");
    format!("{}, {replays}, {failures}", show(window, "size"))
}

fn policy_row(policy: &Value) -> [String; 4] {
    ["direction", "selector", "action", "priority"].map(|name| show(policy, name))
}

fn uptime(answer: &Value) -> String {
    format!("up {},", time(answer, "uptime_seconds"))
}

/// A value as text; strings without quotes.
pub(super) fn show(object: &Value, name: &str) -> String {
    match object.get(name) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".into(),
        Some(other) => other.to_string(),
    }
}

pub(super) fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Longest cell of a table in characters. The identity of a peer may have 64 KB, and would widen all rows.
const LONGEST_CELL: usize = 300;

/// Adds a table with columns as wide as their widest cell; nothing if there are no rows. A longer cell than
/// [`LONGEST_CELL`] is cut, and ends in three dots.
pub(super) fn table<const N: usize>(text: &mut String, head: [String; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let rows: Vec<_> = std::iter::once(&head).chain(rows).map(|row| row.each_ref().map(shown)).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in &rows {
        let mut line = String::from(" ");
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, " {cell:width$} ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn shown(cell: &String) -> Cow<'_, str> {
    match cell.char_indices().nth(LONGEST_CELL) {
        Some((end, _)) => format!("{}...", cell.get(..end).unwrap_or_default()).into(),
        None => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_cell_is_cut() {
        let mut text = String::new();
        let long = "\u{e4}".repeat(LONGEST_CELL + 1);
        table(&mut text, ["a", "b"].map(String::from), &[[long, "x".into()]]);
        let row = text.lines().nth(1).unwrap();
        assert!(row.ends_with("...  x") && row.chars().count() == LONGEST_CELL + 8, "{row}");
    }

    #[test]
    fn tables_show_sas_policies_and_nonzero_drops() {
        let answer = json!({
            "version": "1.2.3", "pid": 7, "tun": "tun5", "xfrm": "a.xfrm", "uptime_seconds": 3_725.5,
            "sas": [{
                "direction": "in", "spi": "0x00001001", "src": "192.0.2.1", "dst": "192.0.2.2", "protocol": "esp",
                "mode": "tunnel", "suite": "X", "provider": "aws-lc", "esn": true, "udp_encapsulated": false,
                "dscp_values": ["cs5", "ef"], "seq": 5, "packets": 4, "bytes": 300,
                "window": {"size": 64, "recent": "0x1", "replays": 2, "icv_failures": 1},
                "rohc": {
                    "contexts": 2, "packets": 3, "header_bytes": 120, "compressed_bytes": 50, "failures": 1,
                },
            }],
            "policies": [{"direction": "out", "selector": "a -> b", "action": "discard", "priority": 3}],
            "drops": {"replay": 2, "no-sa": 0},
            "rejected_joined_writes": 3,
            "batch_padding": {"packets": 1, "bytes": 90},
            "broken_invariants": 4,
            "guard": {"stands": false, "restored": 2},
            "link_sending": {"in_use": false, "reason": "it is switched off"},
            "classes": [{"class": "least", "accepted": 9, "taken": 6, "over_cap": 0, "late": 2, "full": 1}],
        });
        let text = render(&answer);
        for line in [
            "casemate 1.2.3 (pid 7) on tun5, up 1:02:05, from a.xfrm",
            "  in  0x00001001  192.0.2.1  192.0.2.2  esp tunnel esn dscp cs5,ef  X (aws-lc)        5    4        300    \
             64, 2 replays, 1 wrong ICV",
            "  in  0x00001001  2         3        120           50          1",
            "  out  a -> b   discard  3",
            "  least  6          0             2     1",
            "  replay  2",
            "The kernel rejected 3 combined writes; the packets were written one by one.",
            "1 packet was padded with 90 bytes to leave in one batch with others.",
            "The program found 4 broken invariants. This is a defect; please report it.",
            "Another program changed or removed the guard, and it was restored: 2 times.",
            "Another program changed or removed the guard, and it is not restored yet.",
            "Single packets are sent through the raw socket: it is switched off.",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no line `{line}` in:\n{text}");
        }
        assert!(!text.contains("no-sa"));
    }
}
