//! Negotiation of proposals: offers from the configuration, and choices from those of a peer (RFC 7296
//! sections 2.7 and 3.3).
//!
//! `offer` writes offers and chooses, `algorithms` converts between algorithms and their numbers.

mod algorithms;
mod offer;

pub use algorithms::{ChildSuite, ChildTransform, IkeSuite};
pub(crate) use offer::{Chosen, Offer, choose, verify_choice, with_proposals};
