//! The work that is timed. One packet in a call, as the paper's machine had it.

use super::subject::{CIPHER, MAC, Operation, Subject, Suite};
use casemate_crypto::{CipherKey, MacJob, MacKey, Outcome, Provider, Providers, Tag};
use casemate_datapath::Direction;
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::{Load, time};
use casemate_measure::tunnel::{HOSTS, Tunnel, TunnelSpec, ipv4};
use casemate_sa::{Limits, Mode};
use std::time::Duration;

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
    tunnel: Tunnel<SystemRng>,
    direction: Direction,
}

impl Esp {
    fn new(suite: Suite, mode: Mode, subject: Subject) -> Option<Self> {
        let spec = TunnelSpec::hosts(suite.algorithms(), mode, Limits::DEVICE);
        let rng = SystemRng::new().ok()?;
        let tunnel = Tunnel::new(&spec, &providers(), rng, echo(subject.size)?, POOL as usize)?;
        let mut esp = Self { tunnel, direction: subject.direction };
        esp.pass().map(|_| esp)
    }

    /// All packets there and back: the time of each way; `None` if one of them does not arrive.
    fn pass(&mut self) -> Option<[Duration; 2]> {
        let mut round = self.tunnel.fill();
        let sealing = time(|| round.seal(1));
        let opening = time(|| round.open(1));
        let all = round.sealed() == POOL as usize && round.opened() == POOL as usize;
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

/// An ICMP echo request with so much payload, as the paper's machines sent. Nobody looks at the checksum of ICMP.
fn echo(payload: usize) -> Option<Vec<u8>> {
    const ECHO_REQUEST: u8 = 8;
    let mut packet = ipv4(1, HOSTS, IPV4 + ICMP + payload)?;
    *packet.get_mut(IPV4)? = ECHO_REQUEST;
    Some(packet)
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
