//! How many calls a line carries, and how they sound.
//!
//! Arithmetic alone: what a [`codec`] makes, how long its [`packet`]s are with and without IPsec, how many calls that [`plan`] puts on
//! a line, how long packets wait in a [`queue`], and the [`quality`] that is left (ITU-T G.107). [`choice`] names the usual ways to
//! send a call side by side, [`paper`] holds what a paper of 2002 printed about it, and [`suite`](mod@suite) reads suites as a
//! configuration spells them.
#![forbid(unsafe_code)]

pub mod choice;
pub mod codec;
pub mod packet;
pub mod paper;
pub mod plan;
pub mod quality;
pub mod queue;
pub mod suite;
