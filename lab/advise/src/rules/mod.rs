//! Rules about algorithms: RFC 8221 and RFC 8247, and profiles on top of them.

mod algorithm;
mod filter;
mod profile;

pub use algorithm::RequirementLevel;
pub use algorithm::{Algorithm, Kind, Use};
pub use filter::{Admitted, Filter, Keying, Refusal};
pub use profile::ProfileError;
pub use profile::{Profile, Ruling};

#[cfg(test)]
mod tests;
