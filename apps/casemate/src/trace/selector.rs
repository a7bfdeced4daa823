//! The selector of `casemate trace`: words of `ip xfrm`, and some for the packet on the network.

use crate::xfrm;
use casemate_datapath::Direction;
use casemate_datapath::trace::TraceFilter;
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
        let is_new = set(&mut filter, &mut uses, key, value)
            .ok_or_else(|| format!("`{value}` after `{key}`: {} was expected", expected(key)))?;
        if !is_new {
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
        "dscp" => "a number from 0 to 63",
        "spi" => "an SPI such as 0xc1e38f02",
        "peer" => "an IP address",
        _ => "in or out",
    }
}

/// Sets the field of a key. Returns whether the field was open; `None` if the value is wrong.
fn set(filter: &mut TraceFilter, uses: &mut Uses, key: &str, value: &str) -> Option<bool> {
    Some(match key {
        "src" => filter.src.replace(xfrm::prefix(value)?).is_none(),
        "dst" => filter.dst.replace(xfrm::prefix(value)?).is_none(),
        "proto" => filter.proto.replace(xfrm::protocol_number(value)?).is_none(),
        "sport" | "dport" => {
            uses.ports = true;
            let port = value.parse().ok()?;
            let field = if key == "sport" { &mut filter.src_port } else { &mut filter.dst_port };
            field.replace(port).is_none()
        }
        "type" | "code" => {
            uses.icmp = true;
            let number: u8 = value.parse().ok()?;
            let field = if key == "type" { &mut filter.src_port } else { &mut filter.dst_port };
            field.replace(number.into()).is_none()
        }
        "dscp" => filter.dscp.replace(Dscp::new(value.parse().ok()?)?).is_none(),
        "spi" => filter.spi.replace(spi(value)?).is_none(),
        "peer" => filter.peer.replace(value.parse::<IpAddr>().ok()?).is_none(),
        _ => filter.direction.replace(direction(value)?).is_none(),
    })
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
    let proto = filter.proto;
    if uses.ports && proto.is_some_and(|proto| matches!(proto, proto::ICMP | proto::ICMPV6)) {
        return Err("`sport` and `dport` were expected with proto tcp, udp, sctp or dccp only".into());
    }
    if uses.icmp && !matches!(proto, Some(proto::ICMP | proto::ICMPV6)) {
        return Err("`type` and `code` were expected with proto icmp or ipv6-icmp only".into());
    }
    match (filter.src, filter.dst) {
        (Some(src), Some(dst)) if src.is_ipv4() != dst.is_ipv4() => {
            Err(format!("`src {src}` and `dst {dst}`: addresses of one IP version were expected"))
        }
        _ => Ok(()),
    }
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
            ("dscp 64", "`64` after `dscp`: a number from 0 to 63"),
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
