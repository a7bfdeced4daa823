//! Sets of DSCPs, which choose among several SAs for the same traffic (RFC 4301 section 4.4.2.1, "DSCP
//! values").

use casemate_wire::dscp::Dscp;
use core::fmt;

/// A set of DSCPs, one bit for each.
///
/// An SA with the empty set accepts all DSCPs: without values, RFC 4301 section 4.4.2.1 does no filtering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DscpSet(u64);

impl DscpSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains `dscp`.
    #[inline]
    pub const fn contains(self, dscp: Dscp) -> bool {
        self.0 & bit(dscp) != 0
    }

    /// The elements in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Dscp> {
        (0..=u8::MAX).map_while(Dscp::new).filter(move |dscp| self.contains(*dscp))
    }
}

/// DSCPs are below 64.
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
    fn set_contains_exactly_the_added_dscps() {
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
