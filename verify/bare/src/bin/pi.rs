//! See [`casemate_bare::pi`].
#![no_std]
#![no_main]

use casemate_bare::{Board, microseconds, pi, read_words, spin};

fn measure(board: &Board) -> bool {
    let mut buffer = [0; pi::MAX_COMMAND_LINE];
    pi::run(board.print, pi::Clock { microseconds, spin }, read_words(&mut buffer))
}

casemate_bare::program!(measure);
