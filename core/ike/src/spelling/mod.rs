//! What a connection is made of, as strongSwan spells it: proposals, identities, traffic.
//!
//! For whoever reads configurations: text becomes the types of [`config`](crate::config), or the end of a sentence that says what
//! was expected. Nothing is looked up.

mod identity;
mod keyword;
mod name;
pub mod proposal;
mod traffic;
pub mod value;

pub use identity::{id_pattern, identity};
pub use name::{name_parts, name_text};
pub use traffic::{addresses, traffic};

use alloc::string::String;

/// What a text means, or else the end of a sentence about it: what was expected.
pub type Read<T> = Result<T, String>;
