//! A tunnel in memory: a pool of packets is sealed by one data path and opened by another.
//!
//! It reads no clock. Whoever measures decides which step is timed, and how many packets are in a call.

mod ends;

pub use ends::{GATEWAYS, HOSTS, NOW, TunnelSpec, ipv4};

use casemate_crypto::{Provider, Rng};
use casemate_datapath::{Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_wire::packet::Packet;

/// Both ends of an SA, with buffers for a pool of packets.
pub struct Tunnel<R> {
    near: Datapath,
    far: Datapath,
    rng: R,
    image: Vec<u8>,
    buffers: Vec<u8>,
    sent: Vec<Outbound>,
    came: Vec<Inbound>,
}

/// The pool on its way through a tunnel once.
pub struct Round<'t, R> {
    near: &'t mut Datapath,
    far: &'t mut Datapath,
    rng: &'t mut R,
    image: &'t [u8],
    packets: Vec<Packet<'t>>,
    sent: &'t mut [Outbound],
    came: &'t mut [Inbound],
}

impl<R: Rng> Tunnel<R> {
    /// For `pool` packets like `image`, whose IVs come from `rng`; `None` if the providers have not got the suite.
    pub fn new(
        spec: &TunnelSpec,
        providers: &[&dyn Provider],
        rng: R,
        image: Vec<u8>,
        pool: usize,
    ) -> Option<Self> {
        Some(Self {
            near: spec.end(Direction::Outbound, providers)?,
            far: spec.end(Direction::Inbound, providers)?,
            rng,
            buffers: vec![0; stride(image.len()).checked_mul(pool)?],
            image,
            sent: vec![Outbound::Drop(DropReason::NoRoom); pool],
            came: vec![Inbound::Drop(DropReason::NoRoom); pool],
        })
    }

    /// The pool, ready to be sealed.
    pub fn fill(&mut self) -> Round<'_, R> {
        let Self { near, far, rng, image, buffers, sent, came } = self;
        let buffers = buffers.chunks_exact_mut(stride(image.len()));
        let packets = buffers.filter_map(|buffer| filled(buffer, image)).collect();
        sent.fill(Outbound::Drop(DropReason::NoRoom));
        came.fill(Inbound::Drop(DropReason::NoRoom));
        Round { near, far, rng, image, packets, sent, came }
    }
}

impl<R: Rng> Round<'_, R> {
    /// Seals all packets, `batch` of them in a call; at least 1.
    pub fn seal(&mut self, batch: usize) {
        for (packets, verdicts) in self.packets.chunks_mut(batch).zip(self.sent.chunks_mut(batch)) {
            self.near.outbound(NOW, self.rng, packets, verdicts);
        }
    }

    /// Opens all packets, which were sealed before, likewise.
    pub fn open(&mut self, batch: usize) {
        for (packets, verdicts) in self.packets.chunks_mut(batch).zip(self.came.chunks_mut(batch)) {
            self.far.inbound(NOW, packets, verdicts);
        }
    }

    /// How many packets were sealed.
    pub fn sealed(&self) -> usize {
        self.sent.iter().filter(|verdict| matches!(verdict, Outbound::Send(_))).count()
    }

    /// How many came out as they went in.
    pub fn opened(&self) -> usize {
        let both = self.packets.iter().zip(&*self.came);
        both.filter(|(packet, verdict)| matches!(verdict, Inbound::Deliver(_)) && packet.data() == self.image)
            .count()
    }
}

/// Distance between the buffers of packets of this length: whole cache lines.
pub const fn stride(len: usize) -> usize {
    (HEAD_ROOM + len + TAIL_ROOM).next_multiple_of(64)
}

fn filled<'b>(buffer: &'b mut [u8], image: &[u8]) -> Option<Packet<'b>> {
    buffer.get_mut(HEAD_ROOM..)?.get_mut(..image.len())?.copy_from_slice(image);
    Packet::new(buffer, HEAD_ROOM, image.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::{AeadAlg, EspSuite};
    use casemate_rustcrypto::RUSTCRYPTO;
    use casemate_sa::{Limits, Mode};

    struct Zeros;

    impl Rng for Zeros {
        fn public(&mut self, out: &mut [u8]) {
            out.fill(0);
        }

        fn secret(&mut self, out: &mut [u8]) {
            out.fill(0);
        }
    }

    const SUITE: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);

    fn tunnel(spec: &TunnelSpec) -> Tunnel<Zeros> {
        Tunnel::new(spec, &[&RUSTCRYPTO], Zeros, ipv4(253, HOSTS, 100).unwrap(), 5).unwrap()
    }

    #[test]
    fn every_packet_goes_through_in_batches_of_any_length_round_after_round() {
        let hosts = |mode| TunnelSpec::hosts(SUITE, mode, Limits::DEVICE);
        for spec in [TunnelSpec::networks(SUITE, Limits::DEVICE), hosts(Mode::Transport), hosts(Mode::Tunnel)]
        {
            let mut tunnel = tunnel(&spec);
            for batch in [1, 2, 5, 32] {
                let mut round = tunnel.fill();
                assert_eq!((round.sealed(), round.opened()), (0, 0), "nothing is carried over");
                round.seal(batch);
                assert_eq!((round.sealed(), round.opened()), (5, 0));
                round.open(batch);
                assert_eq!((round.sealed(), round.opened()), (5, 5));
            }
        }
    }

    #[test]
    fn what_comes_out_otherwise_than_it_went_in_does_not_count() {
        let mut tunnel = tunnel(&TunnelSpec::networks(SUITE, Limits::DEVICE));
        let mut round = tunnel.fill();
        round.packets[0].data_mut()[99] ^= 1;
        round.seal(5);
        round.packets[1].data_mut()[50] ^= 1;
        round.open(5);
        assert_eq!((round.sealed(), round.opened()), (5, 3));
    }

    #[test]
    fn without_the_suite_there_is_no_tunnel() {
        let spec = TunnelSpec::networks(SUITE, Limits::DEVICE);
        assert!(Tunnel::new(&spec, &[], Zeros, Vec::new(), 1).is_none());
    }
}
