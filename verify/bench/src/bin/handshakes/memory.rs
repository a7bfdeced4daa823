//! Initiators and responder in one process without sockets: CPU time of a handshake for either side, its
//! packets, and memory of the responder's SAs.

use crate::case::Case;
use crate::initiator::{self, Initiator, ProviderList, SourceAddress, load, unix_time};
use casemate::{Context, Endpoint, Routes};
use casemate_app::keyring::Keyring;
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Unmatched};
use casemate_ike::{IkeSettings, Path, Transmit};
use casemate_sa::{Instant, Limits};
use casemate_test_support::TestRng;
use casemate_test_support::allocator::{TestAllocator, bytes_in_use};
use casemate_wire::ike::{ExchangeType, Header};
use std::net::IpAddr;
use std::path::Path as File;
use std::time::Duration;

/// Providers that are measured.
pub(crate) struct ProviderSet {
    /// Name in tables.
    pub(crate) name: &'static str,
    pub(crate) list: ProviderList,
    /// Bound for the number of IKE SAs, because a handshake may take long.
    pub(crate) most_sas: u32,
}

/// The providers of `casemate run`, and the portable one alone.
pub(crate) const PROVIDERS: [ProviderSet; 2] = [
    ProviderSet { name: "aws-lc", list: initiator::PROVIDERS, most_sas: u32::MAX },
    ProviderSet { name: "rustcrypto", list: &[&casemate_rustcrypto::RUSTCRYPTO], most_sas: 1_000 },
];

/// Measured cost of a handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// CPU time of the responder.
    pub(crate) responder: Duration,
    /// CPU time of the initiator.
    pub(crate) initiator: Duration,
    /// IPv4 packets of both sides.
    pub(crate) packets: u32,
    /// Bytes of these packets, with the headers of IPv4 and UDP.
    pub(crate) wire_bytes: u32,
    /// Heap bytes of a half-open IKE SA in the responder, after the last message before IKE_AUTH.
    pub(crate) half_open_bytes: u64,
    /// Heap bytes of an IKE SA with its Child SA in the responder.
    pub(crate) established_bytes: u64,
}

struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// Measured responder: its CPU time and its heap are counted.
struct Responder {
    endpoint: Endpoint,
    keyring: Keyring,
    providers: ProviderList,
    rng: TestRng,
    spent: Duration,
    heap: i64,
}

/// Establishes `count` IKE SAs with a Child SA each, with as many peers, and closes none. `directory`
/// contains the configurations of both sides.
pub(crate) fn measure(case: Case, count: u32, providers: ProviderList, directory: &File) -> Cost {
    let mut sides = Sides::new(case, providers, directory);
    (0..count).for_each(|_| sides.handshake(None));
    assert_eq!(sides.responder.endpoint.ike().status().count(), count as usize);
    Cost {
        responder: sides.responder.spent / count,
        initiator: sides.spent / count,
        packets: sides.packets / count,
        wire_bytes: sides.wire_bytes / count,
        half_open_bytes: half_open_bytes(case, providers, directory),
        established_bytes: sides.responder.heap.unsigned_abs() / u64::from(count),
    }
}

/// Fewer half-open IKE SAs than those from which on the responder requests cookies.
const HALF_OPEN: u32 = 48;

fn half_open_bytes(case: Case, providers: ProviderList, directory: &File) -> u64 {
    let mut sides = Sides::new(case, providers, directory);
    (0..HALF_OPEN).for_each(|_| sides.handshake(Some(ExchangeType::IKE_AUTH)));
    sides.responder.heap.unsigned_abs() / u64::from(HALF_OPEN)
}

/// The initiators and the responder.
struct Sides {
    initiator: Initiator,
    responder: Responder,
    /// CPU time of the initiators.
    spent: Duration,
    packets: u32,
    wire_bytes: u32,
}

/// Time of all messages.
const NOW: Instant = Instant::from_secs(1_000);

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 20 + 8;
/// Bytes of the non-ESP marker (RFC 7296 section 3.1).
const MARKER: usize = 4;

impl Sides {
    fn new(case: Case, providers: ProviderList, directory: &File) -> Self {
        let file = |side| crate::responder::configure(case, side, directory);
        Self {
            initiator: Initiator::new(&file("initiator"), SourceAddress::Own, providers),
            responder: Responder::new(&file("responder"), providers),
            spent: Duration::ZERO,
            packets: 0,
            wire_bytes: 0,
        }
    }

    /// Performs a handshake with another initiator, or its exchanges before that of the type `end`.
    fn handshake(&mut self, end: Option<ExchangeType>) {
        self.initiate(|initiator| initiator.start_handshake(NOW));
        while self.initiator.in_flight() > 0 {
            let requests: Vec<Transmit> = std::iter::from_fn(|| self.initiator.next_transmit()).collect();
            assert!(!requests.is_empty(), "a handshake stopped");
            for mut request in requests {
                if end.is_some() && Header::parse(&request.message).ok().map(|header| header.exchange) == end
                {
                    return;
                }
                self.count(&request);
                for mut response in self.responder.process(&mut request.message, reversed(request.path), NOW)
                {
                    self.count(&response);
                    let path = reversed(response.path);
                    self.initiate(|initiator| initiator.receive(&mut response.message, path, NOW));
                }
            }
        }
        self.initiator.check();
    }

    fn initiate(&mut self, act: impl FnOnce(&mut Initiator)) {
        let start = cpu_time();
        act(&mut self.initiator);
        self.spent += cpu_time() - start;
    }

    fn count(&mut self, sent: &Transmit) {
        let marker = if sent.non_esp_marker { MARKER } else { 0 };
        self.packets += 1;
        self.wire_bytes += (HEADERS + marker + sent.message.len()) as u32;
    }
}

fn reversed(path: Path) -> Path {
    Path { local: path.remote, remote: path.local }
}

impl Responder {
    fn new(file: &File, providers: ProviderList) -> Self {
        let (connections, keyring) = load(file, providers);
        let config =
            Config { limits: Limits::SERVER, seed: 1, unmatched: Unmatched::PassClear, link_mtu: 1_500 };
        let endpoint = Endpoint::new(Datapath::new(config), IkeSettings::SERVER);
        let mut responder = Self {
            endpoint,
            keyring,
            providers,
            rng: TestRng::new(std::process::id().into()),
            spent: Duration::ZERO,
            heap: 0,
        };
        responder.with(NOW, |endpoint, context| {
            endpoint.configure(connections, &[], context).unwrap();
        });
        responder
    }

    /// Processes a message and returns the responses. They are copied, so that only the remaining memory is
    /// counted.
    fn process(&mut self, message: &mut [u8], path: Path, now: Instant) -> Vec<Transmit> {
        let mut responses = Vec::with_capacity(4);
        let (before, start) = (bytes_in_use(), cpu_time());
        self.with(now, |endpoint, context| endpoint.receive_ike(message, path, context));
        self.spent += cpu_time() - start;
        while self.endpoint.next_notice().is_some() {}
        let mut copied = 0;
        while let Some(response) = self.endpoint.next_transmit() {
            let between = bytes_in_use();
            responses.push(response.clone());
            copied += bytes_in_use() - between;
        }
        self.heap += bytes_in_use() - before - copied;
        responses
    }

    fn with(&mut self, now: Instant, act: impl FnOnce(&mut Endpoint, &mut Context<'_>)) {
        let mut context = Context {
            now,
            unix_time: unix_time(),
            rng: &mut self.rng,
            providers: &Providers(self.providers),
            credentials: &self.keyring,
            routes: &NoRoutes,
        };
        act(&mut self.endpoint, &mut context);
    }
}

/// CPU time of this thread. Other processes may use the machine at the same time.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer refers to a local timespec, which lives until the call returns.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::with_block_len(chunk);

/// Bytes that glibc's allocator uses for `size` bytes: one word of overhead, rounded up to a multiple of
/// 16, at least 32.
fn chunk(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Auth, CASES, Pki, X25519, X25519_ML_KEM_768};
    use crate::responder::prepare;
    use casemate_advise::handshake::wire_cost;
    use casemate_crypto::KexMethod;
    use casemate_test_support::TempDir;
    use casemate_wire::ip::IpVersion;

    /// Bound for each of 10,000 IKE SAs with a Child SA, in bytes. The tests measure a thousand: each needs
    /// as much, and their hash tables are emptier. With the feature `records`, 8,250 bytes were measured with
    /// certificates.
    const MOST: u64 = 8 * 1_024;
    /// Bound for a half-open IKE SA with its last response, which the responder may have to repeat, in bytes.
    const MOST_HALF_OPEN: u64 = 4 * 1_024;

    fn cost(case: Case, count: u32, pki: Option<&Pki>) -> Cost {
        let scratch = TempDir::new("memory").unwrap();
        prepare(case, pki, scratch.path()).unwrap();
        measure(case, count, initiator::PROVIDERS, scratch.path())
    }

    #[test]
    fn ike_sa_with_a_shared_key_and_child_sa_keeps_the_bound() {
        let bytes = cost(Case::new(Auth::Psk, X25519), 1_000, None).established_bytes;
        // A result below the size of the keys would be a wrong measurement.
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
    }

    #[test]
    fn ike_sa_with_certificates_and_child_sa_keeps_the_bound() {
        let scratch = TempDir::new("memory-pki").unwrap();
        let pki = match Pki::make(scratch.path().into()) {
            Ok(pki) => pki,
            Err(error) => return casemate_test_support::skip(error),
        };
        let bytes = cost(Case::new(Auth::Ecdsa, X25519), 1_000, Some(&pki)).established_bytes;
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
    }

    #[test]
    fn ml_kem_adds_an_exchange_with_its_keys_and_nothing_that_stays() {
        let [alone, with] = [X25519, X25519_ML_KEM_768].map(|kex| cost(Case::new(Auth::Psk, kex), 200, None));
        // The encapsulation key is in two fragments (RFC 7383).
        assert_eq!((alone.packets, with.packets), (4, 7));
        // What `casemate advise` calculates.
        let added = wire_cost(KexMethod::MlKem768, IpVersion::V4, false);
        let found = [with.packets - alone.packets, with.wire_bytes - alone.wire_bytes];
        assert_eq!(found, [added.packets as u32, added.bytes as u32]);
        for cost in [alone, with] {
            assert!((512..=MOST_HALF_OPEN).contains(&cost.half_open_bytes), "{}", cost.half_open_bytes);
        }
        assert!(alone.half_open_bytes < with.half_open_bytes);
        assert!(with.established_bytes.abs_diff(alone.established_bytes) < 512, "{with:?} {alone:?}");
    }

    #[test]
    fn each_case_is_completed_with_each_provider() {
        for providers in &PROVIDERS {
            for case in CASES.into_iter().filter(|case| case.auth == Auth::Psk) {
                let scratch = TempDir::new("memory").unwrap();
                prepare(case, None, scratch.path()).unwrap();
                let cost = measure(case, 2, providers.list, scratch.path());
                assert!(cost.responder > Duration::ZERO && cost.initiator > Duration::ZERO, "{cost:?}");
            }
        }
    }

    #[test]
    fn allocations_are_counted() {
        let before = bytes_in_use();
        let mut bytes: Vec<u8> = Vec::with_capacity(25);
        assert_eq!(bytes_in_use() - before, 48);
        bytes.reserve_exact(1_000);
        assert_eq!(bytes_in_use() - before, 1_008);
        drop(bytes);
        assert_eq!(bytes_in_use() - before, 0);
        let zeroed = vec![0u8; 24];
        assert_eq!(bytes_in_use() - before, 32);
        drop(zeroed);
        assert_eq!(bytes_in_use() - before, 0);
    }
}
