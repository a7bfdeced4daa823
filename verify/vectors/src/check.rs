//! Checks of one vector on one provider: encryption, decryption, and forgeries.

use crate::report::Family;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, InvalidAlgorithm, JobStatus, KeyError, MacAlg, MacJob, MacKey,
    Provider, Tag,
};

/// A vector of a combined-mode cipher.
pub(crate) struct AeadCase<'a> {
    pub(crate) id: String,
    pub(crate) key: &'a [u8],
    pub(crate) nonce: &'a [u8],
    pub(crate) aad: &'a [u8],
    pub(crate) plain: &'a [u8],
    pub(crate) cipher: &'a [u8],
    pub(crate) tag: &'a [u8],
    /// Whether the tag is valid; `plain` is only used if it is.
    pub(crate) valid: bool,
}

/// A vector of a bare cipher.
pub(crate) struct CipherCase<'a> {
    pub(crate) id: String,
    pub(crate) key: &'a [u8],
    pub(crate) iv: &'a [u8],
    pub(crate) plain: &'a [u8],
    pub(crate) cipher: &'a [u8],
}

/// A vector of a MAC.
pub(crate) struct MacCase<'a> {
    pub(crate) id: String,
    pub(crate) key: &'a [u8],
    pub(crate) nonce: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) tag: &'a [u8],
    /// Whether the tag is valid.
    pub(crate) valid: bool,
}

/// Runs a vector. Counts it as skipped if ESP or the provider does not support the algorithm.
pub(crate) fn aead(
    family: &mut Family,
    provider: &dyn Provider,
    alg: Result<AeadAlg, InvalidAlgorithm>,
    case: &AeadCase<'_>,
) {
    let Ok(alg) = alg else { return family.skip("ICV length that ESP does not use") };
    if case.nonce.len() != alg.nonce_len() {
        return family.skip("nonce length that ESP does not use");
    }
    if let Some(result) = key(family, UNSUPPORTED, provider.aead(alg, case.key)) {
        family.ran(&case.id, result.and_then(|key| check_aead(&*key, case)));
    }
}

/// Runs a vector of a cipher, like [`aead`].
pub(crate) fn cipher(family: &mut Family, provider: &dyn Provider, alg: CipherAlg, case: &CipherCase<'_>) {
    let Some(result) = key(family, UNSUPPORTED, provider.cipher(alg, case.key)) else { return };
    let result = result.and_then(|key| {
        let iv = field(case.iv);
        let mut text = case.plain.to_vec();
        expect_eq("accepts the plaintext", &key.encrypt(&iv, &mut text), &true)?;
        expect_eq("ciphertext", &text[..], case.cipher)?;
        expect_eq("accepts the ciphertext", &key.decrypt(&iv, &mut text), &true)?;
        expect_eq("plaintext", &text[..], case.plain)
    });
    family.ran(&case.id, result);
}

/// Runs a vector of a MAC, like [`aead`].
pub(crate) fn mac(
    family: &mut Family,
    provider: &dyn Provider,
    alg: Result<MacAlg, InvalidAlgorithm>,
    case: &MacCase<'_>,
) {
    let Ok(alg) = alg else { return family.skip("tag length that the RFCs do not allow") };
    if alg.takes_nonce() && case.nonce.len() != alg.salt_len() + alg.iv_len() {
        return family.skip("nonce length that ESP and AH do not use");
    }
    if let Some(result) = key(family, UNSUPPORTED, provider.mac(alg, case.key)) {
        family.ran(&case.id, result.and_then(|key| check_mac(&*key, alg, case)));
    }
}

/// The families of `contract` name the algorithm.
const UNSUPPORTED: &str = "the provider does not have the algorithm";

/// Returns `None` if the provider does not support the algorithm, and counts that under `reason`. Other
/// rejections are errors.
pub(crate) fn key<K>(
    family: &mut Family,
    reason: &str,
    made: Result<K, KeyError>,
) -> Option<Result<K, String>> {
    if matches!(made, Err(KeyError::Unsupported)) {
        family.skip(reason);
        return None;
    }
    Some(made.map_err(|why| why.to_string()))
}

fn check_aead(key: &dyn AeadKey, case: &AeadCase<'_>) -> Result<(), String> {
    if !case.valid {
        return expect_eq("status of open", &open(key, case).0, &JobStatus::Failed);
    }
    let (mut text, mut tag) = (case.plain.to_vec(), vec![0xEE; case.tag.len()]);
    let status = seal(key, case.nonce, case.aad, &mut text, &mut tag);
    expect_eq("status of seal", &status, &JobStatus::Done)?;
    expect_eq("ciphertext", &text[..], case.cipher)?;
    expect_eq("tag", &tag[..], case.tag)?;
    let (status, text) = open(key, case);
    expect_eq("status of open", &status, &JobStatus::Done)?;
    expect_eq("plaintext", &text[..], case.plain)?;
    for forged in flipped(case.nonce) {
        rejected(key, "nonce", &AeadCase { nonce: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.aad) {
        rejected(key, "aad", &AeadCase { aad: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.cipher) {
        rejected(key, "ciphertext", &AeadCase { cipher: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.tag) {
        rejected(key, "tag", &AeadCase { tag: &forged, ..copy(case) })?;
    }
    Ok(())
}

fn rejected(key: &dyn AeadKey, field: &str, forged: &AeadCase<'_>) -> Result<(), String> {
    expect_eq(
        &format!("status of open with a flipped bit in the {field}"),
        &open(key, forged).0,
        &JobStatus::Failed,
    )
}

fn copy<'a>(case: &AeadCase<'a>) -> AeadCase<'a> {
    AeadCase { id: String::new(), ..*case }
}

fn seal(key: &dyn AeadKey, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> JobStatus {
    let mut jobs = [AeadJob { nonce: field(nonce), aad, text, tag, status: JobStatus::Pending }];
    key.seal(&mut jobs);
    jobs[0].status
}

fn open(key: &dyn AeadKey, case: &AeadCase<'_>) -> (JobStatus, Vec<u8>) {
    let (mut text, mut tag) = (case.cipher.to_vec(), case.tag.to_vec());
    let mut jobs = [AeadJob {
        nonce: field(case.nonce),
        aad: case.aad,
        text: &mut text,
        tag: &mut tag,
        status: JobStatus::Pending,
    }];
    key.open(&mut jobs);
    (jobs[0].status, text)
}

fn check_mac(key: &dyn MacKey, alg: MacAlg, case: &MacCase<'_>) -> Result<(), String> {
    let given = Tag::from_slice(case.tag);
    let signed = sign(key, alg, case.nonce, case.data)?;
    if !case.valid {
        return expect_eq("verification", &signed.matches(&given), &false);
    }
    expect_eq("tag", signed.as_slice(), case.tag)?;
    for forged in flipped(case.data) {
        let tag = sign(key, alg, case.nonce, &forged)?;
        expect_eq("verification with a flipped bit in the data", &tag.matches(&given), &false)?;
    }
    for forged in flipped(case.nonce) {
        let tag = sign(key, alg, &forged, case.data)?;
        expect_eq("verification with a flipped bit in the nonce", &tag.matches(&given), &false)?;
    }
    Ok(())
}

fn sign(key: &dyn MacKey, alg: MacAlg, nonce: &[u8], data: &[u8]) -> Result<Tag, String> {
    let tag = Tag::zeroed(alg.tag_len());
    let mut jobs = [MacJob { nonce: field(nonce), data, tag, status: JobStatus::Pending }];
    key.sign(&mut jobs);
    expect_eq("status of sign", &jobs[0].status, &JobStatus::Done)?;
    Ok(jobs[0].tag)
}

/// Copies of `bytes` with one flipped bit: the first one, one in the middle, and the last one. Empty if
/// `bytes` is empty.
fn flipped(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(last) = bytes.len().checked_sub(1) else { return Vec::new() };
    let flip = |(at, bit): (usize, u8)| {
        let mut copy = bytes.to_vec();
        copy[at] ^= bit;
        copy
    };
    [(0, 0x80), (last / 2, 0x10), (last, 0x01)].into_iter().map(flip).collect()
}

/// Returns `bytes`, left-aligned in the field of a job.
pub(crate) fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

/// Compares two values; the error contains both.
pub(crate) fn expect_eq<T: PartialEq + core::fmt::Debug + ?Sized>(
    what: &str,
    got: &T,
    expected: &T,
) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got:02x?}, expected {expected:02x?}")) }
}
