//! The driver of the network card. Frames are received, decrypted, encrypted and sent in the DMA buffers
//! of the card.

use super::ring::Ring;
use super::virtio::Machine;
use crate::BootError;
use crate::console::println;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_smoltcp::{BufferDevice, DeviceFull};
use casemate_wire::invariant::OrBroken;
use core::ops::Range;
use smoltcp::phy::{DeviceCapabilities, Medium};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::EthernetAddress;
use virtio_drivers::PAGE_SIZE;
use virtio_drivers::transport::{DeviceStatus, SomeTransport, Transport};

/// Number of buffers for sending, beside those of the receive ring.
const BUFFERS: usize = 64;
/// Buffer size: the virtio header, 256 bytes of head room, an Ethernet frame, and 160 bytes of tail room.
const BUFFER: usize = 2_048;
/// Maximum frame length: an MTU of 1,500 and the Ethernet header.
const FRAME: usize = 1_514;

/// Queue numbers, virtio 1.2 section 5.1.2.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// Features: MAC address, link status, and virtio version 1. No other feature is accepted. In particular
/// not RING_EVENT_IDX: the card then uses the flags of its rings to request notifications.
const HAS_ADDRESS: u64 = 1 << 5;
const HAS_STATUS: u64 = 1 << 16;
const VERSION_1: u64 = 1 << 32;
/// Offset of the link status in the device configuration, and its bit (virtio 1.2 section 5.1.4).
const STATUS: usize = 6;
const LINK_UP: u16 = 1 << 0;
/// Lengths of the header in front of a frame (virtio 1.2 sections 5.1.6 and 5.1.6.1).
const VIRTIO_HEADER_LEN: usize = 12;
const LEGACY_HEADER_LEN: usize = 10;

/// Time that the card may keep frames before this is counted as a stall.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A frame buffer.
pub(crate) struct Buffer(Box<[u8; BUFFER]>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &*self.0
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut *self.0
    }
}

fn buffer() -> Buffer {
    Buffer(Box::new([0; BUFFER]))
}

/// A network card.
pub(crate) struct Nic {
    transport: SomeTransport<'static>,
    address: [u8; 6],
    /// Length of the virtio header in front of each frame.
    header: usize,
    /// The card reports the link status.
    has_status: bool,
    receiving: Ring<Machine>,
    sending: Ring<Machine>,
    /// Free buffers for sending.
    free: Vec<Buffer>,
    /// Frames were queued since the last notification of the card.
    needs_notification: bool,
    /// Time when the card last took a frame or had none to take.
    moved: Instant,
    counts: Counts,
}

/// Counters of the card.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Number of frames for which the card had no room.
    pub(crate) refused: u64,
    /// Number of times that the card took no frame for a second.
    pub(crate) stopped: u64,
}

impl Counts {
    /// Returns the number of frames in both directions.
    pub(crate) const fn frames(self) -> u64 {
        self.received.wrapping_add(self.sent)
    }
}

impl Nic {
    pub(super) fn new(mut transport: SomeTransport<'static>) -> Result<Self, BootError> {
        let features = negotiate(&mut transport)?;
        let header = if features & VERSION_1 == 0 { LEGACY_HEADER_LEN } else { VIRTIO_HEADER_LEN };
        let init_error = |error| {
            println!("network: {error}");
            "the network card cannot be initialised"
        };
        let address = transport.read_consistent(|| transport.read_config_space(0)).map_err(init_error)?;
        let mut nic = Self {
            address,
            header,
            has_status: features & HAS_STATUS != 0,
            receiving: Ring::new(&mut transport, RECEIVE).map_err(init_error)?,
            sending: Ring::new(&mut transport, TRANSMIT).map_err(init_error)?,
            transport,
            free: (0..BUFFERS).map(|_| buffer()).collect(),
            needs_notification: false,
            moved: Instant::ZERO,
            counts: Counts::default(),
        };
        nic.transport.finish_init();
        while nic.receiving.add_receive_buffer(buffer()).is_ok() {}
        nic.receiving.notify(&mut nic.transport);
        Ok(nic)
    }

    /// Returns the MAC address of the card.
    pub(crate) fn address(&self) -> EthernetAddress {
        EthernetAddress(self.address)
    }

    /// Returns the counters of the card.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns whether the link is up, as far as the card reports it. Frames sent without a link are lost
    /// and retransmitted by their senders.
    pub(crate) fn is_link_up(&self) -> bool {
        let status = || self.transport.read_config_space::<u16>(STATUS);
        !self.has_status || status().is_ok_and(|status| status & LINK_UP != 0)
    }

    /// Takes back the buffers of sent frames.
    fn reclaim(&mut self, now: Instant) {
        while let Some(buffer) = self.sending.take_sent() {
            self.free.push(buffer);
            self.counts.sent = self.counts.sent.saturating_add(1);
            self.moved = now;
        }
        if self.sending.is_empty() {
            self.moved = now;
        } else if now - self.moved >= TIMEOUT {
            // The card may only have missed a notification.
            self.moved = now;
            self.counts.stopped = self.counts.stopped.saturating_add(1);
            self.sending.notify(&mut self.transport);
        }
    }
}

/// Negotiates features with the card (virtio 1.2 section 3.1.1) and returns them.
fn negotiate(transport: &mut SomeTransport<'static>) -> Result<u64, BootError> {
    let initial_status = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    transport.set_status(initial_status);
    let features = transport.read_device_features() & (HAS_ADDRESS | HAS_STATUS | VERSION_1);
    transport.write_driver_features(features);
    transport.set_status(initial_status | DeviceStatus::FEATURES_OK);
    transport.set_guest_page_size(PAGE_SIZE as u32);
    if features & HAS_ADDRESS == 0 { Err("the network card has no MAC address") } else { Ok(features) }
}

impl BufferDevice for Nic {
    type Buffer = Buffer;

    const HEADER_LEN: usize = VIRTIO_HEADER_LEN;

    fn device_capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = FRAME;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }

    fn allocate_buffer(&mut self) -> Buffer {
        buffer()
    }

    /// Notifies the card of queued frames first: the caller asks for frames after it has sent its own, so
    /// one notification covers all of them.
    fn receive_frame(&mut self, now: Instant, buffer: &mut Buffer) -> Option<Range<usize>> {
        self.reclaim(now);
        if core::mem::take(&mut self.needs_notification) {
            self.sending.notify(&mut self.transport);
        }
        let len = self.receiving.exchange_received(buffer)?;
        self.receiving.notify(&mut self.transport);
        self.counts.received = self.counts.received.saturating_add(1);
        // A frame that is shorter than the header becomes an empty frame.
        Some(self.header..len.max(self.header))
    }

    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Buffer,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull> {
        self.reclaim(now);
        let (Some(empty), Some(at)) = (self.free.pop(), frame.start.checked_sub(self.header)) else {
            self.counts.refused = self.counts.refused.saturating_add(1);
            return Err(DeviceFull);
        };
        // The virtio header: no checksum offload, no segmentation offload.
        buffer.as_mut().get_mut(at..frame.start).or_broken_default("a frame is inside its buffer").fill(0);
        let full = core::mem::replace(buffer, empty);
        match self.sending.add_send_buffer(full, at..frame.end) {
            Ok(()) => {
                self.needs_notification = true;
                Ok(())
            }
            Err(full) => {
                self.free.push(core::mem::replace(buffer, full));
                self.counts.refused = self.counts.refused.saturating_add(1);
                Err(DeviceFull)
            }
        }
    }
}
