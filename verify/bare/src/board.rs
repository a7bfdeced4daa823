//! What a program is lent by its board.

/// A console, and gauges of memory.
#[derive(Clone, Copy)]
pub struct Board {
    /// Prints a text.
    pub print: fn(&str),
    /// Bytes of the heap that are in use.
    pub heap: fn() -> usize,
    /// The most bytes of the stack that were ever in use.
    pub stack: fn() -> usize,
}

impl Board {
    /// Prints `name number` as a line, without the weight of formatted printing, which would be measured too.
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

/// Makes a function `fn(&Board) -> bool` the program of an image.
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
