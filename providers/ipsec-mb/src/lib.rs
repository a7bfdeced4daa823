//! Provider on Intel's multi-buffer library for IPsec: the fastest on x86 servers, if it is installed.
//!
//! It has AES-GCM and AES-GMAC by direct calls, and AES-CBC, AES-CTR, AES-CCM, HMAC, AES-XCBC and AES-CMAC
//! for up to 32 packets at once. It does not have ChaCha20-Poly1305, which is slower in this library than in
//! others.
//!
//! The library is loaded at run time and not needed to build the program
//! ([0031](../../../docs/decisions/0031-ipsec-mb.md)). If it is not installed or its version is unknown, or
//! if the processor is too old, the provider has no algorithms: list another provider after it
//! ([`casemate_crypto::Providers`]). Only the `ffi` module contains `unsafe` code.
#![deny(clippy::arithmetic_side_effects)]

mod aead;
mod cipher;
mod ffi;
mod mac;

use aead::Ccm;
use casemate_crypto::{
    AeadAlg, AeadKey, AeadRange, AesBits, CipherAlg, CipherKey, EtmKey, JobStatus, KeyError, MacAlg, MacKey,
    MacKind, Provider,
};
use cipher::{Cipher, CipherThenMac};
use core::fmt;
use ffi::{AesKeys, CcmKey, Library, Mode, library};
use mac::{BatchMac, Mac};

/// Measured minimum batch size, in packets, from which a burst is faster (see the decision). For smaller
/// batches, the SHA instructions of the processor are faster, which process one packet after another.
const MIN_BATCH_HMAC: usize = 8;
/// Blocks of AES need smaller batches than those of a hash function.
const MIN_BATCH_AES_MAC: usize = 4;
/// AES-CCM has both a chain and a counter.
const MIN_BATCH_CCM: usize = 2;

/// Measured text length, in bytes, up to which AES-GCM is faster than in ring on a processor with VAES but
/// without AVX-512: version 1.3 of the library has VAES for AVX-512 only
/// ([0074](../../../docs/decisions/0074-ring.md)).
const MAX_LEN_GCM_WITHOUT_AVX512: usize = 512;

/// The provider.
pub static IPSEC_MB: IpsecMb = IpsecMb;

/// The provider on Intel's library. Use [`IPSEC_MB`].
#[derive(Debug)]
pub struct IpsecMb;

/// Why the library is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// The platform is not Linux on x86-64.
    Platform,
    /// `libIPSec_MB.so.1` is not installed.
    NotInstalled,
    /// The installed version, `0xMMmmpp`, is unknown, and so is the layout of its structs.
    UnknownVersion(u32),
    /// The library lacks a function that its version should have.
    Incomplete,
    /// The processor lacks AES-NI, PCLMULQDQ or AVX.
    Processor,
    /// The library does not start, failed its self-test, or was built without argument checks and wiping.
    Refused,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("ipsec-mb requires Linux on x86-64"),
            Self::NotInstalled => f.write_str("libIPSec_MB.so.1 is not installed"),
            Self::UnknownVersion(version) => {
                let [_, major, minor, patch] = version.to_be_bytes();
                write!(f, "libIPSec_MB has the unsupported version {major}.{minor}.{patch}, expected 1.3.0")
            }
            Self::Incomplete => f.write_str("libIPSec_MB lacks a function that its version should have"),
            Self::Processor => f.write_str("the processor lacks AES-NI, PCLMULQDQ or AVX"),
            Self::Refused => f.write_str("libIPSec_MB did not start, or was built without its checks"),
        }
    }
}

impl core::error::Error for Unavailable {}

impl IpsecMb {
    /// Returns whether the library is available, or why not. The first call loads it.
    pub fn available(&self) -> Result<(), Unavailable> {
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
            AeadAlg::AesGcm { bits, .. } => aead::gcm(loaded()?, bits, key, icv),
            AeadAlg::AesCcm { bits, .. } if CcmKey::has(bits) => {
                CcmKey::new(loaded()?, bits, key, icv).map(|key| Box::new(Ccm { key, icv }) as _)
            }
            AeadAlg::AesCcm { .. } | AeadAlg::ChaCha20Poly1305 => return Err(KeyError::Unsupported),
        };
        made.ok_or(wrong_length(alg.key_len(), key))
    }

    fn cipher(&self, alg: CipherAlg, key: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        let (mode, bits) = aes(alg).ok_or(KeyError::Unsupported)?;
        Ok(Box::new(Cipher(expanded(mode, bits, key)?)))
    }

    /// HMAC accepts keys of any length (RFC 2104); `Providers` enforces the key length of RFC 4868 for SAs.
    fn mac(&self, alg: MacAlg, key: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        if let MacKind::AesGmac(bits) = alg.kind() {
            return aead::gmac(loaded()?, bits, key).ok_or(wrong_length(alg.key_len(), key));
        }
        Ok(Box::new(Mac { key: BatchMac::new(loaded()?, alg, key)?, len: alg.tag_len() }))
    }

    fn min_batch(&self, mac: MacAlg) -> usize {
        match mac.kind() {
            MacKind::AesGmac(_) => 1,
            MacKind::AesXcbc | MacKind::AesCmac => MIN_BATCH_AES_MAC,
            _ => MIN_BATCH_HMAC,
        }
    }

    fn aead_range(&self, alg: AeadAlg) -> AeadRange {
        match alg {
            AeadAlg::AesCcm { .. } => AeadRange { min_batch: MIN_BATCH_CCM, ..AeadRange::ALL },
            _ => AeadRange { max_len: gcm_max_len(), ..AeadRange::ALL },
        }
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
        Ok(Box::new(CipherThenMac { cipher, mac: BatchMac::new(loaded()?, mac, mac_key)?, tag_len }))
    }
}

/// Longest text for which AES-GCM is worthwhile on this processor.
fn gcm_max_len() -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && !is_x86_feature_detected!("avx512f")
    {
        return MAX_LEN_GCM_WITHOUT_AVX512;
    }
    usize::MAX
}

fn loaded() -> Result<&'static Library, KeyError> {
    library().map_err(|_| KeyError::Unsupported)
}

/// Sets up an AES key for bursts.
fn expanded(mode: Mode, bits: AesBits, key: &[u8]) -> Result<AesKeys, KeyError> {
    AesKeys::new(loaded()?, mode, bits, key).ok_or(wrong_length(bits.bytes(), key))
}

fn aes(alg: CipherAlg) -> Option<(Mode, AesBits)> {
    match alg {
        CipherAlg::AesCbc(bits) => Some((Mode::Cbc, bits)),
        CipherAlg::AesCtr(bits) => Some((Mode::Ctr, bits)),
        CipherAlg::Null | CipherAlg::CamelliaCbc(_) | CipherAlg::DesCbc | CipherAlg::TripleDesCbc => None,
    }
}

/// Error for a key of the wrong length, which is the only way in which a key can be invalid.
fn wrong_length(expected: usize, key: &[u8]) -> KeyError {
    KeyError::KeyLength { expected, given: key.len() }
}

#[inline]
fn done(ok: bool) -> JobStatus {
    if ok { JobStatus::Done } else { JobStatus::Failed }
}

#[cfg(test)]
mod tests {
    //! Limits of the job fields, and one key on several threads. `verify/vectors` contains the vectors.
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;
    use casemate_crypto::{AeadJob, EtmJob, MacJob, Tag};
    use ffi::MAX_JOB_LEN;
    use std::thread;

    /// Whether the library is available; reports the test as skipped if not.
    fn is_available() -> bool {
        IPSEC_MB.available().map_err(casemate_test_support::skip).is_ok()
    }

    fn chained() -> Box<dyn EtmKey> {
        let mac = MacAlg::standard(MacKind::HmacSha1);
        IPSEC_MB.etm(CipherAlg::AesCbc(AesBits::B128), &[4; 16], mac, &[5; 20]).unwrap()
    }

    fn job(data: &mut [u8]) -> EtmJob<'_> {
        let text = 16..data.len();
        EtmJob {
            iv: [9; 16],
            mac_nonce: [0; 12],
            data,
            text,
            tag: Tag::zeroed(12),
            status: JobStatus::Pending,
        }
    }

    #[test]
    fn an_unknown_version_is_reported() {
        assert_eq!(
            Unavailable::UnknownVersion(0x2_00_01).to_string(),
            "libIPSec_MB has the unsupported version 2.0.1, expected 1.3.0"
        );
    }

    #[test]
    fn packets_above_the_maximum_length_are_rejected() {
        if !is_available() {
            return;
        }
        let key = IPSEC_MB.mac(MacAlg::standard(MacKind::HmacSha256), &[1; 32]).unwrap();
        let longest = MAX_JOB_LEN - MAX_JOB_LEN % 16;
        for (len, status) in [(longest, JobStatus::Done), (MAX_JOB_LEN + 1, JobStatus::Failed)] {
            let data = vec![3; len];
            let tag = Tag::zeroed(16);
            let mut jobs = [MacJob { nonce: [0; 12], data: &data, tag, status: JobStatus::Pending }];
            key.sign(&mut jobs);
            assert_eq!(jobs[0].status, status, "{len} bytes to sign");
        }
        let (mut long, mut too_long, mut short) = (vec![3; longest], vec![3; longest + 16], vec![3; 32]);
        let mut jobs = [&mut long, &mut too_long, &mut short].map(|data| job(data));
        let pair = chained();
        pair.seal(&mut jobs);
        assert_eq!(
            jobs.each_ref().map(|job| job.status),
            [JobStatus::Done, JobStatus::Failed, JobStatus::Done]
        );
        pair.open(&mut jobs);
        assert_eq!(
            jobs.each_ref().map(|job| job.status),
            [JobStatus::Done, JobStatus::Failed, JobStatus::Done]
        );
        assert!(long.iter().chain(&too_long).chain(&short).all(|byte| *byte == 3));
    }

    fn ccm() -> Box<dyn AeadKey> {
        IPSEC_MB.aead(AeadAlg::aes_ccm(AesBits::B128, 8).unwrap(), &[6; 16]).unwrap()
    }

    /// Seals or opens texts with their tags in one call.
    fn run_ccm(
        work: &mut [(Vec<u8>, [u8; 8])],
        aad: &[u8],
        run: impl Fn(&mut [AeadJob<'_>]),
    ) -> Vec<JobStatus> {
        let mut jobs: Vec<_> = work
            .iter_mut()
            .map(|(text, tag)| AeadJob { nonce: [8; 12], aad, text, tag, status: JobStatus::Pending })
            .collect();
        run(&mut jobs);
        jobs.iter().map(|job| job.status).collect()
    }

    #[test]
    fn only_the_forged_packet_of_a_batch_fails_and_is_wiped() {
        if !is_available() {
            return;
        }
        for run in 1..=33 {
            let key = ccm();
            let mut work: Vec<_> = (1..=run).map(|len| (vec![3; 7 * len], [0; 8])).collect();
            let plain: Vec<_> = work.iter().map(|(text, _)| text.clone()).collect();
            assert!(
                run_ccm(&mut work, &[1; 12], |jobs| key.seal(jobs)).iter().all(|is| *is == JobStatus::Done)
            );
            let forged = run / 2;
            work[forged].1[7] ^= 1;
            let statuses = run_ccm(&mut work, &[1; 12], |jobs| key.open(jobs));
            for (at, (text, _)) in work.iter().enumerate() {
                let (status, left) = if at == forged {
                    (JobStatus::Failed, vec![0; plain[at].len()])
                } else {
                    (JobStatus::Done, plain[at].clone())
                };
                assert_eq!((statuses[at], text), (status, &left), "packet {at} of {run}");
            }
        }
    }

    #[test]
    fn ccm_rejects_lengths_above_the_limits() {
        if !is_available() {
            return;
        }
        let key = ccm();
        let mut work = [MAX_JOB_LEN, MAX_JOB_LEN + 1, 20].map(|len| (vec![3; len], [0; 8]));
        let expected = [JobStatus::Done, JobStatus::Failed, JobStatus::Done];
        assert_eq!(run_ccm(&mut work, &[], |jobs| key.seal(jobs)), expected);
        assert_eq!(run_ccm(&mut work, &[], |jobs| key.open(jobs)), expected);
        assert_eq!(run_ccm(&mut work[2..], &[1; 47], |jobs| key.seal(jobs)), [JobStatus::Failed]);
    }

    /// The result of a thread does not depend on other threads that use the same key at the same time.
    #[test]
    fn threads_share_a_key() {
        if !is_available() {
            return;
        }
        let pair = chained();
        let trace = |seed: u8| {
            let mut packets: Vec<Vec<u8>> = (1..=40).map(|n| vec![seed; 16 * n]).collect();
            for _ in 0..200 {
                let mut jobs: Vec<_> = packets.iter_mut().map(|data| job(data)).collect();
                pair.seal(&mut jobs);
                assert!(jobs.iter().all(|job| job.status == JobStatus::Done));
                let tags: Vec<Tag> = jobs.iter().map(|job| job.tag).collect();
                packets
                    .iter_mut()
                    .zip(tags)
                    .for_each(|(data, tag)| data[..12].copy_from_slice(tag.as_slice()));
            }
            packets
        };
        let alone = [trace(1), trace(2)];
        let together = thread::scope(|scope| {
            let threads = [1, 2].map(|seed| scope.spawn(move || trace(seed)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_ne!(alone[0], alone[1]);
        assert_eq!(alone, together);
    }
}
