//! The data path's side of `esp`: whole packets through a tunnel.

use crate::bare::Way;
use crate::suites::POOL;
use crate::world::{Counting, spec, udp};
use casemate_crypto::{EspSuite, Provider};
use casemate_measure::harness::{Load, time};
use casemate_measure::tunnel::Tunnel;
use std::time::Duration;

/// Packets of `len` bytes through a tunnel with `suite`, `batch` of them in a call; `None` if the provider has not got the
/// suite.
pub(crate) fn load(
    provider: &'static dyn Provider,
    suite: EspSuite,
    way: Way,
    len: usize,
    batch: usize,
) -> Option<Box<dyn Load>> {
    let tunnel = Tunnel::new(&spec(suite), &[provider], Counting::new(), udp(len), POOL)?;
    Some(Box::new(Packets { tunnel, way, batch }))
}

struct Packets {
    tunnel: Tunnel<Counting>,
    way: Way,
    batch: usize,
}

impl Load for Packets {
    fn run(&mut self) -> (Duration, u32) {
        let Self { tunnel, way, batch } = self;
        let mut round = tunnel.fill();
        let (spent, passed) = match way {
            Way::Seal => (time(|| round.seal(*batch)), round.sealed()),
            Way::Open => {
                round.seal(*batch);
                (time(|| round.open(*batch)), round.opened())
            }
        };
        assert_eq!(passed, POOL, "all packets come out as they went in");
        (spent, POOL as u32)
    }
}
