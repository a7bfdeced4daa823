//! Results of scenarios: lines for people, JSON lines for programs and later runs, and a table.

use casemate_interop::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Text of a run that was as expected.
pub(crate) const OK: &str = "ok";

const NOT_RUN: &str = "not run: ";

/// Returns the text of a run that did not take place.
pub(crate) fn not_run(reason: &str) -> String {
    format!("{NOT_RUN}{reason}")
}

const TABLE_HEAD: &str = "\
# Results of strongSwan's test scenarios

`cargo xtask scenarios --table` has printed this page from the results of its last runs. The second table has a row for
each scenario, with the reasons why Casemate refuses a configuration, and the runs by the host that Casemate was: `charon`
is the run without Casemate, and `all hosts` the run without charon. A run that was not as expected has its first step that
failed.

";

/// Result of a scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Hosts whose configuration Casemate refuses, with the reasons.
    pub(crate) refusals: BTreeMap<String, String>,
    /// Reason why the scenario does not run.
    pub(crate) skipped: Option<String>,
    /// Result of each run by its name: [`OK`] or the first difference.
    pub(crate) runs: BTreeMap<String, String>,
}

impl Outcome {
    /// Whether Casemate accepts all configurations.
    fn is_accepted(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether every run with Casemate was as expected, and at least one took place.
    fn passed(&self) -> bool {
        let takes_part =
            |(name, result): &(&String, &String)| *name != crate::REFERENCE && !result.starts_with(NOT_RUN);
        let mut runs = self.runs.iter().filter(takes_part).peekable();
        runs.peek().is_some() && runs.all(|(_, result)| result == OK)
    }

    fn to_json(&self, name: &str) -> Value {
        let map = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<String, Value>>()
        };
        json!({
            "scenario": name, "accepted": self.is_accepted(), "refused": map(&self.refusals),
            "skipped": self.skipped, "runs": map(&self.runs),
        })
    }

    fn from_json(value: &Value) -> Self {
        let map = |name: &str| {
            let pairs = value.get(name).and_then(Value::as_object).into_iter().flatten();
            pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        let skipped = value.get("skipped").and_then(Value::as_str).map(Into::into);
        Self { refusals: map("refused"), skipped, runs: map("runs") }
    }
}

/// Results that are kept in a file of JSON lines.
pub(crate) struct Report {
    json: bool,
    total: usize,
    file: PathBuf,
    results: Mutex<(usize, BTreeMap<String, Outcome>)>,
}

impl Report {
    /// Reads the results of earlier runs from `file`. `total` scenarios will follow.
    pub(crate) fn open(file: PathBuf, json: bool, total: usize) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let results = lines
            .filter_map(|value| {
                Some((value.get("scenario")?.as_str()?.to_owned(), Outcome::from_json(&value)))
            })
            .collect();
        Self { json, total, file, results: Mutex::new((0, results)) }
    }

    /// Whether there is a result of an earlier run.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.lock().1.contains_key(name)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (usize, BTreeMap<String, Outcome>)> {
        self.results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Prints and keeps the result of a scenario. It replaces an earlier one.
    pub(crate) fn add(&self, name: &str, seconds: f64, outcome: Outcome) -> Result<()> {
        let mut results = self.lock();
        results.0 = results.0.saturating_add(1);
        if self.json {
            println!("{}", outcome.to_json(name));
        } else {
            println!("{}/{} {name} ({seconds:.0} s): {}", results.0, self.total, summary(&outcome));
        }
        results.1.insert(name.into(), outcome);
        write(&self.file, &results.1)
    }

    /// Prints the counts, and returns whether all of these scenarios passed or, with `accept`, are accepted.
    pub(crate) fn finish(&self, names: &[String], accept: bool) -> bool {
        let results = self.lock();
        let outcomes: Vec<&Outcome> = names.iter().filter_map(|name| results.1.get(name)).collect();
        let accepted = outcomes.iter().filter(|outcome| outcome.is_accepted()).count();
        let passed = outcomes.iter().filter(|outcome| outcome.passed()).count();
        if !self.json {
            println!("{} scenarios: {accepted} accepted, {passed} as expected in every role", outcomes.len());
        }
        outcomes.len() == if accept { accepted } else { passed }
    }

    /// Returns the results as a table in Markdown.
    pub(crate) fn table(&self) -> String {
        let results = self.lock();
        let mut text = TABLE_HEAD.to_owned();
        let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
        for (name, outcome) in &results.1 {
            let category = name.split('/').next().unwrap_or_default();
            let [all, accepted, passed] = counts.entry(category).or_default();
            *all = all.saturating_add(1);
            *accepted = accepted.saturating_add(outcome.is_accepted().into());
            *passed = passed.saturating_add(outcome.passed().into());
        }
        text.push_str("| category | scenarios | accepted | as expected in every role |\n|---|---|---|---|\n");
        for (category, [all, accepted, passed]) in counts {
            text.push_str(&format!("| {category} | {all} | {accepted} | {passed} |\n"));
        }
        text.push_str("\n| scenario | accepted | runs |\n|---|---|---|\n");
        for (name, outcome) in &results.1 {
            let accepted =
                if outcome.is_accepted() { "yes".into() } else { escaped(&joined(&outcome.refusals)) };
            text.push_str(&format!("| {name} | {accepted} | {} |\n", escaped(&runs(outcome))));
        }
        text
    }
}

fn write(file: &Path, results: &BTreeMap<String, Outcome>) -> Result<()> {
    let lines: String =
        results.iter().map(|(name, outcome)| format!("{}\n", outcome.to_json(name))).collect();
    let new = file.with_extension("new");
    File::create(&new)
        .and_then(|mut file| file.write_all(lines.as_bytes()))
        .and_then(|()| fs::rename(&new, file))
        .map_err(Error::context(file.display()))
}

fn summary(outcome: &Outcome) -> String {
    if outcome.is_accepted() {
        return runs(outcome);
    }
    let hosts: Vec<&str> = outcome.refusals.keys().map(String::as_str).collect();
    format!("refused on {}: {}; {}", hosts.join(", "), joined(&outcome.refusals), runs(outcome))
}

/// Texts of the runs. Those with the same result are together.
fn runs(outcome: &Outcome) -> String {
    if let Some(reason) = &outcome.skipped {
        return not_run(reason);
    }
    let passed: Vec<&str> =
        outcome.runs.iter().filter(|(_, result)| *result == OK).map(|(name, _)| name.as_str()).collect();
    let failed = outcome.runs.iter().filter(|(_, result)| *result != OK);
    if outcome.runs.is_empty() && outcome.is_accepted() {
        return "accepted".into();
    }
    let mut parts: Vec<String> = failed.map(|(name, result)| format!("{name}: {result}")).collect();
    if !passed.is_empty() {
        parts.insert(0, format!("ok: {}", passed.join(", ")));
    }
    parts.join("; ")
}

/// Joins reasons, each of which appears once.
fn joined(reasons: &BTreeMap<String, String>) -> String {
    let mut unique: Vec<&str> = reasons.values().map(String::as_str).collect();
    unique.sort_unstable();
    unique.dedup();
    unique.join("; ")
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_as_json_and_become_a_table() {
        let directory = std::env::temp_dir().join(format!("casemate-scenarios-test-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("results.json");
        let report = Report::open(file.clone(), true, 2);
        let runs = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        let good = Outcome { runs: runs(&[("moon", OK), ("sun", OK)]), ..Outcome::default() };
        let bad = Outcome { runs: runs(&[("moon", OK), ("sun", "ping: no reply")]), ..Outcome::default() };
        report.add("ikev2/a", 1.0, good).unwrap();
        report.add("ikev2/b", 1.0, bad).unwrap();
        let later = Report::open(file, true, 0);
        assert!(later.contains("ikev2/a") && !later.contains("ikev2/c"));
        let table = later.table();
        assert!(table.contains("| ikev2 | 2 | 2 | 1 |\n"), "{table}");
        assert!(table.contains("| ikev2/b | yes | ok: moon; sun: ping: no reply |\n"), "{table}");
        assert!(later.finish(&["ikev2/a".into()], false) && !later.finish(&["ikev2/b".into()], false));
        fs::remove_dir_all(directory).unwrap();
    }
}
