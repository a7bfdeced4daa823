//! Who may have which ports: `UID=PORTS` of the command line.

use casemate_stack::Grant;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ports for the applications of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    uid: u32,
    ports: Vec<RangeInclusive<u16>>,
}

impl FromStr for GrantRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}`: a user's number and ports were expected, such as 1000=80,8000-8080");
        let (uid, ports) = text.split_once('=').ok_or_else(wrong)?;
        let uid = uid.parse().map_err(|_| wrong())?;
        let ports: Option<Vec<_>> = ports.split(',').map(range).collect();
        Ok(Self { uid, ports: ports.ok_or_else(wrong)? })
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

/// What all rules together say of a user.
pub(super) fn grant(rules: &[GrantRule], uid: u32) -> Grant {
    let own = rules.iter().filter(|rule| rule.uid == uid);
    own.flat_map(|rule| rule.ports.clone()).fold(Grant::none(), Grant::with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_joined() {
        let rules: Vec<GrantRule> =
            ["0=80", "1000=25,400-410", "0=443"].map(|text| text.parse().unwrap()).into();
        for (uid, port, permitted) in [
            (0, 80, true),
            (0, 443, true),
            (0, 25, false),
            (1_000, 405, true),
            (1_000, 80, false),
            (7, 80, false),
        ] {
            assert_eq!(grant(&rules, uid).permits(port), permitted, "{uid} {port}");
        }
        for wrong in
            ["", "80", "=80", "root=80", "0=", "0=0", "0=90-80", "0=80,", "0=80-", "0=65536", "-1=80"]
        {
            assert!(wrong.parse::<GrantRule>().is_err(), "{wrong}");
        }
    }
}
