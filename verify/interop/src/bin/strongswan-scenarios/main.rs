//! strongSwan's test scenarios, with Casemate and Debian's charon in the roles of the hosts.
//!
//! The tables in `verify/interop/scenarios` say what happens and what is expected. Configurations and the
//! script for certificates come from strongSwan's source tree, which is read at run time
//! (docs/decisions/0119-scenarios.md). Each run has namespaces of its own.

mod change;
mod configuration;
mod daemon;
mod names;
mod network;
mod options;
mod radius;
mod report;
mod run;
mod source;
mod table;
mod web;

use casemate_interop::{Charon, Error, Result, is_root};
use clap::Parser;
use daemon::{Programs, Role};
use options::Options;
use report::{OK, Outcome, Report, not_run};
use run::Run;
use source::Source;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use table::Scenario;

/// Name of the run with charon on all hosts.
pub(crate) const REFERENCE: &str = "charon";
/// Name of the run with Casemate on all hosts.
const ALONE: &str = "all hosts";

/// Prefix of the directory of a run, followed by the process ID.
const PREFIX: &str = "casemate-scenarios.";

/// Path of charon in another root directory.
const DAEMON: &str = "/usr/sbin/charon-systemd";

/// Tables by their categories.
const TABLES: [(&str, &str); 10] = [
    ("ikev2", include_str!("../../../scenarios/ikev2.txt")),
    ("ikev2-algs", include_str!("../../../scenarios/ikev2-algs.txt")),
    ("ikev2-multi-ca", include_str!("../../../scenarios/ikev2-multi-ca.txt")),
    ("ipv6", include_str!("../../../scenarios/ipv6.txt")),
    ("libipsec", include_str!("../../../scenarios/libipsec.txt")),
    ("route-based", include_str!("../../../scenarios/route-based.txt")),
    ("botan", include_str!("../../../scenarios/botan.txt")),
    ("wolfssl", include_str!("../../../scenarios/wolfssl.txt")),
    ("openssl-ikev2", include_str!("../../../scenarios/openssl-ikev2.txt")),
    ("gcrypt-ikev2", include_str!("../../../scenarios/gcrypt-ikev2.txt")),
];

fn main() -> ExitCode {
    match start(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("strongswan-scenarios: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the scenarios and returns whether all of them passed.
fn start(options: &Options) -> Result<bool> {
    let mut scenarios = Vec::new();
    for (category, text) in TABLES {
        scenarios.extend(table::parse(category, text)?);
    }
    scenarios.retain(|scenario| options.selects(&scenario.full_name()));
    if options.list {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.full_name()));
        return Ok(true);
    }
    let program = std::env::current_exe().map_err(Error::context("this program"))?;
    let programs = program.parent().unwrap_or(Path::new("."));
    let kept = programs.parent().unwrap_or(programs).join("interop/scenarios");
    let results = kept.join(if options.root.is_some() { "results-root.json" } else { "results.json" });
    if options.table {
        print!("{}", Report::open(results, false, 0).table());
        return Ok(true);
    }
    if !is_root() {
        return Err(Error::new("the scenarios need root"));
    }
    let tree = options.source.as_deref().unwrap_or(Path::new("."));
    let source = Source::prepare(tree, &kept.join("suite"))?;
    source.sign_crls()?;
    // The path of a Unix socket has a maximum length.
    remove_stale(&std::env::temp_dir());
    let directory = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
    let casemate = options.casemate.clone().unwrap_or_else(|| programs.join("casemate"));
    let mut charon = Charon::copy_to(directory.join("programs"))?;
    if options.root.is_some() {
        charon = charon.with_daemon(DAEMON.into());
    }
    let runner = Runner {
        options,
        source,
        programs: Programs { charon, root: options.root.clone(), casemate },
        directory,
        kept: kept.join("failed"),
    };
    if options.resume {
        let earlier = Report::open(results.clone(), false, 0);
        scenarios.retain(|scenario| !earlier.contains(&scenario.full_name()));
    }
    let report = Report::open(results, options.json, scenarios.len());
    runner.run_all(&scenarios, &report)?;
    let names: Vec<String> = scenarios.iter().map(Scenario::full_name).collect();
    Ok(report.finish(&names, options.accept))
}

/// Removes the directories of earlier runs that were killed.
fn remove_stale(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // The directory may belong to another user.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// What all scenarios share.
struct Runner<'o> {
    options: &'o Options,
    source: Source,
    programs: Programs,
    /// Directory of the runs.
    directory: PathBuf,
    /// Directory in which the files of failed runs are kept.
    kept: PathBuf,
}

impl Runner<'_> {
    fn run_all(&self, scenarios: &[Scenario], report: &Report) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begin = Instant::now();
                let outcome = self.run(scenario)?;
                report.add(&scenario.full_name(), begin.elapsed().as_secs_f64(), outcome)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(Error::new("a scenario panicked")))
            })
        })
    }

    /// Runs a scenario in all roles that are possible.
    fn run(&self, scenario: &Scenario) -> Result<Outcome> {
        let mut outcome = Outcome { refusals: self.refusals(scenario)?, ..Outcome::default() };
        outcome.skipped = scenario.skipped.clone();
        if self.options.accept || outcome.skipped.is_some() {
            return Ok(outcome);
        }
        if let Some(reason) = &scenario.without_charon {
            outcome.runs.insert(REFERENCE.into(), not_run(reason));
            self.run_alone(scenario, &mut outcome);
            return Ok(outcome);
        }
        let hosts = scenario.ike_hosts();
        if !self.options.without_reference {
            let mut result = self.run_once(scenario, REFERENCE, |_| Role::Charon);
            let is_ok = result == OK;
            let missing = configuration::missing_plugins(&self.source, &scenario.full_name(), &hosts);
            if !is_ok && !missing.is_empty() {
                result = format!("Debian's charon has no plugin {}; {result}", missing.join(", "));
            }
            outcome.runs.insert(REFERENCE.into(), result);
            if !is_ok {
                self.run_alone(scenario, &mut outcome);
                return Ok(outcome);
            }
        }
        for host in hosts.iter().filter(|host| !outcome.refusals.contains_key(**host)) {
            let role = |other: &str| if other == *host { Role::Casemate } else { Role::Charon };
            let result = match scenario.without_role.get(*host) {
                Some(reason) => not_run(reason),
                None => self.run_once(scenario, host, role),
            };
            outcome.runs.insert((*host).into(), result);
        }
        Ok(outcome)
    }

    /// Runs a scenario in which charon cannot take part with Casemate on all hosts, if it accepts all
    /// configurations.
    fn run_alone(&self, scenario: &Scenario, outcome: &mut Outcome) {
        if !outcome.refusals.is_empty() {
            return;
        }
        let result = match scenario.without_role.values().next() {
            Some(reason) => not_run(reason),
            None => self.run_once(scenario, ALONE, |_| Role::Casemate),
        };
        outcome.runs.insert(ALONE.into(), result);
    }

    fn run_directory(&self, scenario: &Scenario, name: &str) -> PathBuf {
        let name = name.replace(' ', "-");
        self.directory.join(format!("{}_{}_{name}", scenario.category, scenario.name))
    }

    fn refusals(&self, scenario: &Scenario) -> Result<std::collections::BTreeMap<String, String>> {
        let directory = self.run_directory(scenario, "accept");
        let refusals = Run::new(&self.programs, &self.source, scenario, &directory)?.refusals();
        let _ = fs::remove_dir_all(&directory);
        refusals
    }

    /// Runs a scenario with these roles and returns [`OK`] or the first difference. The files of a failed
    /// run are kept.
    fn run_once(&self, scenario: &Scenario, name: &str, role_of: impl Fn(&str) -> Role) -> String {
        let directory = self.run_directory(scenario, name);
        let result =
            Run::new(&self.programs, &self.source, scenario, &directory).and_then(|run| run.perform(role_of));
        let kept = directory.file_name().map(|name| self.kept.join(name)).unwrap_or_default();
        // Files of an earlier run.
        let _ = fs::remove_dir_all(&kept);
        if result.is_err() {
            // Without its files, the result is still correct.
            let _ = source::copy_all(&directory, &kept);
        }
        let _ = fs::remove_dir_all(&directory);
        match result {
            Ok(()) => OK.into(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // A directory that remains does no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_valid() {
        for (category, text) in TABLES {
            for scenario in table::parse(category, text).unwrap() {
                assert!(!scenario.ike_hosts().is_empty(), "{}", scenario.full_name());
            }
        }
    }
}
