//! Two sides in one process without sockets: what a handshake costs the responder, and what it leaves behind.

use crate::case::Case;
use crate::dice::Dice;
use crate::heap;
use crate::initiator::{Home, Initiator, PROVIDERS, load, unix_time};
use casemate::{Endpoint, Means, Routes};
use casemate_app::keyring::Keyring;
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Unmatched};
use casemate_ike::{Path, Settings, Transmit};
use casemate_sa::{Instant, Limits};
use std::net::IpAddr;
use std::path::Path as File;
use std::time::Duration;

/// What was measured.
pub(crate) struct Cost {
    /// CPU time that the responder took for a handshake.
    pub(crate) time: Duration,
    /// Bytes of the heap that an IKE SA with its Child SA holds on the responder's side.
    pub(crate) bytes: u64,
}

struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// The side that is measured: everything that it does is timed, and its memory counted.
struct Responder {
    endpoint: Endpoint,
    keyring: Keyring,
    dice: Dice,
    spent: Duration,
    heap: i64,
}

/// Makes `count` IKE SAs with a Child SA each, with as many peers, and closes none. `directory` has the configurations of both sides.
pub(crate) fn measure(case: Case, count: u32, directory: &File) -> Cost {
    let mut initiator = Initiator::new(&crate::responder::configure(case, "initiator", directory), Home::Own);
    let mut responder = Responder::new(&crate::responder::configure(case, "responder", directory));
    let now = Instant::from_secs(1_000);
    for _ in 0..count {
        initiator.begin(now);
        while initiator.in_flight() > 0 {
            let to_responder: Vec<Transmit> = std::iter::from_fn(|| initiator.next_transmit()).collect();
            assert!(!to_responder.is_empty(), "a handshake came to a halt");
            for Transmit { path, mut message, .. } in to_responder {
                for (path, mut answer) in responder.take(&mut message, turned(path), now) {
                    initiator.receive(&mut answer, turned(path), now);
                }
            }
        }
        initiator.check();
    }
    assert_eq!(responder.endpoint.ike().status().count(), count as usize);
    Cost { time: responder.spent / count, bytes: responder.heap.unsigned_abs() / u64::from(count) }
}

fn turned(path: Path) -> Path {
    Path { local: path.remote, remote: path.local }
}

impl Responder {
    fn new(file: &File) -> Self {
        let (connections, keyring) = load(file);
        let config =
            Config { limits: Limits::SERVER, seed: 1, unmatched: Unmatched::PassClear, link_mtu: 1_500 };
        let endpoint = Endpoint::new(Datapath::new(config), Settings::SERVER);
        let mut responder = Self { endpoint, keyring, dice: Dice::new(), spent: Duration::ZERO, heap: 0 };
        responder.with(Instant::from_secs(1_000), |endpoint, means| {
            endpoint.configure(connections, &[], means).unwrap();
        });
        responder
    }

    /// Takes a message, and gives the answers. They are copied, so that only what stays is counted.
    fn take(&mut self, message: &mut [u8], path: Path, now: Instant) -> Vec<(Path, Vec<u8>)> {
        let mut answers = Vec::with_capacity(2);
        let (before, start) = (heap::in_use(), cpu_time());
        self.with(now, |endpoint, means| endpoint.receive_ike(message, path, means));
        self.spent += cpu_time() - start;
        while self.endpoint.next_notice().is_some() {}
        let mut copied = 0;
        while let Some(Transmit { path, message, .. }) = self.endpoint.next_transmit() {
            let between = heap::in_use();
            answers.push((path, message.clone()));
            copied += heap::in_use() - between;
        }
        self.heap += heap::in_use() - before - copied;
        answers
    }

    fn with(&mut self, now: Instant, act: impl FnOnce(&mut Endpoint, &mut Means<'_>)) {
        let mut means = Means {
            now,
            unix_time: unix_time(),
            rng: &mut self.dice,
            providers: &Providers(&PROVIDERS),
            credentials: &self.keyring,
            routes: &NoRoutes,
        };
        act(&mut self.endpoint, &mut means);
    }
}

/// CPU time of this thread. Others may use the machine too.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which lives until the call returns.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Auth, CASES};
    use crate::pki::Pki;
    use crate::responder::prepare;
    use casemate_scratch::Scratch;

    /// What each of 10,000 IKE SAs with a Child SA may take at most, in bytes. A thousand are measured: each takes as much, and
    /// their hash tables lie emptier.
    const MOST: u64 = 8 * 1_024;

    fn bytes(auth: Auth, pki: Option<&Pki>) -> u64 {
        let case = CASES.into_iter().find(|case| (case.auth, case.kex) == (auth, "x25519")).unwrap();
        let scratch = Scratch::new("memory");
        prepare(case, pki, scratch.path()).unwrap();
        measure(case, 1_000, scratch.path()).bytes
    }

    #[test]
    fn an_ike_sa_with_a_shared_key_and_its_child_take_at_most_8_kib() {
        let bytes = bytes(Auth::Psk, None);
        // Less than what its keys take would be no measurement.
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
    }

    #[test]
    fn an_ike_sa_with_certificates_and_its_child_take_at_most_8_kib() {
        let scratch = Scratch::new("memory-pki");
        let pki = match Pki::make(scratch.path().into()) {
            Ok(pki) => pki,
            Err(error) => return casemate_left_out::note(error),
        };
        let bytes = bytes(Auth::Ecdsa, Some(&pki));
        assert!((2_048..=MOST).contains(&bytes), "{bytes}");
    }
}
