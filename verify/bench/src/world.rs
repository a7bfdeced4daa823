//! A small world to measure in: two networks, a tunnel between them, and the packets that go through.

use casemate_crypto::{EspSuite, Provider, Providers, Rng, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, HEAD_ROOM, TAIL_ROOM};
use casemate_sa::{AddrRange, Instant, Mode, Protocol, SaParams, Selector, Spi, Transform};
use std::net::{IpAddr, Ipv4Addr};

/// The moment at which everything happens.
pub(crate) const NOW: Instant = Instant::from_secs(1);

const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const NEAR_HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const FAR_HOST: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// A random source that costs next to nothing, so that what is measured is not the random source.
pub(crate) struct Counting(u64);

impl Counting {
    pub(crate) const fn new() -> Self {
        Self(1)
    }

    /// The next number, spread over all 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

impl Rng for Counting {
    fn public(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    fn secret(&mut self, out: &mut [u8]) {
        self.public(out);
    }
}

/// Distance between the buffers of packets that start with `len` bytes.
pub(crate) fn stride(len: usize) -> usize {
    (HEAD_ROOM + len + TAIL_ROOM).next_multiple_of(64)
}

/// An SA of a tunnel from near to far.
pub(crate) fn tunnel(suite: EspSuite, spi: u32) -> SaParams {
    let (encr, integ) = match suite {
        EspSuite::Combined(alg) => (alg.key_len() + alg.salt_len(), 0),
        EspSuite::Separate(cipher, mac) => {
            (cipher.key_len() + cipher.salt_len(), mac.key_len() + mac.salt_len())
        }
    };
    let (encr, integ) = (SecretBytes::new(&vec![0x42; encr]), SecretBytes::new(&vec![0x24; integ]));
    let (spi, path) = (Spi::new(spi).unwrap(), (NEAR.into(), FAR.into()));
    let sa = SaParams::new(spi, path, Mode::Tunnel, Transform::Esp { suite, encr, integ });
    SaParams { replay_window: 1024, ..sa }
}

/// A data path without SAs and policies.
pub(crate) fn empty() -> Datapath {
    Datapath::new(Config::server(0x5EED))
}

/// A data path with one tunnel; `None` if the provider has not got the suite.
pub(crate) fn gateway(
    provider: &'static dyn Provider,
    suite: EspSuite,
    direction: Direction,
) -> Option<Datapath> {
    let mut datapath = empty();
    datapath.add_sa(&tunnel(suite, 0x1000), direction, &Providers(&[provider]), NOW).ok()?;
    let template = Template {
        protocol: Protocol::Esp,
        mode: Mode::Tunnel,
        src: Some(NEAR.into()),
        dst: Some(FAR.into()),
        reqid: 0,
    };
    let selector = Selector::between(network(NEAR_HOST, 16), network(FAR_HOST, 16));
    let action = Action::Protect(Bundle::single(template));
    datapath.add_policy(direction, Policy { selector, action, priority: 0 }).unwrap();
    Some(datapath)
}

/// The network of `len` bits that `addr` is in.
pub(crate) fn network(addr: Ipv4Addr, len: u8) -> AddrRange {
    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    AddrRange::prefix(IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() & mask)), len).unwrap()
}

/// A UDP packet of `len` bytes from a host of the near network to one of the far network.
pub(crate) fn udp(len: usize) -> Vec<u8> {
    let mut packet = ipv4(17, NEAR_HOST, FAR_HOST, len);
    let udp_len = (len - 20) as u16;
    packet[20..28].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, (udp_len >> 8) as u8, udp_len as u8, 0, 0]);
    packet
}

/// An IPv4 packet of `len` bytes, all but the header zero.
pub(crate) fn ipv4(protocol: u8, src: Ipv4Addr, dst: Ipv4Addr, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&src.octets());
    packet[16..20].copy_from_slice(&dst.octets());
    let sum: u32 = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}
