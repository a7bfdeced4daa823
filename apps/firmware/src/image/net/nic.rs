//! The network card: frames are read, opened, sealed and written in the memory that the card reads and writes.

use super::hal::Machine;
use super::ring::Ring;
use crate::Trouble;
use crate::console::say;
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_smoltcp::{Exchange, Full};
use core::ops::Range;
use smoltcp::phy::{DeviceCapabilities, Medium};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::EthernetAddress;
use virtio_drivers::PAGE_SIZE;
use virtio_drivers::transport::{DeviceStatus, SomeTransport, Transport};

/// Buffers for frames that go, beside those of the ring that receives.
const BUFFERS: usize = 64;
/// A frame of Ethernet, 256 bytes of room for what protects it and 160 behind it, and the header of virtio.
const BUFFER: usize = 2_048;
/// The longest frame: 1500 bytes behind an Ethernet header.
const FRAME: usize = 1_514;

/// Queues, virtio 1.2 section 5.1.2.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
/// Features: the card has an address; it says whether there is a cable; it obeys version 1. Of all others none is wanted, above all no RING_EVENT_IDX: by the
/// flags of its rings, the card says for itself when it wants to be woken.
const HAS_ADDRESS: u64 = 1 << 5;
const HAS_STATUS: u64 = 1 << 16;
const VERSION_1: u64 = 1 << 32;
/// Where that stands in the configuration of the card, and its bit (virtio 1.2 section 5.1.4).
const STATUS: usize = 6;
const LINK_UP: u16 = 1 << 0;
/// Length of the header in front of a frame (virtio 1.2 sections 5.1.6 and 5.1.6.1).
const HEADER: usize = 12;
const OLD_HEADER: usize = 10;

/// How long the card may keep frames before that is told.
const PATIENCE: Duration = Duration::from_secs(1);

/// Room for a frame.
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

/// A card.
pub(crate) struct Nic {
    transport: SomeTransport<'static>,
    address: [u8; 6],
    /// Length of the header in front of each frame.
    header: usize,
    /// Whether it says if there is a cable.
    has_status: bool,
    receiving: Ring<Machine>,
    sending: Ring<Machine>,
    /// Buffers for frames that go.
    free: Vec<Buffer>,
    /// Whether the card has not been told of the frames that were sent last.
    untold: bool,
    /// When the card took a frame last, or had none to take.
    moved: Instant,
    counts: Counts,
}

/// What the card has done.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// How often there was no room for a frame, which had to wait.
    pub(crate) refused: u64,
    /// How often the card took nothing for a second.
    pub(crate) stopped: u64,
}

impl Counts {
    /// Frames in either direction.
    pub(crate) const fn moved(self) -> u64 {
        self.received.wrapping_add(self.sent)
    }
}

impl Nic {
    pub(super) fn new(mut transport: SomeTransport<'static>) -> Result<Self, Trouble> {
        let features = negotiate(&mut transport)?;
        let header = if features & VERSION_1 == 0 { OLD_HEADER } else { HEADER };
        let told = |error| {
            say!("network: {error}");
            "the network card does not start"
        };
        let address = transport.read_consistent(|| transport.read_config_space(0)).map_err(told)?;
        let mut nic = Self {
            address,
            header,
            has_status: features & HAS_STATUS != 0,
            receiving: Ring::new(&mut transport, RECEIVE).map_err(told)?,
            sending: Ring::new(&mut transport, TRANSMIT).map_err(told)?,
            transport,
            free: (0..BUFFERS).map(|_| buffer()).collect(),
            untold: false,
            moved: Instant::ZERO,
            counts: Counts::default(),
        };
        nic.transport.finish_init();
        while nic.receiving.lend_to_fill(buffer()).is_ok() {}
        nic.receiving.wake(&mut nic.transport);
        Ok(nic)
    }

    /// The card's address.
    pub(crate) fn address(&self) -> EthernetAddress {
        EthernetAddress(self.address)
    }

    /// What it has done.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether there is a cable, as far as the card says. What is sent without one is lost, and whoever sent it sends it again.
    pub(crate) fn has_cable(&self) -> bool {
        let status = || self.transport.read_config_space::<u16>(STATUS);
        !self.has_status || status().is_ok_and(|status| status & LINK_UP != 0)
    }

    /// Takes back the buffers of frames that were sent.
    fn reclaim(&mut self, now: Instant) {
        while let Some(buffer) = self.sending.take_sent() {
            self.free.push(buffer);
            self.counts.sent = self.counts.sent.saturating_add(1);
            self.moved = now;
        }
        if self.sending.is_empty() {
            self.moved = now;
        } else if now - self.moved >= PATIENCE {
            // Perhaps it only sleeps.
            self.moved = now;
            self.counts.stopped = self.counts.stopped.saturating_add(1);
            self.sending.wake(&mut self.transport);
        }
    }
}

/// Takes what both sides know (virtio 1.2 section 3.1.1); what that is.
fn negotiate(transport: &mut SomeTransport<'static>) -> Result<u64, Trouble> {
    let begun = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    transport.set_status(begun);
    let features = transport.read_device_features() & (HAS_ADDRESS | HAS_STATUS | VERSION_1);
    transport.write_driver_features(features);
    transport.set_status(begun | DeviceStatus::FEATURES_OK);
    transport.set_guest_page_size(PAGE_SIZE as u32);
    if features & HAS_ADDRESS == 0 { Err("the network card has no address") } else { Ok(features) }
}

impl Exchange for Nic {
    type Buffer = Buffer;

    const HEADER: usize = HEADER;

    fn device_capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = FRAME;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }

    fn buffer(&mut self) -> Buffer {
        buffer()
    }

    /// Whoever asks for frames has sent his own: only now the card is told of them, of all at once.
    fn take_frame(&mut self, now: Instant, buffer: &mut Buffer) -> Option<Range<usize>> {
        self.reclaim(now);
        if core::mem::take(&mut self.untold) {
            self.sending.wake(&mut self.transport);
        }
        let len = self.receiving.exchange_filled(buffer)?;
        self.receiving.wake(&mut self.transport);
        self.counts.received = self.counts.received.saturating_add(1);
        // What is shorter than the header is an empty frame.
        Some(self.header..len.max(self.header))
    }

    fn send_frame(&mut self, now: Instant, buffer: &mut Buffer, frame: Range<usize>) -> Result<(), Full> {
        self.reclaim(now);
        let (Some(empty), Some(at)) = (self.free.pop(), frame.start.checked_sub(self.header)) else {
            self.counts.refused = self.counts.refused.saturating_add(1);
            return Err(Full);
        };
        // The header of virtio: no checksum is left to the card, and nothing to cut.
        buffer.as_mut().get_mut(at..frame.start).unwrap_or_default().fill(0);
        let full = core::mem::replace(buffer, empty);
        match self.sending.lend_to_send(full, at..frame.end) {
            Ok(()) => {
                self.untold = true;
                Ok(())
            }
            Err(full) => {
                self.free.push(core::mem::replace(buffer, full));
                self.counts.refused = self.counts.refused.saturating_add(1);
                Err(Full)
            }
        }
    }
}
