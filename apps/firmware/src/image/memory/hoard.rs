//! Memory that is held for a while, so that one can see what a machine without memory does (`hold-heap=`).

use alloc::vec::Vec;
use smoltcp::time::Instant;

/// What is left in one piece, and the smallest piece that is looked for besides.
const LEFT: usize = 8 << 10;
const LEAST: usize = 1 << 10;

/// The pieces.
pub(crate) struct Hoard {
    pieces: Vec<Vec<u8>>,
    until: Instant,
}

impl Hoard {
    /// Takes nearly everything that there is. Time begins when the machine starts.
    pub(crate) fn take_until(until: Instant) -> Self {
        let left = Vec::<u8>::with_capacity(LEFT);
        let (mut pieces, mut size) = (Vec::with_capacity(LEAST), 1 << 20);
        while size >= LEAST {
            let mut piece = Vec::new();
            match piece.try_reserve_exact(size) {
                Ok(()) => pieces.push(piece),
                Err(_) => size /= 2,
            }
        }
        drop(left);
        Self { pieces, until }
    }

    /// Gives everything back when its time has come; whether it did that just now.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = now >= self.until && !self.pieces.is_empty();
        if is_over {
            self.pieces = Vec::new();
        }
        is_over
    }
}
