//! Capture of a bridge: one thread for each port reads the frames that the host behind it sends, and passes
//! them to the oracle.

use crate::net::Segment;
use crate::oracle::{Oracle, Sending};
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::FrameCapture;
use casemate_test_support::TestRng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval at which a thread looks whether it should end.
const POLL: Duration = Duration::from_millis(50);

/// A running capture. It ends on drop.
pub(crate) struct Wire {
    oracle: Arc<Mutex<Oracle>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
    start: Instant,
}

impl Wire {
    /// Captures at these ports of a bridge.
    pub(crate) fn start(segment: &Segment, ports: &[&'static str]) -> Self {
        let (oracle, is_over) = (Arc::<Mutex<Oracle>>::default(), Arc::<AtomicBool>::default());
        let start = Instant::now();
        let capture = |port: &'static str| {
            let open = || FrameCapture::open_received(Netlink::open()?.link(port)?.index);
            let frames = segment.host.run(open).unwrap();
            let (oracle, is_over) = (Arc::clone(&oracle), Arc::clone(&is_over));
            thread::spawn(move || read(&frames, port, start, &oracle, &is_over))
        };
        let threads = ports.iter().map(|port| capture(port)).collect();
        Self { oracle, is_over, threads, start }
    }

    /// Looks at what the oracle has seen so far.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Oracle) -> T) -> T {
        look(&mut self.oracle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Access to recorded frames from another thread.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.oracle))
    }

    /// Time since the start of the capture.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends the capture after the frames that wait. Fails the test if frames were lost or if the oracle has
    /// found anything.
    pub(crate) fn finish(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let lost: u32 = self.threads.drain(..).map(|thread| thread.join().unwrap()).sum();
        assert_eq!(lost, 0, "the capture has lost frames");
        let findings = self.look(|oracle| oracle.findings().join("\n"));
        assert!(findings.is_empty(), "{findings}");
    }
}

/// Recorded frames of a capture.
pub(crate) struct Recorder(Arc<Mutex<Oracle>>);

impl Recorder {
    /// Some of the last frames with ESP for the cell.
    pub(crate) fn sample(&self, count: usize, rng: &mut TestRng) -> Vec<Vec<u8>> {
        let oracle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = oracle.recent();
        let some = (0..count.min(recent.len())).map(|_| recent[rng.below(recent.len())].clone());
        some.collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

/// Reads until `is_over`. Returns the number of lost frames.
fn read(
    frames: &FrameCapture,
    sender: &'static str,
    start: Instant,
    oracle: &Mutex<Oracle>,
    is_over: &AtomicBool,
) -> u32 {
    let mut buffer = vec![0; 70_000];
    loop {
        // Before the look at the socket: frames that were sent before the end are examined.
        let ends = is_over.load(Ordering::Relaxed);
        match frames.next(&mut buffer, POLL) {
            Ok(Some(len)) => {
                let sending = Sending { sender, at: start.elapsed() };
                oracle.lock().unwrap_or_else(PoisonError::into_inner).examine(sending, &buffer[..len]);
            }
            Ok(None) if ends => return frames.lost().unwrap(),
            // The port is down (ENETDOWN); the capture goes on when it is up again.
            Ok(None) | Err(_) => {}
        }
        if ends && start.elapsed() > LIMIT {
            return frames.lost().unwrap();
        }
    }
}

/// Longest time of a capture. No test takes as long.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);
