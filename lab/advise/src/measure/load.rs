//! Whole packets through a tunnel, in at one end of the data path and out at the other.

use casemate_crypto::{EspSuite, Provider, Providers, Rng, SecretBytes};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::{Load, time};
use casemate_sa::{AddrRange, Instant, Limits, Mode, Protocol, SaParams, Selector, Spi, Transform};
use casemate_wire::packet::Packet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The moment at which everything happens.
const NOW: Instant = Instant::from_secs(1);
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Packets that are worked on between two looks at the clock.
const POOL: usize = 32;
/// Turns of the pool of which the quickest counts.
const TRIES: usize = 5;
/// What takes so long is a slow machine and no interruption.
const LONG: Duration = Duration::from_millis(2);
/// What it costs if nothing comes out: a second for a packet, so that such a suite is never advised.
const NOTHING: (Duration, u32) = (Duration::from_secs(1), 1);
const IP_HEADER: usize = 20;
/// What a gateway has, in packets.
const REPLAY_WINDOW: u32 = 1_024;

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
pub(super) fn load<'p>(work: Work, providers: &[&'p dyn Provider]) -> Option<Box<dyn Load + 'p>> {
    let mut tunnel = Tunnel {
        near: end(work.suite, Direction::Outbound, providers)?,
        far: end(work.suite, Direction::Inbound, providers)?,
        rng: SystemRng::new().ok()?,
        work,
        image: packet(work.size)?,
        buffers: vec![0; stride(work.size).checked_mul(POOL)?],
    };
    let (_, opened) = tunnel.turn(Way::Open);
    (opened as usize == POOL).then(|| Box::new(tunnel) as _)
}

struct Tunnel {
    near: Datapath,
    far: Datapath,
    rng: SystemRng,
    work: Work,
    image: Vec<u8>,
    buffers: Vec<u8>,
}

impl Load for Tunnel {
    /// The quickest of a few: on a busy machine the others may have been interrupted. What takes long is tried once.
    fn run(&mut self) -> (Duration, u32) {
        let mut best = self.turn(self.work.way);
        for _ in 1..TRIES {
            if best.0 < LONG {
                best = best.min(self.turn(self.work.way));
            }
        }
        if best.1 > 0 { best } else { NOTHING }
    }
}

impl Tunnel {
    /// Sends the pool through, and says how long `way` took and how many packets came out of it right.
    fn turn(&mut self, way: Way) -> (Duration, u32) {
        let Self { near, far, rng, work, image, buffers } = self;
        let mut packets: Vec<Packet<'_>> =
            buffers.chunks_exact_mut(stride(work.size)).filter_map(|buffer| filled(buffer, image)).collect();
        let mut verdicts = [Outbound::Drop(DropReason::NoRoom); POOL];
        let sealing = time(|| seal(near, rng, &mut packets, &mut verdicts, work.batch));
        if way == Way::Seal {
            return (sealing, count(&verdicts, |verdict| matches!(verdict, Outbound::Send(_))));
        }
        let mut verdicts = [Inbound::Drop(DropReason::NoRoom); POOL];
        let opening = time(|| {
            for (packets, verdicts) in packets.chunks_mut(work.batch).zip(verdicts.chunks_mut(work.batch)) {
                far.inbound(NOW, packets, verdicts);
            }
        });
        (opening, count(&verdicts, |verdict| matches!(verdict, Inbound::Deliver(_))))
    }
}

fn seal(
    near: &mut Datapath,
    rng: &mut dyn Rng,
    packets: &mut [Packet<'_>],
    verdicts: &mut [Outbound],
    batch: usize,
) {
    for (packets, verdicts) in packets.chunks_mut(batch).zip(verdicts.chunks_mut(batch)) {
        near.outbound(NOW, rng, packets, verdicts);
    }
}

fn count<T>(verdicts: &[T], is_right: impl Fn(&T) -> bool) -> u32 {
    verdicts.iter().filter(|verdict| is_right(verdict)).count() as u32
}

/// Distance between the buffers of packets of this length.
fn stride(size: usize) -> usize {
    (HEAD_ROOM + size + TAIL_ROOM).next_multiple_of(64)
}

fn filled<'b>(buffer: &'b mut [u8], image: &[u8]) -> Option<Packet<'b>> {
    buffer.get_mut(HEAD_ROOM..)?.get_mut(..image.len())?.copy_from_slice(image);
    Packet::new(buffer, HEAD_ROOM, image.len())
}

/// An IPv4 packet of `size` bytes between hosts behind the ends, of a protocol without ports.
fn packet(size: usize) -> Option<Vec<u8>> {
    const EXPERIMENT: u8 = 253;
    let mut packet = vec![0; size];
    let header: &mut [u8; IP_HEADER] = packet.first_chunk_mut()?;
    let [length_high, length_low] = u16::try_from(size).ok()?.to_be_bytes();
    *header = [0x45, 0, length_high, length_low, 0, 0, 0, 0, 64, EXPERIMENT, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    let (words, _) = header.as_chunks();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = u16::try_from((sum & 0xFFFF) + (sum >> 16)).ok()?;
    header.get_mut(10..12)?.copy_from_slice(&(!folded).to_be_bytes());
    Some(packet)
}

/// A data path with one SA and its policy.
fn end(suite: EspSuite, direction: Direction, providers: &[&dyn Provider]) -> Option<Datapath> {
    let limits = Limits { replay_window: REPLAY_WINDOW, ..Limits::DEVICE };
    let mut datapath = Datapath::new(Config { limits, ..Config::server(0x5EED) });
    datapath.add_sa(&sa(suite)?, direction, &Providers(providers), NOW).ok()?;
    let template = Template {
        protocol: Protocol::Esp,
        mode: Mode::Tunnel,
        src: Some(NEAR.into()),
        dst: Some(FAR.into()),
        reqid: 0,
    };
    let action = Action::Protect(Bundle::single(template));
    datapath.add_policy(direction, Policy { selector: between_networks()?, action, priority: 0 }).ok()?;
    Some(datapath)
}

/// From 10.1.0.0/16 to 10.2.0.0/16.
fn between_networks() -> Option<Selector> {
    let network = |third| AddrRange::prefix(Ipv4Addr::new(10, third, 0, 0).into(), 16);
    Some(Selector::between(network(1).ok()?, network(2).ok()?))
}

fn sa(suite: EspSuite) -> Option<SaParams> {
    let (encr, integ) = key_lens(suite);
    let transform = Transform::Esp {
        suite,
        encr: SecretBytes::new(&vec![0x42; encr]),
        integ: SecretBytes::new(&vec![0x24; integ]),
    };
    let path = (NEAR.into(), FAR.into());
    let sa = SaParams::new(Spi::new(0x1000)?, path, Mode::Tunnel, transform);
    Some(SaParams { replay_window: REPLAY_WINDOW, ..sa })
}

/// Lengths of the keys, salts included.
fn key_lens(suite: EspSuite) -> (usize, usize) {
    match suite {
        EspSuite::Combined(alg) => (alg.key_len() + alg.salt_len(), 0),
        EspSuite::Separate(cipher, mac) => {
            (cipher.key_len() + cipher.salt_len(), mac.key_len() + mac.salt_len())
        }
    }
}
