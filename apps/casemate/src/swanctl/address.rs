//! Addresses of the ends of a connection, virtual addresses, pools and traffic.

use super::value::Read;
use casemate_ike::TrafficTemplate;
use casemate_ike::config::AddrPattern;
use casemate_sa::{AddrRange, PortRange};
use std::net::IpAddr;

/// An end of a connection as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// An address, or several.
    Is(AddrPattern),
    /// A host to be looked up.
    Host(String),
}

/// Reads an end: `%any`, an address, a subnet, a range, or the name of a host.
pub(super) fn end(text: &str) -> Read<End> {
    let pattern = match text {
        "%any" | "*" => AddrPattern::Any,
        "%any4" | "0.0.0.0" => AddrPattern::Range(AddrRange::ANY_V4),
        "%any6" | "::" => AddrPattern::Range(AddrRange::ANY_V6),
        _ => match range(text) {
            Some(range) => AddrPattern::Range(range),
            None if is_host(text) => return Ok(End::Host(text.into())),
            None => {
                return Err(
                    "%any, an address, a subnet, a range of addresses or the name of a host was expected"
                        .into(),
                );
            }
        },
    };
    Ok(End::Is(pattern))
}

/// Whether it can be the name of a host (RFC 1123 section 2.1), and is no address gone wrong.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// An address, a subnet or a range.
pub(super) fn range(text: &str) -> Option<AddrRange> {
    if let Some((first, last)) = text.split_once('-') {
        return AddrRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?).ok();
    }
    if let Some((addr, len)) = text.split_once('/') {
        return AddrRange::prefix(addr.parse().ok()?, prefix_len(len)?).ok();
    }
    text.parse().ok().map(AddrRange::single)
}

fn prefix_len(text: &str) -> Option<u8> {
    // A sign would be taken otherwise.
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a virtual address; `0.0.0.0` and `::` ask for any.
pub(super) fn addr(text: &str) -> Read<IpAddr> {
    text.parse().map_err(|_| "an IPv4 or IPv6 address was expected".into())
}

/// Reads a subnet, as a pool tells it to peers.
pub(super) fn subnet(text: &str) -> Read<AddrRange> {
    let expected = "a subnet was expected, such as 10.1.0.0/16";
    range(text).filter(|range| range.prefix_len().is_some()).ok_or_else(|| expected.into())
}

/// Reads the addresses of a pool: a range, or a subnet without its first and its last address. A subnet with an address in it,
/// such as 10.3.0.5/24, begins there.
pub(super) fn pool(text: &str) -> Read<AddrRange> {
    let expected =
        || "a subnet or a range was expected, such as 10.3.0.0/24 or 10.3.0.10-10.3.0.99".to_owned();
    let all = range(text).ok_or_else(expected)?;
    let width = if all.is_ipv4() { 32 } else { 128 };
    let Some((addr, _)) = text.split_once('/').filter(|_| all.prefix_len() < Some(width - 1)) else {
        return Ok(all);
    };
    let begin = addr.parse().map_err(|_| expected())?;
    // In a subnet the first and the last address are not those of a host.
    let first = if begin == all.first() { step(begin, 1) } else { Some(begin) };
    let last = step(all.last(), -1);
    let inner = first.zip(last).and_then(|(first, last)| AddrRange::new(first, last).ok());
    inner.ok_or_else(|| "a subnet that begins before its last address was expected".into())
}

/// The address that comes so many after this one.
fn step(addr: IpAddr, by: i8) -> Option<IpAddr> {
    Some(match addr {
        IpAddr::V4(addr) => IpAddr::V4(addr.to_bits().checked_add_signed(by.into())?.into()),
        IpAddr::V6(addr) => IpAddr::V6(addr.to_bits().checked_add_signed(by.into())?.into()),
    })
}

/// Reads a traffic selector: `dynamic`, a subnet or a range, and behind it perhaps `[protocol/port]`.
pub(super) fn traffic(text: &str) -> Read<TrafficTemplate> {
    let (addrs, rest) = text.split_once('[').unwrap_or((text, ""));
    let addrs = addrs.trim();
    let addrs =
        if addrs == "dynamic" {
            None
        } else {
            Some(range(addrs).ok_or(
                "dynamic, an address, a subnet or a range was expected, and perhaps [protocol/port]",
            )?)
        };
    if rest.is_empty() && !text.contains('[') {
        return Ok(TrafficTemplate { addrs, ..TrafficTemplate::DYNAMIC });
    }
    let inside = rest.trim_end().strip_suffix(']').ok_or("a `]` was expected at the end")?;
    let (proto, port) = inside.split_once('/').unwrap_or((inside, ""));
    Ok(TrafficTemplate { addrs, proto: protocol(proto.trim())?, ports: ports(port.trim())? })
}

/// A protocol by name or number; nothing and 0 are any.
fn protocol(text: &str) -> Read<Option<u8>> {
    // Those of /etc/protocols that anybody protects; others have their number.
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
        number => super::value::number::<u8>(number).ok(),
    };
    let number =
        number.ok_or("a protocol was expected: any, a number, or a name such as tcp, udp or icmp")?;
    Ok(Some(number).filter(|number| *number != 0))
}

/// A port, a range of ports, or a service.
fn ports(text: &str) -> Read<PortRange> {
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
    let number = |text: &str| super::value::number::<u16>(text.trim()).ok();
    let range = number(first).zip(number(last)).and_then(|(first, last)| PortRange::new(first, last));
    range.ok_or_else(|| expected.into())
}

/// Services of /etc/services that stand in configurations; others have their number.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match end(text) {
            Ok(End::Is(AddrPattern::Any)) => "any".into(),
            Ok(End::Is(AddrPattern::Range(range))) => range.to_string(),
            Ok(End::Host(name)) => format!("host {name}"),
            Err(_) => "wrong".into(),
        }
    }

    #[test]
    fn ends() {
        for (text, expected) in [
            ("%any", "any"),
            ("%any4", "0.0.0.0/0"),
            ("%any6", "::/0"),
            ("192.168.0.1", "192.168.0.1/32"),
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.0.0.1-10.0.0.9", "10.0.0.1-10.0.0.9"),
            ("fec0::1", "fec0::1/128"),
            ("moon.strongswan.org", "host moon.strongswan.org"),
            ("moon", "host moon"),
            ("a-b.example.", "host a-b.example."),
            ("10.0.0.256", "wrong"),
            ("10.0.0.9-10.0.0.1", "wrong"),
            ("10.0.0.0/33", "wrong"),
            ("10.0.0.0/+8", "wrong"),
            ("fe80::1%eth0", "wrong"),
            ("%defaultroute", "wrong"),
            ("a b", "wrong"),
            ("", "wrong"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn selectors_of_traffic() {
        let shown = |text: &str| {
            traffic(text).map(|ts| {
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
            "dynamic[300]",
            "dynamic[tcp/9-8]",
            "moon",
            "dynamic]",
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }

    /// As many as charon 5.9.8 says that a pool of the same text has (`swanctl --list-pools`).
    #[test]
    fn pools_leave_out_the_ends_of_a_subnet() {
        for (text, expected) in [
            ("10.3.0.0/28", "10.3.0.1-10.3.0.14"),
            ("10.3.1.5/28", "10.3.1.5-10.3.1.14"),
            ("10.3.4.0/30", "10.3.4.1-10.3.4.2"),
            ("10.3.0.0/31", "10.3.0.0/31"),
            ("10.3.0.5", "10.3.0.5/32"),
            ("10.3.0.5/32", "10.3.0.5/32"),
            ("10.3.0.1-10.3.0.3", "10.3.0.1-10.3.0.3"),
            ("fec3::/120", "fec3::1-fec3::fe"),
        ] {
            assert_eq!(pool(text).unwrap().to_string(), expected, "{text}");
        }
        assert!(pool("10.3.0.0/99").is_err());
        assert!(pool("10.3.0.15/28").is_err());
        assert!(subnet("10.0.0.1-10.0.0.4").is_err());
    }
}
