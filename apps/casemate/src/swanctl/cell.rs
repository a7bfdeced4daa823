//! The section `cell`: this gateway is a node of a cell, a group of gateways with one store and one set of
//! addresses (docs/decisions/0140-cells.md). strongSwan does not know the section and ignores it.

use super::etcd::{self, EtcdServers};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::tunnel::interface_name;
use super::value::{Parsed, time};
use casemate_linux::VirtualAddress;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const CELL: Schema = Schema {
    keys: &[
        ("name", Rule::Read),
        ("node", Rule::Read),
        ("lease", Rule::Read),
        ("wrapping_key", Rule::Read),
        ("wrapping_key_token", Rule::Read),
        ("second_wrapping_key", Rule::Read),
        ("second_wrapping_key_token", Rule::Read),
    ],
    sections: &["=etcd", "=addresses", "=forward"],
};

const ADDRESSES: Schema = Schema { keys: &[], sections: &[""] };

pub(super) const ADDRESS: Schema =
    Schema { keys: &[("address", Rule::Read), ("interface", Rule::Read)], sections: &[] };

pub(super) const FORWARD: Schema =
    Schema { keys: &[("address", Rule::Read), ("port", Rule::Read)], sections: &[] };

/// Maximum number of addresses of a cell.
pub const MAX_CELL_ADDRESSES: usize = 16;
/// Longest name of a cell or node in bytes.
const MAX_NAME: usize = 64;
/// Allowed leases in seconds. etcd grants no shorter one.
const LEASES: RangeInclusive<u64> = 2..=60;
/// The lease if none is configured. etcd looks for ends of leases twice a second, so that another node takes
/// over 1.7 to 2.6 s after the last renewal.
const LEASE: Duration = Duration::from_secs(2);
/// The UDP port for forwarded packets if none is configured.
const FORWARD_PORT: u16 = 4510;
/// File with the name of this host (proc_sys_kernel(5)).
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The cell of this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellConfig {
    /// Name of the cell, a part of all keys in its store: 1 to 64 ASCII letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Name of this gateway among the nodes of the cell, with the same characters.
    pub node: String,
    /// Time after which the slots of a silent node are free, 2 to 60 whole seconds.
    pub lease: Duration,
    /// File with the wrapping key; `None` for the credential of the service.
    pub wrapping_key: Option<PathBuf>,
    /// Section of `secrets` with the private key on a token that decrypts the wrapping key; `None` if it is
    /// not encrypted.
    pub wrapping_key_token: Option<String>,
    /// File with the second wrapping key, while the wrapping key is changed; `None` for the credential of the
    /// service, if there is one.
    pub second_wrapping_key: Option<PathBuf>,
    /// The same as `wrapping_key_token` for the second wrapping key.
    pub second_wrapping_key_token: Option<String>,
    /// The store of the cell.
    pub etcd: EtcdServers,
    /// Addresses that one node at a time has, in the order of the file: at most [`MAX_CELL_ADDRESSES`].
    pub addresses: Vec<CellAddress>,
    /// Address and UDP port of this node at which the other nodes forward packets to it; `None` if packets
    /// are not forwarded.
    pub forward: Option<SocketAddr>,
}

/// An address that one node of a cell has at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellAddress {
    /// Name of its section.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix of its subnet in bits: 1 to 32 for IPv4, 1 to 128 for IPv6.
    pub prefix_len: u8,
    /// Name of the interface that gets the address.
    pub interface: String,
}

impl CellAddress {
    /// The address for the engine.
    pub fn to_virtual(&self) -> VirtualAddress {
        let Self { address, prefix_len, interface, .. } = self;
        VirtualAddress { addr: *address, prefix_len: *prefix_len, interface: interface.clone() }
    }
}

impl fmt::Display for CellAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.address, self.prefix_len, self.interface)
    }
}

/// Reads the section; `None` if a value without default is missing or wrong.
pub(super) fn read(resolved: &Resolved<'_, '_>, directory: &Path, problems: &Problems) -> Option<CellConfig> {
    let keys = Keys::new(resolved, &CELL, problems);
    if !keys.has("name") {
        keys.section_error("`name` was expected, the name of the cell");
    }
    let name = keys.get("name", name);
    let lease = keys.get("lease", lease).unwrap_or(LEASE);
    let [wrapping_key, second_wrapping_key] =
        ["wrapping_key", "second_wrapping_key"].map(|key| keys.get(key, |file| Ok(directory.join(file))));
    let [wrapping_key_token, second_wrapping_key_token] =
        ["wrapping_key_token", "second_wrapping_key_token"].map(|key| keys.get(key, token_section));
    let (mut servers, mut addresses, mut forward) = (None, Vec::new(), None);
    let sections = resolved.sections();
    for section in &sections {
        match section.name() {
            "etcd" => servers = etcd::read(section, directory, lease, problems),
            "addresses" => addresses = read_addresses(section, problems),
            "forward" => forward = read_forward(section, problems),
            _ => {}
        }
    }
    if !sections.iter().any(|section| section.name() == "etcd") {
        keys.section_error("the section `etcd` was expected, with the servers of the store");
    }
    let node = node(&keys);
    if let Some(own) = forward.filter(|own| addresses.iter().any(|address| address.address == own.ip())) {
        keys.section_error(&format!(
            "`forward` has the address {}, which moves between the nodes: an address of this node was \
             expected",
            own.ip()
        ));
    }
    Some(CellConfig {
        name: name?,
        node: node?,
        lease,
        wrapping_key,
        wrapping_key_token,
        second_wrapping_key,
        second_wrapping_key_token,
        etcd: servers?,
        addresses,
        forward,
    })
}

/// The name of this node: that of the host, unless the section has one.
fn node(keys: &Keys<'_>) -> Option<String> {
    if keys.has("node") {
        return keys.get("node", name);
    }
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let found = node_of_host(host.trim_end());
    found.map_err(|why| keys.section_error(&why)).ok()
}

/// The name of a node on a host of this name. Many hosts are called `localhost`.
fn node_of_host(host: &str) -> Parsed<String> {
    let usable = name(host).ok().filter(|name| name != "localhost");
    usable.ok_or_else(|| {
        let shown: String = host.chars().take(MAX_NAME).collect();
        format!(
            "the name of this host, `{}`, cannot be that of a node: `node` was expected",
            shown.escape_debug()
        )
    })
}

fn read_addresses(resolved: &Resolved<'_, '_>, problems: &Problems) -> Vec<CellAddress> {
    let keys = Keys::new(resolved, &ADDRESSES, problems);
    let sections = resolved.sections();
    if sections.len() > MAX_CELL_ADDRESSES {
        keys.section_error(&format!(
            "{} addresses: at most {MAX_CELL_ADDRESSES} were expected",
            sections.len()
        ));
        return Vec::new();
    }
    let mut owners: BTreeMap<IpAddr, String> = BTreeMap::new();
    let mut addresses = Vec::new();
    for section in &sections {
        let keys = Keys::new(section, &ADDRESS, problems);
        for missing in ["address", "interface"].into_iter().filter(|key| !keys.has(key)) {
            keys.section_error(&format!("`{missing}` was expected"));
        }
        let (address, interface) =
            (keys.get("address", subnet_address), keys.get("interface", interface_name));
        let (Some((address, prefix_len)), Some(interface)) = (address, interface) else { continue };
        let name = section.name().to_owned();
        if let Some(other) = owners.insert(address, name.clone()) {
            keys.error("address", &format!("{address} is that of `{other}`, too: another one was expected"));
        }
        addresses.push(CellAddress { name, address, prefix_len, interface });
    }
    addresses
}

/// Reads where this node receives forwarded packets.
fn read_forward(resolved: &Resolved<'_, '_>, problems: &Problems) -> Option<SocketAddr> {
    let keys = Keys::new(resolved, &FORWARD, problems);
    if !keys.has("address") {
        keys.section_error("`address` was expected, the address of this node for the other nodes");
    }
    let (address, port) = (keys.get("address", own_address), keys.get("port", forward_port));
    Some(SocketAddr::new(address?, port.unwrap_or(FORWARD_PORT)))
}

/// Reads an address of this node.
fn own_address(text: &str) -> Parsed<IpAddr> {
    let address: Option<IpAddr> = text.parse().ok();
    // A link-local address needs an interface, too.
    let is_usable = |address: &IpAddr| {
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        !address.is_unspecified() && !address.is_multicast() && !is_link_local
    };
    let expected = "an address of this node that the other nodes reach was expected, such as 10.99.0.21";
    address.filter(is_usable).ok_or_else(|| expected.into())
}

/// Reads a UDP port. Those of IKE are in use.
fn forward_port(text: &str) -> Parsed<u16> {
    let port = text.parse().ok().filter(|port| ![0, 500, 4500].contains(port));
    port.ok_or_else(|| "a number from 1 to 65535 was expected, other than 500 and 4500".into())
}

/// Reads the name of a cell or node.
fn name(text: &str) -> Parsed<String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.into());
    }
    Err(format!("1 to {MAX_NAME} letters, digits, `-`, `_` and `.` were expected"))
}

/// Reads the name of a section with a private key on a token.
fn token_section(text: &str) -> Parsed<String> {
    let is_name = text.starts_with("token");
    is_name
        .then(|| text.into())
        .ok_or_else(|| "the name of a section of `secrets` that begins with `token` was expected".into())
}

fn lease(text: &str) -> Parsed<Duration> {
    let lease = time(text).ok().flatten().filter(|lease| LEASES.contains(&lease.as_secs()));
    lease.ok_or_else(|| {
        format!("a time from {}s to {}s was expected, such as 3s", LEASES.start(), LEASES.end())
    })
}

/// Reads an address of a host with the length of the prefix of its subnet.
fn subnet_address(text: &str) -> Parsed<(IpAddr, u8)> {
    let parts = text.split_once('/').and_then(|(address, len)| {
        let (address, len): (IpAddr, u8) = (address.parse().ok()?, len.parse().ok()?);
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = bits.checked_sub(len).filter(|_| len > 0)?;
        Some((address, len, host_bits))
    });
    let (address, len, host_bits) =
        parts.ok_or("an address with the length of its prefix was expected, such as 192.0.2.1/24")?;
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err("an address that an interface can have was expected".into());
    }
    // RFC 3021, RFC 6164: subnets of two addresses have no address of the subnet itself.
    let ends = if host_bits < 2 { [false; 2] } else { ends_of_subnet(address, host_bits) };
    match (address, ends) {
        (_, [true, _]) => Err("the address of a host was expected, not that of the subnet".into()),
        (IpAddr::V4(_), [_, true]) => {
            Err("the address of a host was expected, not the broadcast address".into())
        }
        _ => Ok((address, len)),
    }
}

/// Whether all bits of the host are 0, and whether all are 1.
fn ends_of_subnet(address: IpAddr, host_bits: u8) -> [bool; 2] {
    let (bits, width): (u128, u32) = match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let mask = u128::MAX.checked_shr(128_u32.saturating_sub(u32::from(host_bits).min(width))).unwrap_or(0);
    [bits & mask == 0, bits & mask == mask]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_host_is_the_default_if_it_distinguishes_nodes() {
        assert_eq!(node_of_host("gw1.example.org"), Ok("gw1.example.org".into()));
        for host in ["", "localhost", "(none)", "a b", &"x".repeat(65)] {
            let why = node_of_host(host).unwrap_err();
            assert!(why.contains("`node` was expected") && why.len() < 150, "{why}");
        }
    }

    #[test]
    fn addresses_are_those_of_hosts() {
        let host = |text: &str| subnet_address(text).map(|(address, len)| format!("{address}/{len}"));
        for text in [
            "192.0.2.1/24",
            "192.0.2.0/31",
            "192.0.2.0/32",
            "192.0.2.255/31",
            "10.0.1.0/23",
            "2001:db8::1/64",
            "2001:db8::/127",
            "2001:db8::ffff:ffff:ffff:ffff/64",
            "128.0.0.1/1",
            "fe80::1/64",
        ] {
            assert_eq!(host(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "192.0.2.1",
            "192.0.2.1/",
            "192.0.2.1/33",
            "192.0.2.1/0",
            "2001:db8::1/129",
            "192.0.2.1/24/8",
            "192.0.2/24",
            "gw1/24",
            "192.0.2.1/-1",
        ] {
            assert!(host(text).unwrap_err().contains("such as 192.0.2.1/24"), "{text}");
        }
        for text in ["0.0.0.0/8", "127.0.0.1/8", "224.0.0.1/24", "::/64", "::1/128", "ff02::1/64"] {
            assert!(host(text).unwrap_err().contains("an interface can have"), "{text}");
        }
        for text in ["192.0.2.0/24", "192.0.2.4/30", "2001:db8::/64"] {
            assert!(host(text).unwrap_err().contains("not that of the subnet"), "{text}");
        }
        for text in ["192.0.2.255/24", "192.0.2.7/30"] {
            assert!(host(text).unwrap_err().contains("not the broadcast address"), "{text}");
        }
    }
}
