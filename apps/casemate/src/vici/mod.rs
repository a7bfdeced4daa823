//! vici, the interface through which programs manage strongSwan, for the clients that exist for it.
//!
//! `message` and `packet` are the formats.

pub mod message;
pub mod packet;
