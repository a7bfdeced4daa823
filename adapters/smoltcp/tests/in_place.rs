//! Over a device that exchanges its buffers, nothing is copied and nothing is allocated: a packet is written, sealed and sent
//! in one buffer, and received, opened and read in another.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken expectation is meant to stop the test"
)]

use casemate::{Endpoint, housekeeping};
use casemate_crypto::Rng;
use casemate_datapath::{Datapath, HEAD_ROOM, TAIL_ROOM};
use casemate_datapath_tests::{Ends, LinkSpec, packets, suites};
use casemate_ike::Settings;
use casemate_sa::{Limits, Mode};
use casemate_smoltcp::{Exchange, Full, Guarded, Setup};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what this thread allocates.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is no allocation.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MTU: usize = 1_500;
/// As a card that writes a header of its own.
const HEADER: usize = 12;

/// A card with a ring of one buffer in each direction.
struct Card {
    /// What came, until it is taken.
    full: Option<(Box<[u8]>, usize)>,
    /// What was sent, until somebody looks at it.
    sent: Option<(Box<[u8]>, Range<usize>)>,
    empty: Vec<Box<[u8]>>,
}

fn room() -> Box<[u8]> {
    vec![0; HEADER + HEAD_ROOM + MTU + TAIL_ROOM].into()
}

impl Exchange for Card {
    type Buffer = Box<[u8]>;
    const HEADER: usize = HEADER;

    fn device_capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }

    fn buffer(&mut self) -> Box<[u8]> {
        room()
    }

    fn take_frame(&mut self, _: Instant, buffer: &mut Box<[u8]>) -> Option<Range<usize>> {
        let (full, len) = self.full.take()?;
        self.empty.push(std::mem::replace(buffer, full));
        Some(HEADER..HEADER + len)
    }

    fn send_frame(&mut self, _: Instant, buffer: &mut Box<[u8]>, frame: Range<usize>) -> Result<(), Full> {
        if self.sent.is_some() {
            return Err(Full);
        }
        let empty = self.empty.pop().ok_or(Full)?;
        self.sent = Some((std::mem::replace(buffer, empty), frame));
        Ok(())
    }
}

struct Dice(u8);

impl Rng for Dice {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self.0.wrapping_mul(5).wrapping_add(3);
            *byte = self.0;
        }
    }
}

const LIMITS: Limits = Limits { policies: 32, ..Limits::DEVICE };

fn guarded(mut datapath: Datapath) -> Guarded<Card> {
    housekeeping(&mut datapath).unwrap();
    let endpoint = Endpoint::new(datapath, Settings::DEVICE);
    // What is exchanged again and again must not grow.
    let mut empty = Vec::with_capacity(16);
    empty.extend([room(), room(), room()]);
    let card = Card { full: None, sent: None, empty };
    Guarded::new(card, Setup { endpoint, rng: Box::new(Dice(1)), limits: LIMITS })
}

#[test]
fn packets_stay_in_the_buffers_of_the_device() {
    for (ends, mode, suite) in [
        (Ends::transport(4), Mode::Transport, suites::gcm()),
        (Ends::tunnel(4, 4), Mode::Tunnel, suites::gcm()),
        (Ends::tunnel(6, 4), Mode::Tunnel, suites::cbc_sha1()),
    ] {
        let mut spec = LinkSpec::single(ends, mode, suites::esp(suite, 1));
        spec.limits = LIMITS;
        let link = spec.build();
        let (mut a, mut b) = (guarded(link.a.dp), guarded(link.b.dp));
        let (src, dst) = spec.ends.inner;
        for len in [0, 1, 100, 1_200] {
            let packet = packets::udp(src, dst, (1_000, 2_000), &vec![0x5A; len], false);
            let before = ALLOCATIONS.get();
            let written = a.transmit(Instant::ZERO).unwrap().consume(packet.len(), |out| {
                out.copy_from_slice(&packet);
                out.as_ptr_range()
            });
            assert_eq!(ALLOCATIONS.get(), before, "a packet out allocates");
            let (full, place) = a.device_mut().sent.take().unwrap();
            let buffer = full.as_ptr_range();
            assert!(buffer.start <= written.start && written.end <= buffer.end, "the packet was copied out");
            assert!(place.start >= HEADER && place.len() > packet.len());
            assert!(!full.windows(64).any(|part| part == [0x5A; 64]), "the buffer holds clear text");

            let mut arrived = room();
            arrived[HEADER..HEADER + place.len()].copy_from_slice(&full[place.clone()]);
            let memory = arrived.as_ptr_range();
            b.device_mut().full = Some((arrived, place.len()));
            a.device_mut().empty.push(full);
            let before = ALLOCATIONS.get();
            let (token, _) = b.receive(Instant::ZERO).unwrap();
            let came = token.consume(|frame| (frame.as_ptr_range(), frame.len(), frame.last().copied()));
            assert_eq!(ALLOCATIONS.get(), before, "a packet in allocates");
            assert!(memory.start <= came.0.start && came.0.end <= memory.end, "the packet was copied in");
            assert_eq!((came.1, came.2), (packet.len(), packet.last().copied()));
        }
    }
}
