//! Recommends IPsec settings for this device and purpose, based on measurements.
//!
//! [`rules`] filters the suites first: a refused suite is not measured. [`probe`] describes the device,
//! [`measure`] determines the cost of the remaining suites, [`goal`] turns costs into a score, and
//! [`rank`](mod@rank) orders the suites.
#![forbid(unsafe_code)]

pub mod advice;
pub mod as_if;
pub mod encapsulation;
pub mod end_to_end;
pub mod goal;
pub mod handshake;
mod ike_proposal;
pub mod measure;
pub mod probe;
pub mod rank;
pub mod rules;
pub mod settings;
pub mod suites;
