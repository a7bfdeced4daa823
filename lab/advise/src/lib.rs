//! Which settings to use on this device for a purpose, and because of which measurements.
//!
//! [`rules`] is the filter and comes first: what it refuses is not measured. [`probe`] says what the device is, [`measure`] what the
//! suites that are left cost on it, [`goal`] which number of that is wanted, [`rank`](mod@rank) who has the best one.
#![forbid(unsafe_code)]

pub mod answer;
pub mod as_if;
pub mod goal;
pub mod measure;
pub mod probe;
pub mod rank;
pub mod rules;
pub mod settings;
pub mod suites;
pub mod thorough;
