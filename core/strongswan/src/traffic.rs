//! Addresses and traffic selectors: `10.1.0.0/16`, `10.0.0.1-10.0.0.9`, `dynamic[tcp/443]`.

use super::Parsed;
use super::value::parse_number;
use casemate_ike::TrafficSelectorTemplate;
use casemate_sa::{AddrRange, PortRange};

/// Parses a traffic selector: `dynamic`, a subnet or a range, optionally followed by `[protocol/port]`.
pub fn parse_traffic_selector(text: &str) -> Parsed<TrafficSelectorTemplate> {
    let (addrs, rest) = text.split_once('[').unwrap_or((text, ""));
    let addrs = addrs.trim();
    let addrs = if addrs == "dynamic" {
        None
    } else {
        Some(parse_addr_range(addrs).ok_or(
            "dynamic, an address, a subnet or a range was expected, optionally followed by [protocol/port]",
        )?)
    };
    if rest.is_empty() && !text.contains('[') {
        return Ok(TrafficSelectorTemplate { addrs, ..TrafficSelectorTemplate::DYNAMIC });
    }
    let inside = rest.trim_end().strip_suffix(']').ok_or("a `]` was expected at the end")?;
    let (proto, port) = inside.split_once('/').unwrap_or((inside, ""));
    let proto = protocol(proto.trim())?;
    let ports = match proto {
        Some(1 | 58) => icmp_types(port.trim())?,
        _ => ports(port.trim())?,
    };
    Ok(TrafficSelectorTemplate { addrs, proto, ports })
}

/// Parses a protocol name or number. An empty text and 0 mean any.
fn protocol(text: &str) -> Parsed<Option<u8>> {
    // The protocols of /etc/protocols that configurations use.
    let number = match text {
        "" | "any" => Some(0),
        "icmp" => Some(1),
        "igmp" => Some(2),
        "ipencap" | "ipv4" => Some(4),
        "tcp" => Some(6),
        "udp" => Some(17),
        "ipv6" => Some(41),
        "gre" => Some(47),
        "esp" => Some(50),
        "ah" => Some(51),
        "ipv6-icmp" | "icmpv6" => Some(58),
        "ospf" => Some(89),
        "ipip" => Some(94),
        "pim" => Some(103),
        "l2tp" => Some(115),
        "sctp" => Some(132),
        "mobility-header" => Some(135),
        "udplite" => Some(136),
        digits => parse_number::<u8>(digits).ok(),
    };
    let number =
        number.ok_or("a protocol was expected: any, a number, or a name such as tcp, udp or icmp")?;
    Ok(Some(number).filter(|number| *number != 0))
}

/// Parses an ICMP type, a type with its code such as `3(4)`, or a range of either. As in strongSwan, a number
/// from 256 on is 256 times the type plus the code.
fn icmp_types(text: &str) -> Parsed<PortRange> {
    if matches!(text, "" | "any") {
        return Ok(PortRange::ANY);
    }
    let number = |text: &str| {
        let (number, code) = match text.trim().strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((kind, code)) => (parse_number::<u8>(kind).ok()?.into(), parse_number::<u8>(code).ok()?),
            None => (parse_number::<u16>(text.trim()).ok()?, 0),
        };
        Some(match u8::try_from(number) {
            Ok(kind) => u16::from_be_bytes([kind, code]),
            Err(_) => number,
        })
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first).zip(number(last)).and_then(|(first, last)| PortRange::new(first, last));
    range.ok_or_else(|| "an ICMP type was expected: any, a number, or one with a code such as 3(4)".into())
}

/// Parses a port, a range of ports, or a service name.
fn ports(text: &str) -> Parsed<PortRange> {
    let expected =
        "a port was expected: any, a number, a range such as 1024-65535, or a name such as ssh or domain";
    if text == "opaque" {
        return Err("opaque ports are not implemented; a port was expected".into());
    }
    if matches!(text, "" | "any") {
        return Ok(PortRange::ANY);
    }
    if let Some(port) = service(text) {
        return Ok(PortRange::single(port));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| parse_number::<u16>(text.trim()).ok();
    let range = number(first).zip(number(last)).and_then(|(first, last)| PortRange::new(first, last));
    range.ok_or_else(|| expected.into())
}

/// Services of /etc/services that configurations use.
fn service(text: &str) -> Option<u16> {
    Some(match text {
        "ftp" => 21,
        "ssh" => 22,
        "telnet" => 23,
        "smtp" => 25,
        "domain" => 53,
        "bootps" => 67,
        "bootpc" => 68,
        "tftp" => 69,
        "http" => 80,
        "ntp" => 123,
        "snmp" => 161,
        "bgp" => 179,
        "ldap" => 389,
        "https" => 443,
        "syslog" => 514,
        "dhcpv6-client" => 546,
        "dhcpv6-server" => 547,
        "ldaps" => 636,
        "l2f" | "l2tp" => 1701,
        "radius" => 1812,
        _ => return None,
    })
}

/// Parses an address, a subnet or a range.
pub fn parse_addr_range(text: &str) -> Option<AddrRange> {
    if let Some((first, last)) = text.split_once('-') {
        return AddrRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?).ok();
    }
    if let Some((addr, len)) = text.split_once('/') {
        return AddrRange::prefix(addr.parse().ok()?, prefix_len(len)?).ok();
    }
    text.parse().ok().map(AddrRange::single)
}

fn prefix_len(text: &str) -> Option<u8> {
    // `parse` would accept a sign.
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned as _;
    use alloc::format;
    use alloc::string::ToString as _;

    #[test]
    fn selectors_of_traffic() {
        let shown = |text: &str| {
            parse_traffic_selector(text).map(|ts| {
                let addrs = ts.addrs.map_or("dynamic".to_owned(), |range| range.to_string());
                format!("{addrs} {:?} {}-{}", ts.proto, ts.ports.first(), ts.ports.last())
            })
        };
        for (text, expected) in [
            ("dynamic", "dynamic None 0-65535"),
            ("10.1.0.0/16", "10.1.0.0/16 None 0-65535"),
            ("10.1.0.10", "10.1.0.10/32 None 0-65535"),
            ("10.1.0.1-10.1.0.7", "10.1.0.1-10.1.0.7 None 0-65535"),
            ("dynamic[tcp]", "dynamic Some(6) 0-65535"),
            ("dynamic[tcp/ssh]", "dynamic Some(6) 22-22"),
            ("dynamic[17/l2f]", "dynamic Some(17) 1701-1701"),
            ("dynamic[udp/any]", "dynamic Some(17) 0-65535"),
            ("0.0.0.0/0[/80]", "0.0.0.0/0 None 80-80"),
            ("fec1::/16[ipv6-icmp]", "fec1::/16 Some(58) 0-65535"),
            ("10.1.0.0/16[udp/1000-2000]", "10.1.0.0/16 Some(17) 1000-2000"),
            ("10.1.0.0/16[icmp/2048]", "10.1.0.0/16 Some(1) 2048-2048"),
            ("10.1.0.0/16[icmp/8]", "10.1.0.0/16 Some(1) 2048-2048"),
            ("dynamic[ipv6-icmp/1(4)]", "dynamic Some(58) 260-260"),
            ("dynamic[icmp/8-8(255)]", "dynamic Some(1) 2048-2303"),
            ("dynamic[icmp/0-8]", "dynamic Some(1) 0-2048"),
            ("dynamic[icmp/any]", "dynamic Some(1) 0-65535"),
            ("dynamic[]", "dynamic None 0-65535"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "%dynamic",
            "dynamic[tcp",
            "dynamic[tcp/opaque]",
            "dynamic[tcp/99999]",
            "dynamic[tcp/3(4)]",
            "dynamic[icmp/300(4)]",
            "dynamic[icmp/3(256)]",
            "dynamic[icmp/3(4]",
            "dynamic[icmp/http]",
            "dynamic[300]",
            "dynamic[tcp/9-8]",
            "moon",
            "dynamic]",
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
