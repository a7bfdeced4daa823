//! Tunnel in memory: one data path seals a pool of packets, another one opens them.
//!
//! This module does not read a clock. The caller decides which step to time and how many packets to pass per
//! call.

use casemate_crypto::{EspSuite, Provider, Providers, Rng, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_sa::{AddrRange, Instant, Limits, Mode, Protocol, SaParams, Selector, SpdId, Spi, Transform};
use casemate_wire::ip::v4::{HEADER_LEN, Ipv4Header};
use casemate_wire::packet::Packet;
use std::iter::repeat_with;
use std::net::Ipv4Addr;

/// Both ends of an SA, with buffers for a pool of packets.
pub struct Tunnel<R> {
    sender: Datapath,
    receiver: Datapath,
    rng: R,
    template: Vec<u8>,
    buffers: Vec<u8>,
    sent: Vec<Outbound>,
    received: Vec<Inbound>,
}

/// One pass of the pool through the tunnel.
pub struct Round<'t, R> {
    sender: &'t mut Datapath,
    receiver: &'t mut Datapath,
    rng: &'t mut R,
    template: &'t [u8],
    packets: Vec<Packet<'t>>,
    sent: &'t mut [Outbound],
    received: &'t mut [Inbound],
}

impl<R: Rng> Tunnel<R> {
    /// Creates a tunnel for `pool` copies of the packet `image`, with IVs from `rng`; `None` if no provider
    /// supports the suite.
    pub fn new(
        spec: &TunnelSpec,
        providers: &[&dyn Provider],
        rng: R,
        image: Vec<u8>,
        pool: usize,
    ) -> Option<Self> {
        Some(Self {
            sender: spec.datapath(Direction::Outbound, providers)?,
            receiver: spec.datapath(Direction::Inbound, providers)?,
            rng,
            buffers: vec![0; buffer_stride(image.len()).checked_mul(pool)?],
            template: image,
            sent: vec![Outbound::Drop(DropReason::NoRoom); pool],
            received: repeat_with(|| Inbound::Drop(DropReason::NoRoom)).take(pool).collect(),
        })
    }

    /// Fills the buffers with unprotected packets.
    pub fn fill(&mut self) -> Round<'_, R> {
        let Self { sender: near, receiver: far, rng, template: image, buffers, sent, received: came } = self;
        let buffers = buffers.chunks_exact_mut(buffer_stride(image.len()));
        let packets = buffers.filter_map(|buffer| filled(buffer, image)).collect();
        sent.fill(Outbound::Drop(DropReason::NoRoom));
        came.fill_with(|| Inbound::Drop(DropReason::NoRoom));
        Round { sender: near, receiver: far, rng, template: image, packets, sent, received: came }
    }

    /// Fills the buffers with these packets, as they arrive at the receiver.
    pub fn refill(&mut self, images: &[Vec<u8>]) -> Round<'_, R> {
        let Self { sender: near, receiver: far, rng, template, buffers, sent, received: came } = self;
        let buffers = buffers.chunks_exact_mut(buffer_stride(template.len())).zip(images);
        let packets = buffers.filter_map(|(buffer, image)| {
            buffer.get_mut(..image.len())?.copy_from_slice(image);
            Packet::new(buffer, 0, image.len())
        });
        let packets = packets.collect();
        came.fill_with(|| Inbound::Drop(DropReason::NoRoom));
        Round { sender: near, receiver: far, rng, template, packets, sent, received: came }
    }
}

impl<R: Rng> Round<'_, R> {
    /// Seals all packets, `batch` (at least 1) per call.
    pub fn seal(&mut self, batch: usize) {
        for (packets, verdicts) in self.packets.chunks_mut(batch).zip(self.sent.chunks_mut(batch)) {
            self.sender.outbound(NOW, self.rng, packets, verdicts);
        }
    }

    /// Opens all sealed packets, `batch` (at least 1) per call.
    pub fn open(&mut self, batch: usize) {
        for (packets, verdicts) in self.packets.chunks_mut(batch).zip(self.received.chunks_mut(batch)) {
            self.receiver.inbound(NOW, packets, verdicts);
        }
    }

    /// Contents of all packets.
    pub fn images(&self) -> Vec<Vec<u8>> {
        self.packets.iter().map(|packet| packet.data().to_vec()).collect()
    }

    /// Number of packets that the receiver dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> usize {
        self.received
            .iter()
            .filter(|verdict| matches!(verdict, Inbound::Drop(other) if *other == reason))
            .count()
    }

    /// Number of packets that were sealed.
    pub fn sealed(&self) -> usize {
        self.sent.iter().filter(|verdict| matches!(verdict, Outbound::Send(_))).count()
    }

    /// Number of packets that were opened and equal the original.
    pub fn opened(&self) -> usize {
        let both = self.packets.iter().zip(&*self.received);
        both.filter(|(packet, verdict)| {
            matches!(verdict, Inbound::Deliver(_)) && packet.data() == self.template
        })
        .count()
    }
}

/// Distance between the buffers of packets of this length: a multiple of the cache line size, 64 bytes.
pub const fn buffer_stride(len: usize) -> usize {
    (HEAD_ROOM + len + TAIL_ROOM).next_multiple_of(64)
}

fn filled<'b>(buffer: &'b mut [u8], image: &[u8]) -> Option<Packet<'b>> {
    buffer.get_mut(HEAD_ROOM..)?.get_mut(..image.len())?.copy_from_slice(image);
    Packet::new(buffer, HEAD_ROOM, image.len())
}

/// Time of all calls.
pub const NOW: Instant = Instant::from_secs(1);
/// Source and destination of the packets.
pub const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];
/// Gateways of the two hosts.
pub const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// Seed of the hash tables. One process without attackers needs no secret.
const SEED: u64 = 0x5EED;
const SPI: Spi = match Spi::new(0x1000) {
    Some(spi) => spi,
    None => unreachable!(),
};

/// Description of a tunnel.
#[derive(Debug, Clone, Copy)]
pub struct TunnelSpec {
    suite: EspSuite,
    mode: Mode,
    ends: [Ipv4Addr; 2],
    /// Prefix length of the policy's selectors around the hosts.
    prefix: u8,
    limits: Limits,
}

impl TunnelSpec {
    /// Tunnel between the gateways, each with a /16 network behind it. The replay window is the largest one
    /// that `limits` allows.
    pub const fn between_networks(suite: EspSuite, limits: Limits) -> Self {
        Self { suite, mode: Mode::Tunnel, ends: GATEWAYS, prefix: 16, limits }
    }

    /// SA between the two hosts. The replay window is the largest one that `limits` allows.
    pub const fn between_hosts(suite: EspSuite, mode: Mode, limits: Limits) -> Self {
        Self { suite, mode, ends: HOSTS, prefix: 32, limits }
    }

    /// Returns the parameters of the tunnel's SA with this SPI.
    pub fn sa(&self, spi: Spi) -> SaParams {
        let [near, far] = self.ends;
        let (encr, integ) = (self.suite.encr_key_len(), self.suite.integ_key_len());
        let transform = Transform::Esp {
            suite: self.suite,
            encr: SecretBytes::new(&vec![0x42; encr]),
            integ: SecretBytes::new(&vec![0x24; integ]),
        };
        let sa = SaParams::new(spi, near.into(), far.into(), self.mode, transform);
        SaParams { replay_window: self.limits.replay_window, ..sa }
    }

    /// Returns the data path of one end with the SA and its policy; `None` if no provider supports the suite.
    pub fn datapath(&self, direction: Direction, providers: &[&dyn Provider]) -> Option<Datapath> {
        let [src, dst] = self.ends.map(Into::into);
        let mut datapath = Datapath::new(Config { limits: self.limits, ..Config::server(SEED) });
        datapath.add_sa(&self.sa(SPI), direction, &Providers(providers), NOW).ok()?;
        let template =
            Template { protocol: Protocol::Esp, mode: self.mode, src: Some(src), dst: Some(dst), reqid: 0 };
        let [from, to] = HOSTS.map(|host| AddrRange::prefix(host.into(), self.prefix).ok());
        let selector = Selector::between(from?, to?);
        let action = Action::Protect(Bundle::single(template));
        datapath.add_policy(direction, Policy { spd: SpdId::MAIN, selector, action, priority: 0 }).ok()?;
        Some(datapath)
    }
}

/// Returns an IPv4 packet of `len` bytes whose payload is zero; `None` if `len` is out of range.
pub fn ipv4(protocol: u8, [src, dst]: [Ipv4Addr; 2], len: usize) -> Option<Vec<u8>> {
    let mut packet = vec![0; len];
    let payload_len = u16::try_from(len.checked_sub(HEADER_LEN)?).ok()?;
    let header = Ipv4Header { tos: 0, ident: 0, df: false, ttl: 64, protocol, src, dst, payload_len };
    header.emit(packet.first_chunk_mut()?).ok()?;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::{AeadAlg, EspSuite};
    use casemate_rustcrypto::RUSTCRYPTO;
    use casemate_sa::{Limits, Mode};
    use casemate_test_support::FixedRng;

    const SUITE: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);

    fn tunnel(spec: &TunnelSpec) -> Tunnel<FixedRng> {
        Tunnel::new(spec, &[&RUSTCRYPTO], FixedRng::new(0), ipv4(253, HOSTS, 100).unwrap(), 5).unwrap()
    }

    #[test]
    fn packets_pass_in_batches_of_any_size() {
        let hosts = |mode| TunnelSpec::between_hosts(SUITE, mode, Limits::DEVICE);
        for spec in
            [TunnelSpec::between_networks(SUITE, Limits::DEVICE), hosts(Mode::Transport), hosts(Mode::Tunnel)]
        {
            let mut tunnel = tunnel(&spec);
            for batch in [1, 2, 5, 32] {
                let mut round = tunnel.fill();
                assert_eq!(
                    (round.sealed(), round.opened()),
                    (0, 0),
                    "no state of the previous round \
                     remains"
                );
                round.seal(batch);
                assert_eq!((round.sealed(), round.opened()), (5, 0));
                round.open(batch);
                assert_eq!((round.sealed(), round.opened()), (5, 5));
            }
        }
    }

    #[test]
    fn modified_packets_do_not_count() {
        let mut tunnel = tunnel(&TunnelSpec::between_networks(SUITE, Limits::DEVICE));
        let mut round = tunnel.fill();
        round.packets[0].data_mut()[99] ^= 1;
        round.seal(5);
        round.packets[1].data_mut()[50] ^= 1;
        round.open(5);
        assert_eq!((round.sealed(), round.opened()), (5, 3));
    }

    #[test]
    fn no_tunnel_without_a_provider() {
        let spec = TunnelSpec::between_networks(SUITE, Limits::DEVICE);
        assert!(Tunnel::new(&spec, &[], FixedRng::new(0), Vec::new(), 1).is_none());
    }
}
