//! The connections and the SAs of IKE as text tables.

use super::table::{counts, list, show, table, time, what};
use crate::output;
use serde_json::Value;
use std::fmt::Write as _;

/// Half-open IKE SAs of peers that are listed, at most.
const MAX_HALF_OPEN: usize = 8;

/// Adds the connections and the SAs of IKE, if the instance has a configuration for it.
pub(super) fn add(text: &mut String, answer: &Value) {
    if !answer.get("config").is_some_and(Value::is_string) {
        return;
    }
    connections(text, answer);
    let sas = list(answer, "ike_sas");
    text.push_str("\nIKE SAs\n");
    if sas.is_empty() {
        text.push_str("  none\n");
    }
    let head = ["", "state", "peer", "at", "virtual address", "algorithms", "age", "rekey in"];
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
    sas.iter().for_each(|sa| name_servers(text, sa));
    let children: Vec<[String; 9]> =
        sas.iter().flat_map(|sa| list(sa, "children").iter().map(|child| child_row(sa, child))).collect();
    if !children.is_empty() {
        text.push_str("\nChild SAs\n");
    }
    let head = ["", "of", "state", "what", "spi in/out", "local", "remote", "packets in/out", "rekey in"];
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

/// Name servers and their domains that the peer assigned.
fn name_servers(text: &mut String, sa: &Value) {
    for (name, what) in [("dns", "name servers"), ("dns_domains", "domains")] {
        let all = texts(sa, name);
        if !all.is_empty() {
            let _ = writeln!(text, "  {what} from {}: {all}", ike_name(sa));
        }
    }
}

/// The name of an IKE SA in the log and in commands, such as `users[9]`.
fn ike_name(sa: &Value) -> String {
    format!("{}[{}]", show(sa, "name"), show(sa, "id"))
}

/// Who the peer is: what it has proved last, and before.
fn peers(sa: &Value) -> String {
    // The last round of authentication comes first, as the peer is known by it.
    let rounds = [sa].into_iter().chain(list(sa, "earlier_rounds").iter().rev());
    rounds.map(peer_of).collect::<Vec<_>>().join(" + ")
}

/// The texts of a list.
fn texts(object: &Value, name: &str) -> String {
    list(object, name).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

fn peer_of(round: &Value) -> String {
    match round.get("eap_identity").and_then(Value::as_str) {
        Some(identity) if identity != show(round, "peer") => format!("{identity} ({})", show(round, "peer")),
        Some(_) => show(round, "peer"),
        None => match round.get("claimed_eap_identity").and_then(Value::as_str) {
            Some(identity) => format!("unproven: {identity} ({})", show(round, "peer")),
            None => show(round, "peer"),
        },
    }
}

fn ike_row(sa: &Value) -> [String; 8] {
    let [age, rekey] = ["age_seconds", "rekey_in_seconds"].map(|name| time(sa, name));
    let is_resumed = sa.get("resumed").and_then(Value::as_bool) == Some(true);
    let uses_ppk = sa.get("ppk").is_some_and(Value::is_string);
    let state =
        show(sa, "state") + if is_resumed { ", resumed" } else { "" } + if uses_ppk { ", ppk" } else { "" };
    let addrs = Some(texts(sa, "vips")).filter(|addrs| !addrs.is_empty());
    let addrs = addrs.unwrap_or_else(|| "-".into());
    [ike_name(sa), state, peers(sa), show(sa, "remote"), addrs, show(sa, "proposal"), age, rekey]
}

fn waiting_row(waiting: &Value) -> [String; 3] {
    let name = match waiting.get("child").and_then(Value::as_str) {
        Some(child) => format!("{}/{child}", show(waiting, "name")),
        None => show(waiting, "name"),
    };
    [name, time(waiting, "in_seconds"), show(waiting, "failed_attempts")]
}

/// A Child SA, with the number of its IKE SA and its peer: clients of a gateway have the same connection.
fn child_row(sa: &Value, child: &Value) -> [String; 9] {
    let pair = |names: [&str; 2]| names.map(|name| show(child, name)).join("/");
    [
        format!("{}/{}{{{}}}", show(sa, "name"), show(child, "name"), show(child, "id")),
        format!("[{}] {}", show(sa, "id"), peers(sa)),
        show(child, "state"),
        what(child),
        pair(["spi_in", "spi_out"]),
        texts(child, "local_ts"),
        texts(child, "remote_ts"),
        pair(["packets_in", "packets_out"]),
        time(child, "rekey_in_seconds"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(answer: &Value) -> String {
        let mut text = String::new();
        add(&mut text, answer);
        text
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
                "id": "9", "name": "office", "state": "established", "peer": "right.example.org", "remote": "192.0.2.2:4500",
                "proposal": "aes128gcm16-prfsha256-x25519", "age_seconds": 61.9, "rekey_in_seconds": 14_000.0,
                "vips": ["10.98.0.1"], "dns": ["10.1.0.53"],
                "children": [{
                    "id": "12", "name": "nets", "state": "installed", "protocol": "esp", "mode": "tunnel", "spi_in": "c1000001",
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
        let text = shown(&answer);
        for line in [
            "  office[9]  established  right.example.org  192.0.2.2:4500  10.98.0.1        aes128gcm16-prfsha256-x25519  \
             0:01:01  3:53:20",
            "  office/nets{12}  [9] right.example.org  installed  esp tunnel narrowed  c1000001/c2000002  10.1.0.0/16  \
             10.2.0.0/16, 10.3.0.0/16  3/4             -",
            "  office  up       192.0.2.2  -             0:01:00 ago, over: sent again",
            "  home    waiting  192.0.2.3  0:01:04       0:00:05 ago: ended: the peer does not respond",
            "  name servers from office[9]: 10.1.0.53",
            "  office/voice  0:00:07  3",
            "  home          0:01:04  10",
            "  icv-mismatch  2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no line `{line}` in:\n{text}");
        }
        let half_open =
            |n: usize| json!({"id": n, "name": "gw", "state": "connecting", "initiator": false, "remote": n});
        answer["ike_sas"] = (0..MAX_HALF_OPEN + 2).map(half_open).collect();
        answer["ike_sas"]
            .as_array_mut()
            .unwrap()
            .push(json!({"id": "3", "name": "up", "state": "established"}));
        let text = shown(&answer);
        let rows = text.lines().filter(|line| line.contains(" connecting ")).count();
        assert_eq!(rows, MAX_HALF_OPEN, "{text}");
        assert!(text.contains("\n  up[3]  established"), "{text}");
        assert!(text.contains("2 more half-open IKE SAs that peers have started"), "{text}");
        answer["ike_sas"] = json!([]);
        answer["broken_invariants"] = json!(0);
        answer["ike_faults"] = json!({});
        answer["ike_waiting"] = json!([]);
        let text = shown(&answer);
        assert!(text.contains("IKE SAs\n  none\n"));
        assert!(
            ["Child SAs", "Faults", "Pending retries", "broken"].iter().all(|head| !text.contains(head)),
            "{text}"
        );
    }

    #[test]
    fn users_of_a_gateway_are_told_apart() {
        let user = |id: &str, user: &str, addr: &str| {
            json!({
                "id": id, "name": "users", "state": "established", "initiator": false, "peer": "192.168.7.2",
                "eap_identity": user, "vips": [addr],
                "children": [{"id": id, "name": "office", "state": "installed"}],
            })
        };
        let mut claimed = user("10", "", "10.9.0.3");
        (claimed["eap_identity"], claimed["claimed_eap_identity"]) = (Value::Null, "eve".into());
        let sas = [user("8", "carol", "10.9.0.1"), user("9", "dave", "10.9.0.2"), claimed];
        let mut text = String::new();
        add(&mut text, &json!({"config": "swanctl.conf", "ike_sas": sas}));
        for [ike, user, addr] in [["8", "carol", "10.9.0.1"], ["9", "dave", "10.9.0.2"]] {
            let has =
                |parts: [&str; 3]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            assert!(has([&format!("users[{ike}]"), &format!("{user} (192.168.7.2)"), addr]), "{text}");
            assert!(has([&format!("users/office{{{ike}}}"), &format!("[{ike}]"), user]), "{text}");
        }
        assert!(text.contains("unproven: eve (192.168.7.2)"), "{text}");
    }
}
