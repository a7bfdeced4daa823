//! Provider on ring: AES-GCM with 128 and 256 bits and its full ICV of 16 bytes.
//!
//! ring has code for VAES with AVX2, which other libraries lack: it is the fastest for long packets on
//! processors without AVX-512 ([0074](../../../docs/decisions/0074-ring.md), [`Ring::is_fastest`]). All else
//! is left to the providers after it ([`casemate_crypto::Providers`]).
//!
//! Packet processing allocates nothing. Threads may share keys. No unsafe code in this crate.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use casemate_crypto::{AeadAlg, AeadJob, AeadKey, AesBits, JobStatus, KeyError, Provider};
use core::hint::black_box;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;

/// Length of the ICV of all algorithms, in bytes.
const TAG_LEN: usize = 16;

/// The provider.
pub static RING: Ring = Ring;

/// The provider on ring. It has no state: use [`RING`].
#[derive(Debug)]
pub struct Ring;

impl Ring {
    /// Whether this processor is one for which ring is the fastest: x86-64 with VAES, without AVX-512.
    pub fn is_fastest(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("vaes")
                && is_x86_feature_detected!("vpclmulqdq")
                && !is_x86_feature_detected!("avx512f")
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

impl Provider for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn aead(&self, alg: AeadAlg, key: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        let algorithm = algorithm(alg).ok_or(KeyError::Unsupported)?;
        let wrong = KeyError::KeyLength { expected: alg.key_len(), given: key.len() };
        match key_of(algorithm, key) {
            Ok(key) => Ok(Box::new(RingKey(key))),
            Err(Unspecified) if key.len() == alg.key_len() => Err(KeyError::Refused),
            Err(Unspecified) => Err(wrong),
        }
    }
}

/// Returns the algorithm in ring; `None` if ring does not have it with this key and ICV length.
fn algorithm(alg: AeadAlg) -> Option<&'static Algorithm> {
    let algorithm = match alg {
        AeadAlg::AesGcm { bits: AesBits::B128, .. } => &AES_128_GCM,
        AeadAlg::AesGcm { bits: AesBits::B256, .. } => &AES_256_GCM,
        AeadAlg::AesGcm { .. } | AeadAlg::AesCcm { .. } | AeadAlg::ChaCha20Poly1305 => return None,
    };
    (alg.icv_len() == algorithm.tag_len()).then_some(algorithm)
}

fn key_of(algorithm: &'static Algorithm, key: &[u8]) -> Result<LessSafeKey, Unspecified> {
    UnboundKey::new(algorithm, key).map(LessSafeKey::new)
}

struct RingKey(LessSafeKey);

impl RingKey {
    #[inline]
    fn seal_one(&self, job: &mut AeadJob<'_>) -> Result<(), Unspecified> {
        let space: &mut [u8; TAG_LEN] = job.tag.try_into().map_err(|_| Unspecified)?;
        let nonce = Nonce::assume_unique_for_key(job.nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(job.aad), job.text)?;
        *space = tag.as_ref().try_into().map_err(|_| Unspecified)?;
        Ok(())
    }

    #[inline]
    fn open_one(&self, job: &mut AeadJob<'_>) -> Result<(), Unspecified> {
        let nonce = Nonce::assume_unique_for_key(job.nonce);
        let tag = Tag::try_from(&*job.tag)?;
        self.0.open_in_place_separate_tag(nonce, Aad::from(job.aad), tag, job.text, 0..).map(|_| ())
    }
}

impl AeadKey for RingKey {
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

#[inline]
fn status(done: Result<(), Unspecified>) -> JobStatus {
    if done.is_ok() { JobStatus::Done } else { JobStatus::Failed }
}

/// ring does not wipe its keys. A key of zeros replaces the key and its schedule, in the same memory.
impl Drop for RingKey {
    fn drop(&mut self) {
        const ZEROS: [u8; 32] = [0; 32];
        let algorithm = self.0.algorithm();
        if let Some(Ok(zeros)) = ZEROS.get(..algorithm.key_len()).map(|key| key_of(algorithm, key)) {
            self.0 = zeros;
        }
        black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    //! Limits of the algorithms and job fields, and one key on several threads. `verify/vectors` contains the
    //! vectors.

    use super::*;

    const TEXT: [u8; 100] = [7; 100];
    const ALGORITHMS: [AeadAlg; 2] =
        [AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }, AeadAlg::AesGcm { bits: AesBits::B256, icv: 16 }];

    fn key(alg: AeadAlg) -> Box<dyn AeadKey> {
        RING.aead(alg, &[5; 32][..alg.key_len()]).unwrap()
    }

    fn run(text: &mut [u8], tag: &mut [u8], process: impl Fn(&mut [AeadJob<'_>])) -> JobStatus {
        let mut jobs = [AeadJob { nonce: [1; 12], aad: &[2; 8], text, tag, status: JobStatus::Pending }];
        process(&mut jobs);
        jobs[0].status
    }

    #[test]
    fn algorithms_with_other_keys_or_icvs_are_left_to_other_providers() {
        for bits in [AesBits::B128, AesBits::B192, AesBits::B256] {
            for icv in [8, 12, 16] {
                let made = RING.aead(AeadAlg::AesGcm { bits, icv }, &[0; 32][..bits.bytes()]);
                assert_eq!(made.is_ok(), icv == 16 && bits != AesBits::B192, "{icv} {bits:?}");
            }
            assert!(RING.aead(AeadAlg::AesCcm { bits, icv: 16 }, &[0; 32][..bits.bytes()]).is_err());
        }
        assert_eq!(RING.aead(AeadAlg::ChaCha20Poly1305, &[0; 32]).err(), Some(KeyError::Unsupported));
        let short = RING.aead(ALGORITHMS[1], &[0; 31]).err();
        assert_eq!(short, Some(KeyError::KeyLength { expected: 32, given: 31 }));
    }

    #[test]
    fn a_tag_of_another_length_fails_and_seals_nothing() {
        for alg in ALGORITHMS {
            let key = key(alg);
            for len in [0, 8, 12, 15, 17, 32] {
                let (mut text, mut tag) = (TEXT, [9; 32]);
                let status = run(&mut text, &mut tag[..len], |jobs| key.seal(jobs));
                assert_eq!((status, text, tag), (JobStatus::Failed, TEXT, [9; 32]), "{alg}, {len} bytes");
                assert_eq!(run(&mut text, &mut tag[..len], |jobs| key.open(jobs)), JobStatus::Failed);
            }
        }
    }

    #[test]
    fn threads_share_a_key() {
        for alg in ALGORITHMS {
            let key = key(alg);
            let (mut sealed, mut tag) = (TEXT, [0; TAG_LEN]);
            assert_eq!(run(&mut sealed, &mut tag, |jobs| key.seal(jobs)), JobStatus::Done);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            let (mut text, mut tag) = (sealed, tag);
                            assert_eq!(run(&mut text, &mut tag, |jobs| key.open(jobs)), JobStatus::Done);
                            assert_eq!(text, TEXT);
                        }
                    });
                }
            });
        }
    }
}
