//! Runs of ESP packets of one SA, to be sealed or opened.
//!
//! A packet to be sealed brings its reserved sequence number and uses it up. A packet that was opened turns into the
//! [`Authenticated`] that commits the replay window; there is no other way to get one.
//!
//! Runs come as iterators, so that what a provider takes is built from the packets at once: with small packets every list
//! in between would cost a tenth of the sealing.

use super::key::Engine;
use super::{EspKey, combined, separate};
use crate::replay::Authenticated;
use crate::seq::Reserved;
use arrayvec::ArrayVec;

/// Most packets that go through the data path at once, and so most in one call to a provider.
pub const RUN: usize = 32;

/// Bytes before the SPI that a region includes. They belong to the header in front; sealing and opening may borrow them
/// for a moment (see `separate`) and put them back.
pub(crate) const SPARE: usize = 4;

/// One packet of a run.
pub(super) struct Work<'p> {
    /// [`SPARE`] bytes, then the ESP packet from SPI to ICV.
    pub(super) region: &'p mut [u8],
    /// The full sequence number; its upper half counts only if the SA's numbers are extended.
    pub(super) seq: u64,
}

impl Work<'_> {
    /// The upper half of the sequence number.
    #[inline]
    pub(super) fn high(&self) -> [u8; 4] {
        ((self.seq >> 32) as u32).to_be_bytes()
    }
}

/// Which packets of a run came to a good end.
#[derive(Clone, Copy)]
pub(crate) struct Done(u32);

impl Done {
    /// One answer for each packet, the first first.
    #[inline]
    pub(super) fn collect(outcomes: impl DoubleEndedIterator<Item = bool>) -> Self {
        Self(outcomes.rev().fold(0, |bits, done| bits << 1 | u32::from(done)))
    }

    /// Whether the first `count` are all done.
    #[inline]
    pub(crate) fn all(self, count: u32) -> bool {
        self.0.trailing_ones() >= count
    }

    /// Whether packet `n` is done.
    #[inline]
    pub(crate) fn has(self, n: u32) -> bool {
        self.0.checked_shr(n).is_some_and(|bits| bits & 1 == 1)
    }
}

/// The numbers of a run that was opened, and which of them proved themselves.
pub(crate) struct Proofs {
    seqs: ArrayVec<u64, RUN>,
    done: Done,
}

impl Proofs {
    /// The proof that the ICV of each packet verified, in order.
    #[inline]
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Option<Authenticated>> {
        let done = self.done;
        (0..).zip(self.seqs).map(move |(n, seq)| done.has(n).then(|| Authenticated::new(seq)))
    }
}

/// Encrypts and signs at most [`RUN`] framed packets of one SA. Each is a region, [`SPARE`] bytes and then the packet, and
/// the number that it carries.
#[inline]
pub(crate) fn seal<'p>(
    key: &EspKey,
    esn: bool,
    packets: impl Iterator<Item = (&'p mut [u8], Reserved)>,
) -> Done {
    let run = packets.map(|(region, seq)| Work { region, seq: seq.number() }).take(RUN);
    match &key.engine {
        Engine::Combined { key: aead, salt } => {
            combined::run(key.sizes, *salt, esn, run, |jobs| aead.seal(jobs))
        }
        Engine::Separate { key: etm, iv } => separate::seal(key.sizes, &**etm, *iv, esn, run),
    }
}

/// Verifies and decrypts at most [`RUN`] received packets of one SA. Each is a region as above, and the full number that
/// the replay check found.
#[inline]
pub(crate) fn open<'p>(
    key: &EspKey,
    esn: bool,
    packets: impl Iterator<Item = (&'p mut [u8], u64)>,
) -> Proofs {
    let mut seqs: ArrayVec<u64, RUN> = ArrayVec::new();
    let note = |(region, seq)| {
        seqs.push(seq);
        Work { region, seq }
    };
    let run = packets.take(RUN).map(note);
    let done = match &key.engine {
        Engine::Combined { key: aead, salt } => {
            combined::run(key.sizes, *salt, esn, run, |jobs| aead.open(jobs))
        }
        Engine::Separate { key: etm, iv } => separate::open(key.sizes, &**etm, *iv, esn, run),
    };
    Proofs { seqs, done }
}
