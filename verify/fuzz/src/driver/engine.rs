//! Building the engine, and one run of it.

use casemate_fuzz::Target;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Where things are. Everything that a run writes lies below cargo's target directory.
pub(crate) struct Places {
    target: PathBuf,
    profile: PathBuf,
}

impl Places {
    /// Beside this very program.
    pub(crate) fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let profile = program.parent().map(Path::to_path_buf).unwrap_or_default();
        let target = profile.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { target, profile })
    }

    fn engine(&self) -> PathBuf {
        self.profile.join("casemate-fuzz-engine")
    }

    fn below(&self, kind: &str, target: &Target) -> PathBuf {
        self.target.join("fuzz").join(kind).join(target.name)
    }
}

/// Builds the engine with coverage. Its dependencies are those of the tests, which are built already in CI.
pub(crate) fn build(places: &Places) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--package",
            "casemate-fuzz",
            "--features",
            "engine",
            "--bin",
            "casemate-fuzz-engine",
        ])
        // Its speed is that of the targets; its build is the longest part of a smoke run.
        .args(["--config", "profile.dev.package.libfuzzer-sys.opt-level=1"])
        .args(["--config", "profile.dev.package.libfuzzer-sys.debug=false"])
        .arg("--target-dir")
        .arg(&places.target)
        .current_dir(here)
        .env("RUSTC_WORKSPACE_WRAPPER", here.join("instrument"))
        // Overflow checks and debug assertions stay on.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "2")
        .stdin(Stdio::null());
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the engine does not build; it needs a C++ compiler (g++)".into())
    }
}

/// How one target fared.
pub(crate) struct Outcome {
    pub(crate) target: &'static Target,
    pub(crate) runs: u64,
    /// Inputs that reach something new.
    pub(crate) corpus: u64,
    pub(crate) took: Duration,
    pub(crate) failure: Option<Failure>,
}

/// What went wrong.
pub(crate) struct Failure {
    /// The input, if the engine could tell it.
    pub(crate) input: Option<Vec<u8>>,
    /// Where input and log are.
    pub(crate) artifact: Option<PathBuf>,
    pub(crate) log: PathBuf,
    /// What the target said.
    pub(crate) message: String,
}

/// Runs the engine on one target.
pub(crate) fn run(
    places: &Places,
    target: &'static Target,
    time: Duration,
    is_smoke: bool,
) -> io::Result<Outcome> {
    let start = Instant::now();
    let (seeds, corpus, failures) =
        (places.below("seeds", target), places.below("corpus", target), places.below("failures", target));
    write_seeds(&seeds, target)?;
    for directory in [&corpus, &failures] {
        fs::create_dir_all(directory)?;
    }
    let log = failures.join("log");
    let mut command = Command::new(places.engine());
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
    if !target.words.is_empty() {
        let words: String = target.words.iter().map(|word| format!("\"{word}\"\n")).collect();
        let path = failures.join("words");
        fs::write(&path, words)?;
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
    Ok(Outcome { target, runs, corpus, took: start.elapsed(), failure })
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

/// The engine keeps the time itself; this is for one that hangs.
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
    let said =
        text.lines().skip_while(|line| !line.contains("panicked at") && !line.contains("ERROR: libFuzzer"));
    let message: Vec<&str> = said.take_while(|line| !line.starts_with("stack backtrace")).take(12).collect();
    let message =
        if message.is_empty() { "the engine ended without a word".into() } else { message.join("\n") };
    Failure { input, artifact, log, message }
}
