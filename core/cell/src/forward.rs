//! Frames in which a node that stands by forwards packets to the owner of its cell. They are the payload of
//! UDP datagrams.
//!
//! ```text
//!  | version (1) | run of the sender (16) | counter (8) | encrypted: ingress (1), IP packet | tag (16) |
//! ```
//! The algorithm is AES-256-GCM. Each process of a node has a *run*, 16 random bytes. The key of a run is
//! `prf+(wrapping key, label | run)` with HMAC-SHA2-256 (RFC 7296 section 2.13), and the nonce is the counter
//! of the run (NIST SP 800-38D section 8.2.1), so that no nonce is used twice with one key. The header and
//! the run of the receiver are associated data: a recorded frame is of no use for another node, or after a
//! restart of the receiver. A receiver that has two wrapping keys, while the key is changed, tries both with
//! the first frame of a run.
//!
//! The packet is forwarded whole, with its outer addresses, ports, ECN and fragmentation. Frames are
//! [`FRAME_OVERHEAD`] bytes longer.

mod senders;

use crate::seal::SealError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, JobStatus, PrfAlg, PrfKey, Providers, Rng, SecretBytes, prf_plus,
};
use core::ops::Range;
pub use senders::MAX_RUNS;
use senders::SenderRuns;

/// Bytes of a frame besides the packet.
pub const FRAME_OVERHEAD: usize = HEADER_LEN + INGRESS_LEN + TAG_LEN;

const VERSION: u8 = 1;
const RUN_LEN: usize = 16;
const COUNTER_LEN: usize = 8;
const HEADER_LEN: usize = 1 + RUN_LEN + COUNTER_LEN;
const INGRESS_LEN: usize = 1;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
const KEY_LEN: usize = 32;
const ALGORITHM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B256, icv: TAG_LEN as u8 };
const LABEL: &[u8] = b"casemate cell: forwarded packets";

/// Identifies a process of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId([u8; RUN_LEN]);

impl RunId {
    /// A new run.
    pub fn random(rng: &mut dyn Rng) -> Self {
        let mut id = [0; RUN_LEN];
        rng.public(&mut id);
        Self(id)
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.as_array().copied().map(Self)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; RUN_LEN] {
        &self.0
    }
}

/// How a packet has arrived at the node that forwards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingress {
    /// At UDP port 500: IKE.
    IkePort,
    /// At UDP port 4500: IKE or ESP.
    NattPort,
    /// As an IP packet: ESP, AH, their fragments, or ICMP about path MTUs.
    Ip,
}

impl Ingress {
    const fn code(self) -> u8 {
        match self {
            Self::IkePort => 1,
            Self::NattPort => 2,
            Self::Ip => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::IkePort),
            2 => Some(Self::NattPort),
            3 => Some(Self::Ip),
            _ => None,
        }
    }
}

/// Why a frame is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// It is too short, or of another version.
    Malformed,
    /// It was made with another wrapping key, for another run of a receiver, or has been changed.
    NotAuthentic,
    /// It was received before, or is too old to tell.
    Replayed,
    /// No provider supports the algorithms.
    Provider,
}

/// Derives the keys of runs from the wrapping key of a cell.
struct FrameKeys(Box<dyn PrfKey>);

impl FrameKeys {
    fn new(wrapping_key: &SecretBytes, providers: &Providers<'_>) -> Result<Self, SealError> {
        let key = providers.prf(PrfAlg::HmacSha256, wrapping_key.expose());
        key.map(Self).map_err(|_| SealError::Provider)
    }

    fn of_run(&self, run: &RunId, providers: &Providers<'_>) -> Result<Box<dyn AeadKey>, SealError> {
        let key = prf_plus(&*self.0, &[LABEL, run.as_bytes()], KEY_LEN).map_err(|_| SealError::Provider)?;
        providers.aead(ALGORITHM, key.expose()).map_err(|_| SealError::Provider)
    }
}

/// Makes the frames of one run.
pub struct FrameSealer {
    run: RunId,
    key: Box<dyn AeadKey>,
    /// Counter of the last frame; that of the first one is 1.
    last: u64,
}

impl FrameSealer {
    /// A sealer for a run that has sent nothing yet.
    pub fn new(wrapping_key: &SecretBytes, run: RunId, providers: &Providers<'_>) -> Result<Self, SealError> {
        let key = FrameKeys::new(wrapping_key, providers)?.of_run(&run, providers)?;
        Ok(Self { run, key, last: 0 })
    }

    /// Writes the frame with an IP packet for this run of a receiver to `frame`. Its former contents are
    /// lost.
    ///
    /// # Errors
    ///
    /// The provider has failed, or the counters are used up.
    pub fn seal(
        &mut self,
        receiver: &RunId,
        ingress: Ingress,
        packet: &[u8],
        frame: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        self.last = self.last.checked_add(1).ok_or(SealError::Provider)?;
        let counter = self.last.to_be_bytes();
        frame.clear();
        frame.push(VERSION);
        frame.extend_from_slice(self.run.as_bytes());
        frame.extend_from_slice(&counter);
        let aad = associated_data(frame, receiver);
        frame.push(ingress.code());
        frame.extend_from_slice(packet);
        let mut tag = [0; TAG_LEN];
        let text = frame.get_mut(HEADER_LEN..).unwrap_or_default();
        let mut jobs =
            [AeadJob { nonce: nonce(counter), aad: &aad, text, tag: &mut tag, status: JobStatus::Pending }];
        self.key.seal(&mut jobs);
        let is_done = jobs.iter().all(|job| job.status == JobStatus::Done);
        frame.extend_from_slice(&tag);
        if !is_done {
            frame.clear();
            return Err(SealError::Provider);
        }
        Ok(())
    }
}

/// Opens the frames for one run of a receiver. An unauthentic frame leaves no state behind.
pub struct FrameOpener {
    run: RunId,
    keys: FrameKeys,
    second: Option<FrameKeys>,
    senders: SenderRuns,
}

/// The encrypted part of a frame, and what belongs to it.
struct Sealed<'a> {
    counter: [u8; COUNTER_LEN],
    aad: [u8; HEADER_LEN + RUN_LEN],
    text: &'a mut [u8],
    tag: &'a mut [u8; TAG_LEN],
}

impl Sealed<'_> {
    /// Decrypts the text in place. Returns whether it is authentic; otherwise its contents are lost.
    fn open(&mut self, key: &dyn AeadKey) -> bool {
        let Self { counter, aad, text, tag } = self;
        let mut jobs = [AeadJob {
            nonce: nonce(*counter),
            aad,
            text,
            tag: tag.as_mut_slice(),
            status: JobStatus::Pending,
        }];
        key.open(&mut jobs);
        jobs.iter().all(|job| job.status == JobStatus::Done)
    }
}

impl FrameOpener {
    /// An opener for this run, which has received nothing yet. Senders may have a second wrapping key.
    pub fn new(
        wrapping_key: &SecretBytes,
        second: Option<&SecretBytes>,
        run: RunId,
        providers: &Providers<'_>,
    ) -> Result<Self, SealError> {
        let keys = FrameKeys::new(wrapping_key, providers)?;
        let second = second.map(|key| FrameKeys::new(key, providers)).transpose()?;
        Ok(Self { run, keys, second, senders: SenderRuns::default() })
    }

    /// Decrypts a frame in place. Returns how its packet has arrived, and where the packet is in the frame.
    pub fn open(
        &mut self,
        frame: &mut [u8],
        providers: &Providers<'_>,
    ) -> Result<(Ingress, Range<usize>), FrameError> {
        let len = frame.len();
        let (header, rest) = frame.split_first_chunk_mut::<HEADER_LEN>().ok_or(FrameError::Malformed)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(FrameError::Malformed)?;
        let (run, counter) =
            parse(header).filter(|_| text.len() >= INGRESS_LEN).ok_or(FrameError::Malformed)?;
        let aad = associated_data(header, &self.run);
        let number = u64::from_be_bytes(counter);
        let mut sealed = Sealed { counter, aad, text, tag };
        let new_key = match self.senders.get(&run) {
            Some(sender) if !sender.window.is_new(number) => return Err(FrameError::Replayed),
            Some(sender) if !sealed.open(&*sender.key) => return Err(FrameError::NotAuthentic),
            Some(_) => None,
            None => Some(self.open_first(&run, &mut sealed, providers)?),
        };
        self.senders.note(run, number, new_key);
        let ingress = frame.get(HEADER_LEN).copied().and_then(Ingress::from_code);
        let packet = HEADER_LEN.saturating_add(INGRESS_LEN)..len.saturating_sub(TAG_LEN);
        Ok((ingress.ok_or(FrameError::Malformed)?, packet))
    }

    /// Decrypts a frame of a run that is not known yet. Returns the key of the run.
    fn open_first(
        &self,
        run: &RunId,
        sealed: &mut Sealed<'_>,
        providers: &Providers<'_>,
    ) -> Result<Box<dyn AeadKey>, FrameError> {
        let of_run = |keys: &FrameKeys| keys.of_run(run, providers).map_err(|_| FrameError::Provider);
        let encrypted = self.second.as_ref().map(|second| (second, sealed.text.to_vec(), *sealed.tag));
        let key = of_run(&self.keys)?;
        if sealed.open(&*key) {
            return Ok(key);
        }
        let (second, text, tag) = encrypted.ok_or(FrameError::NotAuthentic)?;
        sealed.text.copy_from_slice(&text);
        *sealed.tag = tag;
        let key = of_run(second)?;
        if sealed.open(&*key) { Ok(key) } else { Err(FrameError::NotAuthentic) }
    }
}

/// The run of the sender, and the counter.
fn parse(header: &[u8; HEADER_LEN]) -> Option<(RunId, [u8; COUNTER_LEN])> {
    let (version, rest) = header.split_first()?;
    let (run, counter) = rest.split_first_chunk::<RUN_LEN>()?;
    let is_known = *version == VERSION;
    counter.as_array().copied().filter(|_| is_known).map(|counter| (RunId(*run), counter))
}

fn associated_data(header: &[u8], receiver: &RunId) -> [u8; HEADER_LEN + RUN_LEN] {
    let mut aad = [0; HEADER_LEN + RUN_LEN];
    let parts = header.iter().chain(receiver.as_bytes());
    aad.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    aad
}

fn nonce(counter: [u8; COUNTER_LEN]) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    let start = NONCE_LEN.saturating_sub(COUNTER_LEN);
    nonce.iter_mut().skip(start).zip(counter).for_each(|(to, from)| *to = from);
    nonce
}

#[cfg(test)]
mod tests;
