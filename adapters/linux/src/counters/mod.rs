//! Sequence numbers that survive a restart.
//!
//! Keys from a file outlive the program, and a counter-mode cipher that uses an IV twice with one key gives plaintext and
//! integrity away (RFC 4106 section 2). IVs are made from sequence numbers, so a block of numbers is written to a file, and
//! the file is on its disk, before the first of them is used. After a crash the rest of the block is lost, and nothing
//! else: whatever was used lies below what was written. `account` says which number space an SA counts in, `file` is the file,
//! `ledger` reserves blocks while packets flow.

mod account;
mod file;
mod ledger;

pub use account::Account;
pub use file::{CounterFile, CountersError};
pub use ledger::{BLOCK, Ledger, Opened};

#[cfg(test)]
mod tests;
