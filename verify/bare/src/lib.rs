//! Casemate on processors without an operating system, emulated by QEMU.
//!
//! The self-test, and one program for each row of the table of sizes in `docs/manual/sizes.md`. What
//! they do is here and is `no_std` like any device's firmware; `machine` has what a board needs to start, in as few lines as will do.
//! `cargo xtask no-std` builds and runs the self-test, `cargo xtask sizes` measures the others. A third kind counts instructions: [`pi`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod board;
mod certificates;
mod manual;
mod packets;
mod peers;
#[cfg(feature = "pi")]
pub mod pi;
pub mod profile;
#[cfg(feature = "selftest")]
pub mod selftest;
mod wire;

#[cfg(all(feature = "image", target_os = "none"))]
mod machine;

pub use board::Board;
#[cfg(all(
    feature = "pi",
    feature = "image",
    target_os = "none",
    target_arch = "arm",
    not(target_feature = "mclass")
))]
pub use machine::{microseconds, read_words, spin};
