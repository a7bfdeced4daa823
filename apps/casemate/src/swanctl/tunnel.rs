//! Route-based tunnels: `if_id_in`, `if_id_out` and `interface`, and the interfaces that they ask for.

use super::schema::Keys;
use super::value::parse_number;
use casemate_ike::config::ChildMode;
use casemate_linux::TunnelSpec;
use casemate_sa::{SpdId, SpdPair};
use std::collections::BTreeMap;

/// MTU of TUN interfaces: that of most links, less the largest overhead of IPsec. Headers of IPv6 and UDP, an
/// IV, padding and an ICV of 32 bytes fit.
pub(crate) const TUN_MTU: usize = 1_400;

/// Largest interface ID: the numbers above are for other kinds of SPDs.
const MAX_ID: u32 = 0x3fff_ffff;

/// Longest name of an interface: IFNAMSIZ without the zero byte.
const MAX_NAME_LEN: usize = 15;

/// The name that a child gives to the interface of an SPD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceName {
    spd: SpdId,
    name: String,
}

/// The SPDs of a child, and the name of its interface, if it has one.
#[derive(Debug, Default)]
pub(super) struct ChildTunnel {
    pub(super) spds: SpdPair,
    pub(super) name: Option<InterfaceName>,
}

/// Reads the interface IDs of a connection, which its children inherit.
pub(super) fn ids(keys: &Keys<'_>) -> SpdPair {
    let spd = |name| keys.get(name, interface_id).unwrap_or_default();
    SpdPair { outbound: spd("if_id_out"), inbound: spd("if_id_in") }
}

/// Reads the keys of a child.
pub(super) fn read(keys: &Keys<'_>, mode: ChildMode, inherited: SpdPair) -> ChildTunnel {
    let own = ids(keys);
    let or = |own: SpdId, inherited| if own.is_main() { inherited } else { own };
    let spds = SpdPair {
        outbound: or(own.outbound, inherited.outbound),
        inbound: or(own.inbound, inherited.inbound),
    };
    if spds != SpdPair::MAIN && mode == ChildMode::Transport {
        keys.error(
            "mode",
            "in transport mode, the route into the interface would also lead protected packets into it: \
             tunnel was expected with if_id_in and if_id_out",
        );
    }
    let name = keys.get("interface", interface_name);
    if name.is_some() && spds.outbound.is_main() {
        keys.error(
            "interface",
            "it names the interface of a route-based tunnel: if_id_out was expected, too",
        );
    }
    ChildTunnel { spds, name: name.map(|name| InterfaceName { spd: spds.outbound, name }) }
}

/// Refuses the keys in a section without SAs.
pub(super) fn refuse(keys: &Keys<'_>) {
    for name in ["if_id_in", "if_id_out", "interface"] {
        if keys.has(name) {
            keys.error(name, "pass and drop concern no tunnel: no interface was expected");
        }
    }
}

fn interface_id(text: &str) -> Result<SpdId, String> {
    if text.starts_with('%') {
        return Err("interfaces are made before there is an SA: a number was expected".into());
    }
    // As strongSwan, which also accepts hexadecimal numbers.
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).map_err(|_| "a number was expected".to_owned()),
        None => parse_number(text),
    };
    match number? {
        number @ 0..=MAX_ID => Ok(SpdId::new(number)),
        _ => Err(format!("a number up to {MAX_ID} was expected")),
    }
}

fn interface_name(text: &str) -> Result<String, String> {
    let is_odd = |letter: char| !letter.is_ascii_graphic() || "/:%".contains(letter);
    if (1..=MAX_NAME_LEN).contains(&text.len()) && !text.contains(is_odd) && text != "." && text != ".." {
        return Ok(text.into());
    }
    Err(format!(
        "the name of an interface was expected: 1 to {MAX_NAME_LEN} letters, without `/`, `:` and `%`"
    ))
}

/// The interfaces of all connections with these SPDs and names. An error if two names concern one interface,
/// or one name two of them.
pub(crate) fn interfaces(
    children: impl Iterator<Item = SpdPair>,
    names: impl Iterator<Item = InterfaceName>,
) -> Result<Vec<TunnelSpec>, String> {
    let mut given = BTreeMap::<SpdId, String>::new();
    for InterfaceName { spd, name } in names {
        if let Some(other) = given.insert(spd, name.clone()).filter(|other| *other != name) {
            return Err(format!(
                "interface: the interface with ID {} has two names, {other} and {name}: one was expected",
                spd.number()
            ));
        }
    }
    let mut specs = BTreeMap::<String, SpdId>::new();
    for spd in children.flat_map(|pair| [pair.outbound, pair.inbound]).filter(|spd| !spd.is_main()) {
        let name = given.get(&spd).cloned().unwrap_or_else(|| format!("ipsec{}", spd.number()));
        if let Some(other) = specs.insert(name.clone(), spd).filter(|other| *other != spd) {
            return Err(format!(
                "interface: {name} would be the interface with ID {} and that with ID {}: a name for each was \
                 expected",
                other.number(),
                spd.number()
            ));
        }
    }
    Ok(specs.into_iter().map(|(name, spd)| TunnelSpec { spd, name, mtu: TUN_MTU }).collect())
}
