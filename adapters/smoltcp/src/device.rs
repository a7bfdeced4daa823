//! A smoltcp device with IPsec.

use crate::buffer_device::BufferDevice;
use crate::from_smoltcp;
use crate::path::{IpsecConfig, PacketPath, ReceivedFrame};
use crate::transmit::Transmitter;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
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
        let Self { transmitter, path, incoming, reassembled, .. } = self;
        let time = from_smoltcp(now);
        transmitter.flush(now);
        path.expire(time);
        if let Some(len) = path.next_icmp_error(reassembled) {
            return Some(ReceivedFrame { range: 0..len, is_reassembled: true });
        }
        for _ in 0..MAX_FRAMES_PER_CALL {
            let range = transmitter.device.receive_frame(now, incoming)?;
            if let Some(found) = path.receive(time, (incoming.as_mut(), range), reassembled) {
                return Some(found);
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
        Some((IpsecRxToken(frame.unwrap_or_default()), IpsecTxToken { transmitter, path, outgoing, now }))
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
        self.path.send((self.transmitter, self.outgoing), self.now, len, f)
    }
}
