//! IKE messages in captures: keys from a file, and what the messages say. Called by `casemate inspect`.

pub(crate) mod algorithm;
pub mod decode;
mod json;
mod key;
pub mod keys;
