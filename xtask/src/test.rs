//! Every test of the project, with the packages that they need.

use crate::beside::{Beside, Task};
use crate::failure::{Failure, Result};
use crate::interop::{Company, Matrix};
use crate::programs::BUILT;
use crate::stages::Stages;
use crate::{bare, firmware, fuzz, interop, lwip, metadata, packages, programs, shell};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

pub(crate) const ABOUT: &str = "Run every test, installing the Debian packages that they need
As root, or through sudo where it asks for no password, missing packages are installed by apt-get, saying so. What
cannot run on this machine is named with the reason. Then: `cargo test --workspace`, the simulator, the matrices against
strongSwan and a Linux kernel (interop), the machine without an operating system (firmware), the self-test on an emulated Raspberry Pi (no-std), the
instructions that are counted there (pi), the bounds of the footprint (sizes) and a smoke run of the fuzz targets.";

/// Runs the tests.
pub(crate) fn run(_: &[String]) -> Result {
    let mut stages = Stages::new();
    add_to(&mut stages);
    stages.finish()
}

/// Runs the tests as stages of a longer run.
///
/// Everything is built at once. What compiles for other processors runs beside fuzzing and the matrix without a guest, with the lowest priority. The rest has the
/// machine for itself.
pub(crate) fn add_to(stages: &mut Stages) {
    let packages = packages::install();
    if let Err(why) = lwip::run(&[]) {
        // The tests that need them say so too, each by its name.
        println!("lwIP's sources are not there: {why}");
    }
    stages.run("build", programs::build_all);
    workspace(stages);
    let bare = Beside::start(without_system(stages));
    match fuzz::unavailable() {
        None => stages.run("test: fuzz smoke", || fuzz::run(&[BUILT.into(), "--smoke".into()])),
        Some(why) => stages.left_out("test: fuzz smoke", why),
    }
    for matrix in matrices(stages, Company::Compilers, &packages) {
        run_matrix(stages, matrix);
    }
    stages.join(bare);
    for matrix in matrices(stages, Company::Nobody, &packages) {
        run_matrix(stages, matrix);
    }
    match firmware::unavailable() {
        None => stages.run("test: firmware", || firmware::run(&[BUILT.into(), "--run".into()])),
        Some(why) => stages.left_out("test: firmware", why),
    }
}

/// What is built for processors without an operating system.
fn without_system(stages: &mut Stages) -> Vec<Task> {
    // The other boards differ in their processor only, and each build takes minutes.
    let tasks: [(_, &[&str]); 3] = [
        ("test: no-std", &["no-std", "--board", "ARMv6"]),
        ("test: pi", &["pi", "--test"]),
        ("test: sizes", &["sizes", "--check"]),
    ];
    match bare::unavailable() {
        None => tasks.map(|(stage, words)| Task::new(stage, words)).into(),
        Some(why) => {
            tasks.iter().for_each(|(stage, _)| stages.left_out(stage, &why));
            Vec::new()
        }
    }
}

/// The matrices that run in such company, without those that cannot run here.
fn matrices(
    stages: &mut Stages,
    company: Company,
    installed: &std::result::Result<(), String>,
) -> Vec<&'static Matrix> {
    let mut can_run = |matrix: &&Matrix| match matrix.lacks(installed) {
        None => true,
        Some(why) => {
            stages.left_out(matrix.stage, &why);
            false
        }
    };
    interop::MATRICES.iter().filter(|matrix| matrix.company == company).filter(&mut can_run).collect()
}

fn run_matrix(stages: &mut Stages, matrix: &Matrix) {
    stages.run(matrix.stage, || interop::run(&matrix.arguments()));
}

/// `cargo test`. Tests that cannot run here note it in a file (verify/left-out), each of which the summary lists.
fn workspace(stages: &mut Stages) {
    let report = metadata::target_directory().map(|target| target.join("left-out.txt"));
    stages.run("test: workspace", || {
        let report = report.as_ref().map_err(|failure| Failure::new(failure.to_string()))?;
        remove(report)?;
        let mut command = shell::command(shell::cargo());
        shell::run(
            command
                .args(["test", "--workspace", "--locked", "--no-fail-fast"])
                .env("CASEMATE_LEFT_OUT", report),
        )
    });
    let noted = report.ok().and_then(|report| fs::read_to_string(report).ok()).unwrap_or_default();
    for line in noted.lines() {
        let (test, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        stages.left_out(test, why);
    }
}

/// Removes the file if it is there.
fn remove(file: &Path) -> Result {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
