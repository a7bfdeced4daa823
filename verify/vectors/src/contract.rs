//! Requirements of `casemate-crypto` on providers besides correct results: key lengths, rejected input,
//! batches of any size.

use crate::check::{expect_eq, key};
use crate::report::{Family, Report};
use crate::{aeads, ciphers, macs};
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob,
    MacKey, MacKind, Provider, Providers, Tag,
};
use core::fmt::{self, Display};
use core::ops::Range;

/// Runs the checks on all algorithms of the provider.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([
        each("contract/aead", aeads(), |alg| {
            let key = provider.aead(alg, &key_bytes(alg.key_len()))?;
            Ok(aead(provider, alg, &*key))
        }),
        each("contract/cipher", ciphers(), |alg| {
            let key = provider.cipher(alg, &key_bytes(alg.key_len()))?;
            Ok(cipher(provider, alg, &*key))
        }),
        each("contract/mac", macs(), |alg| {
            let key = provider.mac(alg, &key_bytes(alg.key_len()))?;
            Ok(mac(provider, alg, &*key))
        }),
        each("contract/etm", etms(), |Pair(cipher, mac)| {
            let (cipher_key, mac_key) = (key_bytes(cipher.key_len()), key_bytes(mac.key_len()));
            let key = Providers(&[provider]).etm(cipher, &cipher_key, mac, &mac_key)?;
            Ok(etm(cipher, mac, &*key))
        }),
    ]);
}

/// Runs one case per algorithm.
fn each<A: Copy + Display>(
    name: &str,
    algs: Vec<A>,
    check: impl Fn(A) -> Result<Result<(), String>, KeyError>,
) -> Family {
    let mut family = Family::new(name);
    for alg in algs {
        if let Some(result) = key(&mut family, &format!("no {alg}"), check(alg)) {
            family.ran(&alg.to_string(), result.flatten());
        }
    }
    family
}

/// A key that contains no weak DES key.
fn key_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 37 + 11) as u8).collect()
}

fn wrong_length<K>(expected: usize, make: impl Fn(&[u8]) -> Result<K, KeyError>) -> Result<(), String> {
    for given in [0, expected - 1, expected + 1, 2 * expected] {
        let error = make(&key_bytes(given)).err();
        expect_eq("error for a key of wrong length", &error, &Some(KeyError::KeyLength { expected, given }))?;
    }
    Ok(())
}

fn aead(provider: &dyn Provider, alg: AeadAlg, key: &dyn AeadKey) -> Result<(), String> {
    wrong_length(alg.key_len(), |bytes| provider.aead(alg, bytes))?;
    key.seal(&mut []);
    key.open(&mut []);
    for len in [0, alg.icv_len() - 1, alg.icv_len() + 1] {
        let what = format!("status with a tag of {len} bytes");
        expect_eq(&what, &sealed(key, len), &JobStatus::Failed)?;
        expect_eq(&what, &opened(key, len), &JobStatus::Failed)?;
    }
    expect_eq("status with a valid tag length", &sealed(key, alg.icv_len()), &JobStatus::Done)
}

fn sealed(key: &dyn AeadKey, tag_len: usize) -> JobStatus {
    with_tag_of(tag_len, |jobs| key.seal(jobs))
}

fn opened(key: &dyn AeadKey, tag_len: usize) -> JobStatus {
    with_tag_of(tag_len, |jobs| key.open(jobs))
}

fn with_tag_of(len: usize, run: impl Fn(&mut [AeadJob<'_>])) -> JobStatus {
    let (mut text, mut tag) = ([7; 24], vec![0; len]);
    let mut jobs = [AeadJob {
        nonce: [1; 12],
        aad: &[2; 8],
        text: &mut text,
        tag: &mut tag,
        status: JobStatus::Pending,
    }];
    run(&mut jobs);
    jobs[0].status
}

fn cipher(provider: &dyn Provider, alg: CipherAlg, key: &dyn CipherKey) -> Result<(), String> {
    wrong_length(alg.key_len(), |bytes| provider.cipher(alg, bytes))?;
    let text: Vec<u8> = (0..3 * 16 + 1).collect();
    for len in 0..=text.len() {
        let whole = len.is_multiple_of(alg.block_len());
        let mut copy = text[..len].to_vec();
        expect_eq(&format!("encrypts {len} bytes"), &key.encrypt(&[9; 16], &mut copy), &whole)?;
        if !whole {
            expect_eq("rejected text", &copy[..], &text[..len])?;
        }
        expect_eq(&format!("decrypts {len} bytes"), &key.decrypt(&[9; 16], &mut copy), &whole)?;
        expect_eq("text after encryption and decryption", &copy[..], &text[..len])?;
    }
    Ok(())
}

fn mac(provider: &dyn Provider, alg: MacAlg, key: &dyn MacKey) -> Result<(), String> {
    if matches!(alg.kind(), MacKind::AesXcbc | MacKind::AesCmac | MacKind::AesGmac(_)) {
        wrong_length(alg.key_len(), |bytes| provider.mac(alg, bytes))?;
    }
    key.sign(&mut []);
    for len in [0, alg.tag_len() - 1, alg.tag_len() + 1] {
        let what = format!("status with a tag of {len} bytes");
        // `Tag` truncates lengths above the maximum of all algorithms.
        let expected = if Tag::zeroed(len).as_slice().len() == alg.tag_len() {
            JobStatus::Done
        } else {
            JobStatus::Failed
        };
        expect_eq(&what, &signed(key, len), &expected)?;
    }
    expect_eq("status with a valid tag length", &signed(key, alg.tag_len()), &JobStatus::Done)
}

fn signed(key: &dyn MacKey, tag_len: usize) -> JobStatus {
    let tag = Tag::zeroed(tag_len);
    let mut jobs = [MacJob { nonce: [1; 12], data: &[2; 40], tag, status: JobStatus::Pending }];
    key.sign(&mut jobs);
    jobs[0].status
}

#[derive(Clone, Copy)]
struct Pair(CipherAlg, MacAlg);

impl Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// All ciphers and NULL, with all MACs at their standard tag length.
fn etms() -> Vec<Pair> {
    let standard = |mac: &MacAlg| *mac == MacAlg::standard(mac.kind());
    let macs: Vec<_> = macs().into_iter().filter(standard).collect();
    let ciphers = ciphers().into_iter().chain([CipherAlg::Null]);
    ciphers.flat_map(|cipher| macs.iter().map(move |mac| Pair(cipher, *mac))).collect()
}

fn etm(cipher: CipherAlg, mac: MacAlg, key: &dyn EtmKey) -> Result<(), String> {
    key.seal(&mut []);
    key.open(&mut []);
    let tag_len = mac.tag_len();
    expect_eq("status of a valid job", &etm_statuses(key, 8..40, tag_len), &[JobStatus::Done; 2])?;
    let no_text: [Range<usize>; 3] = [8..65, 65..65, usize::MAX - 1..usize::MAX];
    for text in no_text {
        let what = format!("status with a text at {text:?} of 64 bytes");
        expect_eq(&what, &etm_statuses(key, text, tag_len), &[JobStatus::Failed; 2])?;
    }
    for len in [0, tag_len - 1, tag_len + 1] {
        let what = format!("status with a tag of {len} bytes");
        expect_eq(&what, &etm_statuses(key, 8..40, len), &[JobStatus::Failed; 2])?;
    }
    let odd = if cipher.block_len() > 1 { JobStatus::Failed } else { JobStatus::Done };
    expect_eq("status with a text of odd length", &etm_statuses(key, 8..41, tag_len), &[odd; 2])
}

/// Outcomes of seal, and of open after seal.
fn etm_statuses(key: &dyn EtmKey, text: Range<usize>, tag_len: usize) -> [JobStatus; 2] {
    let mut jobs = [EtmJob {
        iv: [1; 16],
        mac_nonce: [1; 12],
        data: &mut [7; 64],
        text,
        tag: Tag::zeroed(tag_len),
        status: JobStatus::Pending,
    }];
    key.seal(&mut jobs);
    let sealed = jobs[0].status;
    key.open(&mut jobs);
    [sealed, jobs[0].status]
}
