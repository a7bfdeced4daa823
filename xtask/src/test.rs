//! The tasks `test`, `ci` and `fuzz`: all tests and all checks.

use crate::cargo::{BUILT, Programs};
use crate::interop::{Lane, Matrix, Schedule};
use crate::jobs::{BackgroundJobs, Job};
use crate::progress::Progress;
use crate::shell::{self, Failure, Result};
use crate::stages::{BACKGROUND, Stages};
use crate::{bare, cargo, interop, layers, licences, lwip, package, packages, style, workspace_tests};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

pub(crate) const ABOUT: &str = "Run every test, installing the Debian packages that they need
As root, or with sudo that asks for no password, installs missing packages with apt-get and prints their
names. Lists the tests that cannot run on this machine, with the reason. Each stage shows its number, the
elapsed time, and an estimate of the time left, from the durations of the last run. Runs `cargo test --workspace`, the
simulator, the matrices against strongSwan and a Linux kernel (interop), the firmware under QEMU (firmware),
the self-test on an emulated Raspberry Pi (no-std), the instruction counts there (pi), the bounds of the
footprint (sizes) and a smoke run of the fuzz targets.";

/// Runs the tests.
pub(crate) fn run(_: &[String]) -> Result {
    let mut stages = Stages::new(Progress::load(&STAGES));
    add_to(&mut stages);
    stages.finish()
}

/// Names of the stages of [`add_to`], in order.
const STAGES: [&str; 7] = [PACKAGES, BUILD, PACKAGE, WORKSPACE, BESIDE_BUILDS, BACKGROUND, GUESTS];

const PACKAGES: &str = "packages";
const BUILD: &str = "build";
const PACKAGE: &str = "test: package";
const WORKSPACE: &str = "test: workspace";
const FUZZ: &str = "test: fuzz smoke";
/// Tests in two lanes, while background jobs build.
const BESIDE_BUILDS: &str = "tests beside builds";
/// Tests in three lanes, while nothing else runs.
const GUESTS: &str = "tests with guests";
const FIRMWARE: &str = "test: firmware";

/// Runs the tests as stages of a longer run.
///
/// One build compiles the whole workspace. Builds for other processors run in the background, with the
/// lowest priority, until the first test with a guest. Tests of several lanes run in parallel, because those
/// with peers wait more than they compute.
pub(crate) fn add_to(stages: &mut Stages) {
    let mut missing = Some("the packages could not be installed".into());
    stages.run(PACKAGES, || {
        missing = packages::install()?;
        Ok(())
    });
    if let Err(why) = lwip::run(&[]) {
        // The tests that need the sources report it too, each by its name.
        println!("The sources of lwIP are missing: {why}");
    }
    stages.run(BUILD, cargo::build_all);
    match package::unavailable() {
        None => stages.run(PACKAGE, package::run_with_debug_program),
        Some(why) => stages.skip(PACKAGE, &why),
    }
    let background = BackgroundJobs::start(background_jobs(stages));
    workspace(stages);
    let lane = |stages: &mut Stages, schedule| -> Vec<Job> {
        matrices(stages, schedule, missing.as_deref()).into_iter().map(Matrix::job).collect()
    };
    let fuzz = job_unless(stages, FUZZ, fuzz_unavailable(), &["fuzz", BUILT, "--smoke"]);
    let beside_builds = lane(stages, Schedule::BesideBuilds);
    stages.run_lanes(BESIDE_BUILDS, vec![fuzz, beside_builds]);
    stages.join_background(background);
    let mut lanes = Lane::ALL.map(|which| lane(stages, Schedule::Lane(which)));
    let unavailable = interop::firmware_unavailable();
    let firmware = job_unless(stages, FIRMWARE, unavailable, &["firmware", BUILT, "--run"]);
    let [.., devices] = &mut lanes;
    devices.extend(firmware);
    stages.run_lanes(GUESTS, lanes.into());
}

/// Returns the job with these arguments. If it cannot run, records the stage as skipped and returns no job.
fn job_unless(
    stages: &mut Stages,
    name: &'static str,
    unavailable: Option<&str>,
    arguments: &[&str],
) -> Vec<Job> {
    match unavailable {
        None => vec![Job::new(name, arguments)],
        Some(why) => {
            stages.skip(name, why);
            Vec::new()
        }
    }
}

/// Background jobs: builds and tests for processors without an operating system.
fn background_jobs(stages: &mut Stages) -> Vec<Job> {
    let mut jobs = bare_jobs(stages);
    if interop::firmware_unavailable().is_none() {
        jobs.push(Job::new("build: firmware", &["firmware"]));
    }
    jobs
}

/// Tests of the programs of verify/bare.
fn bare_jobs(stages: &mut Stages) -> Vec<Job> {
    // The other boards differ only in their processor, and each build takes minutes.
    let jobs: [(_, &[&str]); 3] = [
        ("test: no-std", &["no-std", "--board", "ARMv6"]),
        ("test: pi", &["pi", "--test"]),
        ("test: sizes", &["sizes", "--check"]),
    ];
    match bare::unavailable() {
        None => jobs.map(|(stage, arguments)| Job::new(stage, arguments)).into(),
        Some(why) => {
            jobs.iter().for_each(|(stage, _)| stages.skip(stage, &why));
            Vec::new()
        }
    }
}

/// Matrices with this schedule, without those that cannot run.
fn matrices(stages: &mut Stages, schedule: Schedule, missing: Option<&str>) -> Vec<&'static Matrix> {
    let mut can_run = |matrix: &&Matrix| match matrix.unavailable_reason(missing) {
        None => true,
        Some(why) => {
            stages.skip(matrix.stage, &why);
            false
        }
    };
    interop::MATRICES.iter().filter(|matrix| matrix.schedule == schedule).filter(&mut can_run).collect()
}

/// Runs the tests of all packages. Tests that cannot run on this machine write a line to a file
/// (verify/support), and the summary lists them.
fn workspace(stages: &mut Stages) {
    let report = cargo::target_directory().map(|target| target.join("skipped.txt"));
    let mut unstable = Vec::new();
    stages.run(WORKSPACE, || {
        let report = report.as_ref().map_err(|failure| Failure::new(failure.to_string()))?;
        remove(report)?;
        unstable = workspace_tests::run(report)?;
        Ok(())
    });
    for test in &unstable {
        stages.unstable(test, "failed beside other tests, passed alone");
    }
    let noted = report.ok().and_then(|report| fs::read_to_string(report).ok()).unwrap_or_default();
    for line in noted.lines() {
        let (test, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        stages.skip(test, why);
    }
}

/// Removes the file if it exists.
fn remove(file: &Path) -> Result {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) const CI_ABOUT: &str =
    "Run what CI runs: format, layers, style, licences, clippy, docs, then `test`
A failed stage does not stop the next one. The summary at the end lists stages, times and failures.";

/// Check of the sources, before the tests.
struct Check {
    name: &'static str,
    run: fn() -> Result,
}

const CHECKS: [Check; 7] = [
    Check { name: "format", run: || shell::run_cargo(&["fmt", "--all", "--check"]) },
    Check { name: "layers", run: || layers::run(&[]) },
    Check { name: "style", run: || style::run(&[]) },
    Check { name: "licences", run: || licences::run(&[]) },
    Check { name: "clippy", run: clippy },
    Check { name: "clippy: firmware", run: interop::clippy_firmware },
    Check { name: "docs", run: docs },
];

fn clippy() -> Result {
    shell::run_cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"])
}

fn docs() -> Result {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    shell::run(shell::command(shell::cargo()).args(arguments).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs all stages.
pub(crate) fn run_ci(_: &[String]) -> Result {
    let names: Vec<_> = CHECKS.iter().map(|check| check.name).chain(STAGES).collect();
    let mut stages = Stages::new(Progress::load(&names));
    for check in &CHECKS {
        stages.run(check.name, check.run);
    }
    add_to(&mut stages);
    stages.finish()
}

pub(crate) const CELL_ABOUT: &str =
    "Disrupt a cell of three gateways at random moments (apps/casemate/tests/cell), optimized
Kills, drains and suspends gateways under the traffic of 1,000 tunnels, 50 times, kills one with 10,000
tunnels, and owners during takeovers and rekeyings. Stops all etcd servers for a minute, changes their leader
under load, and sets a clock. Disrupts cells with keepalived and FRR. Needs root and two hours at most. --repetitions N, --tunnels N and --seed N set the numbers of the first.";

/// Runs the long tests of cells.
pub(crate) fn run_cell(arguments: &[String]) -> Result {
    let mut variables = Vec::new();
    for option in arguments.chunks(2) {
        let (name, value) = match option {
            [name, value] => (name.as_str(), value),
            _ => return Err(Failure::new(format!("`cell {}`: a number was expected", option.join(" ")))),
        };
        let variable = match name {
            "--repetitions" => "CASEMATE_CELL_REPETITIONS",
            "--tunnels" => "CASEMATE_CELL_TUNNELS",
            "--seed" => "CASEMATE_CELL_SEED",
            _ => return Err(Failure::new(format!("`cell` has no option `{name}`"))),
        };
        value.parse::<u64>().map_err(|error| Failure::new(format!("`{name} {value}`: {error}")))?;
        variables.push((variable, value));
    }
    packages::install_for_cells()?;
    let tests = ["test", "--release", "--locked", "--package", "casemate-app", "--test", "cell", "--"];
    let mut command = shell::command(shell::cargo());
    command.args(tests).args(["--ignored", "--nocapture", "--test-threads", "1"]);
    shell::run(command.envs(variables))
}

pub(crate) const FUZZ_ABOUT: &str =
    "Fuzz the parsers, the data path and the files that the program reads (verify/fuzz)
Runs all targets or the named ones for 60 s each, or for seconds with --smoke, as CI does. Needs a C++
compiler for libFuzzer. --seconds N sets the time of each target, --list shows the targets, --replay TARGET
INPUT runs one input, given as hexadecimal digits or as a file. --built, as the first option, skips the
build.";

/// Runs the driver.
pub(crate) fn run_fuzz(arguments: &[String]) -> Result {
    // The development profile, because a smoke run reuses what the tests have built.
    let (programs, arguments) = Programs::parse(arguments);
    let driver = programs.directory(&["casemate-fuzz"])?.join("casemate-fuzz");
    shell::run(shell::command(driver).args(arguments))
}

/// Reason why this machine cannot fuzz; none if it can.
fn fuzz_unavailable() -> Option<&'static str> {
    (!packages::has_compiler()).then_some("libFuzzer needs a C++ compiler; install Debian's g++")
}
