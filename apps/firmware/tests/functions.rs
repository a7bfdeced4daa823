//! The image's own `memcpy` and its like, which take the place of the C library's in this program too.
#![allow(unsafe_code, reason = "the functions are those of C")]
#![allow(clippy::indexing_slicing, reason = "a broken expectation is meant to stop the test")]

#[path = "../src/image/memory/functions.rs"]
mod functions;

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8;
    fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32;
}

/// Room around what is copied, which has to stay as it was.
const ROOM: usize = 512;

fn pattern() -> [u8; ROOM] {
    core::array::from_fn(|at| (at as u8).wrapping_mul(167).wrapping_add(41))
}

/// What `body` makes of the pattern, beside what a loop over bytes makes of it.
fn check(what: &str, body: impl FnOnce(*mut u8), byte: impl Fn(&[u8; ROOM], usize) -> u8) {
    let before = pattern();
    let mut after = before;
    body(after.as_mut_ptr());
    for (at, found) in after.into_iter().enumerate() {
        assert_eq!(found, byte(&before, at), "{what}, byte {at}");
    }
}

/// The byte at `at` after `len` bytes went from `from` to `to`.
fn moved(before: &[u8; ROOM], at: usize, (to, from, len): (usize, usize, usize)) -> u8 {
    if (to..to + len).contains(&at) { before[at - to + from] } else { before[at] }
}

#[test]
fn memcpy_copies_every_length_and_nothing_else() {
    for len in 0..=200 {
        for (to, from) in [(256, 0), (257, 3), (0, 256), (5, 257)] {
            // SAFETY: both places lie in the pattern and do not overlap.
            let body = |room: *mut u8| unsafe { _ = memcpy(room.add(to), room.add(from), len) };
            check("memcpy", body, |before, at| moved(before, at, (to, from, len)));
        }
    }
}

#[test]
fn memmove_bears_every_overlap() {
    for len in 0..=150 {
        for to in 100..=200 {
            // SAFETY: both places lie in the pattern.
            let body = |room: *mut u8| unsafe { _ = memmove(room.add(to), room.add(150), len) };
            check("memmove", body, |before, at| moved(before, at, (to, 150, len)));
        }
    }
}

#[test]
fn memset_fills_every_length_and_nothing_else() {
    for len in 0..=200 {
        // SAFETY: the place lies in the pattern. Of the value only the lowest byte counts.
        let body = |room: *mut u8| unsafe { _ = memset(room.add(7), 0x1EE, len) };
        check("memset", body, |before, at| if (7..7 + len).contains(&at) { 0xEE } else { before[at] });
    }
}

#[test]
fn memcmp_finds_the_first_difference() {
    let (one, mut other) = (pattern(), pattern());
    // SAFETY: both places lie in the patterns.
    let compare = |one: &[u8], other: &[u8]| unsafe { memcmp(one.as_ptr(), other.as_ptr(), one.len()) };
    assert_eq!(compare(&one, &other), 0);
    assert_eq!(compare(&[], &[]), 0);
    for at in (0..ROOM).rev() {
        other[at] ^= 0x80;
        let is_greater = one[at] > other[at];
        assert_eq!(compare(&one, &other) > 0, is_greater, "byte {at}");
    }
}
