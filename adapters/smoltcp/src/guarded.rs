//! The device.

use crate::road::{Road, Setup};
use crate::time::from_smoltcp;
use alloc::boxed::Box;
use alloc::vec;
use casemate::Endpoint;
use core::ops::Range;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

/// Frames that one call may take from the device before one is for the stack.
const BURST: usize = 64;

/// A device whose packets are protected and checked as its [`Endpoint`]'s policies say.
pub struct Guarded<D> {
    device: D,
    road: Road,
    /// A frame on its way up.
    incoming: Box<[u8]>,
}

impl<D: Device> Guarded<D> {
    /// Puts a guard in front of a device, of Ethernet frames or of IP packets.
    pub fn new(device: D, setup: Setup) -> Self {
        let capabilities = device.capabilities();
        let road = Road::new(setup, &capabilities);
        let longest = road.longest_frame().max(capabilities.max_transmission_unit);
        Self { device, road, incoming: vec![0; longest].into() }
    }

    /// Data path and IKE.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.road.endpoint
    }

    /// Data path and IKE, to add SAs and policies.
    pub const fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.road.endpoint
    }

    /// The device below.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    pub(crate) const fn road_mut(&mut self) -> &mut Road {
        &mut self.road
    }

    /// The next frame for the stack.
    fn next(&mut self, now: Instant) -> Option<Range<usize>> {
        let Self { device, road, incoming } = self;
        let time = from_smoltcp(now);
        road.flush(device, now);
        road.expire(time);
        if let Some(len) = road.next_reply(incoming) {
            return Some(0..len);
        }
        for _ in 0..BURST {
            let (token, _) = device.receive(now)?;
            let len = token.consume(|frame| {
                let room = incoming.get_mut(..frame.len())?;
                room.copy_from_slice(frame);
                Some(frame.len())
            });
            // A frame longer than the device said it would be is none of ours.
            let Some(len) = len else { continue };
            if let Some(found) = road.receive(time, incoming, len) {
                return Some(found);
            }
        }
        None
    }
}

impl<D: Device> Device for Guarded<D> {
    type RxToken<'a>
        = Incoming<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a, D>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let found = self.next(now)?;
        let Self { device, road, incoming } = self;
        Some((Incoming(incoming.get(found).unwrap_or_default()), Outgoing { device, road, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        let Self { device, road, .. } = self;
        // What waits goes first, and as long as it waits there is no room for more.
        road.flush(device, now).then_some(Outgoing { device, road, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.device.capabilities();
        capabilities.max_transmission_unit = self.road.longest_frame();
        // A device cannot sum what it sees only in protected form.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// A frame for the stack: opened, if it was protected.
pub struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }

    fn meta(&self) -> PacketMeta {
        PacketMeta::default()
    }
}

/// Room for a frame of the stack, which is protected before it goes.
pub struct Outgoing<'a, D> {
    device: &'a mut D,
    road: &'a mut Road,
    now: Instant,
}

impl<D: Device> TxToken for Outgoing<'_, D> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.road.send(self.device, self.now, len, f)
    }
}
