//! `casemate lab` as a process, and experiments with the real programs in their shortest form.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod experiment;

use casemate_lab::{Requirement, find};
use casemate_test_support::{Program, TempDir};
use serde_json::Value;
use std::fs;
use std::process::Output;
use std::time::Duration;

fn lab(args: &[&str]) -> Output {
    Program::new(env!("CARGO_BIN_EXE_casemate-lab")).arg("lab").args(args).output()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn list_names_every_experiment_with_its_paper() {
    let output = lab(&["list"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    assert!(list.contains("streams: ") && list.contains("(1997)"), "{list}");
    assert!(list.contains("  - optional: firmware (CASEMATE_FIRMWARE)"), "{list}");
    assert!(list.contains("the program with lwIP (CASEMATE_LWIP)"), "{list}");
    for line in text(&lab(&["list", "--json"]).stdout).lines() {
        let experiment: Value = serde_json::from_str(line).unwrap();
        assert!(list.contains(experiment["name"].as_str().unwrap()));
        assert!(!experiment["steps"].as_array().unwrap().is_empty());
    }
}

#[test]
fn list_shows_which_artifacts_are_excluded() {
    let list = Program::new(env!("CARGO_BIN_EXE_casemate-lab")).args(["lab", "list"]);
    let list = text(&list.env("CASEMATE_LWIP", "").env("CASEMATE_PI", "/no/such/image").output().stdout);
    let line = |start: &str| list.lines().find(|line| line.contains(start)).unwrap().to_owned();
    if Requirement::Namespaces.missing().or_else(|| Requirement::Tun.missing()).is_none() {
        let lwip = line("figures 5 to 8 with lwIP");
        assert!(lwip.contains("; not available: program with lwIP: excluded by the empty"), "{lwip}");
    }
    if Requirement::QEMU_ARM.missing().is_none() {
        let pi = line("figures 5 to 8 on an emulated Raspberry Pi");
        assert!(pi.contains("; not available: CASEMATE_PI: /no/such/image: "), "{pi}");
    }
}

#[test]
fn wrong_arguments_show_what_was_expected() {
    let output = lab(&["run", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("nothing: unknown experiment: one of streams"),
        "{}",
        text(&output.stderr)
    );
    let scratch = TempDir::new("lab-report").unwrap();
    let seen = scratch.file("seen");
    fs::create_dir_all(&seen).unwrap();
    let directory = seen.to_str().unwrap();
    let output = lab(&["report", directory]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no file *.json"), "{}", text(&output.stderr));
    fs::write(seen.join("streams.json"), "{\n  \"experiment\": 5\n}\n").unwrap();
    let output = lab(&["report", directory]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("streams.json:2: invalid type"), "{}", text(&output.stderr));
}

#[test]
fn streams_measures_the_real_programs() {
    let streams = find("streams").unwrap();
    if let Some(missing) =
        streams.steps.iter().flat_map(|step| step.requirements).find_map(|need| need.missing())
    {
        casemate_test_support::skip(missing);
        return;
    }
    let scratch = TempDir::new("lab-streams").unwrap();
    let record = experiment::run("streams", Duration::from_secs(60), scratch.path());
    let rates: Vec<_> = record.parts[0].samples.iter().filter(|samples| samples.unit == "Mb/s").collect();
    // Plus twice two if the kernel supports them.
    assert!([25, 27, 29].contains(&rates.len()), "{}", rates.len());
    assert!(rates.iter().all(|rate| rate.values[0] > 0.0), "{rates:?}");
    // True on every machine: the kernel alone is faster than packets through a program with queues, and
    // queues require context switches.
    let finding = record.findings().find(|finding| finding.what == "cost of modules called as functions");
    let ours = &finding.unwrap().ours;
    let (left, _) = ours.split_once(" % is left: ").unwrap();
    assert!(left.parse::<f64>().unwrap() < 100.0, "{ours}");
    assert_eq!(record.parts.iter().map(|part| part.figures.len()).sum::<usize>(), 3);
    experiment::demand_page(&record, 3, scratch.path());
}

#[test]
fn homenet_measures_the_real_programs() {
    let homenet = find("homenet").unwrap();
    let needs = homenet
        .steps
        .iter()
        .flat_map(|step| step.requirements)
        .filter(|need| [Requirement::Namespaces, Requirement::Tun].contains(need));
    if let Some(missing) = needs.filter_map(|need| need.missing()).next() {
        casemate_test_support::skip(missing);
        return;
    }
    let scratch = TempDir::new("lab-homenet").unwrap();
    let record = experiment::run("homenet", Duration::from_secs(60), scratch.path());
    let samples = record.parts.iter().flat_map(|part| &part.samples);
    assert!(
        samples.clone().count() > 50 && samples.flat_map(|samples| &samples.values).all(|value| *value > 0.0)
    );
    experiment::demand_page(&record, 10, scratch.path());
    // With openssl, every scenario also downloads small files.
    if Requirement::Program("openssl", "openssl").missing().is_none() {
        let samples = record.parts.iter().flat_map(|part| &part.samples);
        let small =
            samples.filter(|samples| samples.name.contains("file of 50000 bytes: elapsed time")).count();
        assert!(small >= 3, "{small} settings with small files");
    }
}
