//! Sequence numbers that survive a restart.
//!
//! Keys from a file outlive the program, and a counter-mode cipher that uses an IV twice with one key reveals
//! plaintext and loses integrity (RFC 4106 section 2). IVs are made from sequence numbers. So a block of
//! numbers is written to a file, and synchronized to its disk, before the first of them is used. A crash
//! loses only the rest of the block: every used number is below the written one. `number_space` determines
//! which SAs share numbers, `file` is the file, `store` reserves blocks while packets flow.

mod file;
mod number_space;
mod store;

pub use file::{CounterFile, CountersError};
pub use number_space::NumberSpace;
pub use store::{BLOCK, CounterStore, CounterStoreBuilder};

#[cfg(test)]
mod tests;
