//! Tests of the image's `memcpy` and related functions, which also replace those of the C library in this
//! test program.
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

/// Size of the test buffer; the bytes outside of the target must not change.
const ROOM: usize = 512;

fn pattern() -> [u8; ROOM] {
    core::array::from_fn(|at| (at as u8).wrapping_mul(167).wrapping_add(41))
}

/// Runs `body` on the pattern and compares each byte with `byte`, the expected result.
fn check(what: &str, body: impl FnOnce(*mut u8), byte: impl Fn(&[u8; ROOM], usize) -> u8) {
    let before = pattern();
    let mut after = before;
    body(after.as_mut_ptr());
    for (at, found) in after.into_iter().enumerate() {
        assert_eq!(found, byte(&before, at), "{what}, byte {at}");
    }
}

/// Returns the expected byte at `at` after `len` bytes were copied from `from` to `to`.
fn moved(before: &[u8; ROOM], at: usize, to: usize, from: usize, len: usize) -> u8 {
    if (to..to + len).contains(&at) { before[at - to + from] } else { before[at] }
}

#[test]
fn memcpy_copies_every_length_and_nothing_else() {
    for len in 0..=200 {
        for (to, from) in [(256, 0), (257, 3), (0, 256), (5, 257)] {
            // SAFETY: both ranges are within the pattern and do not overlap.
            let body = |room: *mut u8| unsafe { _ = memcpy(room.add(to), room.add(from), len) };
            check("memcpy", body, |before, at| moved(before, at, to, from, len));
        }
    }
}

#[test]
fn memmove_handles_every_overlap() {
    for len in 0..=150 {
        for to in 100..=200 {
            // SAFETY: both ranges are within the pattern.
            let body = |room: *mut u8| unsafe { _ = memmove(room.add(to), room.add(150), len) };
            check("memmove", body, |before, at| moved(before, at, to, 150, len));
        }
    }
}

#[test]
fn memset_fills_every_length_and_nothing_else() {
    for len in 0..=200 {
        // SAFETY: the range is within the pattern. Only the lowest byte of the value is used.
        let body = |room: *mut u8| unsafe { _ = memset(room.add(7), 0x1EE, len) };
        check("memset", body, |before, at| if (7..7 + len).contains(&at) { 0xEE } else { before[at] });
    }
}

#[test]
fn memcmp_finds_the_first_difference() {
    let (one, mut other) = (pattern(), pattern());
    // SAFETY: both ranges are within the patterns.
    let compare = |one: &[u8], other: &[u8]| unsafe { memcmp(one.as_ptr(), other.as_ptr(), one.len()) };
    assert_eq!(compare(&one, &other), 0);
    assert_eq!(compare(&[], &[]), 0);
    for at in (0..ROOM).rev() {
        other[at] ^= 0x80;
        let is_greater = one[at] > other[at];
        assert_eq!(compare(&one, &other) > 0, is_greater, "byte {at}");
    }
}
