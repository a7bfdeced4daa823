//! Messages about unknown keys and sections, with the name that was probably meant.

use super::schema::{Rule, Schema};
use super::{PERFORMANCE, auth_round, cell, charon, child, connection, etcd, pool, scheduler, secret, token};

/// Every section that has keys, under the name of its heading in docs/manual/swanctl.md or cell.md.
const SECTIONS: [(&str, &Schema); 23] = [
    ("connections.NAME", &connection::CONNECTION),
    ("connections.NAME.local", &auth_round::LOCAL),
    ("connections.NAME.remote", &auth_round::REMOTE),
    ("connections.NAME.local.certNAME", &auth_round::FILE),
    ("connections.NAME.children.NAME", &child::CHILD),
    ("secrets.ikeNAME", &secret::SHARED),
    ("secrets.privateNAME", &secret::PASSPHRASE),
    ("secrets.tokenNAME", &token::TOKEN),
    ("pools.NAME", &pool::POOL),
    ("authorities.NAME", &pool::AUTHORITY),
    ("charon", &charon::CHARON),
    ("charon.plugins.resolve", &charon::RESOLVE),
    ("charon.plugins.pkcs11", &token::PKCS11),
    ("charon.plugins.pkcs11.modules.NAME", &token::MODULE),
    ("charon.plugins.revocation", &charon::REVOCATION),
    ("scheduler", &scheduler::SCHEDULER),
    ("scheduler.low-latency", &scheduler::LOW_LATENCY),
    ("scheduler.CLASS", &scheduler::CLASS),
    ("performance", &PERFORMANCE),
    ("cell", &cell::CELL),
    ("cell.etcd", &etcd::ETCD),
    ("cell.addresses.NAME", &cell::ADDRESS),
    ("cell.forward", &cell::FORWARD),
];

/// The message for a key that is unknown in its section. Names a section that accepts the key, unless this
/// section accepts it in another case.
pub(super) fn unknown_key(name: &str, schema: &Schema) -> String {
    let names: Vec<&str> = schema.keys.iter().map(|(key, _)| *key).collect();
    let homes = if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        Vec::new()
    } else {
        sections_with(name)
    };
    match homes.split_last() {
        None => unknown("key", name, &names),
        Some((last, [])) => format!("not a key of this section; it belongs to {last}"),
        Some((last, others)) => {
            format!("not a key of this section; it belongs to {} or {last}", others.join(", "))
        }
    }
}

/// The sections that accept the key, each with the key's exact name if its case differs.
fn sections_with(name: &str) -> Vec<String> {
    let key_in = |schema: &'static Schema| {
        let accepted = schema.keys.iter().filter(|(_, rule)| !matches!(rule, Rule::Refused(_)));
        accepted.map(|(key, _)| *key).find(|key| key.eq_ignore_ascii_case(name))
    };
    let found = SECTIONS.into_iter().filter_map(|(section, schema)| Some((section, key_in(schema)?)));
    found
        .map(
            |(section, key)| {
                if key == name { format!("`{section}`") } else { format!("`{section}`, as `{key}`") }
            },
        )
        .collect()
}

/// The message for an unknown name, with a suggestion if a known name is similar.
pub(super) fn unknown(kind: &str, name: &str, names: &[&str]) -> String {
    let lower = name.to_ascii_lowercase();
    let similar =
        names.iter().filter(|known| is_similar(&lower, known)).min_by_key(|known| distance(&lower, known));
    match similar {
        Some(similar) => format!("not a {kind} of swanctl.conf; did you mean `{similar}`?"),
        None if names.is_empty() => format!("not a {kind} of swanctl.conf; none was expected here"),
        None => format!("not a {kind} of swanctl.conf; expected one of {}", names.join(", ")),
    }
}

fn is_similar(name: &str, known: &str) -> bool {
    let is_near = name.len() <= known.len().saturating_add(2)
        && distance(name, known) <= known.len().div_ceil(4).min(2);
    // Another ending, such as `childs` for `children`.
    let common = name.chars().zip(known.chars()).take_while(|(a, b)| a == b).count();
    let has_same_stem =
        common >= 5 && common.saturating_add(1) >= name.len() && common.saturating_mul(2) >= known.len();
    is_near || has_same_stem
}

/// The Levenshtein distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (n, x) in a.chars().enumerate() {
        let mut diagonal = n;
        let mut left = n.saturating_add(1);
        let mut next = vec![left];
        for (y, above) in b.chars().zip(row.iter().skip(1)) {
            let changed = diagonal.saturating_add(usize::from(x != y));
            left = changed.min(left.saturating_add(1)).min(above.saturating_add(1));
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("dpd_dely", "dpd_delay", 1)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn similar_names_are_suggested() {
        let names = ["rekey_time", "reauth_time", "id"];
        for name in ["rekeytime", "REKEY_TIME", "Rekey_Tim"] {
            assert_eq!(unknown("key", name, &names), "not a key of swanctl.conf; did you mean `rekey_time`?");
        }
        let section = unknown("section", "childs", &["local", "remote", "children"]);
        assert!(section.ends_with("did you mean `children`?"), "{section}");
        assert!(unknown("key", "foo", &names).ends_with("expected one of rekey_time, reauth_time, id"));
        assert!(unknown("key", &"x".repeat(10_000), &names).contains("expected one of"));
    }

    #[test]
    fn the_section_that_accepts_a_key_is_named() {
        let text = unknown_key("rohc", &connection::CONNECTION);
        assert_eq!(text, "not a key of this section; it belongs to `connections.NAME.children.NAME`");
        let text = unknown_key("Auth", &connection::CONNECTION);
        let expected = "not a key of this section; it belongs to `connections.NAME.local`, as `auth` or \
                        `connections.NAME.remote`, as `auth`";
        assert_eq!(text, expected);
        assert!(unknown_key("ROHC", &child::CHILD).ends_with("did you mean `rohc`?"));
        assert!(
            unknown_key("mediated_by", &child::CHILD).contains("expected one of"),
            "no section accepts it"
        );
    }
}
