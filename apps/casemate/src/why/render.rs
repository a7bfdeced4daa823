//! The report about a connection as text.

use serde_json::Value;
use std::fmt::Write as _;

/// Formats a report whose strings are escaped. Conclusions come first.
pub(super) fn render(report: &Value) -> String {
    let mut text = String::new();
    let connection = report.get("connection").unwrap_or(&Value::Null);
    let _ = writeln!(text, "{}: {}{}", show(connection, "name"), show(connection, "state"), next(connection));
    items(&mut text, "Findings", "", list(report, "findings"));
    items(&mut text, "Try", "- ", list(report, "try"));
    configuration(&mut text, report);
    peer(&mut text, report, connection);
    traffic(&mut text, report);
    events(&mut text, "Last negotiation", list(report, "events"));
    events(&mut text, "Refused or incomplete requests of peers", list(report, "refused_requests"));
    events(&mut text, "Dropped packets from or to the peer", list(report, "dropped_packets"));
    drop_counters(&mut text, report);
    text
}

fn next(connection: &Value) -> String {
    match connection.get("next_attempt_seconds").and_then(Value::as_f64) {
        Some(seconds) => format!(", next attempt in {seconds:.0} s"),
        None => String::new(),
    }
}

fn items(text: &mut String, title: &str, mark: &str, items: &[Value]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    items.iter().filter_map(Value::as_str).for_each(|item| {
        let _ = writeln!(text, "  {mark}{item}");
    });
}

fn configuration(text: &mut String, report: &Value) {
    text.push_str("\nConfiguration:\n");
    for option in list(report, "configuration") {
        let part = |at| option.get(at).and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(text, "  {} = {}", part(0), part(1));
    }
    for child in list(report, "children") {
        let name = show(child, "name");
        let _ = writeln!(text, "  children.{name}.local_ts = {}", show(child, "local_ts"));
        let _ = writeln!(text, "  children.{name}.remote_ts = {}", show(child, "remote_ts"));
        for (key, field) in [("if_id_in", "interface_in"), ("if_id_out", "interface_out")] {
            if child.get(field).is_some_and(Value::is_string) {
                let _ = writeln!(text, "  children.{name}.{key}: interface {}", show(child, field));
            }
        }
        let _ = writeln!(text, "  children.{name}.esp_proposals = {}", show(child, "proposals"));
    }
}

fn peer(text: &mut String, report: &Value, connection: &Value) {
    text.push_str("\nPeer:\n");
    let heard = match connection.get("last_heard_seconds").and_then(Value::as_f64) {
        Some(seconds) => format!("last heard {seconds:.0} s ago"),
        None => "no response and no accepted request since the start".into(),
    };
    let _ = writeln!(text, "  {heard}");
    for route in list(report, "routes") {
        let address = show(route, "address");
        if let Some(error) = route.get("error").and_then(Value::as_str) {
            let _ = writeln!(text, "  {address}: {error}");
            continue;
        }
        let via = match route.get("gateway").and_then(Value::as_str) {
            Some(gateway) => format!("through {gateway} "),
            None => String::new(),
        };
        let interface = show(route, "interface");
        let source = show(route, "source");
        let mtu = show(route, "mtu");
        let _ = writeln!(text, "  {address}: {via}on {interface} (MTU {mtu}), from {source}");
    }
}

fn traffic(text: &mut String, report: &Value) {
    let all = list(report, "traffic");
    if !all.is_empty() {
        text.push_str("\nTraffic:\n");
    }
    for child in all {
        let _ = writeln!(
            text,
            "  {}{}: {} packets in, {} packets out, {} replays, {} wrong ICVs{}",
            show(child, "name"),
            of_peer(child),
            show(child, "packets_in"),
            show(child, "packets_out"),
            show(child, "replays"),
            show(child, "icv_failures"),
            path_mtu(child),
        );
    }
}

/// The peer of a Child SA, if the connection has several.
fn of_peer(child: &Value) -> String {
    child.get("peer").and_then(Value::as_str).map_or(String::new(), |peer| format!(" of {peer}"))
}

/// The path MTU of a Child SA, and where it comes from.
fn path_mtu(child: &Value) -> String {
    match child.get("path_mtu").filter(|path| path.is_object()) {
        Some(path) => format!(", path MTU {} ({})", show(path, "bytes"), show(path, "source")),
        None => String::new(),
    }
}

fn events(text: &mut String, title: &str, events: &[Value]) {
    if events.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    for event in events {
        let seconds = event.get("seconds_ago").and_then(Value::as_f64).unwrap_or_default();
        let mut lines = list(event, "lines").iter().filter_map(Value::as_str);
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(text, "  {seconds:.1} s ago, {}: {first}", show(event, "level"));
        lines.for_each(|line| {
            let _ = writeln!(text, "      {line}");
        });
    }
}

fn drop_counters(text: &mut String, report: &Value) {
    let Some(counters) = report.get("drop_counters").and_then(Value::as_object) else { return };
    if !counters.is_empty() {
        text.push_str("\nDrops of this instance (all connections):\n");
    }
    for (reason, count) in counters {
        let _ = writeln!(text, "  {reason}: {count}");
    }
}

/// A value as text; strings without quotes.
fn show(object: &Value, name: &str) -> String {
    match object.get(name) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".into(),
        Some(other) => other.to_string(),
    }
}

fn list<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn findings_come_first_and_missing_values_are_omitted() {
        let report = json!({
            "connection": {"name": "gw", "state": "waiting", "next_attempt_seconds": 4.2},
            "findings": ["last error: no response"], "try": ["ping 192.0.2.2"],
            "configuration": [["remote_addrs", "192.0.2.2"]],
            "children": [{"name": "net", "local_ts": "10.1.0.0/16", "remote_ts": "dynamic", "proposals": "x"}],
            "routes": [
                {"address": "192.0.2.2", "interface": "eth0", "mtu": 1500, "gateway": null, "source": "192.0.2.1"},
                {"address": "192.0.2.3", "error": "no route"},
            ],
            "events": [{"seconds_ago": 1.25, "level": "warning", "lines": ["no response", "blocked?"]}],
        });
        let expected = "\
gw: waiting, next attempt in 4 s

Findings:
  last error: no response

Try:
  - ping 192.0.2.2

Configuration:
  remote_addrs = 192.0.2.2
  children.net.local_ts = 10.1.0.0/16
  children.net.remote_ts = dynamic
  children.net.esp_proposals = x

Peer:
  no response and no accepted request since the start
  192.0.2.2: on eth0 (MTU 1500), from 192.0.2.1
  192.0.2.3: no route

Last negotiation:
  1.2 s ago, warning: no response
      blocked?
";
        assert_eq!(render(&report), expected);
    }
}
