//! The one door to the C library: safe wrappers, and all `unsafe` of this crate.
//!
//! The library is opened when it is first asked for, and stays. Which of its versions are known, and how its structs lie in
//! memory, is in `layout`. A call works to its end: no job of a caller is ever left in the library.

mod aes_mac;
mod burst;
mod ccm;
mod gcm;
mod hmac;
mod layout;
mod library;
mod manager;
mod queue;
mod secret;
#[cfg(test)]
mod tests;

pub(crate) use aes_mac::{AesMacKey, Chain};
pub(crate) use burst::{AesKeys, Direction, Mode};
pub(crate) use ccm::{CcmKey, CcmWork};
pub(crate) use gcm::GcmKey;
pub(crate) use hmac::{HmacKey, Sha};
pub(crate) use layout::MOST_BYTES;
pub(crate) use library::{Library, library};

/// Most packets in one call.
pub(crate) const BURST: usize = 32;
