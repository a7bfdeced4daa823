//! Pseudorandom functions of IKE and `prf+` (IANA "IKEv2 Parameters", transform type 2; RFC 7296 section
//! 2.13).
//!
//! Each PRF is the untruncated MAC of the same name with an own rule for other key lengths. A provider with
//! the MAC thus also has the PRF: [`Providers::prf`](crate::Providers::prf) builds the PRF from the MAC. IKE
//! calls PRFs a few times for each exchange and never for an ESP packet, so they may allocate memory.

use crate::{JobStatus, KeyError, MAX_TAG, MacAlg, MacJob, MacKey, MacKind, SecretBytes, Tag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// Key length of AES-XCBC and AES-CMAC, in bytes.
const AES_KEY: usize = 16;

/// A pseudorandom function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrfAlg {
    /// HMAC-SHA-1 (RFC 2104).
    HmacSha1,
    /// HMAC-SHA-256 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512 (RFC 4868).
    HmacSha512,
    /// AES-XCBC-PRF-128 (RFC 4434).
    AesXcbc,
    /// AES-CMAC-PRF-128 (RFC 4615).
    AesCmac,
}

impl PrfAlg {
    /// All PRFs.
    pub const ALL: [Self; 6] =
        [Self::HmacSha1, Self::HmacSha256, Self::HmacSha384, Self::HmacSha512, Self::AesXcbc, Self::AesCmac];

    /// IANA transform id.
    pub const fn id(self) -> u16 {
        match self {
            Self::HmacSha1 => 2,
            Self::AesXcbc => 4,
            Self::HmacSha256 => 5,
            Self::HmacSha384 => 6,
            Self::HmacSha512 => 7,
            Self::AesCmac => 8,
        }
    }

    /// Returns the PRF with this IANA transform id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.id() == id)
    }

    /// Keyword in strongSwan proposals, e.g. `prfsha256`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::HmacSha1 => "prfsha1",
            Self::HmacSha256 => "prfsha256",
            Self::HmacSha384 => "prfsha384",
            Self::HmacSha512 => "prfsha512",
            Self::AesXcbc => "prfaesxcbc",
            Self::AesCmac => "prfaescmac",
        }
    }

    /// Length of an output, in bytes.
    pub const fn output_len(self) -> usize {
        self.kind().full_tag_len()
    }

    /// Preferred key length in bytes, which is the length of SK_d, SK_pi and SK_pr (RFC 7296 section 2.13).
    /// Other key lengths are accepted as well.
    pub const fn key_len(self) -> usize {
        self.kind().key_len()
    }

    /// Returns the part of the nonce Ni or Nr that is used in the key of SKEYSEED. RFC 7296 section 2.14: the
    /// first 64 bits for AES-XCBC and AES-CMAC, for historical reasons, and the whole nonce for the other
    /// PRFs. `prf+` always takes the whole nonce.
    pub fn skeyseed_nonce(self, nonce: &[u8]) -> &[u8] {
        match self {
            Self::AesXcbc | Self::AesCmac => nonce.get(..8).unwrap_or(nonce),
            Self::HmacSha1 | Self::HmacSha256 | Self::HmacSha384 | Self::HmacSha512 => nonce,
        }
    }

    /// MAC function that this PRF is, with a key of the preferred length.
    const fn kind(self) -> MacKind {
        match self {
            Self::HmacSha1 => MacKind::HmacSha1,
            Self::HmacSha256 => MacKind::HmacSha256,
            Self::HmacSha384 => MacKind::HmacSha384,
            Self::HmacSha512 => MacKind::HmacSha512,
            Self::AesXcbc => MacKind::AesXcbc,
            Self::AesCmac => MacKind::AesCmac,
        }
    }
}

impl fmt::Display for PrfAlg {
    /// Writes the IANA name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacSha1 => "PRF_HMAC_SHA1",
            Self::HmacSha256 => "PRF_HMAC_SHA2_256",
            Self::HmacSha384 => "PRF_HMAC_SHA2_384",
            Self::HmacSha512 => "PRF_HMAC_SHA2_512",
            Self::AesXcbc => "PRF_AES128_XCBC",
            Self::AesCmac => "PRF_AES128_CMAC",
        })
    }
}

/// Why a PRF returned no output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrfError {
    /// The provider failed.
    Failed,
    /// The requested length exceeds 255 outputs of the PRF (RFC 7296 section 2.13).
    TooLong {
        /// Requested length, in bytes.
        asked: usize,
    },
}

impl fmt::Display for PrfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed => f.write_str("the provider failed to compute the PRF"),
            Self::TooLong { asked } => {
                write!(f, "{asked} bytes requested from prf+, which yields at most 255 outputs of the PRF")
            }
        }
    }
}

impl core::error::Error for PrfError {}

/// An output of a PRF, stored inline: at most [`MAX_TAG`] bytes, wiped on drop, never printed, compared in
/// constant time.
#[derive(Clone)]
pub struct PrfOutput {
    bytes: [u8; MAX_TAG],
    len: usize,
}

impl PrfOutput {
    /// Creates an output with a copy of `bytes`, truncated to [`MAX_TAG`].
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut output = Self { bytes: [0; MAX_TAG], len: bytes.len().min(MAX_TAG) };
        for (to, from) in output.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        output
    }

    /// The secret bytes. Do not copy them into memory that is not wiped.
    pub fn expose(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for PrfOutput {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for PrfOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrfOutput({} bytes)", self.len)
    }
}

impl PartialEq for PrfOutput {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.expose().ct_eq(other.expose()))
    }
}

impl Eq for PrfOutput {}

/// A PRF with its key. Stateless: threads may share one key.
pub trait PrfKey: Send + Sync {
    /// Computes the PRF over the concatenation of `parts`.
    fn prf(&self, parts: &[&[u8]]) -> Result<PrfOutput, PrfError>;
}

/// Computes `prf+` (RFC 7296 section 2.13): `len` bytes from the key and S, which is the concatenation of
/// `seed`.
pub fn prf_plus(key: &dyn PrfKey, seed: &[&[u8]], len: usize) -> Result<SecretBytes, PrfError> {
    // Capacity for 255 outputs of the longest PRF. A longer request fails below and reserves no more.
    const MOST: usize = 255 * MAX_TAG;
    let mut stream = Zeroizing::new(Vec::with_capacity(len.min(MOST)));
    let mut last: Option<PrfOutput> = None;
    for counter in 1..=u8::MAX {
        let missing = len.saturating_sub(stream.len());
        if missing == 0 {
            break;
        }
        let before = last.as_ref().map_or(&[][..], PrfOutput::expose);
        let counter = [counter];
        let parts: Vec<&[u8]> =
            [before].into_iter().chain(seed.iter().copied()).chain([&counter[..]]).collect();
        let output = key.prf(&parts)?;
        stream.extend(output.expose().iter().take(missing));
        last = Some(output);
    }
    if stream.len() == len { Ok(SecretBytes::new(&stream)) } else { Err(PrfError::TooLong { asked: len }) }
}

/// Builds a PRF from the MAC of the same name, which `mac` sets up.
pub(crate) fn from_mac(
    alg: PrfAlg,
    key: &[u8],
    mac: impl Fn(MacAlg, &[u8]) -> Result<Box<dyn MacKey>, KeyError>,
) -> Result<Box<dyn PrfKey>, KeyError> {
    let full = MacAlg::truncated(alg.kind(), alg.output_len()).map_err(|_| KeyError::Unsupported)?;
    let shorten = |key: &[u8]| {
        let zero_key = MacPrf { key: mac(full, &[0; AES_KEY])?, len: alg.output_len() };
        zero_key.prf(&[key]).map_err(|_| KeyError::Refused)
    };
    let key = match alg {
        // RFC 2104 section 2: keys of any length.
        PrfAlg::HmacSha1 | PrfAlg::HmacSha256 | PrfAlg::HmacSha384 | PrfAlg::HmacSha512 => mac(full, key),
        // RFC 4434 section 2: a shorter key is padded with zeros; a longer key is replaced by its PRF under a
        // zero key.
        PrfAlg::AesXcbc if key.len() <= AES_KEY => mac(full, &*padded(key)),
        // RFC 4615 section 3: a key of any other length is replaced by its PRF under a zero key.
        PrfAlg::AesCmac if key.len() == AES_KEY => mac(full, key),
        PrfAlg::AesXcbc | PrfAlg::AesCmac => mac(full, shorten(key)?.expose()),
    }?;
    Ok(Box::new(MacPrf { key, len: alg.output_len() }))
}

fn padded(key: &[u8]) -> Zeroizing<[u8; AES_KEY]> {
    let mut padded = Zeroizing::new([0; AES_KEY]);
    padded.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    padded
}

struct MacPrf {
    key: Box<dyn MacKey>,
    /// Length of the untruncated tag, in bytes.
    len: usize,
}

impl PrfKey for MacPrf {
    fn prf(&self, parts: &[&[u8]]) -> Result<PrfOutput, PrfError> {
        let data = Zeroizing::new(parts.concat());
        let tag = Tag::zeroed(self.len);
        let mut job = MacJob { nonce: [0; 12], data: &data, tag, status: JobStatus::Pending };
        self.key.sign(core::slice::from_mut(&mut job));
        let output = PrfOutput::from_slice(job.tag.as_slice());
        job.tag.as_mut_slice().zeroize();
        if job.status == JobStatus::Done { Ok(output) } else { Err(PrfError::Failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    /// Returns the last byte of its input, which is the counter, `len` times.
    struct Counter {
        len: usize,
    }

    impl PrfKey for Counter {
        fn prf(&self, parts: &[&[u8]]) -> Result<PrfOutput, PrfError> {
            Ok(PrfOutput::from_slice(&vec![*parts.concat().last().unwrap(); self.len]))
        }
    }

    #[test]
    fn prf_plus_ends_after_255_outputs() {
        for len in [20, 64] {
            let key = Counter { len };
            let all = prf_plus(&key, &[b"seed"], 255 * len).unwrap();
            let expected: Vec<u8> = (1..=255).flat_map(|counter| vec![counter; len]).collect();
            assert_eq!(all.expose(), expected);
            let asked = 255 * len + 1;
            assert_eq!(prf_plus(&key, &[], asked), Err(PrfError::TooLong { asked }));
            assert_eq!(prf_plus(&key, &[], usize::MAX), Err(PrfError::TooLong { asked: usize::MAX }));
        }
        assert!(prf_plus(&Counter { len: 20 }, &[], 0).unwrap().is_empty());
    }

    #[test]
    fn prf_plus_truncates_the_last_output() {
        let key = Counter { len: 32 };
        for len in [1, 31, 32, 33, 100] {
            let whole = prf_plus(&key, &[b"S"], 128).unwrap();
            assert_eq!(prf_plus(&key, &[b"S"], len).unwrap().expose(), &whole.expose()[..len]);
        }
    }

    #[test]
    fn ids_match_the_iana_registry() {
        let by_id: Vec<_> = (0..=10).map(PrfAlg::from_id).collect();
        let (xcbc, cmac) = (Some(PrfAlg::AesXcbc), Some(PrfAlg::AesCmac));
        let sha2 = [Some(PrfAlg::HmacSha256), Some(PrfAlg::HmacSha384), Some(PrfAlg::HmacSha512)];
        let [s256, s384, s512] = sha2;
        let sha1 = Some(PrfAlg::HmacSha1);
        assert_eq!(by_id, [None, None, sha1, None, xcbc, s256, s384, s512, cmac, None, None]);
    }

    #[test]
    fn xcbc_and_cmac_use_eight_bytes_of_a_nonce() {
        let nonce = [7; 32];
        let cut: Vec<_> = PrfAlg::ALL.iter().map(|alg| alg.skeyseed_nonce(&nonce).len()).collect();
        assert_eq!(cut, [32, 32, 32, 32, 8, 8]);
    }

    #[test]
    fn debug_prints_no_secret() {
        assert_eq!(format!("{:?}", PrfOutput::from_slice(&[0xAB; 20])), "PrfOutput(20 bytes)");
    }
}
