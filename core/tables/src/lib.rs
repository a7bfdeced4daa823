//! Ordered tables that share the code of their trees.
//!
//! Every kind of `BTreeMap` and `BTreeSet` brings its own insertion, removal and balancing into an image: some 3 KiB on a
//! small device. IKE finds things by a dozen kinds of keys, so here all keys are words, or bytes and words, and there are two kinds of
//! trees. How many entries there are is the caller's to bound. `no_std`, with `alloc`.
//!
//! ```
//! use casemate_tables::{Index, Table};
//!
//! let mut names = Table::default();
//! assert_eq!(names.insert(7_u64, "seven"), None);
//! assert_eq!(names.get(7_u64), Some(&"seven"));
//!
//! let mut timers = Index::default();
//! timers.insert([20, 7, 0]);
//! timers.insert([10, 9, 0]);
//! assert_eq!(timers.first(), Some([10, 9, 0]));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod index;
mod names;
mod table;

pub use index::{Index, Words};
pub use names::Names;
pub use table::{Key, Table};
