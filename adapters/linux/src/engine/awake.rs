//! Waiting for what another thread has done soon, without going to sleep.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// About as long as it takes to fall asleep and to be woken, which on a virtual machine is the longest.
const PATIENCE: Duration = Duration::from_micros(30);

/// Looks until there is something to see. `None` if it pays to sleep now.
#[inline]
pub(super) fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    if let seen @ Some(_) = look() {
        return seen;
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        spin_loop();
        if let seen @ Some(_) = look() {
            return seen;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_at_once_or_soon_is_answered_and_nothing_is_waited_for_long() {
        assert_eq!(until(|| Some(1)), Some(1));
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(until(third), Some(3));
        assert_eq!(until(|| None::<u8>), None);
    }
}
