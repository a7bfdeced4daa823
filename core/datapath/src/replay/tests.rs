//! The window against a naive model, and the corners of RFC 4303 appendix A2.

use super::*;
use alloc::collections::BTreeSet;
use proptest::prelude::*;

fn receive(window: &mut ReplayWindow, low: u32) -> Result<u64, Replayed> {
    let seq = window.check(low)?;
    window.commit(&Authenticated::new(seq)).map(|()| seq)
}

/// The definition, with no cleverness: a set of everything seen.
struct Model {
    size: u64,
    highest: u64,
    seen: BTreeSet<u64>,
}

impl Model {
    fn receive(&mut self, seq: u64) -> bool {
        let fresh = seq != 0 && seq + self.size > self.highest && self.seen.insert(seq);
        if fresh {
            self.highest = self.highest.max(seq);
        }
        fresh
    }
}

fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![8 => 1..3i64, 4 => -70..70i64, 2 => -700..700i64, 1 => -100_000..100_000i64];
    proptest::collection::vec(step, 1..300)
}

use std::vec::Vec;
extern crate std;

proptest! {
    #[test]
    fn agrees_with_the_model(
        size in prop_oneof![Just(32u32), Just(64), Just(65), Just(1000), Just(65_536)],
        esn in any::<bool>(),
        // Starts close to where the low half wraps, so that laps change.
        start in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 50), Just((7 << 32) - 50)],
        steps in steps(),
    ) {
        let start = if esn { start } else { start & 0xffff_0000 };
        let mut window = ReplayWindow::new(size, esn, start);
        let mut model = Model { size: u64::from(size), highest: start, seen: (start.saturating_sub(200_000)..=start).collect() };
        let mut at = start as i64;
        for step in steps {
            at = (at + step).max(0);
            let seq = at as u64;
            if !esn && seq > u64::from(u32::MAX) {
                break;
            }
            // A wrong guess of the upper half never verifies, so it is never committed.
            let guessed = window.check(seq as u32).is_ok_and(|guess| guess == seq);
            let fresh = guessed && window.commit(&Authenticated::new(seq)).is_ok();
            prop_assert_eq!(fresh, model.receive(seq), "seq {}", seq);
            prop_assert_eq!(window.highest(), model.highest);
        }
    }
}

#[test]
fn zero_is_never_accepted_on_a_fresh_sa() {
    for esn in [false, true] {
        let window = ReplayWindow::new(64, esn, 0);
        assert_eq!(window.check(0), Err(Replayed));
        assert_eq!(window.check(1), Ok(1));
    }
}

#[test]
fn a_batch_that_holds_a_number_twice_commits_it_once() {
    let mut window = ReplayWindow::new(64, false, 0);
    let (a, b) = (window.check(5).unwrap(), window.check(5).unwrap());
    assert_eq!(window.commit(&Authenticated::new(a)), Ok(()));
    assert_eq!(window.commit(&Authenticated::new(b)), Err(Replayed));
}

#[test]
fn without_a_window_everything_passes_and_the_highest_is_known() {
    let mut window = ReplayWindow::new(0, false, 0);
    assert_eq!(receive(&mut window, 9), Ok(9));
    assert_eq!(receive(&mut window, 9), Ok(9));
    assert_eq!(receive(&mut window, 3), Ok(3));
    assert_eq!(window.highest(), 9);
}

#[test]
fn esn_finds_the_lap() {
    let mut window = ReplayWindow::new(64, true, (3 << 32) + 10);
    assert_eq!(window.check(11), Ok((3 << 32) + 11));
    // The window reaches back into lap 2, but everything before the start counts as seen.
    assert_eq!(window.check(u32::MAX), Err(Replayed));
    assert_eq!(receive(&mut window, 0x8000_0000), Ok((3 << 32) + 0x8000_0000));
    assert_eq!(receive(&mut window, 5), Ok((4 << 32) + 5));
    assert_eq!(receive(&mut window, u32::MAX), Ok((3 << 32) + u64::from(u32::MAX)));
}

#[test]
fn recent_shows_the_newest_first() {
    let mut window = ReplayWindow::new(64, false, 0);
    for seq in [1, 2, 4] {
        receive(&mut window, seq).unwrap();
    }
    assert_eq!(window.recent(), 0b1101);
}

#[test]
fn without_a_check_the_nearest_lap_is_guessed() {
    let mut window = ReplayWindow::new(0, true, 0);
    for seq in [5u64, 5, 2, 1 << 31, (1 << 32) - 3, (1 << 32) + 7, (1 << 32) - 3, 3 << 31, 2 << 32] {
        assert_eq!(receive(&mut window, seq as u32), Ok(seq));
    }
}
