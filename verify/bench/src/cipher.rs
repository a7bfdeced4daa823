//! Bare cipher of a provider on the bytes of ESP packets, in buffers with the layout of packet buffers.

use crate::esp::POOL;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, EspSuite, EtmJob, EtmKey, JobStatus, MacAlg, Provider, Providers,
    Tag,
};
use casemate_datapath::HEAD_ROOM;
use casemate_measure::harness::{Workload, time};
use casemate_measure::tunnel::buffer_stride;
use std::time::Duration;

/// Length of SPI and sequence number.
const HEADER: usize = 8;

/// Operation to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Seal,
    Open,
}

impl Operation {
    pub(crate) const BOTH: [Self; 2] = [Self::Seal, Self::Open];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// Load of the bare cipher of `suite` on packets of `len` bytes, in calls of `batch` packets. `None` if the
/// provider does not support the suite.
pub(crate) fn load(
    provider: &'static dyn Provider,
    suite: EspSuite,
    operation: Operation,
    len: usize,
    batch: usize,
) -> Option<Box<dyn Workload>> {
    let buffers = Buffers::new(len, (len + 2).next_multiple_of(suite.pad_to()));
    match suite {
        EspSuite::Combined(alg) => {
            let key = provider.aead(alg, &vec![0x42; alg.key_len()]).ok()?;
            Some(Box::new(Combined::new(key, alg, operation, batch, buffers)))
        }
        EspSuite::Separate(cipher, mac) => {
            let (cipher_key, mac_key) = (vec![0x42; cipher.key_len()], vec![0x24; mac.key_len()]);
            let key = Providers(&[provider]).etm(cipher, &cipher_key, mac, &mac_key).ok()?;
            Some(Box::new(Separate::new(key, cipher, mac, operation, batch, buffers)))
        }
    }
}

/// Packet buffers of a pool. The text stands at its offset in a packet.
struct Buffers {
    /// Contents before each operation.
    image: Vec<u8>,
    bytes: Vec<u8>,
    stride: usize,
    text_len: usize,
}

impl Buffers {
    fn new(len: usize, text_len: usize) -> Self {
        let image = vec![0x5A; buffer_stride(len) * POOL];
        Self { bytes: image.clone(), image, stride: buffer_stride(len), text_len }
    }

    /// Packets with their original contents, from `front` bytes before the text to `back` bytes after it.
    fn packets(&mut self, front: usize, back: usize) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.copy_from_slice(&self.image);
        let range = HEAD_ROOM - front..HEAD_ROOM + self.text_len + back;
        self.bytes.chunks_exact_mut(self.stride).map(move |buffer| &mut buffer[range.clone()])
    }

    /// Makes the current contents the original contents of the next operation.
    fn keep(&mut self) {
        self.image.clone_from(&self.bytes);
    }
}

struct Combined {
    key: Box<dyn AeadKey>,
    operation: Operation,
    icv: usize,
    batch: usize,
    buffers: Buffers,
}

impl Combined {
    fn new(
        key: Box<dyn AeadKey>,
        alg: AeadAlg,
        operation: Operation,
        batch: usize,
        buffers: Buffers,
    ) -> Self {
        let mut load = Self { key, operation: Operation::Seal, icv: alg.icv_len(), batch, buffers };
        load.run();
        if operation == Operation::Open {
            load.buffers.keep();
        }
        Self { operation, ..load }
    }
}

impl Workload for Combined {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, operation, icv, batch, buffers } = self;
        let text_len = buffers.text_len;
        let mut jobs: Vec<AeadJob<'_>> = Vec::with_capacity(POOL);
        for (n, packet) in buffers.packets(0, *icv).enumerate() {
            let (text, tag) = packet.split_at_mut(text_len);
            let nonce = [n as u8; 12];
            jobs.push(AeadJob { nonce, aad: &[1; HEADER], text, tag, status: JobStatus::Pending });
        }
        let elapsed = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match operation {
                    Operation::Seal => key.seal(jobs),
                    Operation::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        (elapsed, POOL as u32)
    }
}

struct Separate {
    key: Box<dyn EtmKey>,
    operation: Operation,
    batch: usize,
    buffers: Buffers,
    /// Length of header and IV in front of the text.
    front: usize,
    tags: Vec<Tag>,
}

impl Separate {
    fn new(
        key: Box<dyn EtmKey>,
        cipher: CipherAlg,
        mac: MacAlg,
        operation: Operation,
        batch: usize,
        buffers: Buffers,
    ) -> Self {
        let front = HEADER + cipher.iv_len() + mac.iv_len();
        let tags = vec![Tag::zeroed(mac.tag_len()); POOL];
        let mut load = Self { key, operation: Operation::Seal, batch, buffers, front, tags };
        load.run();
        if operation == Operation::Open {
            load.buffers.keep();
        }
        Self { operation, ..load }
    }
}

impl Workload for Separate {
    fn run(&mut self) -> (Duration, u32) {
        let Self { key, operation, batch, buffers, front, tags } = self;
        let text = *front..*front + buffers.text_len;
        let mut jobs: Vec<EtmJob<'_>> = Vec::with_capacity(POOL);
        for ((n, data), tag) in buffers.packets(*front, 0).enumerate().zip(&*tags) {
            let (iv, mac_nonce) = ([n as u8; 16], [n as u8; 12]);
            let (text, tag) = (text.clone(), *tag);
            jobs.push(EtmJob { iv, mac_nonce, data, text, tag, status: JobStatus::Pending });
        }
        let elapsed = time(|| {
            for jobs in jobs.chunks_mut(*batch) {
                match operation {
                    Operation::Seal => key.seal(jobs),
                    Operation::Open => key.open(jobs),
                }
            }
        });
        assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
        *tags = jobs.iter().map(|job| job.tag).collect();
        (elapsed, POOL as u32)
    }
}
