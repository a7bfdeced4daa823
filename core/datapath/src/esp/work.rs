//! Sealing and opening of runs of ESP packets of one SA.
//!
//! Sealing a packet consumes its reserved sequence number. Opening a packet is the only way to an
//! [`Authenticated`], which the replay window needs to commit.
//!
//! Runs are iterators, so that the provider's jobs are built directly from the packets. With small packets,
//! each list in between would cost a tenth of the sealing time.

use super::EspCipher;
use super::combined::Nonces;
use super::{EspKey, combined, separate};
use crate::replay::Authenticated;
use crate::seq::Reserved;
use arrayvec::ArrayVec;

/// Maximum number of packets in one batch, and so in one call to a provider.
pub const MAX_BATCH: usize = 32;

// `SuccessMask` has one bit for each packet of a batch.
const _: () = assert!(MAX_BATCH <= u32::BITS as usize);

/// Invariant of the range of a run.
pub(crate) const RUN_IN_BATCH: &str = "a run is inside its batch";

/// Bytes before the SPI that a region includes. They belong to the header in front. Sealing and opening may
/// use them temporarily (see `separate`) and restore them.
pub(crate) const SPARE: usize = 4;

/// Invariant of [`EspPacket::region`].
pub(super) const WHOLE_REGION: &str = "a region contains the ESP header and the ICV";

/// One packet of a run.
pub(super) struct EspPacket<'p> {
    /// [`SPARE`] bytes, then the ESP packet from SPI to ICV.
    pub(super) region: &'p mut [u8],
    /// The full sequence number. Its upper half is used only with extended sequence numbers.
    pub(super) seq: u64,
}

impl EspPacket<'_> {
    /// The upper half of the sequence number.
    #[inline]
    pub(super) fn high(&self) -> [u8; 4] {
        ((self.seq >> 32) as u32).to_be_bytes()
    }
}

/// The packets of a run that succeeded, one bit for each.
#[derive(Clone, Copy)]
pub(crate) struct SuccessMask(u32);

impl SuccessMask {
    /// Collects one result for each packet.
    #[inline]
    pub(super) fn collect(outcomes: impl DoubleEndedIterator<Item = bool>) -> Self {
        Self(outcomes.rev().fold(0, |bits, done| bits << 1 | u32::from(done)))
    }

    /// Whether the first `count` packets succeeded.
    #[inline]
    pub(crate) fn all(self, count: u32) -> bool {
        self.0.trailing_ones() >= count
    }

    /// Whether packet `n` succeeded.
    #[inline]
    pub(crate) fn has(self, n: u32) -> bool {
        self.0.checked_shr(n).is_some_and(|bits| bits & 1 == 1)
    }
}

/// A received packet of a run, and where the result goes.
pub(crate) struct ToOpen<'p> {
    /// [`SPARE`] bytes, then the ESP packet from SPI to ICV.
    pub(crate) region: &'p mut [u8],
    /// The full sequence number, from the replay check.
    pub(crate) seq: u64,
    pub(crate) outcome: &'p mut OpenOutcome,
}

/// Result of opening one packet.
#[derive(Debug)]
pub(crate) enum OpenOutcome {
    /// Not opened yet.
    Pending,
    Forged,
    Authenticated(Authenticated),
}

/// Encrypts and signs at most [`MAX_BATCH`] framed packets of one SA. Each item is a region ([`SPARE`] bytes,
/// then the packet) and the reserved sequence number.
#[inline]
pub(crate) fn seal<'p>(
    key: &EspKey,
    esn: bool,
    packets: impl Iterator<Item = (&'p mut [u8], Reserved)>,
) -> SuccessMask {
    let run = packets.map(|(region, seq)| EspPacket { region, seq: seq.number() }).take(MAX_BATCH);
    match &key.cipher {
        EspCipher::Combined { key: aead, salt, iv } => {
            let nonces = Nonces { salt: *salt, iv: *iv };
            combined::run(key.sizes, nonces, esn, run, |jobs| aead.seal(jobs))
        }
        EspCipher::Separate { key: etm, iv } => separate::seal(key.sizes, &**etm, *iv, esn, run),
    }
}

/// Verifies and decrypts at most [`MAX_BATCH`] received packets of one SA, and writes the result of each.
#[inline]
pub(crate) fn open<'p>(key: &EspKey, esn: bool, packets: impl Iterator<Item = ToOpen<'p>>) {
    let mut results: ArrayVec<(u64, &mut OpenOutcome), MAX_BATCH> = ArrayVec::new();
    let run = packets.take(MAX_BATCH).map(|ToOpen { region, seq, outcome }| {
        results.push((seq, outcome));
        EspPacket { region, seq }
    });
    let SuccessMask(mut done) = match &key.cipher {
        EspCipher::Combined { key: aead, salt, iv } => {
            let nonces = Nonces { salt: *salt, iv: *iv };
            combined::run(key.sizes, nonces, esn, run, |jobs| aead.open(jobs))
        }
        EspCipher::Separate { key: etm, iv } => separate::open(key.sizes, &**etm, *iv, esn, run),
    };
    for (seq, outcome) in &mut results {
        let is_authentic = done & 1 == 1;
        done >>= 1;
        **outcome = match is_authentic {
            true => OpenOutcome::Authenticated(Authenticated::new(*seq)),
            false => OpenOutcome::Forged,
        };
    }
}
