//! Licences and origins of every dependency, against the lists in deny.toml (docs/decisions/0002-licence-check.md).

use crate::failure::{Failure, Result};
use crate::metadata::{self, Package};
use crate::{shell, spdx};
use std::fs;

pub(crate) const ABOUT: &str = "Check the licence and the origin of every dependency
Reads `[licenses] allow` and `[sources] allow-registry` of deny.toml, the format of cargo-deny, and compares them with
what `cargo metadata` says of every crate in Cargo.lock, whatever the target.";

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let text = fs::read_to_string(shell::root().join("deny.toml"))?;
    let licences = list(&text, "[licenses]", "allow")?;
    let registries = list(&text, "[sources]", "allow-registry")?;
    let packages = metadata::packages()?;
    let findings: Vec<String> =
        packages.iter().filter_map(|package| finding(package, &licences, &registries)).collect();
    Failure::unless_empty(&findings, "dependencies that deny.toml does not allow")?;
    println!("{} packages, every licence and origin is allowed", packages.len());
    Ok(())
}

fn finding(package: &Package, licences: &[String], registries: &[String]) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    if let Some(source) = &package.source {
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !registries.iter().any(|allowed| allowed == registry) {
            return Some(format!("{name}: comes from {source}"));
        }
    }
    let Some(licence) = &package.licence else { return Some(format!("{name}: names no licence")) };
    match spdx::satisfies(licence, licences) {
        Some(true) => None,
        Some(false) => Some(format!("{name}: {licence}")),
        None => Some(format!("{name}: `{licence}` is no SPDX expression")),
    }
}

/// The strings of one array in deny.toml. A TOML parser would be most of what this program compiles, and the file is
/// ours: one string a line, the brackets on the first and last.
fn list(text: &str, section: &str, key: &str) -> Result<Vec<String>> {
    let opening = format!("{key} = [");
    let mut lines = text.lines().skip_while(|line| line.trim() != section).skip(1);
    let found = lines.by_ref().take_while(|line| !line.starts_with('[')).any(|line| line.trim() == opening);
    if !found {
        return Err(Failure::new(format!("deny.toml: no line `{opening}` in {section}")));
    }
    let mut strings = Vec::new();
    for line in lines {
        match line.trim().split('"').nth(1) {
            Some(string) => strings.push(string.to_owned()),
            None if line.trim() == "]" => return Ok(strings),
            None => {}
        }
    }
    Err(Failure::new(format!("deny.toml: `{opening}` in {section} has no closing line `]`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = "[licenses]\nallow = [\n  # why\n  \"MIT\", # here\n  \"ISC\",\n]\n[sources]\nallow-registry = [\n  \"https://r\",\n]\n";

    fn package(licence: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: "x".into(),
            version: "1.0.0".into(),
            licence: licence.map(String::from),
            source: source.map(String::from),
            directory: "/x".into(),
            dependencies: Vec::new(),
        }
    }

    #[test]
    fn lists_are_read_from_their_section() {
        assert_eq!(list(DENY, "[licenses]", "allow").unwrap(), ["MIT", "ISC"]);
        assert_eq!(list(DENY, "[sources]", "allow-registry").unwrap(), ["https://r"]);
        assert!(list(DENY, "[licenses]", "allow-registry").is_err());
        assert!(list("[licenses]\nallow = [\n\"MIT\",\n", "[licenses]", "allow").is_err());
    }

    #[test]
    fn foreign_licences_and_origins_are_findings() {
        let check =
            |licence, source| finding(&package(licence, source), &["MIT".into()], &["https://r".into()]);
        assert_eq!(check(Some("MIT"), Some("registry+https://r")), None);
        assert_eq!(check(Some("MIT"), None), None);
        assert!(check(Some("GPL-3.0-only"), None).is_some());
        assert!(check(None, None).is_some());
        assert!(check(Some("MIT"), Some("git+https://r")).is_some());
    }
}
