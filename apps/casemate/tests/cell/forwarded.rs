//! What travels between the gateways: a capture of the etcd bridge that keeps the frames of forwarded
//! packets.

use crate::net::{CellNet, GATEWAYS};
use crate::traffic::MARK;
use casemate_linux::netlink::Netlink;
use casemate_linux::netns::{FrameCapture, FrameInjector};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// UDP port of the gateways.
pub(crate) const PORT: u16 = 4_510;
const POLL: Duration = Duration::from_millis(50);
/// Frames that are kept.
const MOST: usize = 2_000;
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Offset of the UDP checksum.
const CHECKSUM: usize = 14 + 20 + 6;

/// A running capture. It ends on drop.
pub(crate) struct Forwarded {
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Forwarded {
    /// Captures the frames that the gateways send to the bridge.
    pub(crate) fn start(net: &CellNet) -> Self {
        let (frames, is_over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let capture = |port: &str| {
            let open = || FrameCapture::open_received(Netlink::open()?.link(port)?.index);
            let capture = net.etcd.host.run(open).unwrap();
            let (frames, is_over) = (Arc::clone(&frames), Arc::clone(&is_over));
            thread::spawn(move || read(&capture, &frames, &is_over))
        };
        let threads = GATEWAYS.iter().map(|port| capture(port)).collect();
        Self { frames, is_over, threads }
    }

    /// The first frames so far.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a frame is the first fragment of a packet.
    pub(crate) fn has_fragment(&self) -> bool {
        const MORE_FRAGMENTS: u8 = 0x20;
        self.frames().iter().any(|frame| frame[20] & MORE_FRAGMENTS != 0)
    }

    /// Fails the test if a frame contains one of these texts in clear.
    pub(crate) fn check_contains_none(&self, texts: &[Vec<u8>]) {
        for frame in self.frames() {
            for text in texts.iter().map(Vec::as_slice).chain([&MARK[..]]) {
                assert!(!frame.windows(text.len()).any(|window| window == text), "{text:x?} in clear");
            }
        }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

fn read(capture: &FrameCapture, frames: &Mutex<Vec<Vec<u8>>>, is_over: &AtomicBool) {
    let mut buffer = vec![0; 70_000];
    while !is_over.load(Ordering::Relaxed) {
        let Ok(Some(len)) = capture.next(&mut buffer, POLL) else { continue };
        let frame = &buffer[..len];
        if frame.get(12..14) == Some(&[8, 0])
            && frame.get(36..38) == Some(&PORT.to_be_bytes())
            && frame[23] == 17
        {
            let mut frames = frames.lock().unwrap_or_else(PoisonError::into_inner);
            if frames.len() < MOST {
                frames.push(frame.to_vec());
            }
        }
    }
}

/// Sends these frames to the bridge again, after a change of their payloads.
pub(crate) fn inject(net: &CellNet, frames: &[Vec<u8>], change: impl Fn(usize, &mut [u8])) {
    let open = || FrameInjector::open(Netlink::open()?.link("bridge0")?.index);
    let injector = net.etcd.host.run(open).unwrap();
    for (number, frame) in frames.iter().enumerate() {
        let mut frame = frame.clone();
        // The captured checksum is not complete: the interfaces would have completed it.
        frame[CHECKSUM..HEADERS].fill(0);
        change(number, &mut frame[HEADERS..]);
        injector.send(&frame).unwrap();
        if number % 100 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
