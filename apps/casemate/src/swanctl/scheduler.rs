//! `scheduler`: which packets reach the crypto engine first. strongSwan has no such section and passes it by.

use super::schema::{Keys, Problems, Rule, Schema};
use super::value::{code_point, digits, positive, truth, volume};
use super::view::View;
use casemate_ike::spelling::traffic;
use casemate_ike::{Traffic, selector};
use casemate_linux::Scheduling;
use casemate_sa::AddrRange;
use casemate_sched::{Class, Classifier, Config, DscpTable, Rule as ClassRule};
use casemate_wire::dscp::Dscp;

pub(super) const SCHEDULER: Schema = Schema {
    keys: &[("enabled", Rule::Take)],
    sections: &["=low-latency", "=real-time", "=assured", "=standard", "=least"],
};

/// Of the class that goes first.
pub(super) const LOW_LATENCY: Schema = Schema {
    keys: &[
        ("rate", Rule::Take),
        ("burst", Rule::Take),
        ("dscp", Rule::Take),
        ("local_ts", Rule::Take),
        ("remote_ts", Rule::Take),
        ("weight", Rule::Take),
        ("limit", Rule::Take),
    ],
    sections: &[],
};

/// Of the other classes.
pub(super) const CLASS: Schema = Schema {
    keys: &[
        ("dscp", Rule::Take),
        ("local_ts", Rule::Take),
        ("remote_ts", Rule::Take),
        ("weight", Rule::Take),
        ("limit", Rule::Take),
    ],
    sections: &[],
};

/// Reads the section; `None` if it switches the scheduler off.
pub(super) fn read(view: &View<'_, '_>, problems: &Problems) -> Option<Scheduling> {
    let keys = Keys::new(view, &SCHEDULER, problems);
    let mut config = Config::SERVER;
    let (mut rules, mut named) = (Vec::new(), Vec::new());
    for section in view.sections() {
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
        keys.wrong_section(&why.to_string());
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

/// Packets from any of `local_ts` to any of `remote_ts`; a side that is not given is every address.
fn class_rules(keys: &Keys<'_>, class: Class) -> Vec<ClassRule> {
    if !keys.has("local_ts") && !keys.has("remote_ts") {
        return Vec::new();
    }
    let everything = || [AddrRange::ANY_V4, AddrRange::ANY_V6].map(Traffic::any).into();
    let side = |name| if keys.has(name) { keys.list(name, part) } else { everything() };
    let (local, remote) = (side("local_ts"), side("remote_ts"));
    let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
    let selectors = pairs.filter_map(|(local, remote)| selector(local, remote));
    let rules: Vec<ClassRule> = selectors.map(|selector| ClassRule { selector, class }).collect();
    if rules.is_empty() && !local.is_empty() && !remote.is_empty() {
        keys.wrong("remote_ts", "no packet is of this protocol and IP version and of those of local_ts");
    }
    rules
}

/// The code points of RFC 4594, but for classes that name their own: those have no others.
fn table(keys: &Keys<'_>, named: &[(Class, Vec<Dscp>)]) -> DscpTable {
    let mut table = DscpTable::default();
    for dscp in (0..=u8::MAX).map_while(Dscp::new) {
        if named.iter().any(|(class, _)| *class == table.class_of(dscp)) {
            table.assign(dscp, Class::Standard);
        }
        let mut classes = named.iter().filter(|(_, points)| points.contains(&dscp)).map(|(class, _)| *class);
        match (classes.next(), classes.next()) {
            (Some(first), Some(second)) => keys.wrong_section(&format!(
                "code point {} is named by the classes {first} and {second}: one was expected",
                dscp.value()
            )),
            (Some(class), None) => table.assign(dscp, class),
            (None, _) => {}
        }
    }
    table
}

/// Reads one part of the traffic of a side.
fn part(text: &str) -> Result<Traffic, String> {
    let part = traffic(text)?.fill(&[]).next();
    part.ok_or_else(|| {
        "an address, a subnet or a range was expected: these are packets of many Child SAs".into()
    })
}

/// Reads a number of bytes above 0.
fn bytes(text: &str) -> Result<u32, String> {
    let bytes = volume(text)?.and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| "a number of bytes from 1 to 4294967295 was expected".into())
}

/// Reads a rate such as `100mbit`, in bytes a second.
fn rate(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let scaled = units.iter().find_map(|(unit, bits)| {
        let number = lower.strip_suffix(unit)?;
        digits(number.trim_end_matches(' '))?.checked_mul(*bits)
    });
    let rate = scaled.map(|bits| bits / 8).filter(|rate| *rate > 0);
    rate.ok_or_else(|| "a rate above 0 was expected, such as 512kbit, 100mbit or 1gbit".into())
}
