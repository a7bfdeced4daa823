//! Rules about algorithms: RFC 8221 and RFC 8247, and profiles on top of them.

mod algorithm;
mod filter;
mod profile;
mod reader;
mod status;

pub use algorithm::{Algorithm, Kind, Use};
pub use filter::{Admitted, Filter, Keying, Refusal};
pub use profile::{Profile, Ruling};
pub use reader::ProfileError;
pub use status::RequirementLevel;

#[cfg(test)]
mod tests;
