//! What an endpoint is lent in tests.

use casemate::Routes;
use casemate_crypto::Rng;
use std::net::IpAddr;

/// Numbers that are the same in each run, and do not come again in it.
pub(crate) struct Dice(pub(crate) u64);

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    /// SplitMix64, a byte of each number.
    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed ^ mixed >> 27) as u8;
        }
    }
}

/// No route to anywhere: connections name their addresses.
pub(crate) struct Ways;

impl Routes for Ways {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}
