//! Experiments of papers on IPsec, run anew on this machine.
//!
//! An [`Experiment`] is data: what the paper is, and the steps that do it, each with what it needs. [`run()`] does them in turn, within
//! a limit of time, and makes a record of whatever came out. A step that cannot be done here, or fails, or takes too long, is left out
//! and said to be; the others are done all the same.
//!
//! An experiment is added as a module with a `pub static` of its own, and that in [`ALL`].
#![forbid(unsafe_code)]

pub mod bare;
mod clock;
mod download;
pub mod embedded;
mod experiment;
pub mod homenet;
mod manual;
mod need;
mod progress;
mod run;
pub mod streams;
mod summary;
mod verdict;
pub mod voice;

pub use clock::utc;
pub use experiment::{ALL, Context, Experiment, Step, find};
pub use need::Need;
pub use progress::Progress;
pub use run::{Order, run};
pub use summary::summary;
