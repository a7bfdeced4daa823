//! Casemate on bare-metal processors, emulated by QEMU.
//!
//! The crate has the self-test, and one program per row of the table in `docs/manual/sizes.md`. Like the
//! firmware of a device, the programs are `no_std`. The module `machine` has the minimal start-up code of
//! the boards. `cargo xtask no-std` builds and runs the self-test, `cargo xtask sizes` measures the other
//! programs, and [`pi`] counts instructions.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod link;
mod peers;
#[cfg(feature = "pi")]
pub mod pi;
pub mod profile;
#[cfg(feature = "selftest")]
pub mod selftest;
mod traffic;

#[cfg(all(feature = "image", target_os = "none"))]
mod machine;

#[cfg(all(
    feature = "pi",
    feature = "image",
    target_os = "none",
    target_arch = "arm",
    not(target_feature = "mclass")
))]
pub use machine::{microseconds, read_words, spin};

/// Console and memory gauges of a board.
#[derive(Clone, Copy)]
pub struct Board {
    /// Prints a text.
    pub print: fn(&str),
    /// Returns the number of heap bytes in use.
    pub heap: fn() -> usize,
    /// Returns the peak stack usage in bytes.
    pub stack: fn() -> usize,
}

impl Board {
    /// Prints a line `name number`. Does not use `core::fmt`, whose code size would be measured too.
    pub fn report(&self, name: &str, number: usize) {
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut from = digits.len();
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or_default());
            rest /= 10;
            from = from.saturating_sub(1);
            if rest == 0 {
                break;
            }
        }
        let text = digits.get(from..).and_then(|digits| core::str::from_utf8(digits).ok());
        for part in [name, " ", text.unwrap_or_default(), "\n"] {
            (self.print)(part);
        }
    }
}

/// Declares a function `fn(&Board) -> bool` as the program of an image.
#[macro_export]
macro_rules! program {
    ($run:path) => {
        /// Called by the start-up code.
        #[unsafe(no_mangle)]
        fn casemate_program(board: &$crate::Board) -> bool {
            $run(board)
        }
    };
}
