//! Files that the program reads.

pub(crate) mod capture;
pub(crate) mod ike;
pub(crate) mod swanctl;
pub(crate) mod vici;
pub(crate) mod xfrm;
