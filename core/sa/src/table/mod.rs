//! Ordered tables that share the code of their trees.
//!
//! Each instance of `BTreeMap` and `BTreeSet` adds its own code for insertion, removal and balancing, some 3
//! KiB on a small device. IKE needs a dozen kinds of keys. Here all keys are words, or bytes and words, so
//! that there are only two kinds of trees. Callers must bound the number of entries.
//!
//! ```
//! use casemate_sa::table::{OrderedMap, WordSet};
//!
//! let mut names = OrderedMap::default();
//! assert_eq!(names.insert(7_u64, "seven"), None);
//! assert_eq!(names.get(7_u64), Some(&"seven"));
//!
//! let mut timers = WordSet::default();
//! timers.insert([20, 7, 0]);
//! timers.insert([10, 9, 0]);
//! assert_eq!(timers.first(), Some([10, 9, 0]));
//! ```

mod ordered_map;
mod ordered_set;

pub use ordered_map::{MapKey, OrderedMap};
pub use ordered_set::{ByteIndex, WordSet};
