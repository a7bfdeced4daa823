//! Checks of invariants: conditions that hold unless the program has a defect.
//!
//! A broken invariant panics in a build with debug assertions. Other builds count it ([`broken`]), and the
//! caller continues with a value that is safe: an empty slice, 0, or the drop of the packet. Input from the
//! network or from a file must not break an invariant: what depends on input is an error of its function.

use core::sync::atomic::{AtomicU32, Ordering};

/// Number of broken invariants since the start of the process.
static BROKEN: AtomicU32 = AtomicU32::new(0);

/// Number of broken invariants since the start of the process, at most `u32::MAX`.
///
/// Two threads that report at the same moment may count as one. A count above 0 never becomes 0 again.
#[inline]
pub fn broken() -> u32 {
    BROKEN.load(Ordering::Relaxed)
}

/// Reports a broken invariant if `holds` is false; `what` says what should hold. Returns `holds`.
#[inline]
pub fn check(holds: bool, what: &'static str) -> bool {
    if !holds {
        report(what);
    }
    holds
}

/// Reports a broken invariant: panics with debug assertions, otherwise counts. `what` says what should hold.
// Loads and stores, because ARMv6-M has no atomic addition.
#[cold]
#[inline(never)]
pub fn report(what: &'static str) {
    debug_assert!(false, "broken invariant: {what}");
    BROKEN.store(broken().saturating_add(1), Ordering::Relaxed);
}

/// Access to a value that exists unless the program has a defect.
pub trait OrBroken: Sized {
    /// Type of the value.
    type Value;

    /// Returns the value. If there is none, reports a broken invariant; `what` says what should hold.
    fn or_report(self, what: &'static str) -> Option<Self::Value>;

    /// Returns the value. If there is none, reports a broken invariant and returns `safe`, which must not let
    /// a packet pass or reveal data.
    #[inline]
    fn or_broken(self, what: &'static str, safe: Self::Value) -> Self::Value {
        self.or_report(what).unwrap_or(safe)
    }

    /// As [`or_broken`](Self::or_broken), with the default of the type. For slices, that is an empty one.
    #[inline]
    fn or_broken_default(self, what: &'static str) -> Self::Value
    where
        Self::Value: Default,
    {
        self.or_report(what).unwrap_or_default()
    }
}

impl<T> OrBroken for Option<T> {
    type Value = T;

    #[inline]
    fn or_report(self, what: &'static str) -> Option<T> {
        if self.is_none() {
            report(what);
        }
        self
    }
}

impl<T, E> OrBroken for Result<T, E> {
    type Value = T;

    #[inline]
    fn or_report(self, what: &'static str) -> Option<T> {
        self.ok().or_report(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_exist_are_returned() {
        assert!(check(true, "one is one"));
        assert_eq!((Some(7).or_broken("a number", 0), Some(9).or_report("a number")), (7, Some(9)));
        assert_eq!(Ok::<_, ()>(8).or_broken_default("a number"), 8);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "broken invariant: the table has an entry")]
    fn missing_values_panic_with_debug_assertions() {
        None.or_broken("the table has an entry", 0);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "broken invariant: one is two")]
    fn false_conditions_panic_with_debug_assertions() {
        check(false, "one is two");
    }

    #[test]
    #[cfg(not(debug_assertions))]
    fn broken_invariants_are_counted_without_debug_assertions() {
        assert_eq!(broken(), 0);
        assert!(!check(false, "one is two"));
        assert_eq!(None.or_broken("the table has an entry", 3), 3);
        assert_eq!(None::<u8>.or_report("the table has an entry"), None);
        assert_eq!(Err::<&[u8], _>(()).or_broken_default("bytes"), &[]);
        assert_eq!(broken(), 4);
    }
}
