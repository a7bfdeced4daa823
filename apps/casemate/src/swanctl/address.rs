//! Endpoint addresses of connections, virtual addresses and pools.

use super::value::Parsed;
use casemate_ike::config::{AddrPattern, Gateway, HostName};
use casemate_sa::AddrRange;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

/// Reads an endpoint address: `%any`, an address, a subnet, a range, or a host name.
pub(super) fn endpoint(text: &str) -> Parsed<AddrPattern> {
    match text {
        "%any" | "*" => Ok(AddrPattern::Any),
        "%any4" | "0.0.0.0" => Ok(AddrPattern::Range(AddrRange::ANY_V4)),
        "%any6" | "::" => Ok(AddrPattern::Range(AddrRange::ANY_V6)),
        _ => match casemate_strongswan::parse_addr_range(text) {
            Some(range) => Ok(AddrPattern::Range(range)),
            None if is_host(text) => Ok(AddrPattern::Host(text.into())),
            None => {
                Err("%any, an address, a subnet, a range of addresses or the name of a host was expected"
                    .into())
            }
        },
    }
}

/// Whether `text` can be a host name (RFC 1123 section 2.1). A malformed address is not one.
pub(crate) fn is_host(text: &str) -> bool {
    HostName::new(text).is_some()
}

/// Looks up a host name, which may take some seconds. An error if the host has no address.
pub(crate) fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let addrs: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect();
    if addrs.is_empty() { Err(io::Error::other("the host has no address")) } else { Ok(addrs) }
}

/// Reads a virtual address; `0.0.0.0` and `::` request any address.
pub(super) fn addr(text: &str) -> Parsed<IpAddr> {
    text.parse().map_err(|_| "an IPv4 or IPv6 address was expected".into())
}

/// Reads the address or the name of a gateway.
pub(crate) fn gateway(text: &str) -> Parsed<Gateway> {
    Gateway::parse(text).ok_or_else(|| "the address or the name of a gateway was expected".into())
}

/// Reads a subnet that a pool announces to peers.
pub(super) fn subnet(text: &str) -> Parsed<AddrRange> {
    let expected = "a subnet was expected, such as 10.1.0.0/16";
    casemate_strongswan::parse_addr_range(text)
        .filter(|range| range.prefix_len().is_some())
        .ok_or_else(|| expected.into())
}

/// Reads the addresses of a pool: a range, or a subnet without its first and last address. A subnet that
/// is given by an address inside it, such as 10.3.0.5/24, begins at that address.
pub(super) fn pool(text: &str) -> Parsed<AddrRange> {
    let expected =
        || "a subnet or a range was expected, such as 10.3.0.0/24 or 10.3.0.10-10.3.0.99".to_owned();
    let all = casemate_strongswan::parse_addr_range(text).ok_or_else(expected)?;
    let width = if all.is_ipv4() { 32 } else { 128 };
    let Some((addr, _)) = text.split_once('/').filter(|_| all.prefix_len() < Some(width - 1)) else {
        return Ok(all);
    };
    let begin = addr.parse().map_err(|_| expected())?;
    // The first and the last address of a subnet are not host addresses.
    let first = if begin == all.first() { step(begin, 1) } else { Some(begin) };
    let last = step(all.last(), -1);
    let inner = first.zip(last).and_then(|(first, last)| AddrRange::new(first, last).ok());
    inner.ok_or_else(|| "a subnet that begins before its last address was expected".into())
}

/// The address `by` steps after `addr`; `None` on overflow.
fn step(addr: IpAddr, by: i8) -> Option<IpAddr> {
    Some(match addr {
        IpAddr::V4(addr) => IpAddr::V4(addr.to_bits().checked_add_signed(by.into())?.into()),
        IpAddr::V6(addr) => IpAddr::V6(addr.to_bits().checked_add_signed(by.into())?.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match endpoint(text) {
            Ok(AddrPattern::Any) => "any".into(),
            Ok(AddrPattern::Range(range)) => range.to_string(),
            Ok(AddrPattern::Host(name)) => format!("host {name}"),
            Err(_) => "wrong".into(),
        }
    }

    #[test]
    fn endpoint_addresses() {
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

    /// The pools have as many addresses as charon 5.9.8 reports for the same text (`swanctl
    /// --list-pools`).
    #[test]
    fn pools_exclude_the_ends_of_a_subnet() {
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
