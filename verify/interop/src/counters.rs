//! `/proc/net/xfrm_stat`: what a kernel counts when IPsec goes wrong. It cannot be set back.

/// The counters that differ between two readings, each with its later value. All of them count some kind of error.
pub fn moved_counters(before: &str, after: &str) -> Vec<String> {
    let moved = after.lines().filter(|line| !before.lines().any(|old| old == *line));
    moved.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_moved_is_named() {
        let before = "XfrmInError   \t0\nXfrmInNoPols 2\n";
        assert_eq!(moved_counters(before, "XfrmInError   \t1\nXfrmInNoPols 2\n"), ["XfrmInError 1"]);
        assert!(moved_counters(before, before).is_empty());
    }
}
