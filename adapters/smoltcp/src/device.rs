//! A smoltcp device with IPsec, and the device below it: a network device that exchanges buffers.

use crate::from_smoltcp;
use crate::path::{IpsecConfig, PacketPath, ReceivedFrame};
use crate::transmit::Transmitter;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use casemate_datapath::{HEAD_ROOM, TAIL_ROOM};
use casemate_wire::invariant::OrBroken;
use core::ops::Range;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

/// Maximum number of frames taken from the device in one call that yields no frame for the stack.
const MAX_FRAMES_PER_CALL: usize = 64;

/// A device that protects sent packets and checks received packets according to the policies of its
/// [`Endpoint`].
pub struct IpsecDevice<D: BufferDevice> {
    transmitter: Transmitter<D>,
    path: PacketPath,
    /// Buffer of the last received frame.
    incoming: D::Buffer,
    /// Buffer of the next frame to send.
    outgoing: D::Buffer,
    /// A reassembled frame for the stack.
    reassembled: Box<[u8]>,
}

impl<D: BufferDevice> IpsecDevice<D> {
    /// Wraps a device for Ethernet frames or IP packets.
    pub fn new(mut device: D, setup: IpsecConfig) -> Self {
        let capabilities = device.device_capabilities();
        let path = PacketPath::new(setup, &capabilities);
        let longest = path.longest_frame().max(capabilities.max_transmission_unit);
        let (incoming, outgoing) = (device.allocate_buffer(), device.allocate_buffer());
        let transmitter = Transmitter::new(device, path.transmit_queue());
        Self { transmitter, path, incoming, outgoing, reassembled: vec![0; longest].into() }
    }

    /// Returns the endpoint: data path and IKE.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.path.endpoint
    }

    /// Returns the endpoint, to add SAs and policies. To replace it, use
    /// [`replace_endpoint`](Self::replace_endpoint).
    pub const fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.path.endpoint
    }

    /// Replaces the endpoint with all its SAs, policies and IKE SAs. Configures the data path of the new
    /// endpoint for this device, as [`new`](Self::new) does.
    pub fn replace_endpoint(&mut self, endpoint: Endpoint) {
        let capabilities = self.transmitter.device.device_capabilities();
        self.path.set_endpoint(endpoint, &capabilities);
    }

    /// Returns the wrapped device.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.transmitter.device
    }

    pub(crate) const fn path_mut(&mut self) -> &mut PacketPath {
        &mut self.path
    }

    /// Returns the next frame for the stack.
    fn next(&mut self, now: Instant) -> Option<ReceivedFrame> {
        let Self { transmitter, path, incoming, outgoing, reassembled } = self;
        let time = from_smoltcp(now);
        transmitter.flush(now);
        path.expire(time);
        // Feedback for which the device had no room before.
        path.send_rohc_feedback(transmitter, outgoing, now);
        if let Some(len) = path.next_icmp_error(reassembled) {
            return Some(ReceivedFrame { range: 0..len, is_reassembled: true });
        }
        for _ in 0..MAX_FRAMES_PER_CALL {
            let range = transmitter.device.receive_frame(now, incoming)?;
            let found = path.receive(time, incoming.as_mut(), range, reassembled);
            path.send_rohc_feedback(transmitter, outgoing, now);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl<D: BufferDevice> Device for IpsecDevice<D> {
    type RxToken<'a>
        = IpsecRxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = IpsecTxToken<'a, D>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let ReceivedFrame { range, is_reassembled } = self.next(now)?;
        let Self { transmitter, path, incoming, outgoing, reassembled } = self;
        let frame =
            if is_reassembled { reassembled.get(range) } else { D::Buffer::as_ref(incoming).get(range) };
        let frame = frame.or_broken_default("a received frame is inside its buffer");
        Some((IpsecRxToken(frame), IpsecTxToken { transmitter, path, outgoing, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        let Self { transmitter, path, outgoing, .. } = self;
        // Waiting frames go first. While frames wait, the stack may not send.
        transmitter.flush(now).then_some(IpsecTxToken { transmitter, path, outgoing, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.transmitter.device.device_capabilities();
        capabilities.max_transmission_unit = self.path.longest_frame();
        // The device cannot offload checksums of packets that are encrypted.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// A received frame for the stack, decrypted if it was protected.
pub struct IpsecRxToken<'a>(&'a [u8]);

impl RxToken for IpsecRxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }

    fn meta(&self) -> PacketMeta {
        PacketMeta::default()
    }
}

/// Permission to send one frame, which is protected first.
pub struct IpsecTxToken<'a, D: BufferDevice> {
    transmitter: &'a mut Transmitter<D>,
    path: &'a mut PacketPath,
    outgoing: &'a mut D::Buffer,
    now: Instant,
}

impl<D: BufferDevice> TxToken for IpsecTxToken<'_, D> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.path.send(self.transmitter, self.outgoing, self.now, len, f)
    }
}

/// A network device that exchanges buffers: a full buffer for an empty one, and vice versa.
///
/// Packets are protected and unprotected in these buffers. A driver that uses the buffers of its DMA
/// rings implements this trait, and no packet is copied. Each smoltcp [`Device`] implements it too, with
/// one copy per received and per sent frame: smoltcp shows a received frame only during a call, and must
/// know the length of a frame before it is protected.
pub trait BufferDevice {
    /// A packet buffer. All buffers of a device have the same length, at least `HEADER_LEN + HEAD_ROOM +
    /// max_transmission_unit + TAIL_ROOM`. A packet that does not fit is protected in another buffer and
    /// copied.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;

    /// Number of bytes that the device writes in front of each sent frame, in the same buffer.
    const HEADER_LEN: usize;

    /// Returns the same as [`Device::capabilities`].
    fn device_capabilities(&self) -> DeviceCapabilities;

    /// Allocates an empty buffer for the caller. Used at the start only.
    fn allocate_buffer(&mut self) -> Self::Buffer;

    /// Exchanges an empty buffer for the buffer of the next received frame, and returns the position of
    /// the frame in it. The range may be empty; the caller ignores such a frame.
    fn receive_frame(&mut self, now: Instant, buffer: &mut Self::Buffer) -> Option<Range<usize>>;

    /// Exchanges the buffer of a frame for an empty one and sends the frame. The frame begins at
    /// [`HEADER_LEN`](Self::HEADER_LEN) or later.
    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Self::Buffer,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull>;
}

/// The device has no room for the frame now; the buffer was not exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFull;

impl<D: Device> BufferDevice for D {
    type Buffer = Box<[u8]>;

    const HEADER_LEN: usize = 0;

    fn device_capabilities(&self) -> DeviceCapabilities {
        Device::capabilities(self)
    }

    fn allocate_buffer(&mut self) -> Box<[u8]> {
        let rooms = const { HEAD_ROOM.saturating_add(TAIL_ROOM) };
        vec![0; Device::capabilities(self).max_transmission_unit.saturating_add(rooms)].into()
    }

    fn receive_frame(&mut self, now: Instant, buffer: &mut Box<[u8]>) -> Option<Range<usize>> {
        let (token, _) = Device::receive(self, now)?;
        // Ignore a frame that is longer than the device's MTU.
        let copy = |frame: &[u8]| {
            buffer.get_mut(..frame.len()).map_or(0..0, |room| {
                room.copy_from_slice(frame);
                0..frame.len()
            })
        };
        Some(token.consume(copy))
    }

    fn send_frame(
        &mut self,
        now: Instant,
        buffer: &mut Box<[u8]>,
        frame: Range<usize>,
    ) -> Result<(), DeviceFull> {
        let token = Device::transmit(self, now).ok_or(DeviceFull)?;
        let frame = buffer.get(frame).or_broken_default("a sent frame is inside its buffer");
        token.consume(frame.len(), |out| out.copy_from_slice(frame));
        Ok(())
    }
}
