//! Results of a suite: for each family the number of cases, the skipped cases with reasons, and the failures.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Results of one vector file or group of checks on one provider.
#[derive(Debug)]
pub struct Family {
    /// Name of the family, e.g. `wycheproof/aes_gcm`.
    pub name: String,
    /// Number of cases that ran, including failures.
    pub run: usize,
    /// Number of skipped cases, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Failures, one line per case.
    pub failures: Vec<String>,
}

impl Family {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), run: 0, skipped: BTreeMap::new(), failures: Vec::new() }
    }

    /// Counts a case as run, and records a failure if `result` is an error.
    pub(crate) fn ran(&mut self, id: &str, result: Result<(), String>) {
        self.run += 1;
        if let Err(what) = result {
            self.failures.push(format!("{}: {id}: {what}", self.name));
        }
    }

    pub(crate) fn skip(&mut self, reason: impl Into<String>) {
        *self.skipped.entry(reason.into()).or_default() += 1;
    }
}

/// Results of all families of one run.
#[derive(Debug)]
pub struct Report {
    /// Name of the provider, or of the two compared providers.
    pub subject: String,
    /// Families in the order in which they ran.
    pub families: Vec<Family>,
}

impl Report {
    pub(crate) fn new(subject: &str) -> Self {
        Self { subject: subject.into(), families: Vec::new() }
    }

    /// Number of cases that ran in all families.
    pub fn run(&self) -> usize {
        self.families.iter().map(|family| family.run).sum()
    }

    /// All failures, one line each.
    pub fn failures(&self) -> Vec<&str> {
        self.families.iter().flat_map(|family| family.failures.iter().map(String::as_str)).collect()
    }

    /// Prints the report. Panics if a case failed, or if the families that ran and their numbers of cases are
    /// not exactly `expected`.
    pub fn assert(&self, expected: &[(&str, usize)]) {
        #[cfg(feature = "std")]
        std::println!("{self}");
        let failures = self.failures();
        let exposed: Vec<_> = failures.iter().take(20).collect();
        assert!(failures.is_empty(), "{} failures, beginning with: {exposed:#?}", failures.len());
        let ran = self.families.iter().filter(|family| family.run > 0);
        let counts: Vec<_> = ran.map(|family| (family.name.as_str(), family.run)).collect();
        assert_eq!(counts, expected, "the number of cases run has changed");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} cases, {} failed", self.subject, self.run(), self.failures().len())?;
        for family in &self.families {
            writeln!(f, "  {:<34} {:>6} run, {} failed", family.name, family.run, family.failures.len())?;
            for (reason, count) in &family.skipped {
                writeln!(f, "  {:<34} {count:>6} skipped: {reason}", "")?;
            }
        }
        Ok(())
    }
}
