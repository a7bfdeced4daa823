//! Runs the tests of the workspace: as many test programs at once as there are processors, each with one
//! thread, then the examples of the documentation.
//!
//! `cargo test` runs one program after the other. Some programs have one long test, so that all processors
//! but one would be idle.

use crate::shell::{self, Failure, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit for one test program. The longest takes about two minutes.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Programs that take longest on two processors: 327, 185, 179, 120, 81 and 72 s. They start first, so that
/// none of them is left alone at the end.
const SLOWEST: [&str; 6] = [
    "verify/lwip stacks",
    "verify/sim seeds",
    "apps/casemate cell",
    "apps/lab experiments",
    "verify/interop strongswan",
    "apps/lab embedded",
];
/// Number of failed programs up to which they run once more.
const MAX_REPEATED: usize = 3;
/// Interval between looks at a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Test program of a package, or the examples of the documentation of all packages.
struct TestProgram {
    /// Package and target: `casemate-linux flood`.
    name: String,
    executable: OsString,
    arguments: Vec<&'static str>,
    /// Directory of the package, in which the program runs.
    directory: PathBuf,
    /// Whether the program contains unit tests, not a test of `tests/`.
    has_unit_tests: bool,
}

/// Test program that failed.
struct FailedProgram {
    /// Index in [`Run::programs`].
    index: usize,
    /// Names of its failed tests.
    tests: Vec<String>,
}

/// Finished test program.
struct Finished {
    name: String,
    elapsed: Duration,
    /// Standard output and standard error.
    output: String,
    error: Option<String>,
}

/// Builds and runs all tests. `skipped` is the file in which tests list what they skip.
///
/// Some tests measure times, and a busy machine disturbs them. If few programs fail, they run once more,
/// alone. Returns the tests that passed only then.
///
/// # Errors
///
/// A build or a test failed. The message lists every failed test.
pub(crate) fn run(skipped: &Path) -> Result<Vec<String>> {
    let logs = crate::cargo::target_directory()?.join("xtask").join("tests");
    fs::create_dir_all(&logs)?;
    let run = Run { programs: build()?, logs, skipped };
    let failed = run.all();
    if failed.is_empty() || failed.len() > MAX_REPEATED {
        return all_failed(failed.into_iter().flat_map(|program| program.tests).collect());
    }
    let mut unstable = Vec::new();
    let mut failures = Vec::new();
    for FailedProgram { index, tests } in failed {
        println!("Once more, alone:");
        let again = run.one(index);
        unstable.extend(tests.into_iter().filter(|test| !again.contains(test)));
        failures.extend(again);
    }
    all_failed(failures).map(|_| unstable)
}

fn all_failed(failures: Vec<String>) -> Result<Vec<String>> {
    Failure::unless_empty(&failures, &format!("{} failed", number(failures.len(), "test")))?;
    Ok(Vec::new())
}

/// Test programs, and where their output goes.
struct Run<'r> {
    programs: Vec<TestProgram>,
    logs: PathBuf,
    skipped: &'r Path,
}

impl Run<'_> {
    /// Runs all programs. Returns those that failed.
    fn all(&self) -> Vec<FailedProgram> {
        let width = std::thread::available_parallelism().map_or(1, usize::from);
        println!("{} test programs, {width} at a time", self.programs.len());
        let queue = Mutex::new(0..self.programs.len());
        let failed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..width {
                scope.spawn(|| {
                    while let Some(index) = next(&queue) {
                        let tests = self.one(index);
                        if !tests.is_empty() {
                            lock(&failed).push(FailedProgram { index, tests });
                        }
                    }
                });
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a program and prints its result. Returns the failed tests.
    fn one(&self, index: usize) -> Vec<String> {
        let Some(program) = self.programs.get(index) else { return Vec::new() };
        let finished = run_program(program, self.skipped, &self.logs.join(format!("{index}.log")));
        print!("{}", report(&finished, index, self.programs.len()));
        failed_tests(&finished)
    }
}

fn next(queue: &Mutex<std::ops::Range<usize>>) -> Option<usize> {
    lock(queue).next()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the test programs and lists them: the slowest first, then those of `tests/`.
fn build() -> Result<Vec<TestProgram>> {
    let arguments =
        ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"];
    let messages = shell::output_with_progress(shell::command(shell::cargo()).args(arguments))?;
    let messages = String::from_utf8_lossy(&messages).into_owned();
    let mut programs: Vec<_> = messages.lines().filter_map(test_program).collect();
    if programs.is_empty() {
        return Err(Failure::new("`cargo test --no-run` lists no test program"));
    }
    programs.sort_by_key(|program| {
        let rank = SLOWEST.iter().position(|slow| *slow == program.name).unwrap_or(SLOWEST.len());
        (rank, program.has_unit_tests, program.name.clone())
    });
    programs.push(TestProgram {
        name: "examples of the documentation".into(),
        executable: shell::cargo(),
        arguments: vec!["test", "--workspace", "--locked", "--doc", "--no-fail-fast"],
        directory: shell::root(),
        has_unit_tests: false,
    });
    Ok(programs)
}

/// Returns the test program that a message of cargo reports; `None` for other messages.
fn test_program(line: &str) -> Option<TestProgram> {
    let value: Value = serde_json::from_str(line).ok()?;
    let is_test = value.get("profile")?.get("test")?.as_bool()?;
    let executable = value.get("executable")?.as_str()?;
    let target = value.get("target")?;
    let directory = Path::new(value.get("manifest_path")?.as_str()?).parent()?.to_path_buf();
    let kind = target.get("kind")?.get(0)?.as_str()?;
    if !is_test {
        return None;
    }
    let package = directory.strip_prefix(shell::root()).unwrap_or(&directory).display().to_string();
    let name = match kind {
        "test" => format!("{package} {}", target.get("name")?.as_str()?),
        "bin" => format!("{package} unit tests of the program {}", target.get("name")?.as_str()?),
        _ => format!("{package} unit tests"),
    };
    let has_unit_tests = kind != "test";
    Some(TestProgram {
        name,
        executable: executable.into(),
        arguments: Vec::new(),
        directory,
        has_unit_tests,
    })
}

fn run_program(program: &TestProgram, skipped: &Path, log: &Path) -> Finished {
    let start = Instant::now();
    let error = start_program(program, skipped, log).and_then(wait).err();
    let output = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    Finished {
        name: program.name.clone(),
        elapsed: start.elapsed(),
        output,
        error: error.map(|why| why.to_string()),
    }
}

fn start_program(program: &TestProgram, skipped: &Path, log: &Path) -> Result<Child> {
    let output = File::create(log)?;
    let mut command: Command = shell::command(&program.executable);
    command
        .args(&program.arguments)
        .current_dir(&program.directory)
        .env("CASEMATE_SKIPPED", skipped)
        .env("RUST_TEST_THREADS", "1")
        .stdout(output.try_clone()?)
        .stderr(output);
    Ok(command.spawn()?)
}

/// Waits for the end of a program. Ends it at the limit.
fn wait(mut child: Child) -> Result {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { Err(Failure::new(status.to_string())) };
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(Failure::new(format!("ended after {} s without a result", LIMIT.as_secs())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A line about a program, and its output if it failed. It is printed at once, so that reports are not mixed.
fn report(finished: &Finished, index: usize, count: usize) -> String {
    let passed = finished.output.lines().filter_map(passed_tests).sum::<usize>();
    let (name, tests) = (&finished.name, number(passed, "test"));
    let position = index.saturating_add(1);
    let seconds = finished.elapsed.as_secs_f64();
    match &finished.error {
        None => format!("ok     {position:>3}/{count} {name}: {tests} in {seconds:.1} s\n"),
        Some(error) => format!(
            "FAILED {position:>3}/{count} {name}: {error}, after {seconds:.1} s\n{}\n",
            finished.output.trim_end()
        ),
    }
}

/// Number of tests that passed, in a summary line of a test program.
fn passed_tests(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

/// Names of the failed tests of a program; the program itself if it failed without naming a test.
fn failed_tests(finished: &Finished) -> Vec<String> {
    let Some(error) = &finished.error else { return Vec::new() };
    let tests = finished.output.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(format!("{}: {name}", finished.name))
    });
    let tests: Vec<_> = tests.collect();
    if tests.is_empty() { vec![format!("{}: {error}", finished.name)] } else { tests }
}

fn number(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(output: &str, error: Option<&str>) -> Finished {
        Finished {
            name: "core/wire unit tests".into(),
            elapsed: Duration::from_secs(1),
            output: output.into(),
            error: error.map(String::from),
        }
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "running 2 tests\ntest a::good ... ok\ntest a::bad ... FAILED\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored";
        assert_eq!(
            failed_tests(&finished(output, Some("exit status: 101"))),
            ["core/wire unit tests: a::bad"]
        );
        assert!(failed_tests(&finished(output, None)).is_empty());
    }

    #[test]
    fn program_without_a_failed_test_is_named_itself() {
        let killed = finished("running 1 test\n", Some("signal: 11"));
        assert_eq!(failed_tests(&killed), ["core/wire unit tests: signal: 11"]);
    }

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(passed_tests("test result: ok. 12 passed; 0 failed; 1 ignored"), Some(12));
        assert_eq!(passed_tests("test result: FAILED. 3 passed; 1 failed"), Some(3));
        assert_eq!(passed_tests("test a ... ok"), None);
    }

    #[test]
    fn test_programs_are_recognised() {
        let manifest = shell::root().join("core/wire/Cargo.toml");
        let line = |test: bool, executable: &str| {
            format!(
                "{{\"manifest_path\":{manifest:?},\"target\":{{\"kind\":[\"test\"],\"name\":\"parse\"}},\
                 \"profile\":{{\"test\":{test}}},\"executable\":{executable}}}"
            )
        };
        let program = test_program(&line(true, "\"/target/parse-1\"")).unwrap();
        assert!(!program.has_unit_tests);
        assert_eq!(program.name, "core/wire parse");
        assert_eq!(program.directory, shell::root().join("core/wire"));
        assert!(test_program(&line(false, "\"/target/parse-1\"")).is_none());
        assert!(test_program(&line(true, "null")).is_none());
        assert!(test_program("Compiling").is_none());
    }
}
