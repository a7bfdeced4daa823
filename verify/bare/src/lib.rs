//! Casemate on processors without an operating system, emulated by QEMU.
//!
//! Two kinds of programs: the self-test, and one program for each row of the table of sizes in `docs/manual/sizes.md`. What
//! they do is here and is `no_std` like any device's firmware; `machine` has what a board needs to start, in as few lines as will do.
//! `cargo xtask no-std` builds and runs the self-test, `cargo xtask sizes` measures the others.
#![no_std]

extern crate alloc;

mod board;
mod certificates;
mod packets;
mod peers;
pub mod profile;
#[cfg(feature = "selftest")]
pub mod selftest;
mod wire;

#[cfg(all(feature = "image", target_os = "none"))]
mod machine;

pub use board::Board;
