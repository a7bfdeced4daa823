//! Proposals on the wire: ours made from the configuration, a peer's chosen from (RFC 7296 sections 2.7 and 3.3).
//!
//! `transform` knows the numbers of algorithms, `offer` writes and chooses, `suite` turns what was chosen into algorithms.

mod offer;
mod suite;
mod transform;

pub(crate) use offer::{Chosen, Offer, accepted, choose, with_reprs};
pub use suite::{ChildSuite, ChildTransform, IkeSuite};
