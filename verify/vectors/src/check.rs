//! One vector against one provider, forwards, backwards and forged.

use crate::report::Family;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, KeyError, MacAlg, MacJob, MacKey, NotAnAlgorithm, Outcome,
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
    /// Whether the tag is to verify; `plain` counts only then.
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
    /// Whether the tag is the right one.
    pub(crate) valid: bool,
}

/// Runs a vector, or counts it as skipped where the RFCs or the provider do not have the algorithm.
pub(crate) fn aead(
    family: &mut Family,
    provider: &dyn Provider,
    alg: Result<AeadAlg, NotAnAlgorithm>,
    case: &AeadCase<'_>,
) {
    let Ok(alg) = alg else { return family.skip("ICV length that ESP does not use") };
    if case.nonce.len() != alg.nonce_len() {
        return family.skip("nonce length that ESP does not use");
    }
    if let Some(result) = key(family, NOT_THERE, provider.aead(alg, case.key)) {
        family.ran(&case.id, result.and_then(|key| check_aead(&*key, case)));
    }
}

/// As [`aead`], for a cipher.
pub(crate) fn cipher(family: &mut Family, provider: &dyn Provider, alg: CipherAlg, case: &CipherCase<'_>) {
    let Some(result) = key(family, NOT_THERE, provider.cipher(alg, case.key)) else { return };
    let result = result.and_then(|key| {
        let iv = field(case.iv);
        let mut text = case.plain.to_vec();
        same("the plaintext is taken", &key.encrypt(&iv, &mut text), &true)?;
        same("ciphertext", &text[..], case.cipher)?;
        same("the ciphertext is taken", &key.decrypt(&iv, &mut text), &true)?;
        same("plaintext", &text[..], case.plain)
    });
    family.ran(&case.id, result);
}

/// As [`aead`], for a MAC.
pub(crate) fn mac(
    family: &mut Family,
    provider: &dyn Provider,
    alg: Result<MacAlg, NotAnAlgorithm>,
    case: &MacCase<'_>,
) {
    let Ok(alg) = alg else { return family.skip("tag length that the RFCs do not allow") };
    if alg.takes_nonce() && case.nonce.len() != alg.salt_len() + alg.iv_len() {
        return family.skip("nonce length that ESP and AH do not use");
    }
    if let Some(result) = key(family, NOT_THERE, provider.mac(alg, case.key)) {
        family.ran(&case.id, result.and_then(|key| check_mac(&*key, alg, case)));
    }
}

/// `contract` says which.
const NOT_THERE: &str = "the provider does not have the algorithm";

/// `None` where the provider lacks the algorithm, which is counted under `reason`; an error for every other refusal.
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
        return same("outcome of open", &open(key, case).0, &Outcome::Failed);
    }
    let (mut text, mut tag) = (case.plain.to_vec(), vec![0xEE; case.tag.len()]);
    let outcome = seal(key, case.nonce, case.aad, &mut text, &mut tag);
    same("outcome of seal", &outcome, &Outcome::Done)?;
    same("ciphertext", &text[..], case.cipher)?;
    same("tag", &tag[..], case.tag)?;
    let (outcome, text) = open(key, case);
    same("outcome of open", &outcome, &Outcome::Done)?;
    same("plaintext", &text[..], case.plain)?;
    for forged in flipped(case.nonce) {
        refused(key, "nonce", &AeadCase { nonce: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.aad) {
        refused(key, "aad", &AeadCase { aad: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.cipher) {
        refused(key, "ciphertext", &AeadCase { cipher: &forged, ..copy(case) })?;
    }
    for forged in flipped(case.tag) {
        refused(key, "tag", &AeadCase { tag: &forged, ..copy(case) })?;
    }
    Ok(())
}

fn refused(key: &dyn AeadKey, field: &str, forged: &AeadCase<'_>) -> Result<(), String> {
    same(
        &format!("outcome of open with a flipped bit in the {field}"),
        &open(key, forged).0,
        &Outcome::Failed,
    )
}

fn copy<'a>(case: &AeadCase<'a>) -> AeadCase<'a> {
    AeadCase { id: String::new(), ..*case }
}

fn seal(key: &dyn AeadKey, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &mut [u8]) -> Outcome {
    let mut jobs = [AeadJob { nonce: field(nonce), aad, text, tag, outcome: Outcome::Pending }];
    key.seal(&mut jobs);
    jobs[0].outcome
}

fn open(key: &dyn AeadKey, case: &AeadCase<'_>) -> (Outcome, Vec<u8>) {
    let (mut text, mut tag) = (case.cipher.to_vec(), case.tag.to_vec());
    let mut jobs = [AeadJob {
        nonce: field(case.nonce),
        aad: case.aad,
        text: &mut text,
        tag: &mut tag,
        outcome: Outcome::Pending,
    }];
    key.open(&mut jobs);
    (jobs[0].outcome, text)
}

fn check_mac(key: &dyn MacKey, alg: MacAlg, case: &MacCase<'_>) -> Result<(), String> {
    let given = Tag::from_slice(case.tag);
    let signed = sign(key, alg, case.nonce, case.data)?;
    if !case.valid {
        return same("verification", &signed.verifies(&given), &false);
    }
    same("tag", signed.as_slice(), case.tag)?;
    for forged in flipped(case.data) {
        let tag = sign(key, alg, case.nonce, &forged)?;
        same("verification with a flipped bit in the data", &tag.verifies(&given), &false)?;
    }
    for forged in flipped(case.nonce) {
        let tag = sign(key, alg, &forged, case.data)?;
        same("verification with a flipped bit in the nonce", &tag.verifies(&given), &false)?;
    }
    Ok(())
}

fn sign(key: &dyn MacKey, alg: MacAlg, nonce: &[u8], data: &[u8]) -> Result<Tag, String> {
    let tag = Tag::zeroed(alg.tag_len());
    let mut jobs = [MacJob { nonce: field(nonce), data, tag, outcome: Outcome::Pending }];
    key.sign(&mut jobs);
    same("outcome of sign", &jobs[0].outcome, &Outcome::Done)?;
    Ok(jobs[0].tag)
}

/// Copies of `bytes` with one bit flipped: the first, one in the middle, the last. None of nothing.
fn flipped(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(last) = bytes.len().checked_sub(1) else { return Vec::new() };
    let flip = |(at, bit): (usize, u8)| {
        let mut copy = bytes.to_vec();
        copy[at] ^= bit;
        copy
    };
    [(0, 0x80), (last / 2, 0x10), (last, 0x01)].into_iter().map(flip).collect()
}

/// Left-aligned in the field of a job.
pub(crate) fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

/// An error that says what was expected.
pub(crate) fn same<T: PartialEq + core::fmt::Debug + ?Sized>(
    what: &str,
    got: &T,
    expected: &T,
) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got:02x?}, expected {expected:02x?}")) }
}
