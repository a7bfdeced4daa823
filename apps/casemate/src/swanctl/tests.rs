//! Whole configurations: their meaning, and their errors.

mod cell;
mod charon;
mod eap;
mod examples;
mod files;
mod keys;
mod manual;
mod radius;
mod rounds;
mod scheduler;
mod syntax;
mod tunnel;

use super::*;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// An environment in memory with some files.
#[derive(Default)]
struct Memory {
    files: BTreeMap<PathBuf, String>,
}

impl Memory {
    fn with(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect() }
    }
}

impl Environment for Memory {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let text = self.files.get(path).ok_or_else(|| io::Error::other("no such file"))?;
        Ok(Zeroizing::new(text.clone().into_bytes()))
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        let pattern = directory.join(pattern);
        let pattern = glob::Pattern::new(pattern.to_str().unwrap()).map_err(io::Error::other)?;
        let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
        Ok(self.files.keys().filter(|path| pattern.matches_path_with(path, options)).cloned().collect())
    }
}

const FILE: &str = "/etc/swanctl/swanctl.conf";

fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    Config::parse(Path::new(FILE), text.as_bytes(), &Memory::default())
}

fn ok(text: &str) -> Config {
    parse(text).unwrap_or_else(|problems| panic!("{text}\n{}", ConfigError::Invalid(problems)))
}

/// All errors of a configuration, as displayed.
fn wrong(text: &str) -> Vec<String> {
    let problems = parse(text).expect_err(text);
    problems.iter().map(|problem| problem.to_string().replace("/etc/swanctl/", "")).collect()
}

/// The only error of a configuration.
fn only(text: &str) -> String {
    let [problem] = &wrong(text)[..] else { panic!("{text}\n{:?}", wrong(text)) };
    problem.clone()
}

/// A key that can be guessed is no protection (RFC 7296 section 2.15).
#[test]
fn cve_2018_5389_short_secret_gives_a_warning() {
    let (short, long) = ("fifteen-letters", "sixteen-letters!");
    let digits = |bytes: usize| format!("0x{}", "ab".repeat(bytes));
    for (secret, count) in [(short, 1), (long, 0), (&digits(15), 1), (&digits(16), 0)] {
        let config = ok(&format!("secrets {{\n ike {{\n secret = {secret}\n }}\n}}\n"));
        assert_eq!(config.warnings.len(), count, "{secret}");
        assert!(
            config.warnings.iter().all(|warning| !warning.text.contains(secret)),
            "the secret is not shown"
        );
    }
}
