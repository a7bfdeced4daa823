//! The self-test: what the tests of a host try in earnest, once more and briefly on a processor of another kind.

mod algorithms;
mod ike;
mod packets;

use crate::Board;

/// Tries something, and answers how much of it; `None` if something was wrong.
type Part = fn(&Board) -> Option<usize>;

/// Runs all parts, saying of each how much was tried. True if all went well; a broken expectation in a part may also panic.
pub fn run(board: &Board) -> bool {
    let parts: [(&str, Part); 3] =
        [("algorithms", algorithms::run), ("packets", packets::run), ("IKE", ike::run)];
    for (name, part) in parts {
        let Some(tried) = part(board) else {
            board.report("FAILED:", 1);
            (board.print)(name);
            (board.print)("\n");
            return false;
        };
        board.report(name, tried);
    }
    board.report("heap", (board.heap)());
    board.report("stack", (board.stack)());
    (board.print)("self-test passed\n");
    true
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn it_passes_here_too() {
        let board = Board { print: |text| std::print!("{text}"), heap: || 0, stack: || 0 };
        assert!(run(&board));
    }
}
