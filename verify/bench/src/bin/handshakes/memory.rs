//! Initiators and responder in one process without sockets: CPU time of a handshake for the responder, and
//! memory of its SAs.

use crate::case::Case;
use crate::initiator::{Initiator, PROVIDERS, SourceAddress, load, unix_time};
use casemate::{Context, Endpoint, Routes};
use casemate_app::keyring::Keyring;
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Unmatched};
use casemate_ike::{IkeSettings, Path, Transmit};
use casemate_sa::{Instant, Limits};
use casemate_test_support::TestRng;
use casemate_test_support::allocator::{TestAllocator, bytes_in_use};
use std::net::IpAddr;
use std::path::Path as File;
use std::time::Duration;

/// Measured cost.
pub(crate) struct Cost {
    /// CPU time of the responder for a handshake.
    pub(crate) time: Duration,
    /// Heap bytes of an IKE SA with its Child SA in the responder.
    pub(crate) bytes: u64,
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
    rng: TestRng,
    spent: Duration,
    heap: i64,
}

/// Establishes `count` IKE SAs with a Child SA each, with as many peers, and closes none. `directory`
/// contains the configurations of both sides.
pub(crate) fn measure(case: Case, count: u32, directory: &File) -> Cost {
    let mut initiator =
        Initiator::new(&crate::responder::configure(case, "initiator", directory), SourceAddress::Own);
    let mut responder = Responder::new(&crate::responder::configure(case, "responder", directory));
    let now = Instant::from_secs(1_000);
    for _ in 0..count {
        initiator.start_handshake(now);
        while initiator.in_flight() > 0 {
            let to_responder: Vec<Transmit> = std::iter::from_fn(|| initiator.next_transmit()).collect();
            assert!(!to_responder.is_empty(), "a handshake stopped");
            for Transmit { path, mut message, .. } in to_responder {
                for (path, mut answer) in responder.process(&mut message, reversed(path), now) {
                    initiator.receive(&mut answer, reversed(path), now);
                }
            }
        }
        initiator.check();
    }
    assert_eq!(responder.endpoint.ike().status().count(), count as usize);
    Cost { time: responder.spent / count, bytes: responder.heap.unsigned_abs() / u64::from(count) }
}

fn reversed(path: Path) -> Path {
    Path { local: path.remote, remote: path.local }
}

impl Responder {
    fn new(file: &File) -> Self {
        let (connections, keyring) = load(file);
        let config =
            Config { limits: Limits::SERVER, seed: 1, unmatched: Unmatched::PassClear, link_mtu: 1_500 };
        let endpoint = Endpoint::new(Datapath::new(config), IkeSettings::SERVER);
        let mut responder = Self {
            endpoint,
            keyring,
            rng: TestRng::new(std::process::id().into()),
            spent: Duration::ZERO,
            heap: 0,
        };
        responder.with(Instant::from_secs(1_000), |endpoint, context| {
            endpoint.configure(connections, &[], context).unwrap();
        });
        responder
    }

    /// Processes a message and returns the responses. They are copied, so that only the remaining memory is
    /// counted.
    fn process(&mut self, message: &mut [u8], path: Path, now: Instant) -> Vec<(Path, Vec<u8>)> {
        let mut answers = Vec::with_capacity(2);
        let (before, start) = (bytes_in_use(), cpu_time());
        self.with(now, |endpoint, context| endpoint.receive_ike(message, path, context));
        self.spent += cpu_time() - start;
        while self.endpoint.next_notice().is_some() {}
        let mut copied = 0;
        while let Some(Transmit { path, message, .. }) = self.endpoint.next_transmit() {
            let between = bytes_in_use();
            answers.push((path, message.clone()));
            copied += bytes_in_use() - between;
        }
        self.heap += bytes_in_use() - before - copied;
        answers
    }

    fn with(&mut self, now: Instant, act: impl FnOnce(&mut Endpoint, &mut Context<'_>)) {
        let mut context = Context {
            now,
            unix_time: unix_time(),
            rng: &mut self.rng,
            providers: &Providers(&PROVIDERS),
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
    use crate::case::{Auth, CASES, Pki};
    use crate::responder::prepare;
    use casemate_test_support::TempDir;

    /// Bound for each of 10,000 IKE SAs with a Child SA, in bytes. The tests measure a thousand: each needs
    /// as much, and their hash tables are emptier.
    const MOST: u64 = 8 * 1_024;

    fn bytes(auth: Auth, pki: Option<&Pki>) -> u64 {
        let case = CASES.into_iter().find(|case| (case.auth, case.kex) == (auth, "x25519")).unwrap();
        let scratch = TempDir::new("memory").unwrap();
        prepare(case, pki, scratch.path()).unwrap();
        measure(case, 1_000, scratch.path()).bytes
    }

    #[test]
    fn ike_sa_with_a_shared_key_and_child_sa_needs_at_most_8_kib() {
        let bytes = bytes(Auth::Psk, None);
        // A result below the size of the keys would be a wrong measurement.
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
    }

    #[test]
    fn ike_sa_with_certificates_and_child_sa_needs_at_most_8_kib() {
        let scratch = TempDir::new("memory-pki").unwrap();
        let pki = match Pki::make(scratch.path().into()) {
            Ok(pki) => pki,
            Err(error) => return casemate_test_support::skip(error),
        };
        let bytes = bytes(Auth::Ecdsa, Some(&pki));
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
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
