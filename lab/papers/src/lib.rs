//! Reproduces experiments of papers about IPsec on this machine.
//!
//! An [`Experiment`] is data: the paper, and the steps with their requirements. [`run()`] executes the steps
//! within a time limit and returns a record of the results. A step that cannot run, fails or takes too long
//! is recorded as skipped, and the other steps run regardless.
//!
//! To add an experiment, add a module with a `pub static`, and list it in [`ALL`].
#![forbid(unsafe_code)]

mod artifacts;
pub mod bare;
pub mod embedded;
mod experiment;
pub mod homenet;
mod hosts;
mod run;
pub mod streams;
pub mod voice;

pub use artifacts::{Artifact, ArtifactPaths, Artifacts, Unavailable};
pub use experiment::{ALL, Context, Experiment, Requirement, Step, find};
pub use run::Progress;
pub use run::{RunOptions, run, summary, utc};
