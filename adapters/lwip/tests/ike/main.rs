//! IKE through the C interface, and its memory usage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_test_support::allocator::TestAllocator;

mod auth;
mod cost;
mod host;
mod post_quantum;

/// Counts what a block takes in the library's own allocator.
#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::with_block_len(|size| size.max(1).next_multiple_of(16));
