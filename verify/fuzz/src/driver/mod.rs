//! The driver's parts.

pub(crate) mod campaign;
pub(crate) mod engine;
pub(crate) mod options;
