//! `casemate lab`: reproduces experiments of papers on IPsec with this program on this machine.

pub mod args;
mod processes;

use args::{LabArgs, LabCommand, LabRunArgs, ListArgs, ReportArgs};
use casemate_app::failure::Failure;
use casemate_app::lab_program::RunnableArgs;
use casemate_app::output;
use casemate_app::providers;
use casemate_lab::{ALL, ArtifactPaths, Experiment, Progress, Requirement, RunOptions};
use casemate_measure::report::{Paper, Record, file};
use casemate_testbed::TempDir;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

impl RunnableArgs for LabArgs {
    fn run(&self) -> Result<(), Failure> {
        match &self.command {
            LabCommand::List(args) => output::print(&list(args)),
            LabCommand::Run(args) => run(args),
            LabCommand::Report(args) => report(args),
            LabCommand::Relay(args) => processes::relay(args),
            LabCommand::Page => casemate_lab::bare::serve_page().map_err(Failure::failed),
            LabCommand::Device(args) => processes::device(args),
        }
    }
}

/// The experiments: lines of text, or a line of JSON for each.
fn list(args: &ListArgs) -> String {
    ALL.iter()
        .map(|experiment| if args.json { json_line(experiment) } else { text_lines(experiment) })
        .collect()
}

fn text_lines(experiment: &Experiment) -> String {
    let Paper { authors, title, year, .. } = (experiment.paper)();
    let mut text = format!("{}: {authors}, {title} ({year})\n  {}\n", experiment.name, experiment.summary);
    for step in experiment.steps {
        let needs: Vec<String> = step.requirements.iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() { String::new() } else { format!(" (needs {})", needs.join(", ")) };
        let missing = step.requirements.iter().find_map(|need| need.missing());
        let missing = missing.map_or_else(String::new, |why| format!("; not available: {why}"));
        text.push_str(&format!("  - {}{needs}{missing}\n", step.title));
    }
    let paths = ArtifactPaths::for_program(ArtifactPaths::CACHE);
    let is_required = |artifact| {
        let mut requirements = experiment.steps.iter().flat_map(|step| step.requirements);
        requirements.any(|requirement| *requirement == Requirement::Artifact(artifact))
    };
    for artifact in experiment.artifacts.iter().filter(|artifact| !is_required(**artifact)) {
        let missing = artifact.missing(&paths);
        let missing = missing.map_or_else(String::new, |why| format!("; not available: {why}"));
        text.push_str(&format!("  - optional: {artifact} ({}){missing}\n", artifact.variable()));
    }
    text
}

fn json_line(experiment: &Experiment) -> String {
    let steps = experiment.steps.iter().map(|step| {
        let needs: Vec<String> = step.requirements.iter().map(ToString::to_string).collect();
        let missing: Vec<String> = step.requirements.iter().filter_map(|need| need.missing()).collect();
        json!({ "title": step.title, "needs": needs, "missing": missing })
    });
    let paths = ArtifactPaths::for_program(ArtifactPaths::CACHE);
    let artifacts = experiment.artifacts.iter().map(|artifact| {
        json!({
            "name": artifact.to_string(),
            "variable": artifact.variable(),
            "missing": artifact.missing(&paths),
        })
    });
    let listed = json!({
        "name": experiment.name,
        "paper": (experiment.paper)(),
        "summary": experiment.summary,
        "steps": steps.collect::<Vec<_>>(),
        "artifacts": artifacts.collect::<Vec<_>>(),
    });
    format!("{listed}\n")
}

fn run(args: &LabRunArgs) -> Result<(), Failure> {
    let experiments = args.names.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
    let directory = args.out.clone().unwrap_or_else(|| default_directory(&args.names));
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", directory.display()));
    // Made before the measurement, because it may fail.
    fs::create_dir_all(&directory).map_err(failed)?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut records = Vec::new();
    for experiment in experiments {
        let scratch = TempDir::new("lab").map_err(Failure::failed)?;
        let record = casemate_lab::run(
            experiment,
            &RunOptions {
                quick: args.quick,
                time: RunOptions::default_time(args.quick),
                program: program.clone(),
                scratch: scratch.path().into(),
                artifact_paths: ArtifactPaths::for_program(ArtifactPaths::CACHE),
                versions: versions(),
                progress: Progress::new(experiment.name),
            },
        );
        file::write(&record, &directory).map_err(Failure::failed)?;
        print_record(&record, args.json)?;
        records.push(record);
    }
    let page = file::write_page(&directory).map_err(Failure::failed)?;
    if !args.json {
        output::print(&format!("Results and page: {}\n", page.display()))?;
    }
    check_failures(&records)
}

fn named(name: &str) -> Result<&'static Experiment, Failure> {
    casemate_lab::find(name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
        Failure::bad_input(format!("{name}: unknown experiment: one of {} was expected", names.join(", ")))
    })
}

/// The default directory, with the time in its name so that no run overwrites another.
fn default_directory(names: &[String]) -> PathBuf {
    let date = casemate_lab::utc().replace(':', "");
    Path::new("lab-results").join(format!("{}-{date}", names.join("-")))
}

fn print_record(record: &Record, json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string(record).map(|line| format!("{line}\n")).map_err(Failure::failed)?
    } else {
        casemate_lab::summary(record)
    };
    output::print(&text)
}

fn check_failures(records: &[Record]) -> Result<(), Failure> {
    let lines = records.iter().flat_map(|record| {
        let failed = record.skipped().filter(|out| out.failed);
        failed.map(move |out| format!("{}: {}: {}", record.experiment, out.what, out.why))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::failed(lines.join("\n"))) }
}

/// The versions of the programs involved: this program, its crypto providers, iproute2 and OpenSSL.
fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let commit = option_env!("CASEMATE_COMMIT").map(|commit| format!(" ({commit})")).unwrap_or_default();
    versions.insert("casemate".into(), format!("{}{commit}", env!("CARGO_PKG_VERSION")));
    let names: Vec<&str> = providers::all().iter().map(|provider| provider.name()).collect();
    versions.insert("providers".into(), names.join(" "));
    versions.extend(version("ip", "-V", |text| text.split_whitespace().last()));
    versions.extend(version("openssl", "version", |text| text.split_whitespace().nth(1)));
    versions
}

/// Name and version of a program; `None` if it is not installed or prints none.
fn version(program: &str, argument: &str, find: fn(&str) -> Option<&str>) -> Option<(String, String)> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    find(&text).map(|version| (program.to_owned(), version.to_owned()))
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let page = file::write_page(&args.directory).map_err(Failure::bad_input)?;
    output::print(&format!("{}\n", page.display()))
}
