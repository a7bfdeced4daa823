//! Intel's multi-buffer library for IPsec as a provider: the fastest on x86 servers, where it is installed.
//!
//! Has AES-GCM and AES-GMAC by direct calls, and AES-CBC, AES-CTR, AES-CCM, HMAC, AES-XCBC and AES-CMAC for up to 32 packets
//! at once; not ChaCha20-Poly1305, in which it is slower than others. The library is opened
//! when the program runs and is not needed to build it ([0031](../../../docs/decisions/0031-ipsec-mb.md)). Where it is not there,
//! is of a version that is not known, or the processor is too old, the provider has no algorithm: put another one behind it
//! ([`casemate_crypto::Providers`]). `unsafe` is in its `ffi` module alone.
#![deny(clippy::arithmetic_side_effects)]

mod ccm;
mod cipher;
mod etm;
mod ffi;
mod gcm;
mod mac;
#[cfg(test)]
mod tests;

use casemate_crypto::{
    AeadAlg, AeadKey, AesBits, CipherAlg, CipherKey, EtmKey, KeyError, MacAlg, MacKey, MacKind, Outcome,
    Provider,
};
use ccm::Ccm;
use cipher::Cipher;
use core::fmt;
use etm::Chained;
use ffi::{AesKeys, CcmKey, Library, Mode, library};
use mac::{Mac, Signer};

/// From how many packets on a burst is worth it, by measurement: see the decision. Below that the processor's own SHA
/// instructions are faster, which work on one packet after the other.
const FROM_HMAC: usize = 8;
/// Blocks of AES need less company than those of a hash.
const FROM_AES_MAC: usize = 4;
/// AES-CCM runs a chain and a counter.
const FROM_CCM: usize = 2;

/// The provider.
pub static IPSEC_MB: IpsecMb = IpsecMb;

/// Intel's library. Use [`IPSEC_MB`].
#[derive(Debug)]
pub struct IpsecMb;

/// Why the library is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It runs on Linux on x86-64 only.
    Platform,
    /// There is no `libIPSec_MB.so.1`.
    NotInstalled,
    /// The library is there, but the layout of its structs in this version is not known: `0xMMmmpp`.
    UnknownVersion(u32),
    /// The library lacks a function that its version has.
    Incomplete,
    /// The processor lacks AES-NI, PCLMULQDQ or AVX.
    Processor,
    /// The library does not start, failed its self-test, or was built without checks of arguments and wiping.
    Refused,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("ipsec-mb is for Linux on x86-64"),
            Self::NotInstalled => f.write_str("libIPSec_MB.so.1 is not installed"),
            Self::UnknownVersion(version) => {
                let [_, major, minor, patch] = version.to_be_bytes();
                write!(f, "libIPSec_MB is version {major}.{minor}.{patch}, and 1.3.0 was expected")
            }
            Self::Incomplete => f.write_str("libIPSec_MB lacks a function of its version"),
            Self::Processor => f.write_str("the processor lacks AES-NI, PCLMULQDQ or AVX"),
            Self::Refused => f.write_str("libIPSec_MB did not start, or was built without its checks"),
        }
    }
}

impl core::error::Error for Absent {}

impl IpsecMb {
    /// Whether the library is used, or why not. Opens it if that has not happened yet.
    pub fn available(&self) -> Result<(), Absent> {
        library().map(|_| ())
    }
}

impl Provider for IpsecMb {
    fn name(&self) -> &'static str {
        "ipsec-mb"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        let icv = alg.icv_len();
        let made: Option<Box<dyn AeadKey>> = match alg {
            AeadAlg::AesGcm { bits, .. } => gcm::gcm(opened()?, bits, key, icv),
            AeadAlg::AesCcm { bits, .. } if CcmKey::has(bits) => {
                CcmKey::new(opened()?, bits, key, icv).map(|key| Box::new(Ccm { key, icv }) as _)
            }
            AeadAlg::AesCcm { .. } | AeadAlg::ChaCha20Poly1305 => return Err(KeyError::Unsupported),
        };
        made.ok_or(wrong_length(alg.key_len(), key))
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        let (mode, bits) = aes(alg).ok_or(KeyError::Unsupported)?;
        Ok(Box::new(Cipher(expanded(mode, bits, key)?)))
    }

    /// HMAC takes a key of any length here (RFC 2104); `Providers` holds SAs to the length of RFC 4868.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        if let MacKind::AesGmac(bits) = alg.kind() {
            return gcm::gmac(opened()?, bits, key).ok_or(wrong_length(alg.key_len(), key));
        }
        Ok(Box::new(Mac { key: Signer::new(opened()?, alg, key)?, len: alg.tag_len() }))
    }

    fn worth_from(&self, mac: MacAlg) -> usize {
        match mac.kind() {
            MacKind::AesGmac(_) => 1,
            MacKind::AesXcbc | MacKind::AesCmac => FROM_AES_MAC,
            _ => FROM_HMAC,
        }
    }

    fn aead_worth_from(&self, alg: AeadAlg) -> usize {
        if matches!(alg, AeadAlg::AesCcm { .. }) { FROM_CCM } else { 1 }
    }

    fn etm(
        &self,
        cipher: CipherAlg,
        cipher_key: &[u8],
        mac: MacAlg,
        mac_key: &[u8],
    ) -> Result<Box<dyn EtmKey>, KeyError> {
        let tag_len = mac.tag_len();
        let cipher = match (cipher, aes(cipher)) {
            (CipherAlg::Null, _) => None,
            (_, Some((mode, bits))) => Some(expanded(mode, bits, cipher_key)?),
            (_, None) => return Err(KeyError::Unsupported),
        };
        Ok(Box::new(Chained { cipher, mac: Signer::new(opened()?, mac, mac_key)?, tag_len }))
    }
}

fn opened() -> Result<&'static Library, KeyError> {
    library().map_err(|_| KeyError::Unsupported)
}

/// An AES key for bursts.
fn expanded(mode: Mode, bits: AesBits, key: &[u8]) -> Result<AesKeys, KeyError> {
    AesKeys::new(opened()?, mode, bits, key).ok_or(wrong_length(bits.bytes(), key))
}

fn aes(alg: CipherAlg) -> Option<(Mode, AesBits)> {
    match alg {
        CipherAlg::AesCbc(bits) => Some((Mode::Cbc, bits)),
        CipherAlg::AesCtr(bits) => Some((Mode::Ctr, bits)),
        CipherAlg::Null | CipherAlg::DesCbc | CipherAlg::TripleDesCbc => None,
    }
}

/// The only thing that a key can have wrong.
fn wrong_length(expected: usize, key: &[u8]) -> KeyError {
    KeyError::KeyLength { expected, given: key.len() }
}

#[inline]
fn done(ok: bool) -> Outcome {
    if ok { Outcome::Done } else { Outcome::Failed }
}
