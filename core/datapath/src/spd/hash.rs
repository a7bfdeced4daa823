//! Hash for tables that strangers' packets are looked up in.
//!
//! Keyed with the caller's seed, so that nobody can prepare addresses that collide. It is no cryptographic PRF: use it
//! only where the keys *stored* are not an attacker's choice (policies, SAs), or where a collision costs no more than a
//! cache miss.

use core::fmt;
use core::hash::{Hash, Hasher};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// A hash function of its own for each seed.
#[derive(Clone)]
pub(crate) struct KeyedHash {
    start: u64,
    seeds: SharedSeed,
}

impl KeyedHash {
    /// The hash function for `seed`, which should be random and secret.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { start: seed, seeds: SharedSeed::from_u64(seed) }
    }

    /// The hash of `value`.
    #[inline]
    pub(crate) fn of(&self, value: &impl Hash) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.seeds);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for KeyedHash {
    /// Without the seed: whoever knows it can make collisions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHash")
    }
}
