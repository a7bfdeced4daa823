//! Progress of an experiment on standard error: a bar on a terminal, otherwise one line per step.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Arc;

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
            eprintln!("{}: {title}", self.name);
        }
    }

    /// Sets the number of work items in this step.
    pub fn set_total(&self, pieces: usize) {
        self.bar.set_length(pieces as u64);
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
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
