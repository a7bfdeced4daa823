//! The selector of `casemate trace`: words of `ip xfrm`, and some for the packet on the network.

use crate::xfrm;
use casemate_datapath::Direction;
use casemate_datapath::trace::TraceFilter;
use casemate_sa::AddrRange;
use casemate_wire::dscp::Dscp;
use casemate_wire::ip::proto;
use std::net::IpAddr;

const KEYS: &str = "src, dst, proto, sport, dport, type, code, dscp, spi, peer or dir";

/// Parses a selector. The error says what is wrong and what was expected.
pub(super) fn parse(text: &str) -> Result<TraceFilter, String> {
    let mut filter = TraceFilter::default();
    let mut uses = Uses::default();
    let mut words = text.split_whitespace();
    while let Some(key) = words.next() {
        if !is_key(key) {
            return Err(format!("`{key}`: {KEYS} was expected"));
        }
        let value =
            words.next().ok_or_else(|| format!("`{key}` has no value: {} was expected", expected(key)))?;
        if !set(&mut filter, &mut uses, key, value)? {
            return Err(format!("`{key}` is given twice, or together with another word for the same field"));
        }
    }
    check(&filter, &uses)?;
    Ok(filter)
}

/// Which kinds of upper-layer fields were given.
#[derive(Default)]
struct Uses {
    ports: bool,
    icmp: bool,
}

fn is_key(word: &str) -> bool {
    KEYS.split([',', ' ']).any(|key| key == word && word != "or")
}

/// What a value looks like.
fn expected(key: &str) -> &'static str {
    match key {
        "src" | "dst" => "an address or a prefix such as 10.1.0.0/16 or fd00::/64",
        "proto" => "a protocol's name such as tcp, udp, icmp or ipv6-icmp, or its number up to 255",
        "sport" | "dport" => "a port from 0 to 65535",
        "type" | "code" => "a number from 0 to 255",
        "dscp" => "a number from 0 to 63, or a name such as ef, af41 or cs5",
        "spi" => "an SPI such as 0xc1e38f02",
        "peer" => "an IP address",
        _ => "in or out",
    }
}

/// Sets the field of a key. Returns whether the field was open. The error says what is wrong with the value.
fn set(filter: &mut TraceFilter, uses: &mut Uses, key: &str, value: &str) -> Result<bool, String> {
    let wrong = || format!("`{value}` after `{key}`: {} was expected", expected(key));
    let number = || value.parse::<u8>().map_err(|_| wrong());
    Ok(match key {
        "src" => filter.src.replace(addresses(key, value)?).is_none(),
        "dst" => filter.dst.replace(addresses(key, value)?).is_none(),
        "proto" => filter.proto.replace(xfrm::protocol_number(value).ok_or_else(wrong)?).is_none(),
        "sport" | "dport" => {
            uses.ports = true;
            let port = value.parse().map_err(|_| wrong())?;
            let field = if key == "sport" { &mut filter.src_port } else { &mut filter.dst_port };
            field.replace(port).is_none()
        }
        "type" | "code" => {
            uses.icmp = true;
            let field = if key == "type" { &mut filter.src_port } else { &mut filter.dst_port };
            field.replace(number()?.into()).is_none()
        }
        "dscp" => filter.dscp.replace(value.parse::<Dscp>().map_err(|_| wrong())?).is_none(),
        "spi" => filter.spi.replace(spi(value).ok_or_else(wrong)?).is_none(),
        "peer" => filter.peer.replace(value.parse::<IpAddr>().map_err(|_| wrong())?).is_none(),
        _ => filter.direction.replace(direction(value).ok_or_else(wrong)?).is_none(),
    })
}

/// The addresses of a prefix without bits of a host, or a single address.
fn addresses(key: &str, value: &str) -> Result<AddrRange, String> {
    let range = xfrm::prefix(value)
        .ok_or_else(|| format!("`{value}` after `{key}`: {} was expected", expected(key)))?;
    let addr = value.split_once('/').and_then(|(addr, _)| xfrm::prefix(addr));
    match addr {
        // A trace of more packets than the address would be a surprise.
        Some(addr) if addr.first() != range.first() => Err(format!(
            "`{value}` after `{key}`: bits behind the prefix are set; {range} was expected, or the address alone"
        )),
        _ => Ok(range),
    }
}

fn spi(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn direction(text: &str) -> Option<Direction> {
    match text {
        "in" => Some(Direction::Inbound),
        "out" => Some(Direction::Outbound),
        _ => None,
    }
}

fn check(filter: &TraceFilter, uses: &Uses) -> Result<(), String> {
    let has_ports =
        |proto| matches!(proto, proto::TCP | proto::UDP | proto::UDP_LITE | proto::SCTP | proto::DCCP);
    if uses.ports && !filter.proto.is_some_and(has_ports) {
        return Err(
            "`sport` and `dport` were expected with proto tcp, udp, udplite, sctp or dccp only".into()
        );
    }
    if uses.icmp && !matches!(filter.proto, Some(proto::ICMP | proto::ICMPV6)) {
        return Err("`type` and `code` were expected with proto icmp or ipv6-icmp only".into());
    }
    if let (Some(src), Some(dst)) = (filter.src, filter.dst)
        && src.is_ipv4() != dst.is_ipv4()
    {
        return Err(format!("`src {src}` and `dst {dst}`: addresses of one IP version were expected"));
    }
    for (key, range) in [("src", filter.src), ("dst", filter.dst)] {
        check_version(key, range, filter.proto)?;
    }
    Ok(())
}

/// ICMP has another protocol number in each IP version.
fn check_version(key: &str, range: Option<AddrRange>, proto: Option<u8>) -> Result<(), String> {
    let Some(range) = range else { return Ok(()) };
    let (found, expected) = match (proto, range.is_ipv4()) {
        (Some(proto::ICMP), false) => ("icmp", "ipv6-icmp"),
        (Some(proto::ICMPV6), true) => ("ipv6-icmp", "icmp"),
        _ => return Ok(()),
    };
    Err(format!("`{key} {range}` with `proto {found}`: `proto {expected}` was expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_sets_its_field() {
        let filter = parse("src 10.1.0.0/16 dst 10.2.0.5 proto tcp sport 1 dport 443 dscp 46").unwrap();
        assert_eq!(filter.src.unwrap().to_string(), "10.1.0.0/16");
        assert_eq!(filter.dst.unwrap().to_string(), "10.2.0.5/32");
        assert_eq!((filter.proto, filter.src_port, filter.dst_port), (Some(6), Some(1), Some(443)));
        assert_eq!(filter.dscp, Dscp::new(46));
        let filter = parse("peer 2001:db8::1 spi 0xC1E38F02 dir in").unwrap();
        assert_eq!((filter.spi, filter.direction), (Some(0xc1e3_8f02), Some(Direction::Inbound)));
        assert_eq!(filter.peer, "2001:db8::1".parse().ok());
        assert_eq!(parse("dscp ef").unwrap().dscp, Dscp::new(46));
        assert_eq!(parse("dscp af41").unwrap().dscp, Dscp::new(34));
        assert_eq!(
            parse("src 10.1 dst 10.1.0.0/255.255.0.0").unwrap().src.unwrap().to_string(),
            "10.1.0.0/32"
        );
        assert_eq!(parse("proto icmp type 8").unwrap().src_port, Some(8));
        assert_eq!(parse("").unwrap(), TraceFilter::default());
    }

    #[test]
    fn a_wrong_selector_is_refused_with_what_was_expected() {
        for (text, error) in [
            ("or 1", "`or`: src, dst"),
            ("10.1.0.1", "`10.1.0.1`: src, dst"),
            ("src", "`src` has no value: an address"),
            ("src 10.1.0.0/33", "`10.1.0.0/33` after `src`: an address"),
            ("src 10.1.0.1 src 10.1.0.2", "`src` is given twice"),
            ("proto icmp type 8 sport 7", "`sport` is given twice"),
            ("proto foo", "`foo` after `proto`: a protocol's name"),
            ("dport 65536", "`65536` after `dport`: a port"),
            ("dscp 64", "`64` after `dscp`: a number from 0 to 63, or a name such as ef, af41 or cs5"),
            ("dscp af44", "`af44` after `dscp`: a number"),
            (
                "src 10.1.0.5/16",
                "`10.1.0.5/16` after `src`: bits behind the prefix are set; 10.1.0.0/16 was expected",
            ),
            ("dst fd00::1/64", "fd00::/64 was expected"),
            ("dst fd00::1 proto icmp", "`dst fd00::1/128` with `proto icmp`: `proto ipv6-icmp` was expected"),
            (
                "src 10.1.0.1 proto ipv6-icmp",
                "`src 10.1.0.1/32` with `proto ipv6-icmp`: `proto icmp` was expected",
            ),
            ("dport 443", "`sport` and `dport` were expected with proto tcp"),
            ("proto 47 sport 1", "`sport` and `dport` were expected with proto tcp"),
            ("spi 0x+1", "`0x+1` after `spi`: an SPI"),
            ("dir up", "`up` after `dir`: in or out"),
            ("type 8", "`type` and `code` were expected with proto icmp"),
            ("proto icmp sport 8", "`sport` and `dport` were expected with"),
            ("src 10.1.0.1 dst fd00::1", "addresses of one IP version"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
