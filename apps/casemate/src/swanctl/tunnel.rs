//! Route-based tunnels and marks: `if_id_in`, `if_id_out`, `interface`, `mark_in`, `mark_out` and
//! `set_mark_in`, and the interfaces that they ask for.
//!
//! An interface ID is the number of its SPD. A mark has an SPD with an interface, too, whose number is the
//! mark with [`MARK_BIT`]. With `%unique`, the endpoint chooses one of [`UNIQUE`] for each Child SA.

use super::schema::Keys;
use super::value::parse_number;
use casemate_ike::config::{ChildConfig, ChildMode, CloseAction};
use casemate_linux::TunnelSpec;
use casemate_sa::{OwnSpd, SpdId, SpdNumbers, SpdOwner, SpdRule, SpdRules};
use std::collections::{BTreeMap, BTreeSet};
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

/// Interface IDs and marks for `%unique` and `%unique-dir`. No configuration may name them. Their number
/// limits the interfaces that exist at the same time.
const UNIQUE: RangeInclusive<u32> = 900_001..=901_024;

/// Names of interfaces begin so, and the ID or the mark follows.
const ID_PREFIX: &str = "ipsec";
const MARK_PREFIX: &str = "vti";
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
    pub(super) spds: SpdRules,
    pub(super) requests: Vec<InterfaceRequest>,
}

/// An interface ID or a mark in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// This number; 0 is none.
    Fixed(u32),
    /// `%unique`, or `%unique-dir`: one for each direction.
    Unique { per_direction: bool },
}

/// Reads the interface IDs of a connection, which its children inherit. With `%unique`, they belong to an IKE
/// SA.
pub(super) fn ids(keys: &Keys<'_>) -> SpdRules {
    rules(keys, ["if_id_out", "if_id_in"], interface_id, SpdOwner::IkeSa, 0)
}

/// Reads the numbers of both directions. `bit` is set in the numbers of their SPDs.
fn rules(
    keys: &Keys<'_>,
    names: [&str; 2],
    read: impl Fn(&str) -> Result<Number, String>,
    owner: SpdOwner,
    bit: u32,
) -> SpdRules {
    let [outbound, inbound] = names.map(|name| keys.get(name, &read).unwrap_or(Number::Fixed(0)));
    // As in strongSwan, one `%unique-dir` is enough for both.
    let per_direction = [outbound, inbound].contains(&Number::Unique { per_direction: true });
    let numbers = SpdNumbers::new(UNIQUE.start() | bit, UNIQUE.end() | bit);
    let rule = |number| match (number, numbers) {
        (Number::Fixed(0), _) | (Number::Unique { .. }, None) => SpdRule::default(),
        (Number::Fixed(number), _) => SpdRule::Fixed(SpdId::new(number | bit)),
        (Number::Unique { .. }, Some(numbers)) => SpdRule::Own(OwnSpd { owner, per_direction, numbers }),
    };
    SpdRules { outbound: rule(outbound), inbound: rule(inbound) }
}

/// Reads the keys of a child.
pub(super) fn read(keys: &Keys<'_>, mode: ChildMode, inherited: SpdRules) -> ChildTunnel {
    let own = rules(keys, ["if_id_out", "if_id_in"], interface_id, SpdOwner::ChildSa, 0);
    let marks = rules(keys, ["mark_out", "mark_in"], mark, SpdOwner::ChildSa, MARK_BIT);
    let or = |own: SpdRule, inherited| if own.is_main() { inherited } else { own };
    let ids = SpdRules {
        outbound: or(own.outbound, inherited.outbound),
        inbound: or(own.inbound, inherited.inbound),
    };
    if !ids.are_main() && !marks.are_main() {
        keys.error(
            if keys.has("mark_out") { "mark_out" } else { "mark_in" },
            "the interface decides with if_id_in and if_id_out: no mark was expected",
        );
    }
    let spds = if ids.are_main() { marks } else { ids };
    if !spds.are_main() && mode == ChildMode::Transport {
        keys.error(
            "mode",
            "in transport mode, the route into the interface would also lead protected packets into it: \
             tunnel was expected with interface IDs and marks",
        );
    }
    ChildTunnel { spds, requests: requests(keys, spds) }
}

/// Refuses what a child with `%unique` cannot have.
pub(super) fn check_unique(keys: &Keys<'_>, child: &ChildConfig) {
    if child.spds.pair().is_some() {
        return;
    }
    let traps = [
        ("start_action", child.start_action.on_traffic),
        ("close_action", child.close_action == CloseAction::Trap),
        ("dpd_action", child.dpd_action == CloseAction::Trap),
    ];
    for (name, _) in traps.into_iter().filter(|(_, is_trap)| *is_trap) {
        keys.error(
            name,
            "with %unique, the interface exists only while the Child SA does, so no packet can wait for it: \
             another action than trap was expected",
        );
    }
    if child.reqid.is_some() {
        keys.error(
            "reqid",
            "with %unique, the Child SAs of several peers may carry the same traffic, and the reqid tells \
             them apart: no reqid was expected",
        );
    }
}

fn requests(keys: &Keys<'_>, spds: SpdRules) -> Vec<InterfaceRequest> {
    let name = keys.get("interface", interface_name);
    if name.is_some() && spds.outbound.is_main() {
        let why = "it names the interface of a tunnel: if_id_out or mark_out was expected, too";
        keys.error("interface", why);
    }
    if name.is_some() && spds.outbound.fixed().is_none() {
        let why = "each Child SA has an interface of its own with %unique: no name was expected";
        keys.error("interface", why);
    }
    let set_mark = keys.get("set_mark_in", |text| set_mark(text, spds.inbound)).flatten();
    if set_mark.is_some() && spds.inbound.is_main() {
        keys.error(
            "set_mark_in",
            "packets get a mark at an interface: mark_in or if_id_in was expected, too",
        );
    }
    let request = |rule: SpdRule, option| Some(InterfaceRequest { spd: rule.fixed()?, option });
    let name = name.and_then(|name| request(spds.outbound, InterfaceOption::Name(name)));
    let set_mark = set_mark.and_then(|mark| request(spds.inbound, InterfaceOption::SetMark(mark)));
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

fn interface_id(text: &str) -> Result<Number, String> {
    match unique(text)? {
        Some(unique) => Ok(unique),
        None => usable(number(text)?),
    }
}

/// Reads a mark with an optional mask; 0 is none.
fn mark(text: &str) -> Result<Number, String> {
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    let read = unique(value.trim())?;
    let value = read.map_or_else(|| number(value.trim()).map(Number::Fixed), Ok)?;
    let mask = number(mask.trim())?;
    match value {
        Number::Fixed(0) => Ok(value),
        _ if mask != u32::MAX => Err("the whole mark counts: the mask 0xffffffff was expected".into()),
        Number::Fixed(value) if INSTANCE_MARKS.contains(&value) => {
            Err(format!("packets of Casemate itself have the marks {INSTANCE_MARKS:?}: another was expected"))
        }
        Number::Fixed(value) => usable(value),
        Number::Unique { .. } => Ok(value),
    }
}

/// Reads `%unique` and `%unique-dir`; `None` is a number.
fn unique(text: &str) -> Result<Option<Number>, String> {
    match text {
        "%unique" => Ok(Some(Number::Unique { per_direction: false })),
        "%unique-dir" => Ok(Some(Number::Unique { per_direction: true })),
        _ if text.starts_with('%') => Err("a number, %unique or %unique-dir was expected".into()),
        _ => Ok(None),
    }
}

fn usable(number: u32) -> Result<Number, String> {
    match number {
        _ if UNIQUE.contains(&number) => Err(kept_for_unique()),
        0..=MAX_ID => Ok(Number::Fixed(number)),
        _ => Err(format!("a number up to {MAX_ID} was expected")),
    }
}

fn kept_for_unique() -> String {
    format!("{} to {} are for %unique: another number was expected", UNIQUE.start(), UNIQUE.end())
}

/// Reads `set_mark_in`; `None` is none.
fn set_mark(text: &str, inbound: SpdRule) -> Result<Option<u32>, String> {
    let mark = match (text, inbound.fixed()) {
        ("0", None) => return Ok(None),
        (_, None) => {
            return Err(
                "%unique has no mark before the Child SA is up, but a script that marks packets from \
                        the interface learns it: 0 was expected"
                    .into(),
            );
        }
        ("%same", Some(spd)) => {
            let mark = mark_of(spd);
            return mark.map(Some).ok_or_else(|| "there is no mark_in: a number was expected".into());
        }
        _ => mark(text)?,
    };
    match mark {
        Number::Fixed(mark) => Ok(Some(mark).filter(|mark| *mark != 0)),
        Number::Unique { .. } => Err("a number or %same was expected".into()),
    }
}

/// Reads a decimal or, after `0x`, a hexadecimal number.
fn number(text: &str) -> Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).map_err(|_| "a number was expected".to_owned()),
        None => parse_number(text),
    }
}

pub(super) fn interface_name(text: &str) -> Result<String, String> {
    let is_odd = |character: char| !character.is_ascii_graphic() || "/:%".contains(character);
    let number = text.strip_prefix(ID_PREFIX).or_else(|| text.strip_prefix(MARK_PREFIX));
    if number.and_then(|number| number.parse().ok()).is_some_and(|number| UNIQUE.contains(&number)) {
        return Err(kept_for_unique());
    }
    if (1..=MAX_NAME_LEN).contains(&text.len()) && !text.contains(is_odd) && text != "." && text != ".." {
        return Ok(text.into());
    }
    Err(format!(
        "the name of an interface was expected: 1 to {MAX_NAME_LEN} characters, without `/`, `:` and `%`"
    ))
}

/// The mark of the packets in this SPD.
pub(crate) const fn mark_of(spd: SpdId) -> Option<u32> {
    if spd.number() & MARK_BIT == 0 { None } else { Some(spd.number() & !MARK_BIT) }
}

/// Name of the interface of an SPD, unless the configuration names it.
fn default_name(spd: SpdId) -> String {
    match mark_of(spd) {
        Some(mark) => format!("{MARK_PREFIX}{mark}"),
        None => format!("{ID_PREFIX}{}", spd.number()),
    }
}

/// The interface of an SPD of `%unique`; `None` if the SPD has another number.
pub(crate) fn unique_interface(spd: SpdId) -> Option<TunnelSpec> {
    let (number, mark) = (spd.number() & !MARK_BIT, mark_of(spd));
    let name = || default_name(spd);
    let spec = || TunnelSpec { spd, inbound: None, name: name(), mtu: TUN_MTU, mark, set_mark: None };
    UNIQUE.contains(&number).then(spec)
}

/// The interfaces of all connections with these SPDs and requests. An error if two requests for an interface
/// differ, or one name is for two interfaces.
pub(crate) fn interfaces(
    children: impl Iterator<Item = SpdRules>,
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
    let pairs: BTreeSet<FixedPair> = children.map(fixed_pair).collect();
    let inbound_of = joined_marks(&pairs);
    let mut specs = BTreeMap::<String, SpdId>::new();
    let is_joined = |spd: &SpdId| inbound_of.values().any(|inbound| inbound == spd);
    let fixed: BTreeSet<SpdId> = pairs.iter().flatten().copied().flatten().collect();
    for spd in fixed.into_iter().filter(|spd| !spd.is_main() && !is_joined(spd)) {
        let name = names.get(&spd).cloned().unwrap_or_else(|| default_name(spd));
        if let Some(other) = specs.insert(name.clone(), spd).filter(|other| *other != spd) {
            return Err(format!(
                "interface: {name} would be {} and {}: a name for each was expected",
                described(other),
                described(spd)
            ));
        }
    }
    let spec = |(name, spd)| {
        let inbound = inbound_of.get(&spd).copied();
        let set_mark = set_marks.get(&inbound.unwrap_or(spd)).copied();
        TunnelSpec { spd, inbound, name, mtu: TUN_MTU, mark: mark_of(spd), set_mark }
    };
    Ok(specs.into_iter().map(spec).collect())
}

/// The SPDs of a child, outbound and inbound; `None` is one of `%unique`.
type FixedPair = [Option<SpdId>; 2];

fn fixed_pair(rules: SpdRules) -> FixedPair {
    [rules.outbound.fixed(), rules.inbound.fixed()]
}

/// Outbound SPDs of marks whose interface is also that of another, inbound mark, with the SPD of that mark.
/// Two marks have one interface if every child with one of them has both. So scripts that
/// expect one interface for both directions, as with strongSwan, see it.
fn joined_marks(pairs: &BTreeSet<FixedPair>) -> BTreeMap<SpdId, SpdId> {
    let mut uses = BTreeMap::<SpdId, usize>::new();
    for spd in pairs.iter().flat_map(|pair| BTreeSet::from(*pair)).flatten() {
        let count = uses.entry(spd).or_default();
        *count = count.saturating_add(1);
    }
    let is_only_here = |spd: &SpdId| mark_of(*spd).is_some() && uses.get(spd) == Some(&1);
    let joined = pairs.iter().filter_map(|pair| match *pair {
        [Some(outbound), Some(inbound)] if outbound != inbound => Some((outbound, inbound)),
        _ => None,
    });
    joined.filter(|(outbound, inbound)| is_only_here(outbound) && is_only_here(inbound)).collect()
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
