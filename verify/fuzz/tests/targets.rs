//! Runs all targets with their seeds and regressions, and detects parsers without a fuzz target: searches the
//! sources for functions that parse bytes, and the targets for calls of them.
// Helpers outside of #[test] functions: a broken expectation stops the test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use casemate_fuzz::{TARGETS, regressions};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn seeds_pass() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in seeds {
            assert!(seed.len() <= target.max_len, "{}: a seed of {} bytes", target.name, seed.len());
            (target.run)(&seed);
        }
        (target.run)(&[]);
    }
}

#[test]
fn regressions_stay_fixed() {
    assert!(regressions::strays().unwrap().is_empty(), "a directory of regressions belongs to no target");
    for target in TARGETS {
        for regression in regressions::of(target).unwrap() {
            println!("{}", regression.path.display());
            (target.run)(&regression.input);
        }
    }
}

#[test]
fn names_are_unique() {
    let names: HashSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len());
}

#[test]
fn hexadecimal_digits_round_trip() {
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(regressions::from_hex(&regressions::to_hex(&bytes)), Some(bytes));
    assert_eq!(regressions::from_hex("0 1\nff"), Some(vec![1, 0xff]));
    assert_eq!(regressions::from_hex("012"), None);
    assert_eq!(regressions::from_hex("0g"), None);
}

/// Directories with parsers of untrusted bytes.
const READERS: [&str; 7] = [
    "core/wire/src",
    "core/crypto/src",
    "core/pki/src",
    "core/eap/src",
    "core/datapath/src",
    "adapters/linux/src",
    "apps/casemate/src",
];

#[test]
fn every_parser_has_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let parsers: Vec<Parser> = READERS
        .iter()
        .flat_map(|directory| sources(&root.join(directory)))
        .flat_map(|path| parsers(&fs::read_to_string(path).unwrap()))
        .collect();
    let targets: String =
        sources(&root.join("verify/fuzz/src")).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let forgotten: Vec<String> =
        parsers.iter().map(Parser::call).filter(|call| !targets.contains(call.as_str())).collect();
    assert!(forgotten.is_empty(), "no fuzz target calls {forgotten:?}; add one in verify/fuzz/src");
    // Otherwise the search is broken.
    assert!(parsers.len() >= 20, "only {} parsers found", parsers.len());
}

/// Function that parses bytes.
#[derive(Debug, PartialEq)]
struct Parser {
    owner: Option<String>,
    name: String,
}

impl Parser {
    /// Call of the function as a target writes it.
    fn call(&self) -> String {
        match &self.owner {
            Some(owner) => format!("{owner}::{}(", self.name),
            None => format!("{}(", self.name),
        }
    }
}

/// Parsers of a source file: public functions that are called `parse...`, or that reject bytes with an
/// error such as `KeyFault`.
fn parsers(source: &str) -> Vec<Parser> {
    let source = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let mut owner = None;
    let mut found = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") {
            owner = (line.contains('{') && !line.contains('}')).then(|| owner_in(line));
        } else if line.starts_with('}') {
            owner = None;
        }
        let Some(rest) = line.trim_start().strip_prefix("pub fn ") else { continue };
        let mut signature = rest.to_owned();
        while !signature.contains('{') {
            let Some(more) = lines.next() else { break };
            signature.push_str(more);
        }
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let refuses = signature.contains("&[u8]")
            && ["Malformed>", "KeyParseError>", "AlgorithmIdentifierError>", "PemFault>"]
                .iter()
                .any(|error| signature.contains(error));
        let is_method = signature.contains("self");
        if name.starts_with("parse") || name == "classify" || refuses && !is_method {
            found.push(Parser { owner: owner.clone(), name });
        }
    }
    found
}

/// Type of an `impl`.
fn owner_in(line: &str) -> String {
    let subject = match line.split_once(" for ") {
        Some((_, subject)) => subject,
        None => behind_generics(line.trim_start_matches("impl")),
    };
    subject.trim().chars().take_while(|c| c.is_alphanumeric()).collect()
}

fn behind_generics(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap_or_default();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn search_finds_parsers() {
    let source = "pub fn walk(packet: &[u8]) -> Result<Chain, Malformed> {\n}\n\
                  impl<T: AsRef<[u8]>> Udp<T> {\n    pub fn parse(bytes: T) -> Result<Self, Malformed> {\n    }\n\
                      pub fn len(&self) -> u16 {\n    }\n}\n\
                  impl<'a> Natt<'a> {\n    pub fn classify(\n        payload: &'a [u8],\n    ) -> Self {\n    }\n}\n\
                  fn parse_inside() {}\n#[cfg(test)]\nmod tests {\n    pub fn parse() {}\n}\n";
    let calls: Vec<String> = parsers(source).iter().map(Parser::call).collect();
    assert_eq!(calls, ["walk(", "Udp::parse(", "Natt::classify("]);
}
