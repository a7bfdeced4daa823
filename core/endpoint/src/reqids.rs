//! What ties policies to their SAs.

/// Reqids from here on are ours; below are those that people choose.
const FIRST: u32 = 0x4000_0000;

/// Hands out reqids.
#[derive(Debug)]
pub(crate) struct Reqids(u32);

impl Default for Reqids {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Reqids {
    /// One that no SA has.
    pub(crate) fn next(&mut self) -> u32 {
        // Billions of Child SAs later it begins anew; those that had the numbers are long gone.
        self.0 = self.0.checked_add(1).unwrap_or(FIRST);
        self.0
    }
}
