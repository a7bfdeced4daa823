//! The files that the program reads.

pub(crate) mod capture;
pub(crate) mod xfrm;
