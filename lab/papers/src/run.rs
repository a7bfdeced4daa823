//! Runs an experiment, shows its progress on standard error, and collects its results, even if steps fail.
//! The progress is a bar on a terminal, otherwise one line per step.

use crate::artifacts::{ArtifactPaths, Artifacts, Unavailable};
use crate::experiment::{Context, Experiment, Requirement, Step};
use casemate_measure::report::{ActivityMonitor, Agreement, Machine, Part, Record, Skipped};
use casemate_testbed::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for starting programs, in addition to a fifth of the steps' time, after which a run is abandoned.
const SET_UP: Duration = Duration::from_secs(12);

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Whether to run the short form.
    pub quick: bool,
    /// Total time of the steps.
    pub time: Duration,
    /// Path of the program `casemate`.
    pub program: PathBuf,
    /// Directory for temporary files.
    pub scratch: PathBuf,
    /// Where artifacts are built and stored.
    pub artifact_paths: ArtifactPaths,
    /// Versions of the programs that take part.
    pub versions: BTreeMap<String, String>,
    /// Progress display.
    pub progress: Progress,
}

impl RunOptions {
    /// Default total time of the steps. The documentation promises 5 minutes, and a minute for the short
    /// form, including everything else.
    pub const fn default_time(quick: bool) -> Duration {
        Duration::from_secs(if quick { 36 } else { 240 })
    }

    /// Time limit after which a hanging step and all later steps are abandoned.
    fn limit(&self) -> Duration {
        self.time.mul_f64(1.2) + SET_UP
    }
}

/// Obtains the artifacts, runs all steps and returns the results.
pub fn run(experiment: &'static Experiment, options: &RunOptions) -> Record {
    // Before the builds of artifacts, which are over when the steps start.
    let activity = ActivityMonitor::start();
    let artifacts = Artifacts::obtain(experiment.artifacts, &options.artifact_paths, &options.progress);
    let (start, started) = (Instant::now(), utc());
    let steps = experiment.steps.iter().filter(|step| !is_excluded(step, &artifacts));
    let steps: Vec<_> = steps.map(|step| (step, missing(step, &artifacts))).collect();
    // The time of skipped steps is distributed among the others.
    let shares: u32 = steps.iter().filter(|(_, missing)| missing.is_none()).map(|(step, _)| step.share).sum();
    let mut parts = Vec::new();
    for (step, missing) in steps {
        options.progress.start_step(step.title);
        let context = Context {
            quick: options.quick,
            time: options.time.saturating_mul(step.share) / shares.max(1),
            program: options.program.clone(),
            scratch: options.scratch.clone(),
            artifacts: artifacts.clone(),
            progress: options.progress.clone(),
        };
        let left = options.limit().saturating_sub(start.elapsed());
        parts.extend(attempt(step, missing, context, left).unwrap_or_else(|skipped| {
            options.progress.print_line(&format!("skipped: {}: {}", skipped.what, skipped.why));
            vec![Part { title: step.title.into(), skipped: vec![skipped], ..Part::default() }]
        }));
    }
    options.progress.finish();
    Record {
        experiment: experiment.name.into(),
        paper: (experiment.paper)(),
        summary: experiment.summary.into(),
        machine: Machine::detect(),
        activity: activity.finish(),
        versions: options.versions.clone(),
        started,
        seconds: start.elapsed().as_secs_f64(),
        quick: options.quick,
        limits: limits(experiment, options.quick),
        parts,
    }
}

/// Returns whether the user has excluded an artifact that a step requires. The page omits such a step.
fn is_excluded(step: &Step, artifacts: &Artifacts) -> bool {
    let mut required = step.requirements.iter().filter_map(|requirement| match requirement {
        Requirement::Artifact(artifact) => Some(*artifact),
        _ => None,
    });
    required.any(|artifact| artifacts.is_excluded(artifact))
}

/// Returns the first requirement of a step that is missing.
fn missing(step: &Step, artifacts: &Artifacts) -> Option<Unavailable> {
    step.requirements.iter().find_map(|requirement| match requirement {
        Requirement::Artifact(artifact) => artifacts.path(*artifact).err(),
        other => other.missing().map(|why| Unavailable { why, failed: false }),
    })
}

/// What this form of an experiment cannot determine.
fn limits(experiment: &Experiment, quick: bool) -> Vec<String> {
    let limits = if quick { experiment.short_form_limits } else { &[] };
    limits.iter().map(|limit| (*limit).to_owned()).collect()
}

/// Runs a step on its own thread, which is abandoned if it hangs. The programs that it has started end with
/// this process.
fn attempt(
    step: &'static Step,
    missing: Option<Unavailable>,
    context: Context,
    left: Duration,
) -> Result<Vec<Part>, Skipped> {
    let skipped = |why, failed| Skipped { what: step.title.into(), why, failed };
    if let Some(Unavailable { why, failed }) = missing {
        return Err(skipped(why, failed));
    }
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send((step.run)(&context)));
    match receiver.recv_timeout(left) {
        Ok(done) => done.map_err(|error| skipped(error.to_string(), true)),
        Err(RecvTimeoutError::Timeout) => {
            Err(skipped(format!("no time: not finished after {:.0} s", left.as_secs_f64()), true))
        }
        Err(RecvTimeoutError::Disconnected) => Err(skipped("it panicked".into(), true)),
    }
}

const DAY: u64 = 86_400;

/// Current UTC time as in RFC 3339: `2026-11-22T12:34:56Z`.
pub fn utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format(since.as_secs())
}

fn format(seconds: u64) -> String {
    let Date { year, month, day } = Date::from_days(seconds / DAY);
    let rest = seconds % DAY;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Date in the Gregorian calendar.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    /// Converts days since 1970-01-01. The calendar has a period of 400 years, or 146,097 days.
    fn from_days(days: u64) -> Self {
        // Years begin in March here, so that the leap day is the last day of a year.
        let since_march = days + 719_468;
        let (era, day) = (since_march / 146_097, since_march % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let of_month = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self { year: era * 400 + year + next, month, day: of_month }
    }
}

/// Summary of the findings, skipped measurements and disturbances for a terminal. Ends with a line break.
pub fn summary(record: &Record) -> String {
    let mut text = String::new();
    let paper = &record.paper;
    let _ = writeln!(text, "{}: {}, {} ({})", record.experiment, paper.authors, paper.title, paper.year);
    for finding in record.findings() {
        let sign = match finding.agreement {
            Agreement::Agrees => "agrees ",
            Agreement::Differs => "differs",
            Agreement::Unknown => "unknown",
            Agreement::NotMeasured => "not measured",
        };
        let _ = writeln!(text, "  {sign}  {}: {}; paper: {}", finding.what, finding.ours, finding.paper);
    }
    for skipped in record.skipped() {
        let _ = writeln!(text, "  skipped: {}: {}", skipped.what, skipped.why);
    }
    for reason in record.noise() {
        let _ = writeln!(text, "  noisy machine: {reason}");
    }
    text
}

/// Progress display. Clones share one display.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    name: Arc<str>,
}

impl Progress {
    /// Creates the display for the experiment of this name.
    pub fn new(name: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Self { bar, name: name.into() }
    }

    /// Creates a display that shows nothing.
    pub fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), name: "".into() }
    }

    /// Starts a step.
    pub(crate) fn start_step(&self, title: &str) {
        self.bar.set_position(0);
        self.bar.set_length(0);
        self.bar.set_message(title.to_owned());
        if !stderr().is_terminal() && !self.name.is_empty() {
            print_progress(&format!("{}: {title}", self.name));
        }
    }

    /// Sets the number of work items in this step.
    pub fn set_total(&self, pieces: usize) {
        self.bar.set_length(pieces as u64);
    }

    /// Shows a line that the next one replaces. Only a terminal shows it.
    pub(crate) fn set_message(&self, line: &str) {
        self.bar.set_message(line.to_owned());
        self.bar.tick();
    }

    /// Starts the next work item.
    pub fn advance(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// Prints a permanent line, for example about a skipped step.
    pub fn print_line(&self, line: &str) {
        let line = format!("{}: {line}", self.name);
        if self.name.is_empty() {
            return;
        }
        self.bar.suspend(|| print_progress(&line));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a line to standard error. A standard error that is full or closed does not stop the run.
fn print_progress(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Artifact;
    use casemate_measure::report::Paper;
    use casemate_testbed::Error;

    fn paper() -> Paper {
        Paper { authors: "A".into(), title: "T".into(), venue: "V".into(), year: 2000 }
    }

    fn works(context: &Context) -> Result<Vec<Part>> {
        context.progress.set_total(1);
        context.progress.advance("piece");
        Ok(vec![Part { title: format!("{} s", context.time.as_secs()), ..Part::default() }])
    }

    fn fails(_: &Context) -> Result<Vec<Part>> {
        Err(Error::new("the wire is dead"))
    }

    fn panics(_: &Context) -> Result<Vec<Part>> {
        panic!("no good")
    }

    const fn step(title: &'static str, run: fn(&Context) -> Result<Vec<Part>>) -> Step {
        Step { title, requirements: &[], share: 1, run }
    }

    static TINY: Experiment = Experiment {
        name: "tiny",
        paper,
        summary: "Steps that do not all work.",
        short_form_limits: &["Nothing is certain."],
        artifacts: &[],
        steps: &[
            step("fails", fails),
            step("panics", panics),
            Step { requirements: &[Requirement::Program("no-such-program", "none")], ..step("needs", works) },
            Step { share: 3, ..step("works", works) },
        ],
    };

    fn context() -> Context {
        Context {
            quick: true,
            time: Duration::from_secs(1),
            program: "casemate".into(),
            scratch: std::env::temp_dir(),
            artifacts: Artifacts::default(),
            progress: Progress::silent(),
        }
    }

    fn options() -> RunOptions {
        RunOptions {
            quick: true,
            time: RunOptions::default_time(true),
            program: "casemate".into(),
            scratch: std::env::temp_dir(),
            artifact_paths: ArtifactPaths {
                checkouts: Vec::new(),
                programs: Vec::new(),
                cache: std::env::temp_dir(),
            },
            versions: BTreeMap::new(),
            progress: Progress::silent(),
        }
    }

    #[test]
    fn failed_steps_are_skipped_and_the_others_run() {
        let record = run(&TINY, &options());
        let titles: Vec<&str> = record.parts.iter().map(|part| part.title.as_str()).collect();
        // Three of five shares of 36 s, because the step with the missing requirement gets no time.
        assert_eq!(titles, ["fails", "panics", "needs", "21 s"]);
        let reasons: Vec<&str> = record.skipped().map(|skipped| skipped.why.as_str()).collect();
        assert_eq!(reasons[0], "the wire is dead");
        assert_eq!(reasons[1], "it panicked");
        assert!(reasons[2].starts_with("no program no-such-program"), "{reasons:?}");
        let failed: Vec<bool> = record.skipped().map(|skipped| skipped.failed).collect();
        assert_eq!(failed, [true, true, false]);
        assert_eq!(record.limits, ["Nothing is certain."]);
        assert_eq!(limits(&TINY, false), Vec::<String>::new());
    }

    #[test]
    fn a_step_is_skipped_without_its_artifact() {
        static PI: Step =
            Step { requirements: &[Requirement::Artifact(Artifact::Pi)], ..step("counts", works) };
        let unavailable = missing(&PI, &Artifacts::default()).unwrap();
        assert_eq!(unavailable.why, "image for the Raspberry Pi: not requested");
        for failed in [false, true] {
            let unavailable = Unavailable { failed, ..unavailable.clone() };
            let skipped = attempt(&PI, Some(unavailable), context(), Duration::from_secs(9)).unwrap_err();
            assert_eq!((skipped.what.as_str(), skipped.failed), ("counts", failed));
        }
        assert!(attempt(&PI, None, context(), Duration::from_secs(9)).is_ok());
        assert!(!is_excluded(&PI, &Artifacts::excluding(Artifact::Lwip)));
        assert!(is_excluded(&PI, &Artifacts::excluding(Artifact::Pi)));
    }

    #[test]
    fn a_hanging_step_is_abandoned() {
        fn hangs(_: &Context) -> Result<Vec<Part>> {
            thread::sleep(Duration::from_secs(3600));
            Ok(Vec::new())
        }
        static HANGS: Step = step("hangs", hangs);
        let start = Instant::now();
        let why = attempt(&HANGS, None, context(), Duration::from_millis(50)).unwrap_err().why;
        assert!(why.starts_with("no time"), "{why}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    /// Values of `date -u -d @SECONDS`.
    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format(1_795_350_896), "2026-11-22T12:34:56Z");
        assert_eq!(format(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(format(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
