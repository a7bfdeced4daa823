//! Whole packets through a tunnel, in at one end of the data path and out at the other.

use casemate_crypto::{EspSuite, Provider};
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::{Load, time};
use casemate_measure::tunnel::{HOSTS, Tunnel, TunnelSpec, ipv4};
use casemate_sa::Limits;
use std::time::Duration;

/// Packets that are worked on between two looks at the clock.
const POOL: usize = 32;
/// Turns of the pool of which the quickest counts.
const TRIES: usize = 5;
/// What takes so long is a slow machine and no interruption.
const LONG: Duration = Duration::from_millis(2);
/// What it costs if nothing comes out: a second for a packet, so that such a suite is never advised.
const NOTHING: (Duration, u32) = (Duration::from_secs(1), 1);
/// A protocol without ports, for experiments (RFC 3692).
const EXPERIMENT: u8 = 253;
/// The replay window is what a gateway has.
const LIMITS: Limits = Limits { replay_window: 1_024, ..Limits::DEVICE };

/// Sealing or opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Seal,
    Open,
}

/// What is timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) suite: EspSuite,
    pub(super) way: Way,
    /// Length of the packet that is protected.
    pub(super) size: usize,
    /// Packets in one call, 32 at most.
    pub(super) batch: usize,
}

/// The load for this work; `None` if the providers have not got the suite, or do not open what they sealed.
pub(super) fn load(work: Work, providers: &[&dyn Provider]) -> Option<Box<dyn Load>> {
    let spec = TunnelSpec::networks(work.suite, LIMITS);
    let image = ipv4(EXPERIMENT, HOSTS, work.size)?;
    let tunnel = Tunnel::new(&spec, providers, SystemRng::new().ok()?, image, POOL)?;
    let mut packets = Packets { tunnel, work };
    let (_, opened) = packets.turn(Way::Open);
    (opened == POOL).then(|| Box::new(packets) as _)
}

/// The pool, to be sent through again and again.
struct Packets {
    tunnel: Tunnel<SystemRng>,
    work: Work,
}

impl Load for Packets {
    /// The quickest of a few: on a busy machine the others may have been interrupted. What takes long is tried once.
    fn run(&mut self) -> (Duration, u32) {
        let mut best = self.turn(self.work.way);
        for _ in 1..TRIES {
            if best.0 < LONG {
                best = best.min(self.turn(self.work.way));
            }
        }
        if best.1 > 0 { (best.0, best.1 as u32) } else { NOTHING }
    }
}

impl Packets {
    /// Sends the pool through, and says how long `way` took and how many packets came out of it right.
    fn turn(&mut self, way: Way) -> (Duration, usize) {
        let batch = self.work.batch;
        let mut round = self.tunnel.fill();
        let sealing = time(|| round.seal(batch));
        match way {
            Way::Seal => (sealing, round.sealed()),
            Way::Open => (time(|| round.open(batch)), round.opened()),
        }
    }
}
