//! Fuzzing runs: builds the engine, runs all targets, one per processor at a time, and reports the results.

use crate::Campaign;
use casemate_fuzz::{Target, regressions};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{io, thread};

/// Longer inputs are printed as the path of their file.
const MAX_SHOWN: usize = 1_024;

/// Fuzzes all targets of a campaign. Fails if one of them panics.
pub(crate) fn run(campaign: &Campaign) -> Result<(), String> {
    let paths = Paths::new().map_err(|error| error.to_string())?;
    build_engine(&paths, campaign.is_smoke)?;
    let (count, seconds) = (campaign.targets.len(), campaign.time.as_secs());
    println!("{count} targets, {seconds} s each");
    let waiting = Mutex::new(campaign.targets.iter());
    let failed = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, |processors| processors.get()).min(count);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(target) = waiting.lock().unwrap().next() else { break };
                    if !fuzz(&paths, target, campaign) {
                        failed.lock().unwrap().push(target.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed targets: {}", failed.join(", "))) }
}

fn fuzz(paths: &Paths, target: &'static Target, campaign: &Campaign) -> bool {
    match run_target(paths, target, campaign.time, campaign.is_smoke) {
        Err(error) => {
            println!("{:<12} the engine did not start: {error}", target.name);
            false
        }
        Ok(outcome) => {
            println!("{}", report(&outcome));
            outcome.failure.is_none()
        }
    }
}

fn report(outcome: &Outcome) -> String {
    let Outcome { target, runs, corpus, elapsed, failure } = outcome;
    let name = target.name;
    match failure {
        None => {
            let speed = *runs as f64 / elapsed.as_secs_f64().max(0.001);
            format!("{name:<12} ok: {runs} runs, {speed:.0}/s, {corpus} new inputs")
        }
        Some(Failure { message, log, input, artifact }) => {
            let replay = match (input, artifact) {
                (Some(input), _) if input.len() <= MAX_SHOWN => {
                    let hex = regressions::to_hex(input);
                    format!("input: {hex}\nreplay: cargo xtask fuzz --replay {name} {hex}")
                }
                (_, Some(path)) => format!("replay: cargo xtask fuzz --replay {name} {}", path.display()),
                (_, None) => "the engine reported no input".into(),
            };
            format!("{name:<12} FAILED\n{message}\nlog: {}\n{replay}", log.display())
        }
    }
}

/// Paths of a run. All files are below cargo's target directory.
struct Paths {
    target: PathBuf,
    profile: PathBuf,
}

impl Paths {
    /// Paths next to this program.
    fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let profile = program.parent().map(Path::to_path_buf).unwrap_or_default();
        let target = profile.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { target, profile })
    }

    fn engine(&self) -> PathBuf {
        self.profile.join("casemate-fuzz-engine")
    }

    fn data_directory(&self, kind: &str, target: &Target) -> PathBuf {
        self.target.join("fuzz").join(kind).join(target.name)
    }
}

/// Builds the engine with coverage. The whole workspace is selected, so that the crates of registries have
/// the features with which the build of all tests has compiled them, and only the workspace is compiled
/// again, with instrumentation.
fn build_engine(paths: &Paths, is_smoke: bool) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(cargo);
    command
        .args(["build", "--workspace", "--bin", "casemate-fuzz-engine"])
        .args(["--features", "casemate-fuzz/engine"])
        // The targets determine the speed, and the build is the longest part of a smoke run.
        .args(["--config", "profile.dev.package.libfuzzer-sys.opt-level=1"])
        .args(["--config", "profile.dev.package.libfuzzer-sys.debug=false"])
        .arg("--target-dir")
        .arg(&paths.target)
        .current_dir(manifest_directory)
        .env("RUSTC_WORKSPACE_WRAPPER", manifest_directory.join("instrument"))
        .stdin(Stdio::null());
    if !is_smoke {
        // Overflow checks and debug assertions stay on.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    }
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the build of the engine failed, as cargo says above; it needs a C++ compiler (g++)".into())
    }
}

/// Result of one target.
struct Outcome {
    target: &'static Target,
    runs: u64,
    /// New inputs with additional coverage.
    corpus: u64,
    elapsed: Duration,
    failure: Option<Failure>,
}

/// Failure of a target.
struct Failure {
    /// Failing input, if the engine reported it.
    input: Option<Vec<u8>>,
    /// Files of the input and of the log.
    artifact: Option<PathBuf>,
    log: PathBuf,
    /// Message of the target.
    message: String,
}

/// Runs the engine on one target.
fn run_target(paths: &Paths, target: &'static Target, time: Duration, is_smoke: bool) -> io::Result<Outcome> {
    let start = Instant::now();
    let (seeds, corpus, failures) = (
        paths.data_directory("seeds", target),
        paths.data_directory("corpus", target),
        paths.data_directory("failures", target),
    );
    write_seeds(&seeds, target)?;
    for directory in [&corpus, &failures] {
        fs::create_dir_all(directory)?;
    }
    let log = failures.join("log");
    let mut command = Command::new(paths.engine());
    if !is_smoke {
        command.arg(&corpus);
    }
    command
        .arg(&seeds)
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-max_len={}", target.max_len))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", "-use_value_profile=1"])
        .env("CASEMATE_FUZZ_TARGET", target.name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    if is_smoke {
        command.arg("-seed=1");
    }
    if !target.dictionary.is_empty() {
        let dictionary: String = target.dictionary.iter().map(|word| format!("\"{word}\"\n")).collect();
        let path = failures.join("dictionary");
        fs::write(&path, dictionary)?;
        command.arg(format!("-dict={}", path.display()));
    }
    let status = wait(command.spawn()?, time + Duration::from_secs(60))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let failure = if status.success() { None } else { Some(failure(&text, log)) };
    let stat = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
    };
    let (runs, corpus) = (stat("number_of_executed_units"), stat("new_units_added"));
    Ok(Outcome { target, runs, corpus, elapsed: start.elapsed(), failure })
}

fn write_seeds(directory: &Path, target: &Target) -> io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    for (n, seed) in (target.seeds)().into_iter().enumerate() {
        fs::write(directory.join(format!("seed-{n}")), seed)?;
    }
    Ok(())
}

/// The engine limits the time itself; this limit applies if it hangs.
fn wait(mut child: Child, limit: Duration) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn failure(text: &str, log: PathBuf) -> Failure {
    let artifact =
        text.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
    let artifact = artifact.map(|path| PathBuf::from(path.trim()));
    let input = artifact.as_ref().and_then(|path| fs::read(path).ok());
    let message_lines =
        text.lines().skip_while(|line| !line.contains("panicked at") && !line.contains("ERROR: libFuzzer"));
    let message: Vec<&str> =
        message_lines.take_while(|line| !line.starts_with("stack backtrace")).take(12).collect();
    let message =
        if message.is_empty() { "the engine exited without a message".into() } else { message.join("\n") };
    Failure { input, artifact, log, message }
}
