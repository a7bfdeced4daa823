//! Decoding of IKE messages in captures, with keys from a file.

pub mod decode;
mod json;
pub mod key_table;
mod message_key;
pub(crate) mod wireshark;
