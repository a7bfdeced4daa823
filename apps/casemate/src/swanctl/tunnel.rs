//! Route-based tunnels and marks: `if_id_in`, `if_id_out`, `interface`, `mark_in`, `mark_out` and
//! `set_mark_in`, and the interfaces that they ask for.
//!
//! An interface ID is the number of its SPD. A mark has an SPD with an interface, too, whose number is the
//! mark with [`MARK_BIT`].

use super::schema::Keys;
use super::value::parse_number;
use casemate_ike::config::ChildMode;
use casemate_linux::TunnelSpec;
use casemate_sa::{SpdId, SpdPair};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// MTU of TUN interfaces: that of most links, less the largest overhead of IPsec. Headers of IPv6 and UDP, an
/// IV, padding and an ICV of 32 bytes fit.
pub(crate) const TUN_MTU: usize = 1_400;

/// Largest interface ID and largest mark.
const MAX_ID: u32 = 0x3fff_ffff;
/// Set in the numbers of SPDs for marks.
const MARK_BIT: u32 = 0x4000_0000;
/// Marks of the packets that instances send (`RoutingNumbers`).
const INSTANCE_MARKS: RangeInclusive<u32> = 50_510..=50_765;

/// Longest name of an interface: IFNAMSIZ without the zero byte.
const MAX_NAME_LEN: usize = 15;

/// What a child says about the interface of an SPD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceRequest {
    spd: SpdId,
    option: InterfaceOption,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum InterfaceOption {
    /// Name of the interface.
    Name(String),
    /// The mark that decrypted packets get.
    SetMark(u32),
}

/// The SPDs of a child, and what it says about their interfaces.
#[derive(Debug, Default)]
pub(super) struct ChildTunnel {
    pub(super) spds: SpdPair,
    pub(super) requests: Vec<InterfaceRequest>,
}

/// Reads the interface IDs of a connection, which its children inherit.
pub(super) fn ids(keys: &Keys<'_>) -> SpdPair {
    let spd = |name| keys.get(name, interface_id).unwrap_or_default();
    SpdPair { outbound: spd("if_id_out"), inbound: spd("if_id_in") }
}

/// Reads `mark_in` and `mark_out`.
fn marks(keys: &Keys<'_>) -> SpdPair {
    let spd = |name| keys.get(name, mark).map_or(SpdId::MAIN, spd_of_mark);
    SpdPair { outbound: spd("mark_out"), inbound: spd("mark_in") }
}

/// Reads the keys of a child.
pub(super) fn read(keys: &Keys<'_>, mode: ChildMode, inherited: SpdPair) -> ChildTunnel {
    let (own, marks) = (ids(keys), marks(keys));
    let or = |own: SpdId, inherited| if own.is_main() { inherited } else { own };
    let ids = SpdPair {
        outbound: or(own.outbound, inherited.outbound),
        inbound: or(own.inbound, inherited.inbound),
    };
    if ids != SpdPair::MAIN && marks != SpdPair::MAIN {
        keys.error(
            if keys.has("mark_out") { "mark_out" } else { "mark_in" },
            "the interface decides with if_id_in and if_id_out: no mark was expected",
        );
    }
    let spds = if ids == SpdPair::MAIN { marks } else { ids };
    if spds != SpdPair::MAIN && mode == ChildMode::Transport {
        keys.error(
            "mode",
            "in transport mode, the route into the interface would also lead protected packets into it: \
             tunnel was expected with interface IDs and marks",
        );
    }
    ChildTunnel { spds, requests: requests(keys, spds) }
}

fn requests(keys: &Keys<'_>, spds: SpdPair) -> Vec<InterfaceRequest> {
    let name = keys.get("interface", interface_name);
    if name.is_some() && spds.outbound.is_main() {
        let why = "it names the interface of a tunnel: if_id_out or mark_out was expected, too";
        keys.error("interface", why);
    }
    let set_mark = keys.get("set_mark_in", |text| set_mark(text, spds.inbound)).flatten();
    if set_mark.is_some() && spds.inbound.is_main() {
        keys.error(
            "set_mark_in",
            "packets get a mark at an interface: mark_in or if_id_in was expected, too",
        );
    }
    let name = name.map(|name| InterfaceRequest { spd: spds.outbound, option: InterfaceOption::Name(name) });
    let set_mark =
        set_mark.map(|mark| InterfaceRequest { spd: spds.inbound, option: InterfaceOption::SetMark(mark) });
    name.into_iter().chain(set_mark).collect()
}

/// Refuses the keys in a section without SAs.
pub(super) fn refuse(keys: &Keys<'_>) {
    for name in ["if_id_in", "if_id_out", "interface", "mark_in", "mark_out", "set_mark_in"] {
        if keys.has(name) {
            keys.error(name, "pass and drop concern no tunnel: no interface was expected");
        }
    }
}

const NO_UNIQUE: &str = "interfaces are made before there is an SA: a number was expected";

fn interface_id(text: &str) -> Result<SpdId, String> {
    if text.starts_with('%') {
        return Err(NO_UNIQUE.into());
    }
    match number(text)? {
        number @ 0..=MAX_ID => Ok(SpdId::new(number)),
        _ => Err(format!("a number up to {MAX_ID} was expected")),
    }
}

/// Reads a mark with an optional mask; 0 is none.
fn mark(text: &str) -> Result<u32, String> {
    if text.starts_with('%') {
        return Err(NO_UNIQUE.into());
    }
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    match (number(value.trim())?, number(mask.trim())?) {
        (0, _) => Ok(0),
        (_, mask) if mask != u32::MAX => {
            Err("the whole mark counts: the mask 0xffffffff was expected".into())
        }
        (value, _) if INSTANCE_MARKS.contains(&value) => {
            Err(format!("packets of Casemate itself have the marks {INSTANCE_MARKS:?}: another was expected"))
        }
        (value @ 1..=MAX_ID, _) => Ok(value),
        _ => Err(format!("a number up to {MAX_ID} was expected")),
    }
}

/// Reads `set_mark_in`; `None` is none.
fn set_mark(text: &str, inbound: SpdId) -> Result<Option<u32>, String> {
    match text {
        "%same" => match mark_of(inbound) {
            None => Err("there is no mark_in: a number was expected".into()),
            mark => Ok(mark),
        },
        _ => mark(text).map(|mark| Some(mark).filter(|mark| *mark != 0)),
    }
}

/// Reads a decimal or, after `0x`, a hexadecimal number.
fn number(text: &str) -> Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).map_err(|_| "a number was expected".to_owned()),
        None => parse_number(text),
    }
}

fn interface_name(text: &str) -> Result<String, String> {
    let is_odd = |character: char| !character.is_ascii_graphic() || "/:%".contains(character);
    if (1..=MAX_NAME_LEN).contains(&text.len()) && !text.contains(is_odd) && text != "." && text != ".." {
        return Ok(text.into());
    }
    Err(format!(
        "the name of an interface was expected: 1 to {MAX_NAME_LEN} characters, without `/`, `:` and `%`"
    ))
}

const fn spd_of_mark(mark: u32) -> SpdId {
    SpdId::new(if mark == 0 { 0 } else { mark | MARK_BIT })
}

/// The mark of the packets in this SPD.
pub(crate) const fn mark_of(spd: SpdId) -> Option<u32> {
    if spd.number() & MARK_BIT == 0 { None } else { Some(spd.number() & !MARK_BIT) }
}

/// The interfaces of all connections with these SPDs and requests. An error if two requests for an interface
/// differ, or one name is for two interfaces.
pub(crate) fn interfaces(
    children: impl Iterator<Item = SpdPair>,
    requests: impl Iterator<Item = InterfaceRequest>,
) -> Result<Vec<TunnelSpec>, String> {
    let (mut names, mut set_marks) = (BTreeMap::<SpdId, String>::new(), BTreeMap::<SpdId, u32>::new());
    for InterfaceRequest { spd, option } in requests {
        let other = match &option {
            InterfaceOption::Name(name) => names.insert(spd, name.clone()).map(InterfaceOption::Name),
            InterfaceOption::SetMark(mark) => set_marks.insert(spd, *mark).map(InterfaceOption::SetMark),
        };
        if let Some(other) = other.filter(|other| *other != option) {
            let what = described(spd);
            return Err(format!(
                "children say that {what} {other} and {option}: the same was expected of all"
            ));
        }
    }
    let mut specs = BTreeMap::<String, SpdId>::new();
    for spd in children.flat_map(|pair| [pair.outbound, pair.inbound]).filter(|spd| !spd.is_main()) {
        let default = || match mark_of(spd) {
            Some(mark) => format!("vti{mark}"),
            None => format!("ipsec{}", spd.number()),
        };
        let name = names.get(&spd).cloned().unwrap_or_else(default);
        if let Some(other) = specs.insert(name.clone(), spd).filter(|other| *other != spd) {
            return Err(format!(
                "interface: {name} would be {} and {}: a name for each was expected",
                described(other),
                described(spd)
            ));
        }
    }
    let spec = |(name, spd)| {
        let set_mark = set_marks.get(&spd).copied();
        TunnelSpec { spd, name, mtu: TUN_MTU, mark: mark_of(spd), set_mark }
    };
    Ok(specs.into_iter().map(spec).collect())
}

fn described(spd: SpdId) -> String {
    match mark_of(spd) {
        Some(mark) => format!("the interface for mark {mark}"),
        None => format!("the interface with ID {}", spd.number()),
    }
}

impl fmt::Display for InterfaceOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "is named {name}"),
            Self::SetMark(mark) => write!(f, "sets the mark {mark}"),
        }
    }
}
