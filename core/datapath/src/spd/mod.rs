//! Security Policy Database (RFC 4301 section 4.4.1): decides by the flow of a packet what happens to it.
//!
//! ```text
//!  packet -> FlowKey --> FlowCache --hit--> stored decision (an SA, bypass, discard)
//!                            |                        ^
//!                          miss                       | insert, with the epoch read before the look-up
//!                            v                        |
//!                       PolicyTable --Match--> Action -- Protect(Bundle) --> SAD finds SAs by Template
//!                            |  \-- NeedsPorts --> reassemble, or drop (RFC 4301 section 7)
//!                          NoMatch --> discard (RFC 4301 section 5.2 step 3b)
//! ```
//!
//! Each direction has one [`PolicyTable`] and one [`FlowCache`], which `outbound` and `inbound` use. The
//! table is exact and ordered. The cache stores results of the table; a new epoch invalidates all of them.
//! The owner increments the epoch with every change to policies or SAs. Table and cache are bounded. They
//! allocate when they are created and when an insert grows them, never in a look-up.

mod cache;
mod policy;
mod table;
#[cfg(test)]
mod test_flows;
mod tuple;

pub use cache::FlowCache;
pub(crate) use cache::KeyedHash;
pub use policy::{Action, Bundle, BundleError, MAX_BUNDLE, Policy, Template};
pub use table::{InsertError, Lookup, PolicyId, PolicyTable};
