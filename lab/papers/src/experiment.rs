//! What an experiment is.

use crate::{Need, Progress, bare, embedded, homenet, streams, voice};
use casemate_report::{Paper, Part};
use casemate_stage::Result;
use std::path::PathBuf;
use std::time::Duration;

/// All experiments, in the order of the list that a user sees.
pub static ALL: &[&Experiment] =
    &[&streams::STREAMS, &voice::VOICE, &bare::BARE, &homenet::HOMENET, &embedded::EMBEDDED];

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name)
}

/// An experiment of a paper.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line, and of its file of results.
    pub name: &'static str,
    /// Where it was described.
    pub paper: fn() -> Paper,
    /// What it does, in a paragraph.
    pub summary: &'static str,
    /// Its steps, done in this order.
    pub steps: &'static [Step],
}

/// A piece of an experiment that stands alone: without it, the others still say something.
#[derive(Debug)]
pub struct Step {
    /// What it does, in a few words.
    pub title: &'static str,
    /// Without these it is left out.
    pub needs: &'static [Need],
    /// Which part of the experiment's time it gets, compared with the other steps that can be done.
    pub share: u32,
    /// Does it. What it cannot do of its own it says in the part's `left_out`.
    pub run: fn(&Context) -> Result<Vec<Part>>,
}

/// What a step is given.
#[derive(Debug, Clone)]
pub struct Context {
    /// Whether it is the short form: fewer repetitions, and shorter ones.
    pub quick: bool,
    /// How long the step should take. It is stopped when it takes much longer.
    pub time: Duration,
    /// The program `casemate`, for what is to be measured.
    pub program: PathBuf,
    /// A directory for files that nobody needs afterwards. Its path is short.
    pub scratch: PathBuf,
    /// Where it tells how far it is.
    pub progress: Progress,
}
