//! A provider's bare cipher on the bytes that an ESP packet hands to it, in buffers laid out like those of packets.

use crate::suites::POOL;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, EspSuite, EtmJob, EtmKey, MacAlg, Outcome, Provider, Providers, Tag,
};
use casemate_datapath::HEAD_ROOM;
use casemate_measure::harness::{Load, time};
use casemate_measure::tunnel::stride;
use std::time::Duration;

/// SPI and sequence number.
const HEADER: usize = 8;

/// Sealing or opening.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Seal,
    Open,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Seal, Self::Open];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// The bare cipher of `suite` over packets of `len` bytes, in calls of `batch` packets; `None` if the provider has not
/// got it.
pub(crate) fn load(
    provider: &'static dyn Provider,
    suite: EspSuite,
    way: Way,
    len: usize,
    batch: usize,
) -> Option<Box<dyn Load>> {
    let buffers = Buffers::new(len, (len + 2).next_multiple_of(suite.pad_to()));
    match suite {
        EspSuite::Combined(alg) => {
            let key = provider.aead(alg, &vec![0x42; alg.key_len()]).ok()?;
            Some(Box::new(Combined::new(key, alg, way, batch, buffers)))
        }
        EspSuite::Separate(cipher, mac) => {
            let (cipher_key, mac_key) = (vec![0x42; cipher.key_len()], vec![0x24; mac.key_len()]);
            let key = Providers(&[provider]).etm(cipher, &cipher_key, mac, &mac_key).ok()?;
            Some(Box::new(Separate::new(key, cipher, mac, way, batch, buffers)))
        }
    }
}

/// The buffers of a pool of packets. Text is where it is in a packet.
struct Buffers {
    /// What they hold before the work.
    image: Vec<u8>,
    bytes: Vec<u8>,
    stride: usize,
    text_len: usize,
}

impl Buffers {
    fn new(len: usize, text_len: usize) -> Self {
        let image = vec![0x5A; stride(len) * POOL];
        Self { bytes: image.clone(), image, stride: stride(len), text_len }
    }

    /// The packets, as they are before the work, from `front` bytes before the text to `back` bytes after it.
    fn packets(&mut self, front: usize, back: usize) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.copy_from_slice(&self.image);
        let range = HEAD_ROOM - front..HEAD_ROOM + self.text_len + back;
        self.bytes.chunks_exact_mut(self.stride).map(move |buffer| &mut buffer[range.clone()])
    }

    /// What the work made is what the next work begins with.
    fn keep(&mut self) {
        self.image.clone_from(&self.bytes);
    }
}

struct Combined {
    key: Box<dyn AeadKey>,
    way: Way,
    icv: usize,
    batch: usize,
    buffers: Buffers,
}

impl Combined {
    fn new(key: Box<dyn AeadKey>, alg: AeadAlg, way: Way, batch: usize, buffers: Buffers) -> Self {
        let mut load = Self { key, way: Way::Seal, icv: alg.icv_len(), batch, buffers };
        load.run();
        if way == Way::Open {
            load.buffers.keep();
        }
        Self { way, ..load }
    }
}

impl Load for Combined {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, way, icv, batch, buffers } = self;
        let text_len = buffers.text_len;
        let mut jobs: Vec<AeadJob<'_>> = Vec::with_capacity(POOL);
        for (n, packet) in buffers.packets(0, *icv).enumerate() {
            let (text, tag) = packet.split_at_mut(text_len);
            let nonce = [n as u8; 12];
            jobs.push(AeadJob { nonce, aad: &[1; HEADER], text, tag, outcome: Outcome::Pending });
        }
        let spent = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match way {
                    Way::Seal => key.seal(jobs),
                    Way::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.outcome == Outcome::Done));
        (spent, POOL as u32)
    }
}

struct Separate {
    key: Box<dyn EtmKey>,
    way: Way,
    batch: usize,
    buffers: Buffers,
    /// Bytes in front of the text: header and IV.
    front: usize,
    tags: Vec<Tag>,
}

impl Separate {
    fn new(
        key: Box<dyn EtmKey>,
        cipher: CipherAlg,
        mac: MacAlg,
        way: Way,
        batch: usize,
        buffers: Buffers,
    ) -> Self {
        let front = HEADER + cipher.iv_len() + mac.iv_len();
        let tags = vec![Tag::zeroed(mac.tag_len()); POOL];
        let mut load = Self { key, way: Way::Seal, batch, buffers, front, tags };
        load.run();
        if way == Way::Open {
            load.buffers.keep();
        }
        Self { way, ..load }
    }
}

impl Load for Separate {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, way, batch, buffers, front, tags } = self;
        let text = *front..*front + buffers.text_len;
        let mut jobs: Vec<EtmJob<'_>> = Vec::with_capacity(POOL);
        for ((n, data), tag) in buffers.packets(*front, 0).enumerate().zip(&*tags) {
            let (iv, mac_nonce) = ([n as u8; 16], [n as u8; 12]);
            let (text, tag) = (text.clone(), *tag);
            jobs.push(EtmJob { iv, mac_nonce, data, text, tag, outcome: Outcome::Pending });
        }
        let spent = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match way {
                    Way::Seal => key.seal(jobs),
                    Way::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.outcome == Outcome::Done));
        *tags = jobs.iter().map(|job| job.tag).collect();
        (spent, POOL as u32)
    }
}
