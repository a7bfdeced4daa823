//! The state of an instance as text tables.

use crate::output;
use serde_json::Value;
use std::fmt::Write as _;

/// Half-open IKE SAs of peers that are listed, at most.
const MAX_HALF_OPEN: usize = 8;

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
    ike_sas(&mut text, answer);
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
    }
    for reason in list(state, "unused").iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "\n{reason}");
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

/// The SAs of IKE, if the instance has a configuration for it.
fn ike_sas(text: &mut String, answer: &Value) {
    if !answer.get("config").is_some_and(Value::is_string) {
        return;
    }
    connections(text, answer);
    let sas = list(answer, "ike_sas");
    text.push_str("\nIKE SAs\n");
    if sas.is_empty() {
        text.push_str("  none\n");
    }
    let head = ["", "state", "peer", "at", "algorithms", "age", "rekey in"];
    // Any host can start IKE SAs, and a flood of them would hide the others.
    let is_half_open =
        |sa: &&Value| show(sa, "state") == "connecting" && sa.get("initiator") == Some(&false.into());
    let (half_open, others): (Vec<&Value>, Vec<&Value>) = sas.iter().partition(is_half_open);
    let shown = others.into_iter().chain(half_open.iter().take(MAX_HALF_OPEN).copied());
    table(text, head.map(String::from), &shown.map(ike_row).collect::<Vec<_>>());
    if let Some(more @ 1..) = half_open.len().checked_sub(MAX_HALF_OPEN) {
        let more = output::counted(more, "more half-open IKE SA", "more half-open IKE SAs");
        let _ = writeln!(text, "  {more} that peers have started; --json lists all");
    }
    sas.iter().for_each(|sa| assigned(text, sa));
    let children: Vec<[String; 8]> =
        sas.iter().flat_map(|sa| list(sa, "children").iter().map(|child| child_row(sa, child))).collect();
    if !children.is_empty() {
        text.push_str("\nChild SAs\n");
    }
    let head = ["", "state", "what", "spi in/out", "local", "remote", "packets in/out", "rekey in"];
    table(text, head.map(String::from), &children);
    let waiting: Vec<[String; 3]> = list(answer, "ike_waiting").iter().map(waiting_row).collect();
    if !waiting.is_empty() {
        text.push_str("\nPending retries\n");
    }
    table(text, ["", "in", "failed attempts"].map(String::from), &waiting);
    if answer.get("ike_faults").and_then(Value::as_object).is_some_and(|faults| !faults.is_empty()) {
        text.push_str("\nFaults of peers\n");
        counts(text, answer, "ike_faults", ["fault", "times"]);
    }
}

/// The state of each configured connection.
fn connections(text: &mut String, answer: &Value) {
    let row = |connection: &Value| {
        let error = connection.get("last_error").filter(|error| !error.is_null());
        let error = error.map_or_else(
            || "-".to_owned(),
            |error| {
                let is_past = error.get("is_past").and_then(Value::as_bool) == Some(true);
                let over = if is_past { ", over" } else { "" };
                format!("{} ago{over}: {}", time(error, "seconds_ago"), show(error, "text"))
            },
        );
        let next = time(connection, "next_attempt_seconds");
        [show(connection, "name"), show(connection, "state"), show(connection, "remote_addrs"), next, error]
    };
    let rows: Vec<[String; 5]> = list(answer, "connections").iter().map(row).collect();
    if !rows.is_empty() {
        text.push_str("\nConnections\n");
    }
    table(text, ["", "state", "peer", "next attempt", "last error"].map(String::from), &rows);
}

/// Addresses, name servers and their domains that the peer assigned.
fn assigned(text: &mut String, sa: &Value) {
    for (name, what) in [("vips", "virtual addresses"), ("dns", "name servers"), ("dns_domains", "domains")] {
        let addrs: Vec<&str> = list(sa, name).iter().filter_map(Value::as_str).collect();
        if !addrs.is_empty() {
            let _ = writeln!(text, "  {what} from {}: {}", show(sa, "name"), addrs.join(", "));
        }
    }
}

fn peer_of(round: &Value) -> String {
    match round.get("eap_identity").and_then(Value::as_str) {
        Some(identity) if identity != show(round, "peer") => format!("{identity} ({})", show(round, "peer")),
        _ => show(round, "peer"),
    }
}

fn ike_row(sa: &Value) -> [String; 7] {
    let [age, rekey] = ["age_seconds", "rekey_in_seconds"].map(|name| time(sa, name));
    let at = show(sa, "remote");
    let is_resumed = sa.get("resumed").and_then(Value::as_bool) == Some(true);
    let uses_ppk = sa.get("ppk").is_some_and(Value::is_string);
    let state =
        show(sa, "state") + if is_resumed { ", resumed" } else { "" } + if uses_ppk { ", ppk" } else { "" };
    // The last round of authentication comes first, as the peer is known by it.
    let rounds = [sa].into_iter().chain(list(sa, "earlier_rounds").iter().rev());
    let peer = rounds.map(peer_of).collect::<Vec<_>>().join(" + ");
    [show(sa, "name"), state, peer, at, show(sa, "proposal"), age, rekey]
}

fn waiting_row(waiting: &Value) -> [String; 3] {
    let name = match waiting.get("child").and_then(Value::as_str) {
        Some(child) => format!("{}/{child}", show(waiting, "name")),
        None => show(waiting, "name"),
    };
    [name, time(waiting, "in_seconds"), show(waiting, "failed_attempts")]
}

fn child_row(sa: &Value, child: &Value) -> [String; 8] {
    let pair = |names: [&str; 2]| names.map(|name| show(child, name)).join("/");
    let all = |name| list(child, name).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    [
        format!("{}/{}", show(sa, "name"), show(child, "name")),
        show(child, "state"),
        what(child),
        pair(["spi_in", "spi_out"]),
        all("local_ts"),
        all("remote_ts"),
        pair(["packets_in", "packets_out"]),
        time(child, "rekey_in_seconds"),
    ]
}

/// Formats a time as hours, minutes and seconds.
fn time(object: &Value, name: &str) -> String {
    let Some(seconds) = object.get(name).and_then(Value::as_f64) else { return "-".into() };
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A table of the counters that are not 0.
fn counts(text: &mut String, answer: &Value, name: &str, head: [&str; 2]) {
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
fn what(sa: &Value) -> String {
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

/// Adds a table with columns as wide as their widest cell; nothing if there are no rows.
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

    #[test]
    fn tables_show_ike_sas_child_sas_and_retries() {
        let mut answer = json!({
            "version": "1.2.3", "pid": 7, "tun": "tun5", "xfrm": null, "config": "/etc/swanctl.conf", "uptime_seconds": 5.0,
            "connections": [
                {
                    "name": "office", "state": "up", "remote_addrs": "192.0.2.2",
                    "last_error": {"text": "sent again", "seconds_ago": 60.0, "is_past": true},
                    "next_attempt_seconds": null,
                },
                {
                    "name": "home", "state": "waiting", "remote_addrs": "192.0.2.3",
                    "last_error": {"text": "ended: the peer does not respond", "seconds_ago": 5.0, "is_past": false},
                    "next_attempt_seconds": 64.0,
                },
            ],
            "ike_sas": [{
                "name": "office", "state": "established", "peer": "right.example.org", "remote": "192.0.2.2:4500",
                "proposal": "aes128gcm16-prfsha256-x25519", "age_seconds": 61.9, "rekey_in_seconds": 14_000.0,
                "vips": ["10.98.0.1"], "dns": [],
                "children": [{
                    "name": "nets", "state": "installed", "protocol": "esp", "mode": "tunnel", "spi_in": "c1000001",
                    "spi_out": "c2000002", "local_ts": ["10.1.0.0/16"], "remote_ts": ["10.2.0.0/16", "10.3.0.0/16"],
                    "narrowed": true, "packets_in": 3, "packets_out": 4, "rekey_in_seconds": null,
                }],
            }],
            "ike_waiting": [
                {"name": "office", "child": "voice", "in_seconds": 7.25, "failed_attempts": 3},
                {"name": "home", "child": null, "in_seconds": 64.0, "failed_attempts": 10},
            ],
            "ike_faults": {"icv-mismatch": 2},
        });
        let text = render(&answer);
        for line in [
            "casemate 1.2.3 (pid 7) on tun5, up 0:00:05, from /etc/swanctl.conf",
            "  office  established  right.example.org  192.0.2.2:4500  aes128gcm16-prfsha256-x25519  0:01:01  3:53:20",
            "  office/nets  installed  esp tunnel narrowed  c1000001/c2000002  10.1.0.0/16  10.2.0.0/16, 10.3.0.0/16  3/4             -",
            "  office  up       192.0.2.2  -             0:01:00 ago, over: sent again",
            "  home    waiting  192.0.2.3  0:01:04       0:00:05 ago: ended: the peer does not respond",
            "  virtual addresses from office: 10.98.0.1",
            "  office/voice  0:00:07  3",
            "  home          0:01:04  10",
            "  icv-mismatch  2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no line `{line}` in:\n{text}");
        }
        let half_open =
            |n: usize| json!({"name": "gw", "state": "connecting", "initiator": false, "remote": n});
        answer["ike_sas"] = (0..MAX_HALF_OPEN + 2).map(half_open).collect();
        answer["ike_sas"].as_array_mut().unwrap().push(json!({"name": "up", "state": "established"}));
        let text = render(&answer);
        let rows = text.lines().filter(|line| line.contains(" connecting ")).count();
        assert_eq!(rows, MAX_HALF_OPEN, "{text}");
        assert!(text.contains("\n  up  established"), "{text}");
        assert!(text.contains("2 more half-open IKE SAs that peers have started"), "{text}");
        answer["ike_sas"] = json!([]);
        answer["broken_invariants"] = json!(0);
        answer["ike_faults"] = json!({});
        answer["ike_waiting"] = json!([]);
        let text = render(&answer);
        assert!(text.contains("IKE SAs\n  none\n"));
        assert!(
            ["Child SAs", "Faults", "Pending retries", "broken"].iter().all(|head| !text.contains(head)),
            "{text}"
        );
    }
}
