//! Which algorithms may be advised at all: RFC 8221 and RFC 8247 as they stand, and profiles on top of them.

mod algorithm;
mod filter;
mod profile;
mod reader;
mod status;

pub use algorithm::{Algorithm, Kind, Use};
pub use filter::{Admitted, Filter, Keying, Refusal};
pub use profile::{Profile, Ruling};
pub use reader::ProfileError;
pub use status::Status;

#[cfg(test)]
mod tests;
