//! What core/ must not contain: an operating system, a clock, a random source of its own, unsafe code.

use crate::failure::{Failure, Result};
use crate::sources::{self, Source};
use std::path::Path;

/// Words that bring in an operating system, a clock or randomness, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::", "core/ is no_std: use core:: or alloc::"),
    ("extern crate std", "core/ is no_std"),
    ("Instant::now", "take `now` as an argument"),
    ("SystemTime", "take `now` as an argument"),
    ("OsRng", "take a random source as an argument"),
    ("getrandom", "take a random source as an argument"),
];

/// Attributes that every crate root in core/ carries.
const REQUIRED: &[&str] = &["#![no_std]", "#![forbid(unsafe_code)]"];

/// Checks every crate of core/.
pub(crate) fn check(root: &Path) -> Result {
    let findings: Vec<String> = sources::walk(&root.join("core"))?.iter().flat_map(examine).collect();
    Failure::unless_empty(&findings, "core/ holds what it must not")
}

fn examine(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let path = source.path.display();
    for (number, line) in source.shipped.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (word, advice) in FORBIDDEN.iter().filter(|(word, _)| contains_word(code, word)) {
            findings.push(format!("core/{path}:{}: `{word}`: {advice}", number.saturating_add(1)));
        }
    }
    if source.path.ends_with("src/lib.rs") {
        for attribute in REQUIRED {
            if !source.shipped.iter().any(|line| line.trim() == *attribute) {
                findings.push(format!("core/{path}: `{attribute}` is missing"));
            }
        }
    }
    findings
}

/// Whether `code` holds `word` with no part of an identifier in front of it.
fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|character| character.is_alphanumeric() || character == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, lines: &[&str]) -> usize {
        examine(&Source { path: path.into(), shipped: lines.iter().map(|&line| line.into()).collect() }).len()
    }

    #[test]
    fn forbidden_words_are_found_in_code_only() {
        assert_eq!(findings("wire/src/a.rs", &["use std::fmt;"]), 1);
        assert_eq!(findings("wire/src/a.rs", &["let t = Instant::now();"]), 1);
        assert_eq!(findings("wire/src/a.rs", &["// std::fmt", "use core::fmt;", "use my_std::fmt;"]), 0);
    }

    #[test]
    fn crate_roots_carry_both_attributes() {
        assert_eq!(findings("wire/src/lib.rs", &["#![no_std]"]), 1);
        assert_eq!(findings("wire/src/lib.rs", &["#![no_std]", "#![forbid(unsafe_code)]"]), 0);
    }
}
