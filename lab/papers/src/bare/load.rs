//! The work that is timed. One packet in a call, as the paper's machine had it.

use super::subject::{CIPHER, MAC, Operation, Subject, Suite};
use casemate_crypto::{CipherKey, EspSuite, MacJob, MacKey, Outcome, Provider, Providers, SecretBytes, Tag};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Config, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM};
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::{Load, time};
use casemate_sa::{AddrRange, Instant, Limits, Mode, Protocol, SaParams, Selector, Spi, Transform};
use casemate_wire::packet::Packet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1))];
const NOW: Instant = Instant::from_secs(1);
/// Packets between two looks at the clock.
const POOL: u32 = 32;
/// SPI, sequence number and IV of AES-CBC.
const FRONT: usize = 8 + 16;
const IPV4: usize = 20;
const ICMP: usize = 8;

fn providers() -> [&'static dyn Provider; 2] {
    [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO]
}

/// The work of a subject; `None` if it does not do what it should.
pub(super) fn load(subject: Subject) -> Option<Box<dyn Load>> {
    // What the paper's suite encrypts in tunnel mode: packet, padding and trailer, in whole blocks.
    let text = (IPV4 + ICMP + subject.size + 2).next_multiple_of(16);
    let providers = providers();
    let providers = Providers(&providers);
    Some(match subject.operation {
        Operation::Esp(suite, mode) => Box::new(Esp::new(suite, mode, subject)?),
        Operation::Mac => {
            let key = providers.mac(MAC, &vec![0x24; MAC.key_len()]).ok()?;
            Box::new(Mac { key, data: vec![0x5A; FRONT + text] })
        }
        Operation::Cipher => {
            let key = providers
                .0
                .iter()
                .find_map(|provider| provider.cipher(CIPHER, &vec![0x42; CIPHER.key_len()]).ok())?;
            Box::new(Cipher { key, direction: subject.direction, text: vec![0x5A; text] })
        }
    })
}

struct Mac {
    key: Box<dyn MacKey>,
    data: Vec<u8>,
}

impl Load for Mac {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, data } = self;
        let spent = time(|| {
            for _ in 0..POOL {
                let tag = Tag::zeroed(MAC.tag_len());
                let mut jobs = [MacJob { nonce: [0; 12], data, tag, outcome: Outcome::Pending }];
                key.sign(&mut jobs);
                std::hint::black_box(&jobs);
            }
        });
        (spent, POOL)
    }
}

struct Cipher {
    key: Box<dyn CipherKey>,
    direction: Direction,
    text: Vec<u8>,
}

impl Load for Cipher {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, direction, text } = self;
        let spent = time(|| {
            for n in 0..POOL {
                let iv = [n as u8; 16];
                match direction {
                    Direction::Outbound => key.encrypt(&iv, text),
                    Direction::Inbound => key.decrypt(&iv, text),
                };
            }
        });
        (spent, POOL)
    }
}

/// Two hosts with an SA between them.
struct Esp {
    near: Datapath,
    far: Datapath,
    rng: SystemRng,
    direction: Direction,
    image: Vec<u8>,
    buffers: Vec<u8>,
}

impl Esp {
    fn new(suite: Suite, mode: Mode, subject: Subject) -> Option<Self> {
        let [near, far] =
            [Direction::Outbound, Direction::Inbound].map(|way| host(suite.algorithms(), mode, way));
        let image = echo(subject.size);
        let buffers = vec![0; (HEAD_ROOM + image.len() + TAIL_ROOM) * POOL as usize];
        let rng = SystemRng::new().ok()?;
        let mut esp = Self { near: near?, far: far?, rng, direction: subject.direction, image, buffers };
        esp.pass().map(|_| esp)
    }

    /// All packets there and back: the time of each way; `None` if one of them does not arrive.
    fn pass(&mut self) -> Option<[Duration; 2]> {
        let Self { near, far, rng, image, buffers, .. } = self;
        let stride = HEAD_ROOM + image.len() + TAIL_ROOM;
        let mut packets: Vec<Packet<'_>> = Vec::with_capacity(POOL as usize);
        for buffer in buffers.chunks_exact_mut(stride) {
            buffer.get_mut(HEAD_ROOM..HEAD_ROOM + image.len())?.copy_from_slice(image);
            packets.push(Packet::new(buffer, HEAD_ROOM, image.len())?);
        }
        let mut sent = [Outbound::Drop(DropReason::NoRoom); POOL as usize];
        let sealing = time(|| {
            for (packet, verdict) in packets.chunks_mut(1).zip(sent.chunks_mut(1)) {
                near.outbound(NOW, rng, packet, verdict);
            }
        });
        let mut came = [Inbound::Drop(DropReason::NoRoom); POOL as usize];
        let opening = time(|| {
            for (packet, verdict) in packets.chunks_mut(1).zip(came.chunks_mut(1)) {
                far.inbound(NOW, packet, verdict);
            }
        });
        let all = sent.iter().all(|verdict| matches!(verdict, Outbound::Send(_)))
            && came.iter().all(|verdict| matches!(verdict, Inbound::Deliver(_)))
            && packets.iter().all(|packet| packet.data() == image);
        all.then_some([sealing, opening])
    }
}

impl Load for Esp {
    fn run(&mut self) -> (Duration, u32) {
        // It was seen to work when it was made; a time of nothing would be seen in every figure.
        let [sealing, opening] = self.pass().unwrap_or_default();
        (if self.direction == Direction::Outbound { sealing } else { opening }, POOL)
    }
}

/// The sender's data path, or the receiver's.
fn host(suite: EspSuite, mode: Mode, direction: Direction) -> Option<Datapath> {
    let [src, dst] = HOSTS;
    let (encr, integ) = match suite {
        EspSuite::Combined(alg) => (alg.key_len() + alg.salt_len(), 0),
        EspSuite::Separate(cipher, mac) => (cipher.key_len(), mac.key_len()),
    };
    let key = |len: usize| SecretBytes::new(&vec![0x42; len]);
    let transform = Transform::Esp { suite, encr: key(encr), integ: key(integ) };
    let sa = SaParams::new(Spi::new(0x1000)?, (src, dst), mode, transform);
    // One process, no stranger: the tables need no secret.
    let mut datapath = Datapath::new(Config { limits: Limits::DEVICE, ..Config::server(0) });
    datapath.add_sa(&sa, direction, &Providers(&providers()), NOW).ok()?;
    let template = Template { protocol: Protocol::Esp, mode, src: Some(src), dst: Some(dst), reqid: 0 };
    let selector = Selector::between(AddrRange::single(src), AddrRange::single(dst));
    let policy = Policy { selector, action: Action::Protect(Bundle::single(template)), priority: 0 };
    datapath.add_policy(direction, policy).ok()?;
    Some(datapath)
}

/// An ICMP echo request with so much payload, as the paper's machines sent. Nobody looks at the checksum of ICMP.
fn echo(payload: usize) -> Vec<u8> {
    let len = IPV4 + ICMP + payload;
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 1, 0, 0];
    for host in HOSTS {
        packet.extend(match host {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(_) => [0; 4],
        });
    }
    // Transport mode makes the header's checksum anew (RFC 791): what comes out is to be what went in.
    let words =
        packet.chunks(2).map(|pair| pair.iter().fold(0, |word: u32, byte| word << 8 | u32::from(*byte)));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    if let Some(field) = packet.get_mut(10..12) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    packet.push(8);
    packet.resize(len, 0);
    packet
}

#[cfg(test)]
mod tests {
    use super::super::subject::all;
    use super::*;

    #[test]
    fn every_subject_does_what_it_should() {
        for subject in all() {
            let mut load = load(subject).unwrap_or_else(|| panic!("{}", subject.name()));
            let (spent, count) = load.run();
            assert!(spent > Duration::ZERO && count == POOL, "{}", subject.name());
        }
    }
}
