//! What an endpoint is lent in tests.

use casemate::Routes;
use casemate_crypto::Rng;
use std::net::IpAddr;

/// Numbers that are the same in each run.
pub(crate) struct Dice(pub(crate) u8);

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(13).wrapping_add(7);
            *byte = self.0;
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
