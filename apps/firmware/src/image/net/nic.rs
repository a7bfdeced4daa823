//! The network card as smoltcp wants it: frames are read and written in the memory that the card reads and writes.

use super::hal::Machine;
use crate::Trouble;
use crate::console::say;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::EthernetAddress;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::SomeTransport;

/// Entries of each ring, and buffers in each direction.
const RING: usize = 64;
/// A frame of Ethernet with the header of virtio in front, and what the driver asks for at least.
const BUFFER: usize = 2_048;
/// The longest frame: 1500 bytes behind an Ethernet header.
const FRAME: usize = 1_514;

type Buffer = Box<[u8; BUFFER]>;
/// What the card has, each buffer under the token by which it is known.
type Lent<T> = [Option<T>; RING];

/// A card.
pub(crate) struct Nic {
    port: Port,
    /// The frame that came last, which the stack is looking at.
    current: Option<Buffer>,
}

/// The card's rings, and the buffers that are in them or are not.
struct Port {
    rings: VirtIONetRaw<Machine, SomeTransport<'static>, RING>,
    receiving: Lent<Buffer>,
    /// Buffers that go, and how much of each.
    sending: Lent<(Buffer, usize)>,
    /// Buffers for frames that go.
    free: Vec<Buffer>,
    counts: Counts,
}

/// What the card has done.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Frames that there was no room for, or that the card returned in no order.
    pub(crate) lost: u64,
}

fn buffer() -> Buffer {
    Box::new([0; BUFFER])
}

fn take<T>(lent: &mut Lent<T>, token: u16) -> Option<T> {
    lent.get_mut(usize::from(token))?.take()
}

impl Nic {
    pub(super) fn new(transport: SomeTransport<'static>) -> Result<Self, Trouble> {
        let rings = VirtIONetRaw::new(transport).map_err(|error| {
            say!("network: {error}");
            "the network card does not start"
        })?;
        let mut port = Port {
            rings,
            receiving: [const { None }; RING],
            sending: [const { None }; RING],
            free: (0..RING).map(|_| buffer()).collect(),
            counts: Counts::default(),
        };
        port.rings.disable_interrupts();
        for _ in 0..RING {
            port.lend(buffer());
        }
        Ok(Self { port, current: None })
    }

    /// The card's address.
    pub(crate) fn address(&self) -> EthernetAddress {
        EthernetAddress(self.port.rings.mac_address())
    }

    /// What it has done.
    pub(crate) const fn counts(&self) -> Counts {
        self.port.counts
    }
}

impl Port {
    /// Gives the card a buffer to receive into. One that it does not take is one fewer from then on.
    fn lend(&mut self, mut buffer: Buffer) {
        // SAFETY: the buffer is on the heap and stays there: it is kept under the token until the card gives it back.
        match unsafe { self.rings.receive_begin(&mut *buffer) } {
            Ok(token) => keep(&mut self.receiving, token, buffer),
            Err(_) => self.counts.lost = self.counts.lost.saturating_add(1),
        }
    }

    /// The next buffer that the card has filled, and where in it the frame is.
    fn next(&mut self) -> Option<(Buffer, Range<usize>)> {
        let token = self.rings.poll_receive()?;
        let mut buffer = take(&mut self.receiving, token)?;
        // SAFETY: this is the buffer that was lent under the token.
        let received = unsafe { self.rings.receive_complete(token, &mut *buffer) };
        let (header, len) = received.unwrap_or_default();
        self.counts.received = self.counts.received.saturating_add(1);
        Some((buffer, header..header.saturating_add(len)))
    }

    /// Takes back the buffers that the card has sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.rings.poll_transmit() {
            let Some((buffer, len)) = take(&mut self.sending, token) else { return };
            let frame = buffer.get(..len).unwrap_or_default();
            // SAFETY: these are the bytes that were lent under the token.
            if unsafe { self.rings.transmit_complete(token, frame) }.is_err() {
                self.counts.lost = self.counts.lost.saturating_add(1);
            }
            self.free.push(buffer);
        }
    }

    /// Lets `write` fill a frame of this length, and gives it to the card.
    fn send<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let Some((mut buffer, header)) = self.outgoing(len) else {
            self.counts.lost = self.counts.lost.saturating_add(1);
            return write(&mut vec![0; len]);
        };
        let end = header.saturating_add(len);
        let written = write(buffer.get_mut(header..end).unwrap_or_default());
        let frame = buffer.get(..end).unwrap_or_default();
        // SAFETY: the buffer is on the heap and stays there: it is kept under the token until the card gives it back.
        match unsafe { self.rings.transmit_begin(frame) } {
            Ok(token) => {
                self.counts.sent = self.counts.sent.saturating_add(1);
                keep(&mut self.sending, token, (buffer, end));
            }
            Err(_) => {
                self.counts.lost = self.counts.lost.saturating_add(1);
                self.free.push(buffer);
            }
        }
        written
    }

    /// A buffer with the header of virtio, and the header's length; `None` if there is none, or the frame is too long.
    fn outgoing(&mut self, len: usize) -> Option<(Buffer, usize)> {
        if len > FRAME {
            return None;
        }
        let mut buffer = self.free.pop()?;
        match self.rings.fill_buffer_header(&mut *buffer) {
            Ok(header) => Some((buffer, header)),
            Err(_) => None,
        }
    }
}

fn keep<T>(lent: &mut Lent<T>, token: u16, buffer: T) {
    if let Some(place) = lent.get_mut(usize::from(token)) {
        *place = Some(buffer);
    }
}

impl Device for Nic {
    type RxToken<'a> = Incoming<'a>;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let Self { port, current } = self;
        port.reclaim();
        if let Some(seen) = current.take() {
            port.lend(seen);
        }
        let (buffer, place) = port.next()?;
        // A frame of no length is what remains of an error: nobody takes it.
        let frame = current.insert(buffer).get(place).unwrap_or_default();
        Some((Incoming(frame), Outgoing(port)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        self.port.reclaim();
        if self.port.free.is_empty() { None } else { Some(Outgoing(&mut self.port)) }
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = FRAME;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}

/// A frame that came.
pub(crate) struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Room for a frame.
pub(crate) struct Outgoing<'a>(&'a mut Port);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        self.0.send(len, write)
    }
}
