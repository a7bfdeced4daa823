//! From the machine's first instruction of ours to Rust: PVH, paging, exceptions.

mod entry;
mod exceptions;
mod start_info;

pub(crate) use entry::guard_stack;
pub(crate) use exceptions::catch as catch_exceptions;
pub(crate) use start_info::StartInfo;
