//! Licences and origins of all dependencies, checked against deny.toml
//! (docs/decisions/0002-licence-check.md).

use crate::cargo::{self, Package};
use crate::shell::{self, Failure, Result};
use std::fs;

pub(crate) const ABOUT: &str = "Check the licence and the origin of every dependency
Reads `[licenses] allow` and `[sources] allow-registry` of deny.toml, which has the format of cargo-deny,
and compares them with the metadata of every crate in Cargo.lock, for all targets.";

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let text = fs::read_to_string(shell::root().join("deny.toml"))?;
    let licences = list(&text, "[licenses]", "allow")?;
    let registries = list(&text, "[sources]", "allow-registry")?;
    let packages = cargo::packages()?;
    let findings: Vec<String> =
        packages.iter().filter_map(|package| finding(package, &licences, &registries)).collect();
    Failure::unless_empty(&findings, "deny.toml does not allow these dependencies")?;
    println!("{} packages: all licences and origins are allowed", packages.len());
    Ok(())
}

fn finding(package: &Package, licences: &[String], registries: &[String]) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    if let Some(source) = &package.source {
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !registries.iter().any(|allowed| allowed == registry) {
            return Some(format!("{name}: origin {source} is not allowed"));
        }
    }
    let Some(licence) = &package.licence else { return Some(format!("{name}: no licence declared")) };
    match satisfies(licence, licences) {
        Some(true) => None,
        Some(false) => Some(format!("{name}: licence {licence} is not allowed")),
        None => Some(format!("{name}: `{licence}` is not an SPDX expression")),
    }
}

/// Strings of an array in deny.toml. A TOML parser would be most of what this program compiles. The file
/// has one string per line, and the brackets stand on the first and the last line.
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

/// Whether `allowed` satisfies `expression`; none if it is not a valid expression.
fn satisfies(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let answer = words.any_of()?;
    words.peek().is_none().then_some(answer)
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a [String],
}

impl Words<'_> {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at = self.at.saturating_add(usize::from(found));
        found
    }

    fn any_of(&mut self) -> Option<bool> {
        let mut answer = self.all_of()?;
        while self.take("OR") {
            answer |= self.all_of()?;
        }
        Some(answer)
    }

    /// AND binds stronger than OR (SPDX annex D.4).
    fn all_of(&mut self) -> Option<bool> {
        let mut answer = self.one()?;
        while self.take("AND") {
            answer &= self.one()?;
        }
        Some(answer)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let answer = self.any_of()?;
            return self.take(")").then_some(answer);
        }
        let mut licence = self.identifier()?;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.identifier()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn identifier(&mut self) -> Option<String> {
        let word = self.peek().filter(|word| !matches!(*word, "OR" | "AND" | "WITH" | "(" | ")"))?.to_owned();
        self.at = self.at.saturating_add(1);
        Some(word)
    }
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

    fn check(expression: &str) -> Option<bool> {
        satisfies(expression, &["MIT".into(), "ISC".into(), "Apache-2.0 WITH LLVM-exception".into()])
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(check("MIT"), Some(true));
        assert_eq!(check("GPL-3.0-only"), Some(false));
        assert_eq!(check("GPL-3.0-only OR MIT"), Some(true));
        assert_eq!(check("MIT/Unlicense"), Some(true));
        assert_eq!(check("MIT AND GPL-3.0-only"), Some(false));
        assert_eq!(check("GPL-2.0-only AND MIT OR ISC"), Some(true));
        assert_eq!(check("GPL-2.0-only AND (MIT OR ISC)"), Some(false));
        assert_eq!(check("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(check("Apache-2.0"), Some(false));
    }

    #[test]
    fn invalid_expressions_have_no_result() {
        for text in ["", "MIT OR", "(MIT", "MIT ISC", "MIT WITH", "AND"] {
            assert_eq!(check(text), None, "{text}");
        }
    }
}
