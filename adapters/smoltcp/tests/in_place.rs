//! With a device that exchanges buffers, no packet is copied and nothing is allocated: a packet is
//! written, protected and sent in one buffer, and received, decrypted and read in one buffer.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken expectation is meant to stop the test"
)]

use casemate::{Endpoint, bypass_control_plane};
use casemate_datapath::{Datapath, HEAD_ROOM, TAIL_ROOM};
use casemate_ike::IkeSettings;
use casemate_sa::{Limits, Mode};
use casemate_smoltcp::{BufferDevice, DeviceFull, IpsecConfig, IpsecDevice};
use casemate_test_support::TestRng;
use casemate_test_support::allocator::{Counted, TestAllocator, count_allocations};
use casemate_test_support::hosts::{Ends, LinkSpec, packets, suites};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::ops::Range;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator::new();

const MTU: usize = 1_500;
/// Header that the card writes in front of each frame.
const HEADER: usize = 12;

/// A network card with a ring of one buffer per direction.
struct Card {
    /// The received frame, until the driver takes it.
    full: Option<(Box<[u8]>, usize)>,
    /// The sent frame, until the test takes it.
    sent: Option<(Box<[u8]>, Range<usize>)>,
    empty: Vec<Box<[u8]>>,
}

fn room() -> Box<[u8]> {
    vec![0; HEADER + HEAD_ROOM + MTU + TAIL_ROOM].into()
}

impl BufferDevice for Card {
    type Buffer = Box<[u8]>;
    const HEADER_LEN: usize = HEADER;

    fn device_capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }

    fn allocate_buffer(&mut self) -> Box<[u8]> {
        room()
    }

    fn receive_frame(&mut self, _: Instant, buffer: &mut Box<[u8]>) -> Option<Range<usize>> {
        let (full, len) = self.full.take()?;
        self.empty.push(std::mem::replace(buffer, full));
        Some(HEADER..HEADER + len)
    }

    fn send_frame(
        &mut self,
        _: Instant,
        buffer: &mut Box<[u8]>,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull> {
        if self.sent.is_some() {
            return Err(DeviceFull);
        }
        let empty = self.empty.pop().ok_or(DeviceFull)?;
        self.sent = Some((std::mem::replace(buffer, empty), frame));
        Ok(())
    }
}

/// What the receiver sees of a frame.
struct ReceivedFrame {
    memory: Range<*const u8>,
    last_byte: Option<u8>,
}

const LIMITS: Limits = Limits { policies: 32, ..Limits::DEVICE };

fn guarded(mut datapath: Datapath) -> IpsecDevice<Card> {
    bypass_control_plane(&mut datapath).unwrap();
    let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
    // Preallocated: exchanging buffers must not grow the list.
    let mut empty = Vec::with_capacity(16);
    empty.extend([room(), room(), room()]);
    let card = Card { full: None, sent: None, empty };
    IpsecDevice::new(card, IpsecConfig { endpoint, rng: Box::new(TestRng::new(1)), limits: LIMITS })
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
            let Counted { result: written, allocations } = count_allocations(|| {
                a.transmit(Instant::ZERO).unwrap().consume(packet.len(), |out| {
                    out.copy_from_slice(&packet);
                    out.as_ptr_range()
                })
            });
            assert_eq!(allocations, 0, "sending a packet allocates");
            let (full, range) = a.device_mut().sent.take().unwrap();
            let buffer = full.as_ptr_range();
            assert!(buffer.start <= written.start && written.end <= buffer.end, "the sent packet was copied");
            assert!(range.start >= HEADER && range.len() > packet.len());
            assert!(!full.windows(64).any(|part| part == [0x5A; 64]), "the buffer contains clear text");

            let mut arrived = room();
            arrived[HEADER..HEADER + range.len()].copy_from_slice(&full[range.clone()]);
            let memory = arrived.as_ptr_range();
            b.device_mut().full = Some((arrived, range.len()));
            a.device_mut().empty.push(full);
            let received = count_allocations(|| {
                let (token, _) = b.receive(Instant::ZERO).unwrap();
                token.consume(|frame| ReceivedFrame {
                    memory: frame.as_ptr_range(),
                    last_byte: frame.last().copied(),
                })
            });
            assert_eq!(received.allocations, 0, "receiving a packet allocates");
            let frame = received.result;
            assert!(
                memory.start <= frame.memory.start && frame.memory.end <= memory.end,
                "the received packet was copied"
            );
            assert_eq!(frame.memory.end as usize - frame.memory.start as usize, packet.len());
            assert_eq!(frame.last_byte, packet.last().copied());
        }
    }
}
