//! The data path's side of `esp`: whole packets through a tunnel.

use crate::bare::Way;
use crate::suites::POOL;
use crate::world::{Counting, NOW, gateway, stride, udp};
use casemate_crypto::{EspSuite, Provider};
use casemate_datapath::{Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound};
use casemate_measure::harness::{Load, time};
use casemate_wire::packet::Packet;
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
    Some(Box::new(Tunnel {
        near: gateway(provider, suite, Direction::Outbound)?,
        far: gateway(provider, suite, Direction::Inbound)?,
        way,
        batch,
        rng: Counting::new(),
        image: udp(len),
        buffers: vec![0; stride(len) * POOL],
    }))
}

struct Tunnel {
    near: Datapath,
    far: Datapath,
    way: Way,
    batch: usize,
    rng: Counting,
    image: Vec<u8>,
    buffers: Vec<u8>,
}

impl Load for Tunnel {
    fn run(&mut self) -> (Duration, u32) {
        let Self { near, far, way, batch, rng, image, buffers } = self;
        let len = image.len();
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL);
        for buffer in buffers.chunks_exact_mut(stride(len)) {
            buffer[HEAD_ROOM..HEAD_ROOM + len].copy_from_slice(image);
            packets.push(Packet::new(buffer, HEAD_ROOM, len).unwrap());
        }
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); POOL];
        let mut seal = || {
            for (packets, verdicts) in packets.chunks_mut(*batch).zip(verdicts.chunks_mut(*batch)) {
                near.outbound(NOW, rng, packets, verdicts);
            }
        };
        if *way == Way::Seal {
            let spent = time(&mut seal);
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Outbound::Send(_))), "{verdicts:?}");
            return (spent, POOL as u32);
        }
        seal();
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); POOL];
        let opening = time(|| {
            for (packets, verdicts) in packets.chunks_mut(*batch).zip(verdicts.chunks_mut(*batch)) {
                far.inbound(NOW, packets, verdicts);
            }
        });
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Inbound::Deliver(_))), "{verdicts:?}");
        assert!(packets[0].data() == &image[..], "what comes out is what went in");
        (opening, POOL as u32)
    }
}
