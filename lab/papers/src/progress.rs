//! How far an experiment is, on standard error: a bar on a terminal, and otherwise a line for each step.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Arc;

/// Where a step tells how far it is. Copies are one.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    name: Arc<str>,
}

impl Progress {
    /// Of the experiment of this name.
    pub fn new(name: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Self { bar, name: name.into() }
    }

    /// Nobody is told.
    pub fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), name: "".into() }
    }

    /// A step begins.
    pub(crate) fn step(&self, title: &str) {
        self.bar.set_position(0);
        self.bar.set_length(0);
        self.bar.set_message(title.to_owned());
        if !stderr().is_terminal() && !self.name.is_empty() {
            eprintln!("{}: {title}", self.name);
        }
    }

    /// So many pieces of work are to be done in this step.
    pub fn expect(&self, pieces: usize) {
        self.bar.set_length(pieces as u64);
    }

    /// The next of them begins.
    pub fn next(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// A line that stays, such as that something is left out.
    pub fn say(&self, line: &str) {
        let line = format!("{}: {line}", self.name);
        if self.name.is_empty() {
            return;
        }
        self.bar.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
