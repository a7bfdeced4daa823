//! Comparison of two providers on the same random jobs: batches of 1 to 40 jobs, texts of 0 to 9,000 bytes.
//!
//! Both providers must seal to the same bytes and open what the other one has sealed. A batch must have the
//! same results as its jobs one by one. In each batch, one job is corrupted, and only that job may fail.

use crate::check::expect_eq;
use crate::kex_contract;
use crate::report::{Family, Report};
use crate::signature_contract;
use crate::{aeads, ciphers, macs};
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, CipherAlg, CipherKey, EtmJob, EtmKey, JobStatus, KeyError, MacAlg, MacJob,
    MacKey, Provider, Providers, Tag,
};
use casemate_test_support::TestRng;
use core::fmt::Display;

const BATCHES: [usize; 6] = [1, 2, 3, 8, 17, 40];
/// Compares `a` and `b` on all algorithms that both support; one case is one batch. The same seed generates
/// the same jobs.
pub fn differential(a: &dyn Provider, b: &dyn Provider, seed: u64) -> Report {
    let mut report = Report::new(&format!("{} and {}", a.name(), b.name()));
    let random = &mut TestRng::new(seed);
    report.families.extend([aead(a, b, random), cipher(a, b, random), mac(a, b, random), etm(a, b, random)]);
    report.families.push(kex_contract::differential(a, b, random));
    report.families.push(signature_contract::differential(a, b, random));
    report
}

fn aead(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    let mut family = Family::new("differential/aead");
    for alg in aeads() {
        let key = random.bytes(alg.key_len());
        let keys = (a.aead(alg, &key), b.aead(alg, &key));
        batches(&mut family, alg, keys, |a, b, size| aead_batch(&**a, &**b, alg, size, random));
    }
    family
}

fn cipher(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    let mut family = Family::new("differential/cipher");
    for alg in ciphers() {
        let key = random.bytes(alg.key_len());
        let keys = (a.cipher(alg, &key), b.cipher(alg, &key));
        batches(&mut family, alg, keys, |a, b, size| cipher_batch(&**a, &**b, alg, size, random));
    }
    family
}

fn mac(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    let mut family = Family::new("differential/mac");
    for alg in macs() {
        let key = random.bytes(alg.key_len());
        let keys = (a.mac(alg, &key), b.mac(alg, &key));
        batches(&mut family, alg, keys, |a, b, size| mac_batch(&**a, &**b, alg, size, random));
    }
    family
}

fn etm(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    let mut family = Family::new("differential/etm");
    for cipher in ciphers().into_iter().chain([CipherAlg::Null]) {
        for mac in macs().into_iter().filter(|mac| *mac == MacAlg::standard(mac.kind())) {
            let (cipher_key, mac_key) = (random.bytes(cipher.key_len()), random.bytes(mac.key_len()));
            let make = |p: &dyn Provider| Providers(&[p]).etm(cipher, &cipher_key, mac, &mac_key);
            let name = format!("{cipher}/{mac}");
            batches(&mut family, name, (make(a), make(b)), |a, b, size| {
                etm_batch([&**a, &**b], cipher, mac, size, random)
            });
        }
    }
    family
}

type Pair<K> = (Result<K, KeyError>, Result<K, KeyError>);

fn batches<K>(
    family: &mut Family,
    alg: impl Display,
    keys: Pair<K>,
    mut batch: impl FnMut(&K, &K, usize) -> Result<(), String>,
) {
    match keys {
        (Ok(a), Ok(b)) => {
            for size in BATCHES {
                family.ran(&format!("{alg}, batch of {size}"), batch(&a, &b, size));
            }
        }
        (Err(KeyError::Unsupported), _) | (_, Err(KeyError::Unsupported)) => {
            family.skip("not in both providers");
        }
        (a, b) => family.ran(&alg.to_string(), Err(format!("keys: {:?}, {:?}", a.err(), b.err()))),
    }
}

#[derive(Clone)]
struct Aead {
    nonce: [u8; 12],
    aad: Vec<u8>,
    text: Vec<u8>,
    tag: Vec<u8>,
}

fn aead_batch(
    a: &dyn AeadKey,
    b: &dyn AeadKey,
    alg: AeadAlg,
    size: usize,
    random: &mut TestRng,
) -> Result<(), String> {
    let plain: Vec<_> = (0..size)
        .map(|_| Aead {
            nonce: random.array(),
            aad: random.between(0, 40),
            text: random.text(),
            tag: vec![0; alg.icv_len()],
        })
        .collect();
    let (mut by_a, mut by_b) = (plain.clone(), plain.clone());
    all_done(&aead_jobs(&mut by_a, |jobs| a.seal(jobs)))?;
    all_done(&aead_jobs(&mut by_b, |jobs| b.seal(jobs)))?;
    let mut singly = plain.clone();
    for one in singly.chunks_mut(1) {
        all_done(&aead_jobs(one, |jobs| a.seal(jobs)))?;
    }
    for ((a, b), one) in by_a.iter().zip(&by_b).zip(&singly) {
        expect_eq(&sized("text", &a.text), &a.text, &b.text)?;
        expect_eq(&sized("tag of text", &a.text), &a.tag, &b.tag)?;
        expect_eq(&sized("sealed alone", &a.text), &a.text, &one.text)?;
        expect_eq(&sized("tag alone", &a.text), &a.tag, &one.tag)?;
    }
    let corrupted = random.below(size);
    for (key, mut sealed) in [(b, by_a), (a, by_b)] {
        random.flip_bit(&mut sealed[corrupted].tag);
        all_done_but(corrupted, &aead_jobs(&mut sealed, |jobs| key.open(jobs)))?;
        for (_, (got, was)) in sealed.iter().zip(&plain).enumerate().filter(|(at, _)| *at != corrupted) {
            expect_eq(&sized("opened text", &was.text), &got.text, &was.text)?;
        }
    }
    Ok(())
}

impl Aead {
    fn job(&mut self) -> AeadJob<'_> {
        let Self { nonce, aad, text, tag } = self;
        AeadJob { nonce: *nonce, aad, text, tag, status: JobStatus::Pending }
    }
}

fn aead_jobs(work: &mut [Aead], run: impl Fn(&mut [AeadJob<'_>])) -> Vec<JobStatus> {
    let mut jobs: Vec<_> = work.iter_mut().map(Aead::job).collect();
    run(&mut jobs);
    jobs.iter().map(|job| job.status).collect()
}

fn cipher_batch(
    a: &dyn CipherKey,
    b: &dyn CipherKey,
    alg: CipherAlg,
    size: usize,
    random: &mut TestRng,
) -> Result<(), String> {
    for _ in 0..size {
        let iv = random.iv(alg);
        let plain = random.blocks(alg);
        let (mut by_a, mut by_b) = (plain.clone(), plain.clone());
        expect_eq("both encrypt", &(a.encrypt(&iv, &mut by_a), b.encrypt(&iv, &mut by_b)), &(true, true))?;
        expect_eq(&sized("ciphertext", &plain), &by_a, &by_b)?;
        expect_eq("both decrypt", &(a.decrypt(&iv, &mut by_b), b.decrypt(&iv, &mut by_a)), &(true, true))?;
        expect_eq(&sized("decrypted by the second", &plain), &by_a, &plain)?;
        expect_eq(&sized("decrypted by the first", &plain), &by_b, &plain)?;
    }
    Ok(())
}

fn mac_batch(
    a: &dyn MacKey,
    b: &dyn MacKey,
    alg: MacAlg,
    size: usize,
    random: &mut TestRng,
) -> Result<(), String> {
    let work: Vec<Signing> = (0..size).map(|_| (random.array(), random.text())).collect();
    let (by_a, by_b) = (signed(a, alg, &work)?, signed(b, alg, &work)?);
    for (((nonce, data), tag_a), tag_b) in work.iter().zip(&by_a).zip(&by_b) {
        expect_eq(&sized("tag of data", data), tag_a.as_slice(), tag_b.as_slice())?;
        let alone = signed(a, alg, &[(*nonce, data.clone())])?;
        expect_eq(&sized("tag alone", data), tag_a.as_slice(), alone[0].as_slice())?;
    }
    Ok(())
}

/// Nonce and data.
type Signing = ([u8; 12], Vec<u8>);

fn signed(key: &dyn MacKey, alg: MacAlg, work: &[Signing]) -> Result<Vec<Tag>, String> {
    let tag = Tag::zeroed(alg.tag_len());
    let jobs =
        work.iter().map(|(nonce, data)| MacJob { nonce: *nonce, data, tag, status: JobStatus::Pending });
    let mut jobs: Vec<_> = jobs.collect();
    key.sign(&mut jobs);
    all_done(&jobs.iter().map(|job| job.status).collect::<Vec<_>>())?;
    Ok(jobs.iter().map(|job| job.tag).collect())
}

#[derive(Clone)]
struct Etm {
    iv: [u8; 16],
    mac_nonce: [u8; 12],
    data: Vec<u8>,
    text: core::ops::Range<usize>,
    tag: Tag,
}

fn etm_batch(
    [a, b]: [&dyn EtmKey; 2],
    cipher: CipherAlg,
    mac: MacAlg,
    size: usize,
    random: &mut TestRng,
) -> Result<(), String> {
    let plain: Vec<_> = (0..size).map(|_| Etm::new(cipher, mac, random)).collect();
    let (mut by_a, mut by_b) = (plain.clone(), plain.clone());
    all_done(&etm_jobs(&mut by_a, |jobs| a.seal(jobs)))?;
    all_done(&etm_jobs(&mut by_b, |jobs| b.seal(jobs)))?;
    let mut singly = plain.clone();
    for one in singly.chunks_mut(1) {
        all_done(&etm_jobs(one, |jobs| a.seal(jobs)))?;
    }
    for ((a, b), one) in by_a.iter().zip(&by_b).zip(&singly) {
        expect_eq(&sized("data", &a.data), &a.data, &b.data)?;
        expect_eq(&sized("tag of data", &a.data), a.tag.as_slice(), b.tag.as_slice())?;
        expect_eq(&sized("sealed alone", &a.data), &a.data, &one.data)?;
        expect_eq(&sized("tag alone", &a.data), a.tag.as_slice(), one.tag.as_slice())?;
    }
    let corrupted = random.below(size);
    for (key, mut sealed) in [(b, by_a), (a, by_b)] {
        random.flip_bit(&mut sealed[corrupted].data);
        let before = sealed[corrupted].data.clone();
        all_done_but(corrupted, &etm_jobs(&mut sealed, |jobs| key.open(jobs)))?;
        for (at, (got, was)) in sealed.iter().zip(&plain).enumerate() {
            let expected = if at == corrupted { &before } else { &was.data };
            expect_eq(&sized("data after open", expected), &got.data, expected)?;
        }
    }
    Ok(())
}

impl Etm {
    /// Generates a header, a text, and a trailer that is only authenticated, as with ESN.
    fn new(cipher: CipherAlg, mac: MacAlg, random: &mut TestRng) -> Self {
        let mut data = random.between(8, 24);
        let start = data.len();
        data.extend(random.blocks(cipher));
        let text = start..data.len();
        data.extend(random.between(0, 4));
        Self { iv: random.iv(cipher), mac_nonce: random.array(), data, text, tag: Tag::zeroed(mac.tag_len()) }
    }

    fn job(&mut self) -> EtmJob<'_> {
        let Self { iv, mac_nonce, data, text, tag } = self;
        let (text, tag) = (text.clone(), *tag);
        EtmJob { iv: *iv, mac_nonce: *mac_nonce, data, text, tag, status: JobStatus::Pending }
    }
}

fn etm_jobs(work: &mut [Etm], run: impl Fn(&mut [EtmJob<'_>])) -> Vec<JobStatus> {
    let mut jobs: Vec<_> = work.iter_mut().map(Etm::job).collect();
    run(&mut jobs);
    let (statuses, tags): (Vec<_>, Vec<_>) = jobs.iter().map(|job| (job.status, job.tag)).unzip();
    for (work, tag) in work.iter_mut().zip(tags) {
        work.tag = tag;
    }
    statuses
}

fn all_done(statuses: &[JobStatus]) -> Result<(), String> {
    expect_eq("statuses of seal or sign", statuses, &vec![JobStatus::Done; statuses.len()])
}

fn all_done_but(corrupted: usize, statuses: &[JobStatus]) -> Result<(), String> {
    let mut expected = vec![JobStatus::Done; statuses.len()];
    expected[corrupted] = JobStatus::Failed;
    expect_eq("statuses of open", statuses, &expected)
}

fn sized(what: &str, bytes: &[u8]) -> String {
    format!("{what} ({} bytes)", bytes.len())
}

const LONGEST: usize = 9000;
/// Lengths near the block lengths of ciphers and hashes, and of their implementations.
const EDGES: [usize; 20] =
    [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1420, LONGEST];

/// Random inputs of algorithms.
pub(crate) trait RandomInput {
    /// Bytes of random length from `min` to `max`.
    fn between(&mut self, min: usize, max: usize) -> Vec<u8>;

    /// A text of random length, half of them near a block length.
    fn text(&mut self) -> Vec<u8>;

    /// Like [`text`](Self::text), truncated to whole blocks of the cipher.
    fn blocks(&mut self, alg: CipherAlg) -> Vec<u8>;

    /// An IV as ESP generates it: AES-CTR counts from 1 (RFC 3686 section 4).
    fn iv(&mut self, alg: CipherAlg) -> [u8; 16];
}

impl RandomInput for TestRng {
    fn between(&mut self, min: usize, max: usize) -> Vec<u8> {
        let len = min + self.below(max - min + 1);
        self.bytes(len)
    }

    fn text(&mut self) -> Vec<u8> {
        let len = if self.below(2) == 0 { EDGES[self.below(EDGES.len())] } else { self.below(LONGEST + 1) };
        self.bytes(len)
    }

    fn blocks(&mut self, alg: CipherAlg) -> Vec<u8> {
        let mut text = self.text();
        text.truncate(text.len() - text.len() % alg.block_len());
        text
    }

    fn iv(&mut self, alg: CipherAlg) -> [u8; 16] {
        let mut iv = self.array();
        if alg.is_counter_mode() {
            iv[12..].copy_from_slice(&1u32.to_be_bytes());
        }
        iv
    }
}
