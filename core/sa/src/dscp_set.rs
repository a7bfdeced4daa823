//! Sets of code points: by them one SA is chosen among several for the same traffic (RFC 4301 section 4.4.2.1, "DSCP values").

use casemate_wire::dscp::Dscp;
use core::fmt;

/// A set of code points, one bit for each.
///
/// As a field of an SA the empty set is no wish: RFC 4301 section 4.4.2.1 has no filtering then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DscpSet(u64);

impl DscpSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether nothing is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `dscp` is in it.
    #[inline]
    pub const fn contains(self, dscp: Dscp) -> bool {
        self.0 & bit(dscp) != 0
    }

    /// What is in it, the lowest value first.
    pub fn iter(self) -> impl Iterator<Item = Dscp> {
        (0..=u8::MAX).map_while(Dscp::new).filter(move |dscp| self.contains(*dscp))
    }
}

/// Values are below 64.
#[inline]
const fn bit(dscp: Dscp) -> u64 {
    1 << dscp.value()
}

impl FromIterator<Dscp> for DscpSet {
    fn from_iter<I: IntoIterator<Item = Dscp>>(points: I) -> Self {
        Self(points.into_iter().fold(0, |set, dscp| set | bit(dscp)))
    }
}

impl fmt::Debug for DscpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Dscp::value)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it_and_nothing_else() {
        let points = [46, 0, 63, 8, 46].map(|value| Dscp::new(value).unwrap());
        let set = DscpSet::from_iter(points);
        assert!(set.iter().map(Dscp::value).eq([0, 8, 46, 63]));
        for dscp in (0..64).filter_map(Dscp::new) {
            assert_eq!(set.contains(dscp), points.contains(&dscp), "{dscp}");
            assert!(!DscpSet::NONE.contains(dscp));
            assert!(DscpSet::from_iter([dscp]).iter().eq([dscp]));
        }
        assert!(DscpSet::NONE.is_empty() && !set.is_empty());
    }
}
