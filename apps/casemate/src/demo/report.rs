//! What the demo tells its reader, and the first check that fails.

use crate::failure::Failure;
use std::fmt::Display;
use std::time::Instant;

/// Numbers the steps, and ends the demo at a check that fails.
pub(super) struct Report {
    start: Instant,
    step: u32,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), step: 0 }
    }

    /// Begins a step.
    pub(super) fn step(&mut self, title: &str) {
        self.step = self.step.saturating_add(1);
        println!("\n{}  {title}", self.step);
    }

    /// Explains; one line of output for each of `text`.
    pub(super) fn say(&self, text: impl Display) {
        text.to_string().lines().for_each(|line| println!("   {line}"));
    }

    /// Notes what was found. What is `held` is shown; what is not ends the demo.
    pub(super) fn check(&self, held: bool, found: impl Display) -> Result<(), Failure> {
        if held {
            println!("   ok    {found}");
            return Ok(());
        }
        println!("   FAIL  {found}");
        Err(Failure::failed(format!("demo: step {} failed: {found}", self.step)))
    }

    pub(super) fn end(&self) {
        println!("\nAll checks held ({:.1} s).", self.start.elapsed().as_secs_f64());
    }
}
