//! The format of wg(8) and wg-quick(8): sections in brackets, and lines of `Key = value`.

use super::convert::Note;
use crate::swanctl::{self, base64};
use casemate_sa::AddrRange;
use casemate_strongswan::parse_addr_range;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// The longest difference between a packet of WireGuard and what it contains: IPv6, UDP, and WireGuard's own
/// header and tag. wg-quick(8) subtracts it from the MTU of the path.
pub(super) const WIREGUARD_OVERHEAD: u16 = 80;
/// Smallest MTU of IPv4 hosts (RFC 791).
const MIN_MTU: u16 = 576;
/// Largest MTU whose packets fit an IP packet.
pub(super) const MAX_MTU: u16 = u16::MAX - WIREGUARD_OVERHEAD;

/// Maximum number of peers.
const MAX_PEERS: usize = 1_000;

/// A value with its line, counted from 1.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) line: usize,
    pub(super) value: T,
}

/// A key of 32 bytes, and its text in Base64.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    pub(super) text: Zeroizing<String>,
}

/// What is carried over from a file, and the other keys by name.
#[derive(Debug, Default)]
pub(super) struct WgConfig {
    pub(super) private_key: Option<Key>,
    /// Without the prefix length.
    pub(super) addresses: Vec<At<IpAddr>>,
    pub(super) mtu: Option<At<u16>>,
    pub(super) peers: Vec<WgPeer>,
    /// Names of keys that are known and not carried over.
    pub(super) others: Vec<At<String>>,
}

/// A section `[Peer]`.
#[derive(Debug)]
pub(super) struct WgPeer {
    /// Line of the section.
    pub(super) line: usize,
    pub(super) public_key: Option<Key>,
    pub(super) preshared_key: Option<Key>,
    /// Host and port.
    pub(super) endpoint: Option<At<(String, u16)>>,
    pub(super) allowed_ips: Vec<AddrRange>,
    /// Seconds; `None` if it is off.
    pub(super) keepalive: Option<At<u16>>,
}

/// The section of a line.
enum Section {
    None,
    Interface,
    Peer,
}

/// Keys of wg-quick and wg that have no counterpart, or none that this program sets.
const OTHERS: [&str; 9] =
    ["listenport", "dns", "table", "preup", "postup", "predown", "postdown", "saveconfig", "fwmark"];

impl WgConfig {
    /// Parses a file; returns all problems.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Note>> {
        let (mut config, mut problems, mut section) = (Self::default(), Vec::new(), Section::None);
        let mut has_interface = false;
        for (number, line) in text.lines().enumerate() {
            let line_number = number.saturating_add(1);
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let read = if content.starts_with('[') {
                config.enter(content, line_number, &mut has_interface).map(|entered| section = entered)
            } else {
                config.set(&section, content, line_number)
            };
            problems.extend(read.err().map(|text| Note { line: line_number, text }));
        }
        config.check(&mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn enter(&mut self, header: &str, line: usize, has_interface: &mut bool) -> Result<Section, String> {
        match &*header.to_ascii_lowercase() {
            "[interface]" if *has_interface => Err("only one section [Interface] was expected".into()),
            "[interface]" => {
                *has_interface = true;
                Ok(Section::Interface)
            }
            "[peer]" if self.peers.len() >= MAX_PEERS => {
                Err(format!("at most {MAX_PEERS} sections [Peer] were expected"))
            }
            "[peer]" => {
                self.peers.push(WgPeer {
                    line,
                    public_key: None,
                    preshared_key: None,
                    endpoint: None,
                    allowed_ips: Vec::new(),
                    keepalive: None,
                });
                Ok(Section::Peer)
            }
            _ => Err("[Interface] or [Peer] was expected".into()),
        }
    }

    fn set(&mut self, section: &Section, content: &str, line: usize) -> Result<(), String> {
        let (name, value) = content.split_once('=').ok_or("`Key = value` was expected")?;
        let (name, value) = (name.trim(), value.trim());
        let result = match (section, &*name.to_ascii_lowercase(), self.peers.last_mut()) {
            (Section::Interface, "privatekey", _) => key(value).map(|key| self.private_key = Some(key)),
            (Section::Interface, "address", _) => list(value, interface_address)
                .map(|addrs| self.addresses.extend(addrs.into_iter().map(|value| At { line, value }))),
            (Section::Interface, "mtu", _) => {
                number(value, MIN_MTU, MAX_MTU).map(|value| self.mtu = Some(At { line, value }))
            }
            (Section::Interface, other, _) if OTHERS.contains(&other) => {
                self.others.push(At { line, value: name.to_owned() });
                Ok(())
            }
            (Section::Peer, "publickey", Some(peer)) => key(value).map(|key| peer.public_key = Some(key)),
            (Section::Peer, "presharedkey", Some(peer)) => {
                key(value).map(|key| peer.preshared_key = Some(key))
            }
            (Section::Peer, "endpoint", Some(peer)) => {
                endpoint(value).map(|value| peer.endpoint = Some(At { line, value }))
            }
            (Section::Peer, "allowedips", Some(peer)) => {
                list(value, network).map(|networks| peer.allowed_ips.extend(networks))
            }
            (Section::Peer, "persistentkeepalive", Some(peer)) if value == "off" || value == "0" => {
                peer.keepalive = None;
                Ok(())
            }
            (Section::Peer, "persistentkeepalive", Some(peer)) => {
                number(value, 1, u16::MAX).map(|value| peer.keepalive = Some(At { line, value }))
            }
            (Section::None, ..) => Err("the section [Interface] or [Peer] was expected first".into()),
            _ => Err("a key of wg(8) or wg-quick(8) that belongs to this section was expected".into()),
        };
        result.map_err(|expected| format!("{name}: {expected}"))
    }

    /// Checks that nothing is missing.
    fn check(&self, problems: &mut Vec<Note>) {
        let mut missing = |line, text: &str| problems.push(Note { line, text: text.into() });
        if self.private_key.is_none() {
            missing(1, "PrivateKey was expected in [Interface]: the identity of this host is made from it");
        }
        if self.addresses.is_empty() {
            missing(1, "Address was expected in [Interface]: it becomes local_ts");
        }
        if self.peers.is_empty() {
            missing(1, "a section [Peer] was expected");
        }
        for (number, peer) in self.peers.iter().enumerate() {
            let key = |peer: &WgPeer| peer.public_key.as_ref().map(|key| key.bytes.to_vec());
            let before = self.peers.iter().take(number);
            if key(peer).is_some() && before.clone().any(|other| key(other) == key(peer)) {
                missing(peer.line, "another [Peer] has the same PublicKey: one section was expected");
            }
            if peer.public_key.is_none() {
                missing(
                    peer.line,
                    "PublicKey was expected in [Peer]: the identity of the peer is made from it",
                );
            }
            if peer.allowed_ips.is_empty() {
                missing(peer.line, "AllowedIPs was expected in [Peer]: it becomes remote_ts");
            }
        }
    }
}

/// The value is not quoted in errors: it may be a key.
fn key(text: &str) -> Result<Key, String> {
    let bytes = base64(text).filter(|bytes| bytes.len() == 32 && text.len() == 44);
    let bytes = bytes.ok_or("32 bytes in Base64 were expected, as wg(8) prints keys")?;
    Ok(Key { bytes, text: Zeroizing::new(text.to_owned()) })
}

fn number(text: &str, min: u16, max: u16) -> Result<u16, String> {
    let value = text.parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| format!("a number from {min} to {max} was expected"))
}

/// Items separated by commas.
fn list<T>(text: &str, one: fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let read = |item: &str| {
        one(item).ok_or_else(|| format!("`{item}`: an address or a subnet was expected, such as 10.1.0.0/16"))
    };
    items.map(read).collect()
}

/// An address, whose prefix length is checked and dropped.
fn interface_address(text: &str) -> Option<IpAddr> {
    let addr = text.split('/').next()?.parse().ok()?;
    network(text).map(|_| addr)
}

/// A subnet; the bits of hosts are cleared, as WireGuard does.
fn network(text: &str) -> Option<AddrRange> {
    parse_addr_range(text).filter(|range| !text.contains('-') && range.prefix_len().is_some())
}

/// Host and port; an IPv6 address is in brackets.
fn endpoint(text: &str) -> Result<(String, u16), String> {
    let parts = || {
        let (host, port) = text.rsplit_once(':')?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|addr| addr.contains(':'))?,
            None => Some(host).filter(|host| !host.contains(':'))?,
        };
        Some((bare.to_owned(), port.parse().ok()?)).filter(|(host, _)| is_host(host))
    };
    parts()
        .ok_or_else(|| "host:port was expected, such as vpn.example.org:51820 or [2001:db8::1]:51820".into())
}

/// Whether the text is an address or can be a host name.
pub(super) fn is_host(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(addr) => !addr.is_unspecified(),
        // The notation of a range of addresses looks like a name to some.
        Err(_) => swanctl::is_host(text) && parse_addr_range(text).is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let found = WgConfig::parse(text).map(drop).unwrap_err();
        found.iter().map(|note| format!("{}: {}\n", note.line, note.text)).collect()
    }

    #[test]
    fn every_problem_has_its_line_and_what_was_expected() {
        let found = problems(
            "Address = 10.0.0.1\n[Interface]\nPrivateKey = short\nAddress = 10.0.0.1/33\nMTU = 12\nColour = red\nword\n\
             [Interface]\n[Server]\n[Peer]\nEndpoint = 2001:db8::1:51820\nAllowedIPs = 10.0.0.0-10.0.0.9\n\
             PersistentKeepalive = often\n",
        );
        for line in [
            "1: Address: the section [Interface] or [Peer] was expected first",
            "3: PrivateKey: 32 bytes in Base64 were expected",
            "4: Address: `10.0.0.1/33`: an address or a subnet was expected",
            "5: MTU: a number from 576 to 65455 was expected",
            "6: Colour: a key of wg(8)",
            "7: `Key = value` was expected",
            "8: only one section [Interface]",
            "9: [Interface] or [Peer] was expected",
            "11: Endpoint: host:port was expected",
            "12: AllowedIPs: `10.0.0.0-10.0.0.9`",
            "13: PersistentKeepalive: a number from 1",
            "10: PublicKey was expected",
        ] {
            assert!(found.lines().any(|shown| shown.starts_with(line)), "no `{line}` in\n{found}");
        }
        assert!(!found.contains("short"), "a value that may be a key is not shown");
        assert!(problems("").contains("PrivateKey was expected in [Interface]"));
    }
}
