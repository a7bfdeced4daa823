//! The section `scheduler`: classes of outbound packets and their shares. strongSwan does not know the
//! section and ignores it.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{code_point, parse_digits, positive, truth, volume};
use casemate_ike::{TrafficSelector, packet_selector};
use casemate_linux::Scheduling;
use casemate_sa::AddrRange;
use casemate_sched::{Class, Classifier, Config, DscpTable, Rule as ClassRule};
use casemate_strongswan::parse_traffic_selector;
use casemate_wire::dscp::Dscp;

pub(super) const SCHEDULER: Schema = Schema {
    keys: &[("enabled", Rule::Read)],
    sections: &["=low-latency", "=real-time", "=assured", "=standard", "=least"],
};

/// Keys of the class `low-latency`, which is served first.
pub(super) const LOW_LATENCY: Schema = Schema {
    keys: &[
        ("rate", Rule::Read),
        ("burst", Rule::Read),
        ("dscp", Rule::Read),
        ("local_ts", Rule::Read),
        ("remote_ts", Rule::Read),
        ("weight", Rule::Read),
        ("limit", Rule::Read),
    ],
    sections: &[],
};

/// Keys of the other classes.
pub(super) const CLASS: Schema = Schema {
    keys: &[
        ("dscp", Rule::Read),
        ("local_ts", Rule::Read),
        ("remote_ts", Rule::Read),
        ("weight", Rule::Read),
        ("limit", Rule::Read),
    ],
    sections: &[],
};

/// Reads the section; `None` if `enabled = no`.
pub(super) fn read(resolved: &Resolved<'_, '_>, problems: &Problems) -> Option<Scheduling> {
    let keys = Keys::new(resolved, &SCHEDULER, problems);
    let mut config = Config::SERVER;
    let (mut rules, mut named) = (Vec::new(), Vec::new());
    for section in resolved.sections() {
        let Some(class) = Class::from_name(section.name()) else { continue };
        let schema = if class == Class::LowLatency { &LOW_LATENCY } else { &CLASS };
        let keys = Keys::new(&section, schema, problems);
        share(&keys, class, &mut config);
        rules.extend(class_rules(&keys, class));
        if keys.has("dscp") {
            let points = keys.list("dscp", code_point);
            named.push((class, points));
        }
    }
    if let Err(why) = config.check() {
        keys.section_error(&why.to_string());
    }
    let table = table(&keys, &named);
    let is_on = keys.get("enabled", truth).unwrap_or(true);
    is_on.then(|| Scheduling { config, classifier: Classifier::new(rules, table) })
}

fn share(keys: &Keys<'_>, class: Class, config: &mut Config) {
    let share = config.shares.get_mut(class);
    share.weight = keys.get("weight", positive).unwrap_or(share.weight);
    share.limit = keys.get("limit", bytes).unwrap_or(share.limit);
    if class == Class::LowLatency {
        config.cap.rate = keys.get("rate", rate).unwrap_or(config.cap.rate);
        config.cap.burst = keys.get("burst", bytes).unwrap_or(config.cap.burst);
    }
}

/// Rules for packets from any of `local_ts` to any of `remote_ts`; a missing key matches every address.
fn class_rules(keys: &Keys<'_>, class: Class) -> Vec<ClassRule> {
    if !keys.has("local_ts") && !keys.has("remote_ts") {
        return Vec::new();
    }
    let everything = || [AddrRange::ANY_V4, AddrRange::ANY_V6].map(TrafficSelector::any).into();
    let side = |name| if keys.has(name) { keys.list(name, part) } else { everything() };
    let (local, remote) = (side("local_ts"), side("remote_ts"));
    let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
    let selectors = pairs.filter_map(|(local, remote)| packet_selector(local, remote));
    let rules: Vec<ClassRule> = selectors.map(|selector| ClassRule { selector, class }).collect();
    if rules.is_empty() && !local.is_empty() && !remote.is_empty() {
        keys.error(
            "remote_ts",
            "no packet matches this selector and local_ts: the same protocol and IP version were expected",
        );
    }
    rules
}

/// The mapping of DSCP values to classes: that of RFC 4594, except that a class with the key `dscp` has
/// only the listed values.
fn table(keys: &Keys<'_>, named: &[(Class, Vec<Dscp>)]) -> DscpTable {
    let mut table = DscpTable::default();
    for dscp in (0..=u8::MAX).map_while(Dscp::new) {
        if named.iter().any(|(class, _)| *class == table.class_of(dscp)) {
            table.assign(dscp, Class::Standard);
        }
        let mut classes = named.iter().filter(|(_, points)| points.contains(&dscp)).map(|(class, _)| *class);
        match (classes.next(), classes.next()) {
            (Some(first), Some(second)) => keys.section_error(&format!(
                "code point {} is assigned to the classes {first} and {second}: one class was expected",
                dscp.value()
            )),
            (Some(class), None) => table.assign(dscp, class),
            (None, _) => {}
        }
    }
    table
}

/// Reads one traffic selector. `dynamic` is refused, because a class is not bound to one Child SA.
fn part(text: &str) -> Result<TrafficSelector, String> {
    let part = parse_traffic_selector(text)?.fill(&[]).next();
    part.ok_or_else(|| {
        "an address, a subnet or a range was expected: a class applies to all Child SAs".into()
    })
}

/// Reads a number of bytes from 1 to 2^32 - 1.
fn bytes(text: &str) -> Result<u32, String> {
    let bytes = volume(text)?.and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| "a number of bytes from 1 to 4294967295 was expected".into())
}

/// Reads a rate such as `100mbit`; returns bytes per second.
fn rate(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let scaled = units.iter().find_map(|(unit, bits)| {
        let number = lower.strip_suffix(unit)?;
        parse_digits(number.trim_end_matches(' '))?.checked_mul(*bits)
    });
    let rate = scaled.map(|bits| bits / 8).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "a rate above 0 was expected, such as 512kbit, 100mbit or 1gbit".into())
}
