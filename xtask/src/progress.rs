//! Progress of a run of stages: position, elapsed time, and an estimate of the time left.
//!
//! The estimate adds up the durations of the remaining stages in the last run, scaled by how much slower or
//! faster the stages of this run have been. The durations are in a file of the target directory. A stage
//! without a recorded duration counts with a built-in one.

use crate::cargo;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Durations on two processors, in seconds, of the stages that take long.
const BUILT_IN: [(&str, u64); 7] = [
    ("clippy", 150),
    ("docs", 60),
    ("build", 300),
    ("test: workspace", 660),
    ("background tasks", 60),
    ("tests beside builds", 180),
    ("tests with guests", 360),
];
/// Built-in duration of the other stages, in seconds.
const USUAL: u64 = 45;
/// The stages of this run scale the estimate when they should have taken this time at least, in seconds.
const SIGNIFICANT: f64 = 20.0;
/// Bounds of the scale.
const SCALE: std::ops::RangeInclusive<f64> = 0.2..=5.0;

/// The planned stages of a run, and the durations of those that are done.
pub(crate) struct Progress {
    stages: Vec<PlannedStage>,
    start: Instant,
    /// Recorded durations of all stages, also of those that are not part of this run, in seconds.
    recorded: BTreeMap<String, f64>,
    /// File of the durations; none if the target directory is unknown, or in tests.
    file: Option<PathBuf>,
}

struct PlannedStage {
    name: &'static str,
    /// Expected duration in seconds.
    expected: f64,
    state: State,
}

/// State of a planned stage.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    /// The duration in seconds.
    Done(f64),
    Skipped,
}

impl Progress {
    /// A run of these stages, in this order, with the durations of the last run.
    pub(crate) fn load(names: &[&'static str]) -> Self {
        let file = cargo::target_directory().ok().map(|target| target.join("xtask/durations.txt"));
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        Self { file, ..Self::new(names, parse(&text)) }
    }

    /// A run with these recorded durations, which writes no file.
    pub(crate) fn new(names: &[&'static str], recorded: BTreeMap<String, f64>) -> Self {
        let stage = |name: &&'static str| {
            let expected = recorded.get(*name).copied().unwrap_or_else(|| built_in(name));
            PlannedStage { name, expected, state: State::Waiting }
        };
        Self { stages: names.iter().map(stage).collect(), start: Instant::now(), recorded, file: None }
    }

    /// Describes the whole run.
    pub(crate) fn outline(&self) -> String {
        let known = self.stages.iter().filter(|stage| self.recorded.contains_key(stage.name)).count();
        let source = match known {
            0 => "built-in durations, because none are recorded".to_owned(),
            known => format!("recorded durations of {known} stages"),
        };
        format!("{} stages, about {} ({source})", self.stages.len(), words(self.left()))
    }

    /// The heading of a stage that starts now.
    pub(crate) fn heading(&self, name: &str) -> String {
        let Some(position) = self.stages.iter().position(|stage| stage.name == name) else {
            return name.to_owned();
        };
        format!(
            "[{} of {}] {name} ({} elapsed, about {} left)",
            position.saturating_add(1),
            self.stages.len(),
            words(self.start.elapsed().as_secs_f64()),
            words(self.left())
        )
    }

    /// Records the duration of a stage. Stages that are not planned are ignored.
    pub(crate) fn finish(&mut self, name: &str, elapsed: Duration) {
        self.set(name, State::Done(elapsed.as_secs_f64()));
    }

    /// Records that a stage does not run.
    pub(crate) fn skip(&mut self, name: &str) {
        self.set(name, State::Skipped);
    }

    fn set(&mut self, name: &str, state: State) {
        if let Some(stage) = self.stages.iter_mut().find(|stage| stage.name == name) {
            stage.state = state;
        }
    }

    /// Estimated time for the stages that are not done, in seconds.
    fn left(&self) -> f64 {
        let waiting = self.stages.iter().filter(|stage| stage.state == State::Waiting);
        waiting.map(|stage| stage.expected).sum::<f64>() * self.scale()
    }

    /// How much longer the stages of this run have taken than expected.
    fn scale(&self) -> f64 {
        let done = self.stages.iter().filter_map(|stage| match stage.state {
            State::Done(actual) => Some((stage.expected, actual)),
            State::Waiting | State::Skipped => None,
        });
        let (expected, actual) = done.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if expected < SIGNIFICANT { 1.0 } else { (actual / expected).clamp(*SCALE.start(), *SCALE.end()) }
    }

    /// Writes the durations for the next run. A failure only costs the accuracy of its estimate.
    pub(crate) fn save(&self) {
        let Some(file) = &self.file else { return };
        let written = file.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = written.and_then(|()| fs::write(file, self.to_text())) {
            println!("{}: durations were not recorded: {error}", Path::new(file).display());
        }
    }

    fn to_text(&self) -> String {
        let mut durations = self.recorded.clone();
        for stage in &self.stages {
            if let State::Done(seconds) = stage.state {
                durations.insert(stage.name.into(), seconds);
            }
        }
        durations.iter().map(|(name, seconds)| format!("{seconds:.1} {name}\n")).collect()
    }
}

fn built_in(name: &str) -> f64 {
    let known = BUILT_IN.iter().find(|(known, _)| *known == name);
    Duration::from_secs(known.map_or(USUAL, |(_, seconds)| *seconds)).as_secs_f64()
}

/// Reads lines of a duration in seconds and a name. Ignores lines that have another form.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (seconds, name) = line.split_once(' ')?;
        let seconds: f64 = seconds.parse().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then(|| (name.to_owned(), seconds))
    };
    text.lines().filter_map(line).collect()
}

/// A duration in minutes, or in seconds below two minutes.
fn words(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["build", "first", "second"];

    fn recorded(text: &str) -> BTreeMap<String, f64> {
        parse(text)
    }

    #[test]
    fn estimate_is_the_sum_of_recorded_durations() {
        let progress = Progress::new(&NAMES, recorded("100.0 build\n50.0 first\n30.0 second\n999.0 other\n"));
        assert_eq!(progress.outline(), "3 stages, about 3 min (recorded durations of 3 stages)");
        assert_eq!(progress.heading("first"), "[2 of 3] first (0 s elapsed, about 3 min left)");
        assert_eq!(progress.heading("unplanned"), "unplanned");
    }

    #[test]
    fn durations_of_this_run_scale_the_estimate() {
        let mut progress = Progress::new(&NAMES, recorded("100.0 build\n50.0 first\n30.0 second\n"));
        progress.finish("build", Duration::from_secs(200));
        assert_eq!(progress.left(), 160.0);
        progress.skip("first");
        assert_eq!(progress.left(), 60.0);
        progress.finish("second", Duration::from_secs(1));
        assert_eq!(progress.left(), 0.0);
    }

    #[test]
    fn missing_records_have_built_in_durations() {
        let progress = Progress::new(&NAMES, BTreeMap::new());
        assert_eq!(
            progress.outline(),
            "3 stages, about 6 min (built-in durations, because none are recorded)"
        );
    }

    #[test]
    fn durations_survive_writing_and_reading() {
        let mut progress = Progress::new(&NAMES, recorded("7.0 other\n3.0 first\nnonsense\n-1 x\nNaN y\n"));
        progress.finish("build", Duration::from_millis(1_500));
        progress.finish("unplanned", Duration::from_secs(9));
        progress.skip("second");
        let text = progress.to_text();
        assert_eq!(text, "1.5 build\n3.0 first\n7.0 other\n");
        assert_eq!(parse(&text).len(), 3);
    }
}
