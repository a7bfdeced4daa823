//! The data path allocates nothing for a packet and copies no payload: packets are sealed and opened in
//! place.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{
    AeadAlg, AeadJob, AeadKey, AesBits, CipherAlg, CipherKey, EspSuite, EtmJob, EtmKey, JobStatus, KeyError,
    MacAlg, MacJob, MacKey, MacKind, Provider, Providers,
};
use casemate_datapath::{
    Config, Datapath, Direction, DropReason, HEAD_ROOM, Inbound, Outbound, TAIL_ROOM, Unmatched,
};
use casemate_ipsec_mb::IPSEC_MB;
use casemate_rohc::{ChannelParams, ProfileSet};
use casemate_sa::{Instant, Mode, RohcParams};
use casemate_test_support::TestRng;
use casemate_test_support::allocator::{TestAllocator, count_allocations};
use casemate_test_support::hosts::{Ends, LinkSpec, PROVIDERS, packets, suites};
use casemate_wire::packet::Packet;
use std::ops::Range;
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

/// Address ranges of the texts of all calls.
static TEXTS: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// A provider without encryption: it records the address of each text and marks each job as done.
struct Watcher;

fn note(text: &[u8]) {
    let range = text.as_ptr_range();
    TEXTS.lock().unwrap().push(range.start as usize..range.end as usize);
}

impl Watcher {
    fn aead(jobs: &mut [AeadJob<'_>]) {
        for job in jobs {
            note(job.text);
            job.status = JobStatus::Done;
        }
    }

    fn etm(jobs: &mut [EtmJob<'_>]) {
        for job in jobs {
            note(&job.data[job.text.clone()]);
            job.status = JobStatus::Done;
        }
    }
}

impl AeadKey for Watcher {
    fn seal(&self, jobs: &mut [AeadJob<'_>]) {
        Self::aead(jobs);
    }
    fn open(&self, jobs: &mut [AeadJob<'_>]) {
        Self::aead(jobs);
    }
}

impl EtmKey for Watcher {
    fn seal(&self, jobs: &mut [EtmJob<'_>]) {
        Self::etm(jobs);
    }
    fn open(&self, jobs: &mut [EtmJob<'_>]) {
        Self::etm(jobs);
    }
}

impl MacKey for Watcher {
    fn sign(&self, jobs: &mut [MacJob<'_>]) {
        for job in jobs {
            note(job.data);
            job.tag.as_mut_slice().fill(7);
            job.status = JobStatus::Done;
        }
    }
}

impl Provider for Watcher {
    fn name(&self) -> &'static str {
        "watcher"
    }
    fn aead(&self, _: AeadAlg, _: &[u8]) -> Result<Box<dyn AeadKey>, KeyError> {
        Ok(Box::new(Self))
    }
    fn cipher(&self, _: CipherAlg, _: &[u8]) -> Result<Box<dyn CipherKey>, KeyError> {
        Err(KeyError::Unsupported)
    }
    fn mac(&self, _: MacAlg, _: &[u8]) -> Result<Box<dyn MacKey>, KeyError> {
        Ok(Box::new(Self))
    }
    fn etm(&self, _: CipherAlg, _: &[u8], _: MacAlg, _: &[u8]) -> Result<Box<dyn EtmKey>, KeyError> {
        Ok(Box::new(Self))
    }
}

const BATCH: usize = 32;
const PAYLOAD: usize = 1000;

/// Sends a batch through both directions of one data path, three times. Returns the number of allocations in
/// the last round. Every text that the provider gets must contain the payload at its original address.
fn exercise(spec: &LinkSpec, provider: &dyn Provider, watch: bool) -> usize {
    let providers = [provider];
    let providers = Providers(&providers);
    let mut dp = Datapath::new(Config { unmatched: Unmatched::Discard, link_mtu: 9000, ..Config::server(1) });
    for direction in [Direction::Outbound, Direction::Inbound] {
        for layer in 0..spec.layers.len() {
            dp.add_sa(&spec.params(layer, true), direction, &providers, Instant::ZERO).unwrap();
        }
        dp.add_policy(direction, spec.policy(true)).unwrap();
    }
    let packet = packets::udp(spec.ends.inner.0, spec.ends.inner.1, (1, 2), &[0x5a; PAYLOAD], false);
    let mut storage: Vec<Vec<u8>> =
        (0..BATCH).map(|_| vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM]).collect();
    let mut rng = TestRng::new(1);
    let mut allocations = 0;
    for _ in 0..3 {
        let mut batch: Vec<Packet<'_>> = storage
            .iter_mut()
            .map(|buffer| {
                buffer[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(&packet);
                Packet::new(buffer, HEAD_ROOM, packet.len()).unwrap()
            })
            .collect();
        let addresses: Vec<usize> =
            batch.iter().map(|p| p.data()[packet.len() - PAYLOAD..].as_ptr() as usize).collect();
        let mut out = [Outbound::Drop(DropReason::NoRoom); BATCH];
        let mut inn = [const { Inbound::Drop(DropReason::NoRoom) }; BATCH];
        let mut texts = TEXTS.lock().unwrap();
        texts.clear();
        texts.reserve(4 * spec.layers.len() * BATCH);
        drop(texts);
        allocations = count_allocations(|| {
            dp.outbound(Instant::ZERO, &mut rng, &mut batch, &mut out);
            dp.inbound(Instant::ZERO, &mut batch, &mut inn);
        })
        .allocations;
        assert!(out.iter().all(|verdict| matches!(verdict, Outbound::Send(_))), "{:?}", out[0]);
        assert!(inn.iter().all(|verdict| matches!(verdict, Inbound::Deliver(_))), "{:?}", inn[0]);
        assert!(batch.iter().all(|p| p.data() == packet));
        if watch {
            let texts = TEXTS.lock().unwrap();
            assert_eq!(texts.len(), 2 * spec.layers.len() * BATCH, "all packets were sealed and opened");
            for address in &addresses {
                let holds = |text: &&Range<usize>| text.start <= *address && address + PAYLOAD <= text.end;
                assert_eq!(
                    texts.iter().filter(holds).count(),
                    2 * spec.layers.len(),
                    "the payload did not move"
                );
            }
        }
        // The delivered payload has its original address.
        let delivered = batch.iter().map(|p| p.data()[packet.len() - PAYLOAD..].as_ptr() as usize);
        assert!(delivered.eq(addresses), "the payload did not move");
    }
    allocations
}

/// Returns the number of allocations for a packet that cannot be restored and for its feedback. All packets
/// pass through both directions of one data path.
fn allocations_of_feedback() -> usize {
    let channel = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
    let rohc = RohcParams { channel, max_cid: 15, integrity: None };
    let tunnel = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    let spec = LinkSpec { rohc: Some(rohc), ..tunnel };
    let mut dp = Datapath::new(Config { unmatched: Unmatched::Discard, ..Config::server(1) });
    dp.enable_rohc();
    let [sending, receiving] = [Direction::Outbound, Direction::Inbound].map(|direction| {
        dp.add_policy(direction, spec.policy(true)).unwrap();
        dp.add_sa(&spec.params(0, true), direction, &PROVIDERS, Instant::ZERO).unwrap()
    });
    let (packet, mut rng) = (packets::voice(spec.ends.inner.0, spec.ends.inner.1, 1, 40, 0), TestRng::new(1));
    let mut storage = vec![0; HEAD_ROOM + packet.len() + TAIL_ROOM];
    let mut pass = |dp: &mut Datapath, is_lost: bool| {
        storage[HEAD_ROOM..HEAD_ROOM + packet.len()].copy_from_slice(&packet);
        let mut batch = [Packet::new(&mut storage, HEAD_ROOM, packet.len()).unwrap()];
        let (mut out, mut inn) = ([Outbound::Bypass], [Inbound::Reassemble]);
        dp.outbound(Instant::ZERO, &mut rng, &mut batch, &mut out);
        let counted = count_allocations(|| {
            if is_lost {
                return None;
            }
            dp.inbound(Instant::ZERO, &mut batch, &mut inn);
            dp.next_rohc_feedback(Instant::ZERO, &mut rng, &mut batch[0])
        });
        let [inn] = inn;
        (counted, inn)
    };
    // The context is allocated, and all feedback is discarded: no SA can send it.
    (0..30).for_each(|_| assert!(matches!(pass(&mut dp, false).1, Inbound::Deliver(_))));
    assert!(dp.couple_rohc(receiving, sending));
    for _ in 0..20 {
        pass(&mut dp, true);
    }
    let (feedback, failed) = pass(&mut dp, false);
    assert!(matches!(failed, Inbound::Drop(DropReason::RohcFailed)), "{failed:?}");
    assert!(matches!(feedback.result, Some(Outbound::Send(_))), "{:?}", feedback.result);
    feedback.allocations
}

fn specs() -> Vec<LinkSpec> {
    let sha256 = suites::ah(MacAlg::standard(MacKind::HmacSha256), 1);
    let mut specs = Vec::new();
    let ccm = EspSuite::Combined(AeadAlg::aes_ccm(AesBits::B128, 16).unwrap());
    let cbc_xcbc = EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), MacAlg::standard(MacKind::AesXcbc));
    for suite in [suites::gcm(), ccm, suites::cbc_sha1(), cbc_xcbc] {
        for (mode, ends) in [(Mode::Tunnel, Ends::tunnel(4, 6)), (Mode::Transport, Ends::transport(4))] {
            for esn in [false, true] {
                let mut spec = LinkSpec::single(ends, mode, suites::esp(suite, 1));
                spec.esn = esn;
                specs.push(spec.clone());
                spec.encap = true;
                specs.push(spec);
            }
        }
    }
    specs.push(LinkSpec::single(Ends::tunnel(6, 4), Mode::Tunnel, sha256.clone()));
    let mut bundle = LinkSpec::single(Ends::transport(6), Mode::Transport, suites::esp(suites::gcm(), 1));
    bundle.layers.push((Mode::Transport, sha256));
    specs.push(bundle);
    specs
}

/// The available providers.
fn providers() -> Vec<&'static dyn Provider> {
    let mut providers: Vec<&'static dyn Provider> = vec![&casemate_rustcrypto::RUSTCRYPTO];
    match IPSEC_MB.available() {
        Ok(()) => providers.push(&IPSEC_MB),
        Err(absent) => casemate_test_support::skip(absent),
    }
    providers
}

// A single test, because the recorded addresses are shared.
#[test]
fn no_allocation_and_no_copy() {
    let providers = providers();
    for spec in specs() {
        exercise(&spec, &Watcher, true);
        for provider in &providers {
            let allocations = exercise(&spec, *provider, false);
            assert_eq!(allocations, 0, "{}: {:?}", provider.name(), spec.layers);
        }
    }
}

#[test]
fn feedback_of_header_compression_allocates_nothing() {
    assert_eq!(allocations_of_feedback(), 0);
}
