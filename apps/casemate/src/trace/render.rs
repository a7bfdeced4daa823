//! The steps of a packet in words.

use crate::output;
use crate::xfrm;
use serde_json::Value;
use std::fmt::Write as _;

/// Formats a packet whose strings are escaped: a headline, and a line for each step.
pub(super) fn packet(packet: &Value) -> String {
    let steps = packet.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let after = packet.get("after_seconds").and_then(Value::as_f64).unwrap_or_default();
    let number = number(packet, "packet");
    let what = steps.first().map_or_else(|| "no steps".to_owned(), headline);
    let mut text = format!("packet {number}, after {after:.3} s: {what}\n");
    for (title, words) in steps.iter().filter_map(line) {
        let _ = writeln!(text, "  {title:<11}{words}");
    }
    text
}

/// Formats the end of a trace.
pub(super) fn summary(line: &Value) -> String {
    let packets = output::counted(number(line, "packets"), "packet", "packets");
    let end = if text(line, "end") == "timeout" { "the time is over" } else { "the count is reached" };
    let mut summary = format!("{packets}: {end}");
    let [missed, lost, undecided] = ["missed", "lost_records", "undecided"].map(|name| number(line, name));
    if missed > 0 {
        let packets = output::counted(missed, "packet", "packets");
        let _ = write!(summary, "\n{packets} not shown, because they came faster than the trace was read");
    }
    if lost > 0 {
        let steps = output::counted(lost, "step is", "steps are");
        let _ = write!(summary, "\n{steps} missing, because packets came faster than the trace was read");
    }
    if undecided > 0 {
        let packets = output::counted(undecided, "packet was", "packets were");
        let _ = write!(
            summary,
            "\n{packets} dropped before decryption, so the selector could not match: `casemate trace peer \
             ADDRESS` shows such packets"
        );
    }
    summary
}

/// What the packet is.
fn headline(first: &Value) -> String {
    match text(first, "step") {
        "outgoing" => format!("outgoing, {}", inner(first)),
        "incoming" => format!("incoming, {}", outer(first)),
        "reassembled" => format!("incoming, reassembled after decryption, {}", inner(first)),
        "elsewhere" => inner(first),
        // A drop after the step that seemed to be the last, or the first steps were lost.
        _ => "continued".into(),
    }
}

/// Title and words of a step.
fn line(step: &Value) -> Option<(&'static str, String)> {
    let plain = |title, words: &str| (title, words.to_owned());
    Some(match text(step, "step") {
        "outgoing" => ("from", from_host(step)),
        "incoming" => ("from", from_network(step)),
        "policy" => ("policy", policy(step)),
        "sa" => ("SA", sa(step)),
        "size" => ("size", size(step)),
        "number" => ("number", format!("sequence number {}", number(step, "number"))),
        "compressed" => plain("header", "compressed (ROHC)"),
        "padded" => {
            let bytes = output::counted(number(step, "bytes"), "byte", "bytes");
            ("padding", format!("{bytes}, for the length of the packets before it"))
        }
        "encapsulated" => ("outer", outer(step)),
        "fragmented" => ("fragments", format!("of at most {} bytes, after protection", number(step, "mtu"))),
        "sealed" => plain("sealed", "encrypted, ICV added"),
        "not-replayed" => ("replay", format!("sequence number {} is new", number(step, "number"))),
        "opened" => plain("ICV", "correct"),
        "decapsulated" => ("inner", decapsulated(step)),
        "sent" => ("sent", sent(step).into()),
        "route" => ("route", route(step)),
        "delivered" => plain("delivered", "to this host or its network, through the TUN interface"),
        "held" => plain(
            "held",
            "waits for its Child SA: it begins again as another packet when the SA exists, and is dropped \
             after 5 s (no-outbound-sa)",
        ),
        "reassembling" => plain("fragment", "waits for the others; the whole datagram is another packet"),
        "consumed" => ("consumed", consumed(text(step, "what")).into()),
        "ike" => plain("IKE", "passed on to the key exchange"),
        "rejected" => ("dropped", format!("{}; its source gets an ICMP error", reason(step))),
        "dropped" => ("dropped", reason(step)),
        _ => return None,
    })
}

fn from_host(step: &Value) -> String {
    let class = match text(step, "class") {
        "" => String::new(),
        class => format!(", class {class}"),
    };
    format!("TUN interface, DSCP {}{class}", number(step, "dscp"))
}

fn from_network(step: &Value) -> String {
    let socket = match pair(step, "udp_ports") {
        Some((_, port)) => format!("UDP port {port}"),
        None => "packet socket".into(),
    };
    format!("{socket}, {}", dscp_and_ecn(step))
}

fn dscp_and_ecn(step: &Value) -> String {
    format!("DSCP {}, ECN {}", number(step, "dscp"), ecn(number(step, "ecn")))
}

/// The name of a value of the ECN field (RFC 3168 section 5).
const fn ecn(value: u64) -> &'static str {
    match value {
        0 => "Not-ECT",
        1 => "ECT(1)",
        2 => "ECT(0)",
        _ => "CE",
    }
}

fn policy(step: &Value) -> String {
    let selector = text(step, "selector");
    match text(step, "action") {
        "protect" => match text(step, "trap") {
            "" => format!("{selector}: protect"),
            trap => format!("{selector}: trap of {trap}"),
        },
        "bypass" => format!("{selector}: pass in clear"),
        "discard" => format!("{selector}: discard"),
        "needs-ports" => "needs ports, which the fragment hides".into(),
        _ => "none matches".into(),
    }
}

fn sa(step: &Value) -> String {
    if text(step, "spi").is_empty() {
        return "has ended since".into();
    }
    let name = match text(step, "name") {
        "" => String::new(),
        name => format!("{name}: "),
    };
    let in_udp = if step.get("udp_encapsulated") == Some(&Value::Bool(true)) { " in UDP" } else { "" };
    let [protocol, mode, spi] = [text(step, "protocol"), text(step, "mode"), text(step, "spi")];
    let [src, dst, suite] = [text(step, "src"), text(step, "dst"), text(step, "suite")];
    format!("{name}{protocol}{in_udp} {mode} {src} -> {dst}, SPI {spi}, {suite}")
}

fn size(step: &Value) -> String {
    let [protected, mtu] = [number(step, "protected_length"), number(step, "path_mtu")];
    if protected <= mtu {
        format!("{protected} bytes with protection, path MTU {mtu}")
    } else {
        format!(
            "{protected} bytes with protection, longer than the path MTU of {mtu}: packets of up to {} bytes \
             fit",
            number(step, "inner_mtu")
        )
    }
}

fn decapsulated(step: &Value) -> String {
    let (ecn_field, outer_ecn) = (number(step, "ecn"), number(step, "outer_ecn"));
    let mark = match ecn_field == outer_ecn {
        true => String::new(),
        false => format!(" (outer header: {})", ecn(outer_ecn)),
    };
    format!("{}, {}{mark}", inner(step), dscp_and_ecn(step))
}

fn sent(step: &Value) -> &'static str {
    match text(step, "by") {
        "next-hop" => "to the link address of the next hop (packet socket)",
        "udp-socket" => "with others in one call (GSO, UDP socket)",
        _ => "raw socket: the kernel chose the way",
    }
}

fn route(step: &Value) -> String {
    let gateway = match text(step, "gateway") {
        "" => String::new(),
        gateway => format!(" through {gateway}"),
    };
    match text(step, "error") {
        "" => format!("to {}{gateway} on {}", text(step, "address"), text(step, "interface")),
        error => format!("to {}: {error}", text(step, "address")),
    }
}

fn consumed(what: &str) -> &'static str {
    match what {
        "keepalive" => "NAT keepalive",
        "dummy" => "dummy packet",
        "rohc-feedback" => "feedback of header compression",
        _ => "ICMP error that lowers the path MTU of an SA",
    }
}

fn reason(step: &Value) -> String {
    let name = text(step, "reason");
    match explanation(name) {
        "" => name.to_owned(),
        words => format!("{name}: {words}"),
    }
}

/// The most frequent reasons in words. docs/manual/inspect.md explains all of them.
fn explanation(reason: &str) -> &'static str {
    match reason {
        "no-sa" => "no SA with this SPI, protocol and destination",
        "no-policy" => "no policy matches",
        "no-outbound-sa" => "its Child SA did not come to exist",
        "policy-discard" => "the policy says so",
        "policy-mismatch" => "it came through another SA than its policy demands",
        "unprotected" => "it came in clear, and its policy demands protection",
        "replay" => "the sequence number was already received, or is older than the window",
        "icv-mismatch" => "wrong ICV: damaged, forged, or with another key",
        "too-big" => "longer than the path allows, and must not be fragmented",
        "queue-full" => "its flow has used its share of the scheduler's queue",
        "queue-late" => "it waited too long in the scheduler's queue",
        "link-full" => "the link takes no more packets",
        "send-failed" => "the kernel did not take it: `casemate log` shows the error",
        _ => "",
    }
}

fn inner(step: &Value) -> String {
    let bytes = output::counted(number(step, "length"), "byte", "bytes");
    if text(step, "src").is_empty() {
        return format!("a packet without a valid IP header, {bytes}");
    }
    let protocol = step.get("protocol").and_then(Value::as_u64).and_then(|proto| u8::try_from(proto).ok());
    let name = protocol.map_or_else(String::new, xfrm::protocol_name);
    let ports = match (pair(step, "ports"), protocol) {
        (Some((kind, code)), Some(1 | 58)) => format!(" type {kind} code {code}"),
        (Some((0, 0)), _) | (None, _) => String::new(),
        (Some((src, dst)), _) => format!(" port {src} -> {dst}"),
    };
    format!("{} -> {} {name}{ports}, {bytes}", text(step, "src"), text(step, "dst"))
}

fn outer(step: &Value) -> String {
    let udp = match pair(step, "udp_ports") {
        Some((src, dst)) => format!(" udp port {src} -> {dst}"),
        None => String::new(),
    };
    let header = match step.get("header").filter(|header| header.is_object()) {
        Some(header) => {
            let [protocol, spi] = [text(header, "protocol"), text(header, "spi")];
            format!(" {protocol} SPI {spi} number {}", number(header, "number"))
        }
        None => String::new(),
    };
    let bytes = output::counted(number(step, "length"), "byte", "bytes");
    format!("{} -> {}{udp}{header}, {bytes}", text(step, "src"), text(step, "dst"))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn pair(value: &Value, name: &str) -> Option<(u64, u64)> {
    let pair = value.get(name)?;
    Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dropped_packet_in_words() {
        let header = json!({"protocol": "esp", "spi": "0x00001001", "number": 7});
        let steps = json!([
            {"step": "incoming", "src": "192.0.2.1", "dst": "192.0.2.2", "length": 136, "dscp": 0, "ecn": 3,
             "header": header, "udp_ports": [4500, 4500]},
            {"step": "dropped", "reason": "no-sa"},
        ]);
        let text = packet(&json!({"packet": 2, "after_seconds": 1.5, "steps": steps}));
        assert_eq!(
            text,
            "packet 2, after 1.500 s: incoming, 192.0.2.1 -> 192.0.2.2 udp port 4500 -> 4500 esp SPI 0x00001001 \
             number 7, 136 bytes\n\
             \x20 from       UDP port 4500, DSCP 0, ECN CE\n\
             \x20 dropped    no-sa: no SA with this SPI, protocol and destination\n"
        );
    }

    #[test]
    fn the_summary_says_what_is_missing() {
        let line = json!({"end": "timeout", "packets": 1, "missed": 5, "lost_records": 1, "undecided": 2});
        let text = summary(&line);
        assert!(text.starts_with("1 packet: the time is over\n5 packets not shown"), "{text}");
        assert!(text.contains("1 step is missing"), "{text}");
        assert!(text.contains("2 packets were dropped before decryption"), "{text}");
    }
}
