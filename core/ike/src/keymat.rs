//! Keys from a key exchange (RFC 7296 sections 2.14, 2.17 and 2.18).
//!
//! [`SaKeys`] are those of an IKE SA, the first or one that replaces another; [`child`] makes what the SAs of a Child SA take
//! their keys from. Everything here is wiped on drop.

use crate::SkSuite;
use casemate_crypto::{KeyError, PrfAlg, PrfError, Providers, SecretBytes, prf_plus};
use casemate_wire::ike::IkeSpi;
use core::fmt;

/// What both sides sent in the clear, and what keys are bound to.
#[derive(Debug, Clone, Copy)]
pub struct Nonces<'a> {
    /// The initiator's nonce, of the exchange that makes the keys.
    pub initiator: &'a [u8],
    /// The responder's nonce.
    pub responder: &'a [u8],
}

/// SPIs of the IKE SA that gets the keys: the initiator's and the responder's.
pub type Spis = (IkeSpi, IkeSpi);

/// Why there are no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeymatError {
    /// The PRF could not be set up.
    Prf(KeyError),
    /// The PRF gave no output.
    Output(PrfError),
}

impl From<KeyError> for KeymatError {
    fn from(error: KeyError) -> Self {
        Self::Prf(error)
    }
}

impl From<PrfError> for KeymatError {
    fn from(error: PrfError) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for KeymatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prf(error) => write!(f, "PRF: {error}"),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for KeymatError {}

/// The seven keys of an IKE SA (RFC 7296 section 2.14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaKeys {
    /// SK_d, from which keys of Child SAs are made, and of the IKE SA that replaces this one.
    pub d: SecretBytes,
    /// SK_ai: integrity of what the initiator sends; empty with a combined-mode algorithm.
    pub ai: SecretBytes,
    /// SK_ar: the same for the responder.
    pub ar: SecretBytes,
    /// SK_ei: encryption of what the initiator sends, salt or nonce included.
    pub ei: SecretBytes,
    /// SK_er: the same for the responder.
    pub er: SecretBytes,
    /// SK_pi, for the initiator's AUTH payload.
    pub pi: SecretBytes,
    /// SK_pr, for the responder's.
    pub pr: SecretBytes,
}

impl SaKeys {
    /// Of an IKE SA that begins with IKE_SA_INIT. `shared` is g^ir (RFC 7296 section 2.14).
    pub fn first(
        prf: PrfAlg,
        suite: SkSuite,
        shared: &SecretBytes,
        nonces: Nonces<'_>,
        spis: Spis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let parts = [prf.skeyseed_nonce(nonces.initiator), prf.skeyseed_nonce(nonces.responder)];
        let seed = providers.prf(prf, &parts.concat())?.prf(&[shared.expose()])?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// Of an IKE SA that replaces one with `old` PRF and SK_d. `shared` is the new g^ir (RFC 7296 section 2.18).
    pub fn rekeyed(
        old: (PrfAlg, &SecretBytes),
        (prf, suite): (PrfAlg, SkSuite),
        shared: &SecretBytes,
        nonces: Nonces<'_>,
        spis: Spis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let (old_prf, old_d) = old;
        let parts = [shared.expose(), nonces.initiator, nonces.responder];
        let seed = providers.prf(old_prf, old_d.expose())?.prf(&parts)?;
        Self::expand(prf, suite, seed.expose(), nonces, spis, providers)
    }

    /// {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr)
    fn expand(
        prf: PrfAlg,
        suite: SkSuite,
        skeyseed: &[u8],
        nonces: Nonces<'_>,
        (spi_i, spi_r): Spis,
        providers: &Providers<'_>,
    ) -> Result<Self, KeymatError> {
        let (encr, integ) = suite.key_lens();
        let key = prf.key_len();
        let lens = [key, integ, integ, encr, encr, key, key];
        let len = lens.into_iter().fold(0, usize::saturating_add);
        let (spi_i, spi_r) = (spi_i.0.to_be_bytes(), spi_r.0.to_be_bytes());
        let seed = [nonces.initiator, nonces.responder, &spi_i, &spi_r];
        let stream = prf_plus(&*providers.prf(prf, skeyseed)?, &seed, len)?;
        let mut rest = stream.expose();
        let [d, ai, ar, ei, er, pi, pr] = lens.map(|len| {
            // `stream` is as long as all of them.
            let (key, behind) = rest.split_at_checked(len).unwrap_or_default();
            rest = behind;
            SecretBytes::new(key)
        });
        Ok(Self { d, ai, ar, ei, er, pi, pr })
    }
}

/// KEYMAT of a Child SA (RFC 7296 section 2.17): `len` bytes, of which the SA from the initiator takes its keys first, and each
/// SA encryption before integrity. `shared` is the new g^ir, if the exchange had a KE payload.
pub fn child(
    (prf, d): (PrfAlg, &SecretBytes),
    shared: Option<&SecretBytes>,
    nonces: Nonces<'_>,
    len: usize,
    providers: &Providers<'_>,
) -> Result<SecretBytes, KeymatError> {
    let shared = shared.map_or(&[][..], SecretBytes::expose);
    let seed = [shared, nonces.initiator, nonces.responder];
    Ok(prf_plus(&*providers.prf(prf, d.expose())?, &seed, len)?)
}

#[cfg(test)]
mod tests;
