//! Boot code: PVH entry, paging, exceptions.

mod entry;
mod exceptions;
mod paging;
mod start_info;

pub(crate) use exceptions::catch as catch_exceptions;
pub(crate) use paging::protect as protect_memory;
pub(crate) use start_info::StartInfo;
