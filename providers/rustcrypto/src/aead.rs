//! Combined-mode ciphers: AES-GCM (RFC 4106), AES-CCM (RFC 4309) and ChaCha20-Poly1305 (RFC 7634, RFC 8439).
//!
//! AES tags have 16, 12 or 8 bytes. For AES-GCM, the shorter tags need the `hazmat` feature of `aes-gcm`.
//! Forging an 8-byte tag succeeds at best once in 2^64 attempts, and more often with long packets, so RFC
//! 8221 section 5 only lists the 16-byte ICV. The shorter tags are available for old peers.

use crate::init;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::{U8, U11, U12, U16};
use aes_gcm::aead::{AeadCore, AeadInOut, Nonce, Tag};
use alloc::boxed::Box;
use casemate_crypto::{AeadJob, AeadKey, AesBits, JobStatus, KeyError};
use ccm::Ccm;
use chacha20poly1305::ChaCha20Poly1305;

/// Sets up an AES-GCM key with an ICV of `icv` bytes.
pub(crate) fn gcm(bits: AesBits, icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
    match bits {
        AesBits::B128 => gcm_for::<Aes128Enc>(icv, key),
        AesBits::B192 => gcm_for::<Aes192Enc>(icv, key),
        AesBits::B256 => gcm_for::<Aes256Enc>(icv, key),
    }
}

fn gcm_for<A>(icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    match icv {
        8 => combined::<AesGcm<A, U12, U8>>(key),
        12 => combined::<AesGcm<A, U12, U12>>(key),
        16 => gcm_whole_icv::<A>(key),
        _ => Err(KeyError::Unsupported),
    }
}

/// Sets up an AES-GCM key with the 16-byte ICV, for the cipher `A`.
pub(crate) fn gcm_whole_icv<A>(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    combined::<AesGcm<A, U12, U16>>(key)
}

/// Sets up an AES-CCM key with an ICV of `icv` bytes. RFC 4309 defines 11-byte nonces, and thus a 4-byte
/// length field.
pub(crate) fn ccm(bits: AesBits, icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
    match bits {
        AesBits::B128 => ccm_for::<Aes128Enc>(icv, key),
        AesBits::B192 => ccm_for::<Aes192Enc>(icv, key),
        AesBits::B256 => ccm_for::<Aes256Enc>(icv, key),
    }
}

fn ccm_for<A>(icv: u8, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    A: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + KeyInit + Send + Sync + 'static,
{
    match icv {
        8 => combined::<Ccm<A, U8, U11>>(key),
        12 => combined::<Ccm<A, U12, U11>>(key),
        16 => combined::<Ccm<A, U16, U11>>(key),
        _ => Err(KeyError::Unsupported),
    }
}

/// Sets up a ChaCha20-Poly1305 key.
pub(crate) fn chacha20_poly1305(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
    combined::<ChaCha20Poly1305>(key)
}

/// Adapter from combined-mode ciphers with detached tags to [`AeadKey`]. AES-GCM, AES-CCM and
/// ChaCha20-Poly1305 only select the type.
struct Combined<C>(C);

/// Sets up a key of the cipher `C`.
fn combined<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError>
where
    C: AeadInOut + KeyInit + Send + Sync + 'static,
{
    Ok(Box::new(Combined(init::<C>(key)?)))
}

impl<C: AeadInOut + Send + Sync> AeadKey for Combined<C> {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = status(self.seal_one(job));
        }
    }

    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            job.status = status(self.open_one(job));
        }
    }
}

impl<C: AeadInOut> Combined<C> {
    fn seal_one(&self, job: &mut AeadJob<'_>) -> Option<()> {
        let nonce = nonce::<C>(&job.nonce)?;
        let tag = <&mut Tag<C>>::try_from(&mut *job.tag).ok()?;
        *tag = self.0.encrypt_inout_detached(nonce, job.aad, (&mut *job.text).into()).ok()?;
        Some(())
    }

    /// The cipher crate compares the tag in constant time.
    fn open_one(&self, job: &mut AeadJob<'_>) -> Option<()> {
        let nonce = nonce::<C>(&job.nonce)?;
        let tag = <&Tag<C>>::try_from(&*job.tag).ok()?;
        self.0.decrypt_inout_detached(nonce, job.aad, (&mut *job.text).into(), tag).ok()
    }
}

/// The nonce is left-aligned in its field.
fn nonce<C: AeadCore>(field: &[u8; 12]) -> Option<&Nonce<C>> {
    field.get(..size_of::<Nonce<C>>())?.try_into().ok()
}

fn status(done: Option<()>) -> JobStatus {
    if done.is_some() { JobStatus::Done } else { JobStatus::Failed }
}
