//! Runs of ESP packets of one SA, to be sealed or opened.
//!
//! A packet to be sealed brings its reserved sequence number and uses it up. A packet that was opened turns into the
//! [`Authenticated`] that commits the replay window; there is no other way to get one.
//!
//! Runs are filled in place and handed on as slices: moving an array of 32 jobs costs more than sealing a small packet.

use super::key::Engine;
use super::{EspKey, combined, separate};
use crate::replay::Authenticated;
use crate::seq::Reserved;
use core::marker::PhantomData;

/// Most packets in one call to a provider.
pub(crate) const RUN: usize = 32;

/// Bytes before the SPI that a region includes. They belong to the header in front; sealing and opening may borrow them
/// for a moment (see `separate`) and put them back.
pub(crate) const SPARE: usize = 4;

/// One packet of a run.
pub(crate) struct Work<'p, Direction> {
    /// [`SPARE`] bytes, then the ESP packet from SPI to ICV.
    pub(super) region: &'p mut [u8],
    /// The full sequence number; its upper half counts only if the SA's numbers are extended.
    pub(super) seq: u64,
    pub(super) done: bool,
    direction: PhantomData<Direction>,
}

pub(crate) enum Sealing {}
pub(crate) enum Opening {}

/// A framed packet that waits to be sealed.
pub(crate) type ToSeal<'p> = Work<'p, Sealing>;
/// A received packet that waits to be opened.
pub(crate) type ToOpen<'p> = Work<'p, Opening>;

impl<'p> ToSeal<'p> {
    /// `region` is [`SPARE`] bytes and then the framed packet that carries `seq`.
    #[inline]
    pub(crate) fn new(region: &'p mut [u8], seq: Reserved) -> Self {
        Self { region, seq: seq.number(), done: false, direction: PhantomData }
    }

    /// Whether sealing worked.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.done
    }
}

impl<'p> ToOpen<'p> {
    /// `region` is [`SPARE`] bytes and then the received packet; `seq` its full number as the replay check found it.
    #[inline]
    pub(crate) fn new(region: &'p mut [u8], seq: u64) -> Self {
        Self { region, seq, done: false, direction: PhantomData }
    }

    /// The proof that the ICV verified.
    #[inline]
    pub(crate) fn authenticated(&self) -> Option<Authenticated> {
        self.done.then(|| Authenticated::new(self.seq))
    }
}

impl<D> Work<'_, D> {
    /// The upper half of the sequence number.
    #[inline]
    pub(super) fn high(&self) -> [u8; 4] {
        ((self.seq >> 32) as u32).to_be_bytes()
    }
}

/// Encrypts and signs at most [`RUN`] packets of one SA.
pub(crate) fn seal(key: &EspKey, esn: bool, run: &mut [ToSeal<'_>]) {
    match &key.engine {
        Engine::Combined { key: aead, salt } => {
            combined::run(key.sizes, *salt, esn, run, |jobs| aead.seal(jobs))
        }
        Engine::Separate { key: etm, iv } => separate::seal(key.sizes, &**etm, *iv, esn, run),
    }
}

/// Verifies and decrypts at most [`RUN`] packets of one SA.
pub(crate) fn open(key: &EspKey, esn: bool, run: &mut [ToOpen<'_>]) {
    match &key.engine {
        Engine::Combined { key: aead, salt } => {
            combined::run(key.sizes, *salt, esn, run, |jobs| aead.open(jobs))
        }
        Engine::Separate { key: etm, iv } => separate::open(key.sizes, &**etm, *iv, esn, run),
    }
}
