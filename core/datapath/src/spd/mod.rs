//! Security Policy Database (RFC 4301 section 4.4.1): what happens to a packet, decided by its flow.
//!
//! ```text
//!  packet -> FlowKey --> FlowCache --hit--> what was decided before (V: an SA, bypass, discard)
//!                            |                        ^
//!                          miss                       | insert, with the epoch read before the look-up
//!                            v                        |
//!                       PolicyTable --Match--> Action -- Protect(Bundle) --> SAD finds SAs by Template
//!                            |  \-- NeedsPorts --> reassemble, or drop (RFC 4301 section 7)
//!                          NoMatch --> discard (RFC 4301 section 5.2 step 3b)
//! ```
//!
//! One [`PolicyTable`] and one [`FlowCache`] for each direction, called by `outbound` and `inbound`. The table is exact
//! and ordered; the cache only remembers, and forgets everything when its owner passes a new epoch. So the owner counts
//! the epoch up with every change to policies or SAs. Both are bounded and allocate only when they are built or grow by
//! an insert, never at a look-up.

mod cache;
#[cfg(test)]
mod flows;
pub(crate) mod hash;
mod policy;
mod table;
mod tuple;

pub use cache::FlowCache;
pub use policy::{Action, BadBundle, Bundle, MAX_BUNDLE, Policy, Template};
pub use table::{InsertError, Lookup, PolicyId, PolicyTable};
