//! The ends of a tunnel: its SA, the policy that leads to it, and packets for which it is.

use casemate_crypto::{EspSuite, Provider, Providers, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction};
use casemate_sa::{AddrRange, Instant, Limits, Mode, Protocol, SaParams, Selector, Spi, Transform};
use casemate_wire::ip::v4::{HEADER_LEN, Ipv4Header};
use std::net::Ipv4Addr;

/// The moment at which everything happens.
pub const NOW: Instant = Instant::from_secs(1);
/// Who sends the packets, and who gets them.
pub const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];
/// The gateways in front of them.
pub const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

/// The tables are for one process, without strangers: they need no secret.
const SEED: u64 = 0x5EED;
const SPI: Spi = match Spi::new(0x1000) {
    Some(spi) => spi,
    None => unreachable!(),
};

/// What sort of tunnel it is.
#[derive(Debug, Clone, Copy)]
pub struct TunnelSpec {
    suite: EspSuite,
    mode: Mode,
    ends: [Ipv4Addr; 2],
    /// Length of the prefixes around the hosts that the policy names.
    prefix: u8,
    limits: Limits,
}

impl TunnelSpec {
    /// Of the gateways, each with a network of 16 bits behind it. The SA's replay window is the largest one within `limits`.
    pub const fn networks(suite: EspSuite, limits: Limits) -> Self {
        Self { suite, mode: Mode::Tunnel, ends: GATEWAYS, prefix: 16, limits }
    }

    /// Of the two hosts themselves, likewise.
    pub const fn hosts(suite: EspSuite, mode: Mode, limits: Limits) -> Self {
        Self { suite, mode, ends: HOSTS, prefix: 32, limits }
    }

    /// Its SA, with this SPI.
    pub fn sa(&self, spi: Spi) -> SaParams {
        let [near, far] = self.ends;
        let (encr, integ) = key_lens(self.suite);
        let transform = Transform::Esp {
            suite: self.suite,
            encr: SecretBytes::new(&vec![0x42; encr]),
            integ: SecretBytes::new(&vec![0x24; integ]),
        };
        let sa = SaParams::new(spi, (near.into(), far.into()), self.mode, transform);
        SaParams { replay_window: self.limits.replay_window, ..sa }
    }

    /// The data path of one end, with the SA and its policy; `None` if the providers have not got the suite.
    pub fn end(&self, direction: Direction, providers: &[&dyn Provider]) -> Option<Datapath> {
        let [src, dst] = self.ends.map(Into::into);
        let mut datapath = Datapath::new(Config { limits: self.limits, ..Config::server(SEED) });
        datapath.add_sa(&self.sa(SPI), direction, &Providers(providers), NOW).ok()?;
        let template =
            Template { protocol: Protocol::Esp, mode: self.mode, src: Some(src), dst: Some(dst), reqid: 0 };
        let [from, to] = HOSTS.map(|host| AddrRange::prefix(host.into(), self.prefix).ok());
        let selector = Selector::between(from?, to?);
        let action = Action::Protect(Bundle::single(template));
        datapath.add_policy(direction, Policy { selector, action, priority: 0 }).ok()?;
        Some(datapath)
    }
}

/// Lengths of the keys of cipher and MAC, salts included.
fn key_lens(suite: EspSuite) -> (usize, usize) {
    match suite {
        EspSuite::Combined(alg) => (alg.key_len() + alg.salt_len(), 0),
        EspSuite::Separate(cipher, mac) => {
            (cipher.key_len() + cipher.salt_len(), mac.key_len() + mac.salt_len())
        }
    }
}

/// An IPv4 packet of `len` bytes, all but the header zero; `None` if no packet is so long or so short.
pub fn ipv4(protocol: u8, [src, dst]: [Ipv4Addr; 2], len: usize) -> Option<Vec<u8>> {
    let mut packet = vec![0; len];
    let payload_len = u16::try_from(len.checked_sub(HEADER_LEN)?).ok()?;
    let header = Ipv4Header { tos: 0, ident: 0, df: false, ttl: 64, protocol, src, dst, payload_len };
    header.emit(packet.first_chunk_mut()?).ok()?;
    Some(packet)
}
